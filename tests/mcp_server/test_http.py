"""Streamable HTTP on loopback: a token, this machine's Host and Origin, bounded bodies."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.mcp_server.clients import Agent
from tests.mcp_server.test_stdio import INITIALIZE

TOKEN = "a token of the environment"


class Server(NamedTuple):
    """Where a server listens, and what it said on stderr."""

    url: str
    token: str
    said: list[str]

    @property
    def port(self) -> int:
        return httpx2.URL(self.url).port or 0

    def asked(self, headers: dict[str, str], body: str = "", path: str = "/mcp") -> int:
        """The status of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", path, body or json.dumps(INITIALIZE), headers)
            return connection.getresponse().status
        finally:
            connection.close()


@contextmanager
def served(workspace: Path, token: str | None) -> Iterator[Server]:
    environment = dict(os.environ) | ({"AGENTKERNEL_MCP_TOKEN": token} if token else {})
    words = [sys.executable, "-m", "agentkernel", "mcp", "--http", "0"]
    with subprocess.Popen(
        [*words, "--workspace", str(workspace)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = [process.stderr.readline().strip()]
        if token is None:
            said.append(process.stderr.readline().strip())
        try:
            yield Server(said[0], token or said[1].removeprefix("Authorization: Bearer "), said)
        finally:
            process.terminate()
            rest = process.stderr.read()
            said += rest.splitlines()
            assert process.stdout.read() == ""
            assert (token or "Bearer") not in rest


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("workspace"), TOKEN) as found:
        yield found


HEADERS = {
    "Authorization": f"Bearer {TOKEN}",
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}


def test_a_request_with_the_token_is_answered(server: Server) -> None:
    assert server.asked(HEADERS) == 200
    assert server.asked(HEADERS | {"Origin": f"http://localhost:{server.port}"}) == 200


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": TOKEN}, 401),
        ({"Authorization": "Bearer \xff"}, 401),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1:1"}, 421),
        ({"Content-Type": "text/plain"}, 400),
    ],
)
def test_other_requests_are_refused(server: Server, changed: dict[str, str], status: int) -> None:
    assert server.asked(HEADERS | changed) == status
    assert server.asked(HEADERS) == 200


def test_a_huge_body_and_other_paths_are_refused(server: Server) -> None:
    assert server.asked(HEADERS, "x" * 5 * 2**20) == 413
    assert server.asked(HEADERS, path="/other") == 404
    assert server.asked({}, path="/other") == 401
    assert server.asked(HEADERS) == 200


def test_the_sdks_client_works_with_a_made_token(tmp_path: Path) -> None:
    async def work(server: Server) -> None:
        headers = {"Authorization": f"Bearer {server.token}"}
        async with (
            httpx2.AsyncClient(headers=headers) as web,
            Client(streamable_http_client(server.url, http_client=web)) as client,
        ):
            agent = Agent(client)
            assert "none yet" in (await agent.call("status")).text
            assert (await agent.call("plan", module="../x.py")).error

    with served(tmp_path, None) as server:
        assert len(server.token) > 30
        anyio.run(work, server)


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        (["--http", "70000"], {}, "65535"),
        (["8000"], {}, "--http"),
        (["--http", "--workspace", "/no/such/folder"], {}, "no folder"),
        (["--http"], {"AGENTKERNEL_MCP_TOKEN": "short"}, "too short"),
    ],
)
def test_mistakes_are_one_line(words: list[str], variables: dict[str, str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agentkernel", "mcp", *words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
