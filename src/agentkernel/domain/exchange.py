"""Requests to a model and its replies, as values that are kept and replayed."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from agentkernel.domain.base import Frozen, sha256_text

Role = Literal["system", "user", "assistant"]
AgentName = Literal["planner", "coder", "segment", "debugger", "reviewer", "reader"]
"""Who asks a model; "segment", a coder that is given a part of the module; the reader, what a
sentence of a session asks for."""
Finish = Literal["stop", "length", "cut"]
"""Why a text ends: the model was done, it had said as much as it may, or the line was cut."""
FailureKind = Literal["refused_key", "rate_limit", "server", "timeout", "connection", "budget"]

FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
FIGURE = re.compile(
    r"\d+\.\d+(?:e[+-]?\d+)?|\d+(?:e[+-]?\d+)?(?=\s?(?:us|ms|s|x|%|GB/s|TB/s|TFLOP/s|W|mJ|MHz)(?!\w))"
)
"""A number with a decimal point or a unit: what is measured or computed of what is."""


class Message(Frozen):
    """One turn of a conversation."""

    role: Role
    text: str


class Sampling(Frozen):
    """How a model is to choose its words. `seed` None: the model's own choice."""

    temperature: float = Field(ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_tokens: int = Field(ge=1)
    samples: int = Field(default=1, ge=1)
    stop: tuple[str, ...] = ()
    seed: int | None = None
    timeout_s: float = Field(default=600.0, gt=0)


class ModelRequest(Frozen):
    """One thing that an agent asks of a model in one round of a run."""

    agent: AgentName
    round: int
    messages: tuple[Message, ...]
    sampling: Sampling
    answer_schema: str = ""
    """JSON schema that the answer is to follow; "" for free text."""

    def key(self, model: str) -> str:
        """Content hash of what `model` is asked: the same question has the same answer kept,
        however long one is ready to wait for it."""
        asked = self.model_dump_json(exclude={"sampling": {"timeout_s"}})
        return sha256_text(f"{model}\n{asked}")

    def outline(self, model: str) -> str:
        """The key without the figures outside of fences: what a run measures comes out a little
        different each time, and the question is the same. Code and sizes stay what they are."""
        plain = tuple(item.evolve(text=_without_figures(item.text)) for item in self.messages)
        return self.evolve(messages=plain).key(model)


def _without_figures(text: str) -> str:
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [FIGURE.sub("#", text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join((*parts, FIGURE.sub("#", text[end:])))


class Usage(Frozen):
    """Tokens; `cached` is the part of `prompt` that the provider had at hand."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0


class Reply(Frozen):
    """The texts that a model gave, one a sample, with why each ends."""

    texts: tuple[str, ...]
    finish: tuple[Finish, ...]
    usage: Usage = Usage()
    seconds: float = 0.0
    gpu_seconds: float = 0.0
    """Seconds for which a model in this process had the GPU; 0 for an endpoint."""
    attempts: int = Field(default=1, exclude=True)
    """Requests it took; its exchange keeps them."""


class Exchange(Frozen):
    """A question with its answer, as a run keeps it. `cost_usd` None: no price is known."""

    model: str
    question: ModelRequest
    reply: Reply
    cost_usd: float | None = None
    attempts: int = 1
    """Requests it took, those that were tried again included."""
