"""`agentkernel remote-worker`: the end of `--remote` on the other machine."""

from __future__ import annotations

from agentkernel.cli.remote_options import RemoteWorkerFlags
from agentkernel.remote.worker import serve


def remote_worker(flags: RemoteWorkerFlags) -> None:
    """`agentkernel remote-worker`."""
    serve(flags.session)
