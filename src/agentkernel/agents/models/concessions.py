"""An endpoint refuses a request for its form: in which form might it take it?"""

from __future__ import annotations

from typing import NamedTuple

from agentkernel.agents.models.options import ChatOptions
from agentkernel.agents.models.retries import Failure
from agentkernel.domain.exchange import ModelRequest


class OptionFallback(NamedTuple):
    """What a refusal names, and the options that do without it."""

    words: tuple[str, ...]
    change: dict[str, object]


OPTION_FALLBACKS = (
    OptionFallback(("stream_options",), {"stream_usage": False}),
    OptionFallback(("max_completion_tokens",), {"limit_field": "max_completion_tokens"}),
    OptionFallback(("temperature", "top_p"), {"send_sampling": False}),
)
IN_WORDS = OptionFallback(("response_format", "schema", "tool"), {"structured": "text"})
"""Only for a question with a schema."""


def without_refused_option(
    options: ChatOptions, failure: Failure, question: ModelRequest
) -> ChatOptions | None:
    """`options` without what the endpoint objects to; None where it names none of them."""
    if failure.kind != "request":
        return None
    text = failure.text.lower()
    for item in (*OPTION_FALLBACKS, *((IN_WORDS,) if question.answer_schema else ())):
        changed = options.model_copy(update=item.change)
        if changed != options and any(word in text for word in item.words):
            return changed
    return None


__all__ = ["without_refused_option"]
