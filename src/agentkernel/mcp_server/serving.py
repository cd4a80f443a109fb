"""The MCP server on a client's pipes, or on a loopback port behind a token."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import sys
from typing import TYPE_CHECKING

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import Response

from agentkernel.domain.errors import EnvironmentFailure, SettingError
from agentkernel.mcp_server.handshake import INSTRUCTIONS, NAME
from agentkernel.mcp_server.jobs import TOKEN_VARIABLE
from agentkernel.mcp_server.resources import Resources
from agentkernel.mcp_server.tools import Tools
from agentkernel.mcp_server.workspace import Workspace
from agentkernel.version import __version__

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = "127.0.0.1"
PATH = "/mcp"
SHORTEST_TOKEN = 16


def make_server(workspace: Workspace) -> MCPServer:
    """The server over one workspace."""
    server = MCPServer(NAME, version=__version__, instructions=INSTRUCTIONS, log_level="ERROR")
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
    given = os.environ.get(TOKEN_VARIABLE, "")
    if given and len(given) < SHORTEST_TOKEN:
        raise SettingError(
            f"{TOKEN_VARIABLE} is too short. Expected at least {SHORTEST_TOKEN} characters. "
            "Next: take a longer one, or unset it to have one made."
        )
    token = given or secrets.token_urlsafe(32)
    with _listening(port) as listener:
        port = listener.getsockname()[1]
        app = BearerToken(http_app(server, port), token)
        print(f"http://{LOOPBACK}:{port}{PATH}", file=sys.stderr)
        if not given:
            print(f"Authorization: Bearer {token}", file=sys.stderr)
        sys.stderr.flush()
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=2
        )
        uvicorn.Server(config).run(sockets=[listener])


def http_app(server: MCPServer, port: int) -> ASGIApp:
    """The endpoint, which answers requests for this machine's own names and origins alone."""
    hosts = [f"{LOOPBACK}:{port}", f"localhost:{port}"]
    security = TransportSecuritySettings(
        allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts]
    )
    return server.streamable_http_app(streamable_http_path=PATH, transport_security=security)


class BearerToken:
    """The application behind it answers requests that carry the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse with 401, without a word on what was given."""
        if scope["type"] == "http":
            given = Headers(scope=scope).get("authorization", "").encode("latin-1", "replace")
            if not hmac.compare_digest(given, self._expected):
                headers = {"WWW-Authenticate": "Bearer"}
                refused = Response("A token is needed.", status_code=401, headers=headers)
                await refused(scope, receive, send)
                return
        await self.app(scope, receive, send)


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((LOOPBACK, port))
    except (OSError, OverflowError) as error:
        raise EnvironmentFailure(
            f"Cannot listen on {LOOPBACK}:{port}: {error}. Next: name another port; 0 takes any."
        ) from error
