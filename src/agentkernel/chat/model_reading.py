"""What does a model make of a sentence that the grammar does not know?

The sentence is data. What the model answers counts only as far as it is a list of known requests.
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field

from agentkernel.agents.models.protocol import Model
from agentkernel.agents.prompts import render
from agentkernel.agents.structured import NotStructured, ask_structured
from agentkernel.chat.intent import Intent, IntentContext, IntentName
from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import ModelUnavailable, one_line
from agentkernel.domain.exchange import Message, ModelRequest, Sampling
from agentkernel.domain.settings import MODEL_PREFIXES, Settings

MOST_REQUESTS = 6


class Requests(Frozen):
    """What a sentence asks for, in order; empty where it asks for nothing of the kind."""

    intents: tuple[Intent, ...] = Field(max_length=MOST_REQUESTS)


def reading_model(settings: Settings) -> str | None:
    """The model that may read sentences: the planner's, else the coder's; None without any."""
    named = (settings.models.planner, settings.coder, *settings.team.members)
    return next((item for item in named if item and item.startswith(MODEL_PREFIXES)), None)


def prompt(text: str, context: IntentContext, examples: dict[IntentName, str]) -> str:
    """What the model is asked."""
    return render("intent", sentence=text, context=context, examples=examples, most=MOST_REQUESTS)


def read_with(
    model: Model,
    sampling: Sampling,
    text: str,
    context: IntentContext,
    examples: dict[IntentName, str],
    tell: Callable[[str], None],
) -> tuple[Intent, ...]:
    """The requests that the model reads, none where it gives nothing that counts. `tell` hears in
    one line why it did not answer."""
    question = ModelRequest(
        agent="reader",
        round=0,
        messages=(Message(role="user", text=prompt(text, context, examples)),),
        sampling=sampling,
    )
    try:
        found = ask_structured(model, question, Requests)
    except ModelUnavailable as error:
        tell(f"the model cannot read the sentence: {one_line(error)}")
        return ()
    if isinstance(found, NotStructured):
        tell(f"{model.name} gave no request that can be read")
        return ()
    return tuple(item for item in found.intents if _exists(item, context))


def _exists(intent: Intent, context: IntentContext) -> bool:
    """False for a candidate that is not there: a model may make one up."""
    named = [getattr(intent, name, None) for name in ("candidate", "against", "first", "second")]
    numbers = [item for item in named if isinstance(item, int)]
    return not context.candidates or all(item in context.candidates for item in numbers)
