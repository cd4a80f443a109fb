import subprocess
import sys

import pytest

from agentkernel.runtime.machine import local_gpu


def test_hidden_gpus_are_not_there(monkeypatch):
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert local_gpu() is None


def test_asking_does_not_import_torch():
    code = "import sys; from agentkernel.runtime.machine import local_gpu; local_gpu();"
    code += "print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"


@pytest.mark.gpu
def test_the_local_gpu_is_what_torch_sees():
    import torch

    found = local_gpu()
    assert found is not None
    assert found.name == torch.cuda.get_device_name(0)
    assert found.capability == torch.cuda.get_device_capability(0)
