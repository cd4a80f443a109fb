"""What another machine has: Python, packages, GPU and disk, also without an agentkernel there."""

from __future__ import annotations

from importlib.resources import files

from pydantic import ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.remote.address import Address
from agentkernel.remote.ssh import python_command, run_ssh, worker_failure


class MachineFacts(Frozen):
    """Versions are "" where a package is not installed, `gpu` and `sandbox` where there is none."""

    python: str
    executable: str
    agentkernel: str
    torch: str
    triton: str
    gpu: str
    sandbox: str
    disk: str
    """The folder that the worker's files go to, or the one above it that is there."""
    free_gb: float


def inspect_machine(address: Address) -> MachineFacts:
    """Ask the machine. Raises RemoteUnavailable where it cannot be reached or has no Python."""
    script = files("agentkernel.remote").joinpath("probe.py").read_bytes()
    code, text = run_ssh(address, python_command(address, "-"), script)
    for line in text.splitlines():
        try:
            return MachineFacts.model_validate_json(line)
        except ValidationError:
            continue  # what a login shell prints
    raise worker_failure(address, code, text)
