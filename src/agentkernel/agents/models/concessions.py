"""An endpoint refuses a request for its form: in which form might it take it?"""

from __future__ import annotations

from typing import NamedTuple

from agentkernel.agents.models.options import ChatOptions
from agentkernel.agents.models.retries import Failure
from agentkernel.domain.exchange import Question


class Concession(NamedTuple):
    """What a refusal names, and the options that do without it."""

    words: tuple[str, ...]
    change: dict[str, object]


CONCESSIONS = (
    Concession(("stream_options",), {"stream_usage": False}),
    Concession(("max_completion_tokens",), {"limit_field": "max_completion_tokens"}),
    Concession(("temperature", "top_p"), {"send_sampling": False}),
)
IN_WORDS = Concession(("response_format", "schema", "tool"), {"structured": "text"})
"""Only for a question with a schema."""


def conceded(options: ChatOptions, failure: Failure, question: Question) -> ChatOptions | None:
    """`options` without what the endpoint objects to; None where it names none of them."""
    if failure.kind != "request":
        return None
    text = failure.text.lower()
    for item in (*CONCESSIONS, *((IN_WORDS,) if question.answer_schema else ())):
        changed = options.model_copy(update=item.change)
        if changed != options and any(word in text for word in item.words):
            return changed
    return None


__all__ = ["conceded"]
