"""How does a question become a LangChain call, and its chunks a text again?"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from agentkernel.agents.models.options import ChatOptions, Structured
from agentkernel.domain.exchange import Finish, ModelRequest, Usage

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage

OPENAI = "openai"
NO_KEY = "none"
"""What the client is given where an endpoint of one's own wants no key: it insists on one."""
TAKES: Mapping[str, Structured] = {OPENAI: "json_schema", "anthropic": "tool"}
"""How a provider is known to follow a schema; any other is asked in words."""
ENDS: Mapping[str, Finish] = {"length": "length", "max_tokens": "length", "incomplete": "length"}
REASONS = ("finish_reason", "stop_reason", "done_reason", "status")
ANSWER = "answer"
"""Name of the schema, and of the tool whose arguments are the answer."""
IN_WORDS = "Answer with one JSON object that follows this schema, and with nothing else:\n"
MOST_TOKENS = 10**9
"""More than any window holds: what an endpoint says of itself is not believed beyond that."""
MOST_CHARACTERS = 2_000_000
"""Where an endpoint that never ends is cut off."""


class ReplySample(NamedTuple):
    """One sample."""

    text: str
    finish: Finish
    usage: Usage


class ModelCall(NamedTuple):
    """A connected model and what is to be said to it."""

    model: BaseChatModel
    turns: list[tuple[str, str]]
    extra: dict[str, object]
    """Arguments of this call beside the turns."""


def connect(
    provider: str, model: str, base_url: str | None, options: ChatOptions, question: ModelRequest
) -> BaseChatModel:
    """The client for `question`; it tries nothing again by itself."""
    from langchain.chat_models import init_chat_model

    sampling = question.sampling
    settings: dict[str, object] = {"timeout": sampling.timeout_s, "max_retries": 0}
    if options.send_sampling:
        settings["temperature"] = sampling.temperature
    if options.send_sampling and sampling.top_p < 1:
        settings["top_p"] = sampling.top_p
    if provider == OPENAI:
        settings["stream_usage"] = options.stream_usage
    if base_url is None:
        settings["max_tokens"] = sampling.max_tokens
    else:
        settings |= _own_endpoint(provider, base_url, options, sampling.max_tokens)
    made: BaseChatModel = init_chat_model(f"{provider}:{model}", **settings)  # type: ignore[call-overload]
    return made


def _own_endpoint(
    provider: str, base_url: str, options: ChatOptions, most: int
) -> dict[str, object]:
    if provider != OPENAI:
        return {"base_url": base_url, "max_tokens": most}
    settings: dict[str, object] = {"base_url": base_url, "use_responses_api": False}
    # The client knows one name for the limit alone, and not every endpoint knows that one.
    settings["extra_body"] = {options.limit_field: most}
    if not os.environ.get("OPENAI_API_KEY"):
        settings["api_key"] = NO_KEY
    return settings


def call_for(
    model: BaseChatModel, provider: str, question: ModelRequest, options: ChatOptions
) -> ModelCall:
    """What to say to `model`, with the schema of the answer in the form that it takes."""
    turns: list[tuple[str, str]] = [(item.role, item.text) for item in question.messages]
    extra: dict[str, object] = {}
    if question.sampling.stop:
        extra["stop"] = list(question.sampling.stop)
    if not question.answer_schema:
        return ModelCall(model, turns, extra)
    form = options.structured
    form = TAKES.get(provider, "text") if form == "auto" else form
    schema = json.loads(question.answer_schema)
    if form == "json_schema":
        wanted = {"name": ANSWER, "schema": schema}
        extra |= _response_format(model, {"type": "json_schema", "json_schema": wanted})
    elif form == "tool":
        extra |= _tool(model, schema)
    else:
        role, text = turns[-1]
        turns[-1] = (role, f"{text}\n\n{IN_WORDS}{question.answer_schema}")
    return ModelCall(model, turns, extra)


