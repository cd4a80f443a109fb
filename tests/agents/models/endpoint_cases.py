"""Questions and quick options for the tests of models at an endpoint."""

from __future__ import annotations

from agentkernel.agents.models.protocol import ChatOptions, packaged_options
from agentkernel.domain.exchange import Message, ModelRequest, Sampling

QUICK = packaged_options().evolve(
    timeout_s=5.0, attempts=3, wall_s=20.0, backoff_s=0.01, max_tokens=64
)
SCHEMA = '{"type": "object", "title": "Plan", "properties": {"steps": {"type": "integer"}}}'


def options(**changes: object) -> ChatOptions:
    return QUICK.evolve(**changes)


def question(text: str = "Write a kernel.", **changes: object) -> ModelRequest:
    sampling = {"temperature": 0.5, "max_tokens": 64, "timeout_s": 5.0}
    wanted = {key: changes.pop(key) for key in list(changes) if key in Sampling.model_fields}
    base = ModelRequest(
        agent="coder",
        round=1,
        messages=(Message(role="system", text="Be brief."), Message(role="user", text=text)),
        sampling=Sampling.model_validate(sampling | wanted),
    )
    return base.evolve(**changes)
