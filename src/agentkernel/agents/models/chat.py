"""How is a model behind an endpoint asked, until it answers or is not worth waiting for?"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from agentkernel.agents.models.concessions import without_refused_option
from agentkernel.agents.models.options import ChatOptions, packaged_options
from agentkernel.agents.models.protocol import (
    ANEW,
    LEAST_S,
    LeftS,
    OnText,
    ignore_text,
    no_deadline,
)
from agentkernel.agents.models.retries import Failure, Patience, Retry, failure_of
from agentkernel.agents.models.unavailable import redacted_message, unavailable
from agentkernel.agents.models.watched import read_with_timeout
from agentkernel.agents.models.wire import (
    MOST_CHARACTERS,
    OPENAI,
    ModelCall,
    PartialSample,
    ReplySample,
    call_for,
    connect,
    total,
)
from agentkernel.agents.secrets import Redactor, error_line, redact
from agentkernel.domain.exchange import ModelRequest, Reply, Usage

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

T = TypeVar("T")
OnRetry = Callable[[Retry], None]
"""Hears of each attempt that failed and is to be followed by another one."""
Outcome = list[ReplySample] | Failure
PASSING = ("server", "timeout", "connection")
"""Failures that may come in the middle of an answer."""
REPORTS_FINISH = ("openai", "anthropic")
"""Providers whose answers always say why they end: one that does not was cut off."""


class CountedReply(NamedTuple):
    """A reply, and the requests that it took."""

    reply: Reply
    attempts: int


def storable_text(text: str) -> str:
    """`text` as it can be kept: a surrogate without its other half is no character."""
    return text.encode("utf-8", "replace").decode("utf-8")


def ignore_retry(retry: Retry) -> None:
    """A listener that does nothing."""


@dataclass
class ChatModel:
    """Any model that LangChain's `init_chat_model` knows.

    `name` is `chat:PROVIDER:MODEL`; `base_url` an endpoint of one's own. The key comes from the
    provider's own environment variable and is neither kept nor told.
    """

    name: str
    base_url: str | None = None
    options: ChatOptions = field(default_factory=packaged_options)
    on_retry: OnRetry = ignore_retry
    left_s: LeftS = no_deadline
    _ways: ChatOptions = field(init=False)
    """The options with what the endpoint has been conceded so far."""

    def __post_init__(self) -> None:
        self._ways = self.options

    @property
    def provider(self) -> str:
        """The part of the name that says who is asked."""
        return self.name.removeprefix("chat:").partition(":")[0]

    def ask(self, question: ModelRequest, on_text: OnText = ignore_text) -> Reply:
        """The answer; after a failed attempt `on_text` hears ANEW, then it from its beginning.

        Raises ModelUnavailable.
        """
        return self.ask_counted(question, on_text).reply

    def ask_counted(self, question: ModelRequest, on_text: OnText = ignore_text) -> CountedReply:
        """The answer with the number of requests that it took. Raises ModelUnavailable."""
        wall_s = min(self.options.wall_s, max(self.left_s(), LEAST_S))
        patience = Patience(self.options.model_copy(update={"wall_s": wall_s}))
        said: list[ReplySample] = []
        wanted = question.sampling.samples
        if wanted > 1 and self.provider == OPENAI:
            send = partial(self._batch, question, patience)
            said = self._insist(send, question, patience)[:wanted]
            on_text(redact(said[0].text))
        # What gives one sample a request, whatever it is asked for, is asked again.
        while len(said) < wanted:
            hears = ignore_text if said else on_text
            send = partial(self._stream, question, len(said), patience, hears)
            said += self._insist(send, question, patience)
        reply = Reply(
            texts=tuple(storable_text(redact(item.text)) for item in said),
            finish=tuple(item.finish for item in said),
            usage=total([item.usage for item in said]),
            seconds=patience.spent_s,
        )
        return CountedReply(reply, patience.requests)

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


__all__ = ["ChatModel", "CountedReply", "OnRetry", "ignore_retry"]
