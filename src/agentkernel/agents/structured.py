"""What did a model answer, as a typed value, where it was asked for one?"""

from __future__ import annotations

import json
from typing import TypeAlias, TypeVar

from pydantic import ValidationError

from agentkernel.agents.json_text import JSON, objects_in
from agentkernel.agents.models.protocol import Model
from agentkernel.agents.prompts import render, shortened
from agentkernel.domain.base import Frozen
from agentkernel.domain.exchange import Message, ModelRequest, Reply

KEPT_CHARACTERS = 4_000
"""Of an answer that could not be read: enough to see what the model did instead."""
MOST_ERRORS = 6
NO_OBJECT = "it holds no JSON object"

K = TypeVar("K", bound=Frozen)


class NotStructured(Frozen):
    """The model gave nothing that follows the schema, not even when told what was wrong."""

    reason: str
    text: str
    """Head and tail of what it said."""


Structured: TypeAlias = K | NotStructured


def ask_structured(model: Model, question: ModelRequest, kind: type[K]) -> Structured[K]:
    """The model's answer as a `kind`; asked once more where it cannot be read.

    Nothing that a model says raises; ModelUnavailable goes through where it says nothing at all.
    """
    schema = answer_schema(kind)
    asked = question.model_copy(update={"answer_schema": schema})
    reply = model.ask(asked)
    found = read_reply(reply, kind)
    if not isinstance(found, NotStructured):
        return found
    cut = any(item != "stop" for item in reply.finish)
    told = render("repair_json", problem=found.reason, schema=schema, cut=cut)
    # An empty turn is refused by most providers.
    said = Message(role="assistant", text=found.text or "(nothing)")
    messages = (*asked.messages, said, Message(role="user", text=told))
    return read_reply(model.ask(asked.model_copy(update={"messages": messages})), kind)


def read_reply(reply: Reply, kind: type[K]) -> Structured[K]:
    """The first sample that follows the schema, else what is wrong with the first one."""
    read = [read_text(text, kind) for text in reply.texts]
    good = next((item for item in read if not isinstance(item, NotStructured)), None)
    if good is not None:
        return good
    return read[0] if read else NotStructured(reason=NO_OBJECT, text="")


def read_text(text: str, kind: type[K]) -> Structured[K]:
    """The last object of `text` that follows the schema; fields that it does not know are left
    out."""
    reason = NO_OBJECT
    for found in reversed(objects_in(text)):
        try:
            return kind.model_validate(_known(found, kind))
        except ValidationError as error:
            reason = reason if reason != NO_OBJECT else _errors(error)
    return NotStructured(reason=reason, text=shortened(text, KEPT_CHARACTERS))


def answer_schema(kind: type[Frozen]) -> str:
    """The JSON schema of `kind` with every field required: strict decoders know no other."""
    schema = kind.model_json_schema()
    for part in (schema, *schema.get("$defs", {}).values()):
        if "properties" in part:
            part["required"] = sorted(part["properties"])
            for item in part["properties"].values():
                item.pop("default", None)
    return json.dumps(schema, sort_keys=True)


def _known(found: dict[str, JSON], kind: type[Frozen]) -> dict[str, JSON]:
    """`found` without the fields that pydantic refuses for being unknown, at any depth."""
    try:
        kind.model_validate(found)
    except ValidationError as error:
        for item in error.errors(include_url=False, include_input=False):
            if item["type"] == "extra_forbidden":
                _drop(found, item["loc"])
    return found


def _drop(value: JSON, place: tuple[int | str, ...]) -> None:
    for key in place[:-1]:
        if isinstance(value, dict) and isinstance(key, str):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int):
            value = value[key]
    if isinstance(value, dict):
        value.pop(str(place[-1]), None)


def _errors(error: ValidationError) -> str:
    """`hypotheses.0.strategy: Field required; ...`."""
    found = error.errors(include_url=False, include_input=False)[:MOST_ERRORS]
    return "; ".join(f"{'.'.join(map(str, item['loc'])) or 'it'}: {item['msg']}" for item in found)


__all__ = ["NotStructured", "Structured", "answer_schema", "ask_structured", "read_text"]
