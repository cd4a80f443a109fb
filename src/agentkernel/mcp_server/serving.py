"""The MCP server on a client's pipes, or on a loopback port behind a token."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import ValidationError

from agentkernel.domain.errors import expected_of, one_line
from agentkernel.mcp_server.handshake import INSTRUCTIONS, NAME
from agentkernel.mcp_server.jobs import TOKEN_VARIABLE
from agentkernel.mcp_server.resources import Resources
from agentkernel.mcp_server.tools import Tools
from agentkernel.mcp_server.workspace import Workspace
from agentkernel.runtime.loopback import (
    LOOPBACK,
    TOKEN_BYTES,
    BearerToken,
    http_server,
    listening,
    own_names,
    token_of,
)
from agentkernel.version import __version__

if TYPE_CHECKING:
    from mcp.types import CallToolResult, InputRequiredResult, Tool
    from starlette.types import ASGIApp

PATH = "/mcp"
SHOWN = 60
"""Characters of an argument's name or value that is wrong."""


class StrictServer(MCPServer):
    """A server whose tools refuse arguments that they do not know: one that is passed over may
    have named what was asked for."""

    async def list_tools(self) -> list[Tool]:
        """All tools, with schemas that admit their own arguments alone."""
        tools = await super().list_tools()
        for tool in tools:
            tool.input_schema = {**tool.input_schema, "additionalProperties": False}
        return tools

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """The tool's answer. Raises ToolError that names an argument which it does not know."""
        tools = {tool.name: tool.input_schema["properties"] for tool in await self.list_tools()}
        known = tools.get(name, arguments)
        for word in arguments:
            if word not in known:
                takes = ", ".join(known)
                raise ToolError(
                    f"{name} takes no argument {word[:SHOWN]!r}. It takes: {takes}. "
                    "Next: call it again with these alone."
                )
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(_wrong_values(name, error.__cause__)) from error
            raise


def _wrong_values(tool: str, error: ValidationError) -> str:
    """What pydantic says of each argument, on one line."""
    wrong = [
        f"{'.'.join(map(str, item['loc']))}, which it needs"
        if item["type"] == "missing"
        else f"{'.'.join(map(str, item['loc']))} = {str(item['input'])[:SHOWN]!r}: "
        f"{expected_of(item['msg'])}"
        for item in error.errors()
    ]
    refused = any(item["type"] != "missing" for item in error.errors())
    verb, step = ("does not take", "give another value") if refused else ("lacks", "give it")
    return one_line(f"{tool} {verb} {'; '.join(wrong)}. Next: {step}.", 400)


def make_server(workspace: Workspace) -> MCPServer:
    """The server over one workspace."""
    server = StrictServer(NAME, version=__version__, instructions=INSTRUCTIONS, log_level="ERROR")
    Tools(workspace).register(server)
    Resources(workspace).register(server)
    return server


def serve_stdio(workspace: Workspace) -> None:
    """Serve the client at the other end of `sys.stdin` and `sys.stdout` until it goes away."""
    anyio.run(make_server(workspace).run_stdio_async)


def serve_http(workspace: Workspace, port: int) -> None:
    """Serve streamable HTTP on a loopback port (0: any free one) until interrupted.

    The address is said on stderr, and the token once where none is given by the environment.
    Raises SettingError for a short token, EnvironmentFailure for a port in use.
    """
    server = make_server(workspace)
    given = token_of(TOKEN_VARIABLE)
    token = given or secrets.token_urlsafe(TOKEN_BYTES)
    with listening(LOOPBACK, port) as listener:
        port = listener.getsockname()[1]
        app = BearerToken(http_app(server, port), token)
        print(f"http://{LOOPBACK}:{port}{PATH}", file=sys.stderr)
        if not given:
            print(f"Authorization: Bearer {token}", file=sys.stderr)
        sys.stderr.flush()
        http_server(app).run(sockets=[listener])


def http_app(server: MCPServer, port: int) -> ASGIApp:
    """The endpoint, which answers requests for this machine's own names and origins alone."""
    security = own_names(LOOPBACK, port)
    return server.streamable_http_app(streamable_http_path=PATH, transport_security=security)
