"""Flags of `agentkernel serve`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from agentkernel.cli.options import Configured, TargetName


@dataclass(frozen=True)
class ServeFlags:
    """Serve the judge and the profiler over HTTP, for reinforcement learning elsewhere."""

    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Address to listen on.")] = (
        "127.0.0.1"
    )
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0 takes any free port.")
    ] = 8791
    state: Annotated[
        Path | None,
        typer.Option(
            "--state", metavar="DIR", help="Folder of the queue; serve/ of the user's data folder."
        ),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="The token, made where there is none; DIR/token. AGENTKERNEL_SERVE_TOKEN wins.",
        ),
    ] = None
    queue: Annotated[
        int, typer.Option("--queue", min=1, help="Submissions that may wait; more get 429.")
    ] = 1000
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, help="Submissions at a time; at most one a GPU."),
    ] = None
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray", metavar="ADDRESS", help="Judge on Ray: auto, local, ray://HOST:PORT."
        ),
    ] = None
    target: TargetName = None
    configured: Configured = Configured()
