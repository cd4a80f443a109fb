"""`agentkernel mcp` and `skill`: the doors for coding agents."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from agentkernel.cli.console import console
from agentkernel.cli.options import McpFlags, SkillFlags
from agentkernel.cli.terminal import collector_off
from agentkernel.domain.errors import SettingError
from agentkernel.mcp_server.skill import install_skill

DEFAULT_PORT = 8790


def mcp(flags: McpFlags) -> None:
    """`agentkernel mcp`."""
    if flags.port is not None and not flags.http:
        raise SettingError(f"PORT {flags.port} is for --http. Next: agentkernel mcp --http PORT.")
    if find_spec("mcp") is None:
        raise SettingError(
            "agentkernel mcp needs the package 'mcp', which is not installed. "
            "Next: pip install 'mcp>=2.3'."
        )
    with collector_off():
        serving = import_module("agentkernel.mcp_server.serving")
    if flags.http:
        serving.serve_http(flags.workspace, DEFAULT_PORT if flags.port is None else flags.port)
    else:
        serving.serve_stdio(flags.workspace)


def skill(flags: SkillFlags) -> None:
    """`agentkernel skill`."""
    for line in install_skill(flags.install, force=flags.force):
        console().print(line, markup=False)
