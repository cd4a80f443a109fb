"""HTTP servers of this machine: a port, a token, and whose requests are answered.

Imports starlette, uvicorn and the MCP SDK, which all come with the package `mcp`.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import socket
from typing import TYPE_CHECKING

import uvicorn
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from agentkernel.domain.errors import EnvironmentFailure, SettingError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = "127.0.0.1"
SHORTEST_TOKEN = 16
TOKEN_BYTES = 32
"""Of a token that is made."""
LEAVE_S = 2
"""So long may a request take that is under way when the server ends."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def authority(host: str, port: int) -> str:
    """Host and port as a URL has them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listening(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one. Raises EnvironmentFailure."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError, UnicodeError) as error:
        raise EnvironmentFailure(
            f"Cannot listen on {authority(host, port)}: {error}. "
            "Next: name another port; 0 takes any."
        ) from error


def checked_token(token: str, source: str) -> str:
    """The token that `source` gives, once it is long enough. Raises SettingError."""
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise SettingError(
            f"{source} is too short, or has other than ASCII characters. Expected at least "
            f"{SHORTEST_TOKEN} characters. Next: take a longer one, or none to have one made."
        )
    return token


def token_of(variable: str) -> str:
    """The token of the environment, "" where it has none. Raises SettingError."""
    given = os.environ.get(variable, "")
    return checked_token(given, variable) if given else ""


def own_names(host: str, port: int) -> TransportSecuritySettings:
    """Of the Hosts and Origins that may ask a server on loopback: its own. A browser's page under
    another name could reach it otherwise. What listens elsewhere does not know its names."""
    names = [authority(item, port) for item in dict.fromkeys((host, LOOPBACK, "localhost"))]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=is_loopback(host),
        allowed_hosts=names,
        allowed_origins=[f"http://{name}" for name in names],
    )


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


class OwnNames:
    """The application behind it answers requests for the names of `allowed`, and takes JSON."""

    def __init__(self, app: ASGIApp, allowed: TransportSecuritySettings) -> None:
        self.app = app
        self._security = TransportSecurityMiddleware(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse another Host with 421, another Origin with 403, another body than JSON with
        400."""
        if scope["type"] == "http":
            request = Request(scope)
            is_post = scope["method"] == "POST"
            refused = await self._security.validate_request(request, is_post=is_post)
            if refused is not None:
                await refused(scope, receive, send)
                return
        await self.app(scope, receive, send)


def http_server(app: ASGIApp) -> uvicorn.Server:
    """A server that writes no log: requests carry the token."""
    logging.getLogger("mcp.server.transport_security").setLevel(logging.ERROR)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=LEAVE_S
    )
    return uvicorn.Server(config)
