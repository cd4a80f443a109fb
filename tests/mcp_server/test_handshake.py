"""The first answer: is it the SDK's, is it given before anything heavy is imported, and once?"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from agentkernel.mcp_server.handshake import (
    HANDSHAKE_VERSIONS,
    LONGEST,
    META,
    STATELESS_VERSION,
    first_answer,
)
from agentkernel.mcp_server.serving import make_server
from agentkernel.mcp_server.workspace import Workspace
from tests.mcp_server.test_stdio import INITIALIZE

DISCOVER = {
    "jsonrpc": "2.0",
    "id": "a",
    "method": "server/discover",
    "params": {
        "_meta": {
            f"{META}protocolVersion": STATELESS_VERSION,
            f"{META}clientInfo": {"name": "test", "version": "1"},
            f"{META}clientCapabilities": {},
        }
    },
}


def initialize(version: str) -> dict[str, object]:
    params = {**INITIALIZE["params"], "protocolVersion": version}  # type: ignore[dict-item]
    return {**INITIALIZE, "params": params}


def of_the_sdk(monkeypatch: pytest.MonkeyPatch, folder: Path, asked: dict[str, object]) -> object:
    said = io.BytesIO()
    given = io.BytesIO(json.dumps(asked).encode() + b"\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(said))
    anyio.run(make_server(Workspace(folder)).run_stdio_async)
    return json.loads(said.getvalue())


@pytest.mark.parametrize("asked", [*map(initialize, HANDSHAKE_VERSIONS), DISCOVER])
def test_the_answer_is_the_sdks(
    asked: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = first_answer(json.dumps(asked).encode())
    assert answer is not None
    assert answer == of_the_sdk(monkeypatch, tmp_path, asked)


def test_every_revision_of_the_sdk_is_answered() -> None:
    version = pytest.importorskip("mcp_types.version")
    assert HANDSHAKE_VERSIONS == version.HANDSHAKE_PROTOCOL_VERSIONS
    assert (STATELESS_VERSION,) == version.MODERN_PROTOCOL_VERSIONS


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"no JSON",
        b"[]",
        b"[" * 50_000,
        b'{"jsonrpc": "2.0", "id": 1, "method": "initialize"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": "2025-06-18"}',
        json.dumps(initialize("1999-01-01")).encode(),
        json.dumps({**INITIALIZE, "id": True}).encode(),
        json.dumps({**INITIALIZE, "jsonrpc": "1.0"}).encode(),
        json.dumps({**INITIALIZE, "method": "tools/list"}).encode(),
        json.dumps({**INITIALIZE, "params": {"protocolVersion": "2025-06-18"}}).encode(),
        json.dumps({**DISCOVER, "params": {"_meta": {}}}).encode(),
    ],
)
def test_the_sdk_answers_what_is_anything_else(line: bytes) -> None:
    assert first_answer(line) is None


def test_nothing_heavy_is_imported_before_the_first_answer() -> None:
    code = (
        "import sys\n"
        "from agentkernel.cli import coding_agents\n"
        "from agentkernel.cli.app import run\n"
        "def instead(name):\n"
        "    heavy = {'mcp', 'mcp_types', 'anyio', 'starlette', 'uvicorn', 'torch', 'triton',\n"
        "             'numpy', 'langgraph', 'langchain_core', 'chromadb', 'rich', 'asyncio'}\n"
        "    print(name, sorted(heavy & set(sys.modules)), file=sys.stderr, flush=True)\n"
        "    raise SystemExit\n"
        "coding_agents.import_module = instead\n"
        "run(['mcp'])\n"
    )
    line = json.dumps(INITIALIZE) + "\n"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, input=line, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["id"] == 1
    assert done.stderr == "agentkernel.mcp_server.serving []\n"


@pytest.mark.parametrize("before", ["", "x" * LONGEST + "\n"])
def test_a_request_is_answered_once(before: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "agentkernel", "mcp", "--workspace", str(tmp_path)]
    sent = (
        initialize("2025-06-18"),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}},
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
    )
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(before + "".join(json.dumps(item) + "\n" for item in sent))
        server.stdin.flush()
        found: list[object] = []
        while len(found) < 3:
            said = json.loads(server.stdout.readline())
            found += [said["id"]] if "id" in said and "method" not in said else []
        server.stdin.close()
        assert server.stdout.read() == ""
    assert found == [1, 2, 1]
