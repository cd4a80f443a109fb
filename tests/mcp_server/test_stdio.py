"""A client over stdio: what it is offered, and what a hostile one is told."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from mcp import MCPError

from agentkernel.mcp_server.tools import Rules, rule_flags, with_target
from tests.mcp_server.clients import Agent, with_agent

TOOLS = {
    "plan", "judge", "profile", "optimize", "search_knowledge", "show", "verify", "apply_check",
    "status", "result", "cancel",
}  # fmt: skip
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("the secret")
    inside = tmp_path / "inside"
    run = inside / "agentkernel-runs" / "one"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    (run / "report.md").write_text("# The report")
    (run / "certificate.json").symlink_to(tmp_path / "secret.txt")
    (inside / "broken.py").write_text("raise RuntimeError('no module here')\n")
    (inside / "link.py").symlink_to(tmp_path / "secret.txt")
    return inside


def test_the_server_on_pipes_imports_the_sdk_and_little_else() -> None:
    code = (
        "import agentkernel.mcp_server.serving, sys\n"
        "heavy = {'torch', 'triton', 'numpy', 'langgraph', 'rich', 'typer'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "print(*sorted(name for name in sys.modules if name.startswith('agentkernel')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    found, own = done.stdout.splitlines()
    assert found == "[]"
    assert len(own.split()) <= 18, own


def test_stdout_carries_the_protocol_alone(workspace: Path) -> None:
    words = [sys.executable, "-m", "agentkernel", "mcp", "--workspace", str(workspace)]
    call = {"name": "plan", "arguments": {"module": "broken.py"}}
    sent = [
        "no JSON at all",
        json.dumps(INITIALIZE),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}),
    ]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write("".join(f"{line}\n" for line in sent))
        server.stdin.flush()
        found: list[dict[str, object]] = []
        while not any(item.get("id") == 2 for item in found):
            found.append(json.loads(server.stdout.readline()))
        server.stdin.close()
        assert server.stdout.read() == ""
    assert all(item["jsonrpc"] == "2.0" for item in found)


def test_what_is_offered(workspace: Path) -> None:
    async def work(agent: Agent) -> None:
        tools = (await agent.client.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS
        assert all(tool.description for tool in tools)
        (result,) = (tool for tool in tools if tool.name == "result")
        assert "60 at most" in str(result.description)
        assert "60 at most" in str(result.input_schema["properties"]["wait_s"]["description"])
        assert "Four runs at most" in str(agent.client.instructions)
        report = await agent.client.read_resource("agentkernel://runs/one/report")
        assert getattr(report.contents[0], "text", "") == "# The report"
        note = await agent.client.read_resource("agentkernel://notes/hopper")
        assert "Hopper" in getattr(note.contents[0], "text", "")
        listed = await agent.call("status")
        assert "none yet" in listed.text

    with_agent(workspace, work)


def test_a_long_tool_answers_at_once_and_can_be_cancelled(workspace: Path) -> None:
    (workspace / "slow.py").write_text("import time\ntime.sleep(60)\n")

    async def work(agent: Agent) -> None:
        await agent.client.list_tools()  # as every client does first: the server is then loaded
        began = time.monotonic()
        answer = await agent.call("optimize", module="slow.py")
        assert time.monotonic() - began < 2.0
        assert answer.running
        told: list[str | None] = []

        async def progress(done: float, total: float | None, message: str | None) -> None:
            told.append(message)

        await agent.client.call_tool(
            "result", {"run_id": answer.run_id, "wait_s": 1}, progress_callback=progress
        )
        assert any("at work" in (line or "") for line in told)
        assert answer.run_id in (await agent.call("status")).text
        assert not (await agent.call("cancel", run_id=answer.run_id)).error
        with anyio.fail_after(30):
            while (said := await agent.call("status", run_id=answer.run_id)).running:
                await anyio.sleep(0.1)
        assert "cancelled" in said.text

    with_agent(workspace, work)


BAD = (
    ("plan", {"module": "../secret.txt"}, "outside of the workspace"),
    ("plan", {"module": "/etc/passwd"}, "outside of the workspace"),
    ("plan", {"module": "link.py"}, "outside of the workspace"),
    ("plan", {"module": "--help"}, "No file"),
    ("plan", {"module": "x" * 100_000}, "module"),
    ("plan", {}, "module"),
    ("judge", {"module": "broken.py"}, "either"),
    ("judge", {"module": "broken.py", "source": "x" * 3_000_000}, "source"),
    ("judge", {"module": "broken.py", "candidate": "../secret.txt"}, "outside"),
    ("judge", {"module": "broken.py", "source": "x", "call": {"shell": "id"}}, "shell"),
    ("judge", {"module": "broken.py", "source": "x", "rules": {"policy": "none"}}, "policy"),
    ("search_knowledge", {"module": "../secret.txt"}, "outside"),
    ("search_knowledge", {"words": "x", "limit": 10**9}, "limit"),
    ("search_knowledge", {"words": "x", "limit": 1000}, "search_knowledge does not take limit = "),
    ("optimize", {"module": "broken.py", "budget": "1m"}, "does not take budget = '1m': "),
    ("show", {"run": ".."}, "no name of a run"),
    ("show", {"run_id": "no-such-run"}, "no-such-run"),
    ("show", {"run": "last", "run_id": "no-such-run"}, "either"),
    ("verify", {"run": "a", "run_id": "b"}, "Give either `run` or `run_id`"),
    ("verify", {"run_id": "one"}, "outside"),
    ("apply_check", {"run_id": "-x", "module": "broken.py"}, "no name of a run"),
    ("status", {"run": "judge-1"}, "No run_id 'judge-1'"),
    ("result", {"run": "judge-1"}, "No run_id 'judge-1'"),
    ("cancel", {"run": "judge-1"}, "No run_id 'judge-1'"),
    (
        "optimize",
        {"module": "broken.py", "target": "a100", "rules": {"target": "h100"}},
        "`target` is 'a100' and that of `rules` 'h100'",
    ),
    ("show", {"name": "last"}, "show takes no argument 'name'. It takes: run, run_id."),
    ("status", {"name": "judge-1"}, "It takes: run_id, run."),
    ("search_knowledge", {}, "Give `words`, an `error`'s text or a `module`'s file."),
    ("search_knowledge", {"query": "softmax"}, "words, error, module, kind, limit"),
    ("verify", {"certificate": "../secret.txt"}, "outside"),
    ("verify", {"run": "one"}, "outside"),
    ("verify", {}, "either"),
    ("apply_check", {"run": "-x", "module": "broken.py"}, "no name of a run"),
    ("result", {"run_id": "../../etc"}, "No run_id"),
    ("result", {"run_id": "x", "wait_s": 10**9}, "wait_s"),
    ("cancel", {"run_id": "judge-1"}, "No run_id"),
    ("no_such_tool", {}, "no_such_tool"),
)


def test_a_target_is_taken_beside_the_rules_or_in_them() -> None:
    assert rule_flags(with_target(None, "a100")) == ["--target=a100"]
    rules = Rules(precision="tf32")
    assert rule_flags(with_target(rules, "a100")) == ["--target=a100", "--precision=tf32"]
    assert with_target(Rules(target="h100"), "h100") == Rules(target="h100")
    assert with_target(rules, "") is rules


def test_a_hostile_client_gets_errors_and_the_server_lives(workspace: Path) -> None:
    async def work(agent: Agent) -> None:
        for tool, arguments, said in BAD:
            answer = await agent.call(tool, **arguments)
            assert answer.error, (tool, arguments)
            assert said in answer.text, (tool, answer.text)
            assert "\n" not in answer.text
            assert "pydantic" not in answer.text
            assert "the secret" not in answer.text
        for uri in ("runs/one/certificate", "runs/..%2F..%2F/report", "notes/..%2Fhopper", "x"):
            with pytest.raises(MCPError):
                await agent.client.read_resource(f"agentkernel://{uri}")
        for _ in range(1000):
            assert (await agent.call("status", run_id="none-1")).error
        assert not (await agent.call("status")).error
        assert not (workspace / ".agentkernel-jobs").exists()

    with_agent(workspace, work)


def test_a_mistake_in_the_module_is_one_line(workspace: Path) -> None:
    async def work(agent: Agent) -> None:
        answer = await agent.finished("plan", module="broken.py")
        assert answer.error
        assert re.search(r"broken\.py.*no module here", answer.text)
        assert "\n" not in answer.text

    with_agent(workspace, work)


def test_without_the_package_one_line_names_it(tmp_path: Path) -> None:
    code = (
        "import importlib.util as u, sys; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'mcp' else find(name, *rest)\n"
        "from agentkernel.cli.app import run; sys.exit(run(['mcp']))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ
    )
    assert (said.returncode, said.stdout) == (2, "")
    assert "pip install 'mcp" in said.stderr
    assert said.stderr.count("\n") == 1
