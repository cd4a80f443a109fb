"""How is a model asked, and for how long is a failing endpoint borne with?"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Literal

import yaml
from pydantic import Field

from agentkernel.domain.base import Frozen
from agentkernel.domain.exchange import Sampling

Structured = Literal["auto", "json_schema", "tool", "text"]
"""How an answer is made to follow a schema; "auto": what the provider is known to take."""


class ChatOptions(Frozen):
    """What every chat model is asked with; `configs/coders/chat.yaml` holds the packaged values."""

    temperature: float = Field(ge=0)
    top_p: float = Field(gt=0, le=1)
    max_tokens: int = Field(ge=1)
    samples: int = Field(ge=1)
    seed: int | None
    timeout_s: float = Field(gt=0)
    """Longest silence, before the first piece of an answer or between two."""
    attempts: int = Field(ge=1)
    """Requests for one answer, the first included."""
    wall_s: float = Field(gt=0)
    """Longest time for one answer, all attempts and waits together."""
    backoff_s: float = Field(ge=0)
    """Wait before the second attempt; doubled before each later one."""
    longest_wait_s: float = Field(ge=0)
    """Longest wait before an attempt, whatever Retry-After says."""
    structured: Structured
    send_sampling: bool
    """False for a model that takes no temperature and no top_p but its own."""
    stream_usage: bool
    """Ask an OpenAI-compatible endpoint to count tokens at the end of a stream."""
    limit_field: Literal["max_tokens", "max_completion_tokens"]
    """What an OpenAI-compatible endpoint of one's own calls the longest answer."""

    def sampling(self) -> Sampling:
        """The part that belongs to a question."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_tokens,
            samples=self.samples,
            seed=self.seed,
            timeout_s=self.timeout_s,
        )


@cache
def packaged_options() -> ChatOptions:
    """The values of `configs/coders/chat.yaml`."""
    text = resources.files("agentkernel.configs").joinpath("coders/chat.yaml").read_text("utf-8")
    return ChatOptions.model_validate(yaml.safe_load(text))


__all__ = ["ChatOptions", "Structured", "packaged_options"]
