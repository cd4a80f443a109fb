from __future__ import annotations

import platform

import torch

from agentkernel import __version__
from agentkernel.runtime.machine import installed_versions


def test_versions_are_those_in_use() -> None:
    found = installed_versions()
    assert found.agentkernel == __version__
    assert found.python == platform.python_version()
    assert found.torch == torch.__version__
    assert found.cuda == torch.version.cuda
    assert found.triton != "missing"
