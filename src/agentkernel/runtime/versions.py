"""What is installed here, so that a result can be traced to it?"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from agentkernel.domain.certificate import Versions
from agentkernel.version import __version__


def installed_versions() -> Versions:
    """Versions of this package, Python, torch, triton, CUDA and the driver (None where absent)."""
    return Versions(
        agentkernel=__version__,
        python=platform.python_version(),
        torch=_version("torch"),
        triton=_version("triton"),
        platform=platform.platform(),
        cuda=_torch_cuda(),
        driver=_driver(),
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _torch_cuda() -> str | None:
    try:
        import torch.version
    except ImportError:
        return None
    return torch.version.cuda


def _driver() -> str | None:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        found = pynvml.nvmlSystemGetDriverVersion()
        return found.decode() if isinstance(found, bytes) else str(found)
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
