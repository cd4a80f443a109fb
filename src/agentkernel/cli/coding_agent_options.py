"""Flags of `agentkernel mcp` and `skill`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True)
class McpFlags:
    """Serve coding agents over MCP: on stdin and stdout, or on a loopback port."""

    port: Annotated[
        int | None,
        typer.Argument(metavar="PORT", min=0, max=65535, help="With --http: 8790; 0: any free."),
    ] = None
    http: Annotated[
        bool,
        typer.Option(
            "--http", help="Streamable HTTP on 127.0.0.1, with a token: AGENTKERNEL_MCP_TOKEN's."
        ),
    ] = False
    workspace: Annotated[
        Path, typer.Option("--workspace", metavar="DIR", help="The one folder that is worked in.")
    ] = Path()


@dataclass(frozen=True)
class SkillFlags:
    """Write a skill folder that teaches a coding agent without MCP this command line."""

    install: Annotated[Path, typer.Option("--install", metavar="DIR", help="The folder of skills.")]
    force: Annotated[bool, typer.Option("--force", help="Replace files that were changed.")] = False
