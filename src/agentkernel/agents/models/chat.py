"""Chat model at an endpoint, called through LangChain and read with a silence timeout.

The stream is read by a thread of its own, so that a silent endpoint is given up after the
timeout whatever its client does. Pings on the connection count as silence.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from agentkernel.agents.models.protocol import (
    ANEW,
    LEAST_S,
    ChatOptions,
    LeftS,
    OnText,
    Structured,
    ignore,
    no_deadline,
    packaged_options,
)
from agentkernel.agents.models.retries import (
    Failure,
    Patience,
    Retry,
    failure_of,
    redacted_message,
    unavailable,
    without_refused_option,
)
from agentkernel.agents.safe_text import Redactor, error_line, redact
from agentkernel.domain.errors import SettingError
from agentkernel.domain.exchange import Finish, ModelRequest, Reply, Usage

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage


OPENAI = "openai"
CLIENTS = tuple(
    f"langchain-{name}"
    for name in ("anthropic", "deepseek", "google-genai", "groq", "mistralai", "ollama", "openai")
)
"""Packages of providers that LangChain finds by the provider's own name
(https://docs.langchain.com/oss/python/integrations/chat)."""
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


def client_package(name: str) -> str:
    """The package that makes the client of `chat:PROVIDER:MODEL`: `langchain-openai`."""
    provider = name.removeprefix("chat:").partition(":")[0]
    return f"langchain-{provider.replace('_', '-')}"


def require_client(name: str) -> None:
    """Raise SettingError where the client of the chat model `name` is not installed. Of a provider
    that LangChain keeps elsewhere nothing is known before it is asked."""
    package = client_package(name)
    if package in CLIENTS and importlib.util.find_spec(package.replace("-", "_")) is None:
        raise SettingError(
            f"Model {name!r} needs the package {package}, which is not installed. "
            f"Next: pip install {package}."
        )


def connect(
    provider: str, model: str, base_url: str | None, options: ChatOptions, question: ModelRequest
) -> BaseChatModel:
    """The client for `question`; it tries nothing again by itself."""
    from langchain.chat_models import init_chat_model

    sampling = question.sampling
    # Later than the reader's own timeout, which says what was waited for.
    settings: dict[str, object] = {"timeout": 2 * sampling.timeout_s, "max_retries": 0}
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


def _most(one: Usage, other: Usage) -> Usage:
    """Of two words on the same sample: some endpoints count in each piece all that came before."""
    return Usage(
        prompt=max(one.prompt, other.prompt),
        completion=max(one.completion, other.completion),
        cached=max(one.cached, other.cached),
    )


def total(usages: Sequence[Usage]) -> Usage:
    """All of them together."""
    return Usage(
        prompt=sum(item.prompt for item in usages),
        completion=sum(item.completion for item in usages),
        cached=sum(item.cached for item in usages),
    )


PieceT = TypeVar("PieceT")


class _Piece(NamedTuple, Generic[PieceT]):
    value: PieceT


class _End(NamedTuple):
    error: Exception | None


def read_with_timeout(
    pieces: Callable[[], Iterable[PieceT]], timeout_s: float, left_s: float = float("inf")
) -> Iterator[PieceT]:
    """What `pieces` gives, read by another thread.

    Raises TimeoutError after `timeout_s` of silence or `left_s` in all, and whatever reading
    raises. Pings on the line count as silence: they are no pieces.
    """
    heard: queue.SimpleQueue[_Piece[PieceT] | _End] = queue.SimpleQueue()
    left = threading.Event()
    reader = threading.Thread(target=_read, args=(pieces, heard, left), daemon=True)
    reader.start()
    deadline = time.monotonic() + left_s
    try:
        while True:
            item = _next(heard, timeout_s, deadline - time.monotonic())
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item.value
    finally:
        left.set()


def _next(
    heard: queue.SimpleQueue[_Piece[PieceT] | _End], timeout_s: float, left_s: float
) -> _Piece[PieceT] | _End:
    try:
        return heard.get(timeout=max(0.0, min(timeout_s, left_s)))
    except queue.Empty:
        text = f"no word for {timeout_s:g} s" if timeout_s < left_s else "its time is spent"
        raise TimeoutError(text) from None


def _read(
    pieces: Callable[[], Iterable[PieceT]],
    heard: queue.SimpleQueue[_Piece[PieceT] | _End],
    left: threading.Event,
) -> None:
    try:
        for value in pieces():
            if left.is_set():
                return
            heard.put(_Piece(value))
    except Exception as error:  # noqa: BLE001 - raised again in the thread that asked
        heard.put(_End(error))
    else:
        heard.put(_End(None))


T = TypeVar("T")
OnRetry = Callable[[Retry], None]
"""Hears of each attempt that failed and is to be followed by another one."""
Outcome = list[ReplySample] | Failure
PASSING = ("server", "timeout", "connection")
"""Failures that may come in the middle of an answer."""
REPORTS_FINISH = ("openai", "anthropic")
"""Providers whose answers always say why they end: one that does not was cut off."""


def storable_text(text: str) -> str:
    """`text` as it can be kept: a surrogate without its other half is no character."""
    return text.encode("utf-8", "replace").decode("utf-8")


@dataclass
class ChatModel:
    """Any model that LangChain's `init_chat_model` knows.

    `name` is `chat:PROVIDER:MODEL`; `base_url` an endpoint of one's own. The key comes from the
    provider's own environment variable and is neither kept nor told.
    """

    name: str
    base_url: str | None = None
    options: ChatOptions = field(default_factory=packaged_options)
    on_retry: OnRetry = ignore
    left_s: LeftS = no_deadline
    _ways: ChatOptions = field(init=False)
    """The options with what the endpoint has been conceded so far."""

    def __post_init__(self) -> None:
        self._ways = self.options

    @property
    def provider(self) -> str:
        """The part of the name that says who is asked."""
        return self.name.removeprefix("chat:").partition(":")[0]

    def ask(self, question: ModelRequest, on_text: OnText = ignore) -> Reply:
        """The answer; after a failed attempt `on_text` hears ANEW, then it from its beginning.

        Raises ModelUnavailable.
        """
        wall_s = min(self.options.wall_s, max(self.left_s(), LEAST_S))
        patience = Patience(self.options.evolve(wall_s=wall_s))
        said: list[ReplySample] = []
        wanted = question.sampling.samples
        if wanted > 1 and self.provider == OPENAI:
            send = partial(self._batch, question, patience)
            said = self._insist(send, question, patience)[:wanted]
            on_text(redact(said[0].text))
        # What gives one sample a request, whatever it is asked for, is asked again.
        while len(said) < wanted:
            hears = ignore if said else on_text
            send = partial(self._stream, question, len(said), patience, hears)
            said += self._insist(send, question, patience)
        return Reply(
            texts=tuple(storable_text(redact(item.text)) for item in said),
            finish=tuple(item.finish for item in said),
            usage=total([item.usage for item in said]),
            seconds=patience.spent_s,
            attempts=patience.requests,
        )

    def _insist(
        self, send: Callable[[], Outcome], question: ModelRequest, patience: Patience
    ) -> list[ReplySample]:
        """What `send` gives, after as many attempts as there is patience for."""
        while True:
            patience.begin()
            outcome = send()
            if not isinstance(outcome, Failure):
                patience.succeed()
                return outcome
            ways = without_refused_option(self._ways, outcome, question)
            wait_s = patience.wait_after(outcome) if ways is None else 0.0
            self._ways = ways or self._ways
            if wait_s is None:
                # Outside of any handler: a traceback must not tell what the endpoint wrote.
                raise unavailable(
                    self.name, self.base_url, outcome, patience.requests, patience.spent_s
                )
            text = redacted_message(outcome.text, self.base_url)
            self.on_retry(Retry(self.name, outcome.kind, text, patience.requests, wait_s))
            time.sleep(wait_s)

    def _batch(self, question: ModelRequest, patience: Patience) -> Outcome:
        """All samples of one request."""
        call = self._call(question, 0)
        if isinstance(call, Failure):
            return call
        found: list[ReplySample] = []
        for item in _heard(partial(_choices, call, question), question, patience):
            if isinstance(item, Failure):
                return item
            heard = PartialSample()
            heard.add(item)
            # Every choice carries the tokens of the whole request.
            usage = Usage() if found else heard.usage
            found.append(heard.said(heard.finish or "stop")._replace(usage=usage))
        return found or Failure("server", "it sent no choices")

    def _stream(
        self, question: ModelRequest, sample: int, patience: Patience, on_text: OnText
    ) -> Outcome:
        """One sample, piece by piece."""
        call = self._call(question, sample)
        if isinstance(call, Failure):
            return call
        heard, redactor = PartialSample(), Redactor()
        for item in _heard(partial(_chunks, call), question, patience):
            if isinstance(item, Failure):
                return _cut(heard, item, question, patience, on_text)
            _tell(on_text, redactor.feed(heard.add(item)))
            if heard.size > MOST_CHARACTERS:
                return [heard.said("length")]
        if heard.finish is None and self.provider in REPORTS_FINISH:
            failure = Failure("connection", "the stream ended before the answer did")
            return _cut(heard, failure, question, patience, on_text)
        _tell(on_text, redactor.rest())
        return [heard.said(heard.finish or "stop")]

    def _call(self, question: ModelRequest, sample: int) -> ModelCall | Failure:
        model = self.name.removeprefix("chat:").partition(":")[2]
        ways = self._ways
        try:
            client = connect(self.provider, model, self.base_url, ways, question)
            call = call_for(client, self.provider, question, ways)
        except Exception as error:  # noqa: BLE001 - providers share no exception type
            return Failure("unknown", f"{type(error).__name__}: {error_line(error)}")
        if question.sampling.seed is not None and self.provider == OPENAI:
            call.extra["seed"] = question.sampling.seed + sample
        return call


def _tell(on_text: OnText, piece: str) -> None:
    if piece:
        on_text(piece)


def _choices(call: ModelCall, question: ModelRequest) -> Iterable[BaseMessage]:
    from langchain_core.messages import convert_to_messages
    from langchain_core.outputs import ChatGeneration

    messages = [convert_to_messages(call.turns)]
    made = call.model.generate(messages, n=question.sampling.samples, **call.extra)  # type: ignore[arg-type]
    return [item.message for item in made.generations[0] if isinstance(item, ChatGeneration)]


def _chunks(call: ModelCall) -> Iterable[BaseMessage]:
    return call.model.stream(call.turns, **call.extra)  # type: ignore[arg-type]


def _heard(
    pieces: Callable[[], Iterable[T]], question: ModelRequest, patience: Patience
) -> Iterator[T | Failure]:
    """The pieces as they come, and last the failure where there is one."""
    try:
        yield from read_with_timeout(pieces, question.sampling.timeout_s, patience.left_s)
    except Exception as error:  # noqa: BLE001 - providers share no exception type
        yield failure_of(error)


def _cut(
    heard: PartialSample,
    failure: Failure,
    question: ModelRequest,
    patience: Patience,
    on_text: OnText,
) -> Outcome:
    """What came before the failure, where it can be used and no better is to be had."""
    stalled = failure.kind == "timeout" and patience.stalls_left
    if failure.kind in PASSING and _usable(heard.text, question) and not stalled:
        return [heard.said("cut")]
    if heard.size:
        on_text(ANEW)
    return failure


def _usable(text: str, question: ModelRequest) -> bool:
    if not question.answer_schema:
        return bool(text.strip())
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