def _response_format(model: BaseChatModel, form: Mapping[str, object]) -> dict[str, object]:
    """Arguments that send `form`. OpenAI's client would parse the answer too, and raise where it
    was cut short; what goes by extra_body it leaves alone."""
    if not hasattr(model, "extra_body"):
        return {"response_format": form}
    return {"extra_body": {**(model.extra_body or {}), "response_format": form}}


def _tool(model: BaseChatModel, schema: object) -> dict[str, object]:
    """Arguments that make the model call a tool whose parameters are the answer."""
    about = {"name": ANSWER, "description": "Gives the answer.", "parameters": schema}
    bound = model.bind_tools([{"type": "function", "function": about}], tool_choice=ANSWER)
    return dict(getattr(bound, "kwargs", {}))


@dataclass
class PartialSample:
    """What has come of one sample so far."""

    texts: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    size: int = 0
    finish: Finish | None = None
    usage: Usage = field(default_factory=Usage)

    def add(self, message: BaseMessage) -> str:
        """Take in a chunk, or a whole message; what it says comes back."""
        text, arguments = str(message.text), _arguments(message)
        self.texts.append(text)
        self.arguments.append(arguments)
        self.size += len(text) + len(arguments)
        self.finish = finish_of(message.response_metadata) or self.finish
        self.usage = _most(self.usage, usage_of(message))
        return text

    @property
    def text(self) -> str:
        """The answer: what was said, else the arguments of the tool that was called."""
        said = "".join(self.texts)
        return said if said.strip() else "".join(self.arguments) or said

    def said(self, finish: Finish) -> ReplySample:
        """The sample as it stands."""
        return ReplySample(self.text, finish, self.usage)


def _arguments(message: BaseMessage) -> str:
    """What a tool was called with, as JSON text: a chunk of it, or all of it."""
    from langchain_core.messages import AIMessage, AIMessageChunk

    if isinstance(message, AIMessageChunk):
        return "".join(item["args"] or "" for item in message.tool_call_chunks)
    if not isinstance(message, AIMessage):
        return ""
    given = [json.dumps(item["args"]) for item in message.tool_calls]
    return "".join([*given, *(item["args"] or "" for item in message.invalid_tool_calls)])


def finish_of(metadata: Mapping[str, object]) -> Finish | None:
    """Why a text ends, in the words of any provider; None where it does not say."""
    found = [metadata.get(name) for name in REASONS]
    reason = next((str(item).lower() for item in found if item), None)
    return None if reason is None else ENDS.get(reason, "stop")


def usage_of(message: BaseMessage) -> Usage:
    """The tokens that a message counts; zeros where it counts none."""
    counted = getattr(message, "usage_metadata", None)
    if not counted:
        return Usage()
    details = counted.get("input_token_details") or {}
    prompt = _tokens(counted.get("input_tokens"))
    return Usage(
        prompt=prompt,
        completion=_tokens(counted.get("output_tokens")),
        cached=min(prompt, _tokens(details.get("cache_read"))),
    )


def _tokens(count: object) -> int:
    """A count as an endpoint gives it, within what can be one."""
    return min(max(count, 0), MOST_TOKENS) if isinstance(count, int) else 0


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        prompt=one.prompt + other.prompt,
        completion=one.completion + other.completion,
        cached=one.cached + other.cached,
    )


def _most(one: Usage, other: Usage) -> Usage:
    """Of two words on the same sample: some endpoints count in each piece all that came before."""
    return Usage(
        prompt=max(one.prompt, other.prompt),
        completion=max(one.completion, other.completion),
        cached=max(one.cached, other.cached),
    )


def total(usages: list[Usage]) -> Usage:
    """All of them together."""
    result = Usage()
    for item in usages:
        result = _sum(result, item)
    return result


__all__ = ["ModelCall", "PartialSample", "ReplySample", "call_for", "connect", "total", "usage_of"]
