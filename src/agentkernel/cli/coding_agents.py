"""`agentkernel mcp` and `skill`: the doors for coding agents."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from agentkernel.cli.coding_agent_options import McpFlags, SkillFlags
from agentkernel.cli.terminal import collector_off, print_plain
from agentkernel.domain.errors import SettingError
from agentkernel.mcp_server.handshake import answered_pipes
from agentkernel.mcp_server.skill import install_skill
from agentkernel.mcp_server.workspace import Workspace

DEFAULT_PORT = 8790


def mcp(flags: McpFlags) -> None:
    """`agentkernel mcp`."""
    if flags.port is not None and not flags.http:
        raise SettingError(f"PORT {flags.port} is for --http. Next: agentkernel mcp --http PORT.")
    require_sdk("mcp")
    workspace = Workspace(flags.workspace)
    if flags.http:
        _serving().serve_http(workspace, DEFAULT_PORT if flags.port is None else flags.port)
        return
    with answered_pipes():
        _serving().serve_stdio(workspace)


def require_sdk(command: str) -> None:
    """Raises SettingError where the package is missing that serves MCP and HTTP."""
    if find_spec("mcp") is None:
        raise SettingError(
            f"agentkernel {command} needs the package 'mcp', which is not installed. "
            "Next: pip install 'mcp>=2.3'."
        )


def _serving() -> ModuleType:
    """The server on the SDK, whose import takes more than a second."""
    with collector_off():
        return import_module("agentkernel.mcp_server.serving")


def skill(flags: SkillFlags) -> None:
    """`agentkernel skill`."""
    for line in install_skill(flags.install, force=flags.force):
        print_plain(line)
