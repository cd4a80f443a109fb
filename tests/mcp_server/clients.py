"""An MCP client of a server in a process of its own, and what an agent reads in its answers."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

MOST = 4000
RUN_ID = re.compile(r"run_id: (\S+)  state: (\w+)")


@dataclass(frozen=True)
class Answer:
    """What a tool said."""

    text: str
    error: bool

    @property
    def run_id(self) -> str:
        found = RUN_ID.search(self.text)
        assert found is not None, self.text
        return found[1]

    @property
    def running(self) -> bool:
        return "state: running" in self.text.splitlines()[0]


class Agent:
    """Calls tools, and holds each answer to what is promised of all."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> Answer:
        said = await self.client.call_tool(tool, arguments)
        text = "".join(getattr(part, "text", "") for part in said.content)
        assert len(text) <= MOST, len(text)
        if not said.is_error:
            assert "Next: " in text.splitlines()[-1]
        return Answer(text, bool(said.is_error))

    async def finished(self, tool: str, **arguments: Any) -> Answer:
        """The answer of a tool at the end of the run that it began."""
        answer = await self.call(tool, **arguments)
        while not answer.error and answer.running:
            answer = await self.call("result", run_id=answer.run_id, wait_s=50)
        return answer


@asynccontextmanager
async def stdio_agent(workspace: Path) -> AsyncIterator[Agent]:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "agentkernel", "mcp", "--workspace", str(workspace)],
        env=dict(os.environ),
    )
    async with Client(stdio_client(server)) as client:
        yield Agent(client)


def with_agent(workspace: Path, work: Callable[[Agent], Coroutine[Any, Any, None]]) -> None:
    """Do `work` with an agent at a server over stdio."""

    async def run() -> None:
        async with stdio_agent(workspace) as agent:
            await work(agent)

    anyio.run(run)
