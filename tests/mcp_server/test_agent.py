"""A scripted agent that ends with a verified kernel, by the tools alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mcp_server.clients import Agent, Answer, with_agent

MODULE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(4, 32)]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu_twice_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = place < count
    x = tl.load(x_ptr + place, mask=mask)
    tl.store(out_ptr + place, tl.where(x <= 0, 0.0, x) * 2.0, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32 or (torch.is_grad_enabled() and x.requires_grad):
            raise NotImplementedError("float32 without gradients")
        x = x.contiguous()
        out = torch.empty_like(x)
        relu_twice_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""
CHEAT = MODULE.replace("class Model(", "class ModelNew(")
WRONG = KERNEL.replace("x) * 2.0", "x) * 2.5")


class Writer:
    """An agent whose drafts are known beforehand: the next one where the judge refuses."""

    def __init__(self, agent: Agent, drafts: list[str]) -> None:
        self.agent = agent
        self.drafts = drafts
        self.heard: list[Answer] = []

    async def write(self, module: str) -> str | None:
        """The first draft that the judge accepts."""
        for draft in self.drafts:
            answer = await self.agent.finished("judge", module=module, source=draft)
            self.heard.append(answer)
            assert not answer.error, answer.text
            if "Next: profile" in answer.text:
                return draft
        return None


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "relu_twice.py").write_text(MODULE)
    return tmp_path


def test_a_draft_that_cheats_is_refused_and_the_right_one_accepted(workspace: Path) -> None:
    async def work(agent: Agent) -> None:
        writer = Writer(agent, [CHEAT, KERNEL])
        assert await writer.write("relu_twice.py") == KERNEL
        refused, accepted = writer.heard
        assert "Rejected at the gate 'policy'" in refused.text
        assert "Next: correct what the judge names" in refused.text
        assert "\nAccepted" in accepted.text

    with_agent(workspace, work)


@pytest.mark.slow
def test_a_wrong_draft_is_refused_with_its_numbers(workspace: Path) -> None:
    async def work(agent: Agent) -> None:
        writer = Writer(agent, [WRONG])
        assert await writer.write("relu_twice.py") is None
        assert "Rejected at the gate 'correctness'" in writer.heard[0].text

    with_agent(workspace, work)


@pytest.mark.slow
def test_a_search_ends_with_a_kernel_that_is_verified_and_in_a_model(workspace: Path) -> None:
    async def work(agent: Agent) -> None:
        found = await agent.finished(
            "optimize", module="relu_twice.py", budget={"rounds": 1, "time": "120s"}
        )
        assert "accepted by the judge" in found.text
        verified = await agent.finished("verify", run=found.run_id)
        assert "holds" in verified.text
        applied = await agent.finished("apply_check", run="last", module="relu_twice.py")
        assert "accepted: within twice eager's error" in applied.text
        shown = await agent.finished("show", run=found.run_id)
        assert "accepted" in shown.text
        run = shown.text.partition("run          ")[2].split()[0]
        drop_in = await agent.client.read_resource(f"agentkernel://runs/{run}/drop-in")
        assert "class ModelNew" in getattr(drop_in.contents[0], "text", "")

    with_agent(workspace, work)
