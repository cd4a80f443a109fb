"""Failures of a model endpoint: their classes, waits, option fallbacks and error messages.

A Retry-After header is read as RFC 9110, section 10.2.3, defines it: seconds or a date.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal, NamedTuple

from agentkernel.agents.models.protocol import ChatOptions
from agentkernel.agents.safe_text import error_line, redact, redact_url, url_without_credentials
from agentkernel.domain.errors import ModelUnavailable
from agentkernel.domain.exchange import FailureKind, ModelRequest

Kind = FailureKind | Literal["request", "unknown"]
"""As in the domain, and: "request", the endpoint refuses this very request; "unknown", nothing
that a second attempt is known to help."""

REFUSED_KEY = (401, 403)
RATE_LIMIT = 429
WAITED_TOO_LONG = 408
LAST_SERVER = 599
"""Failures of the server's own that pass: RFC 9110, section 15.6; 529 is Anthropic's overload."""
NO_MONEY = ("insufficient_quota", "billing_hard_limit_reached")
"""A 429 that no wait fixes: the account is empty."""
TIMEOUTS = ("APITimeoutError", "TimeoutException", "TimeoutError")
CONNECTIONS = ("APIConnectionError", "TransportError", "ConnectionError")
TOO_LONG = "ContextOverflow"
STALLS = 2
"""A stall is tried again once."""


class Failure(NamedTuple):
    """Why an attempt gave nothing."""

    kind: Kind
    text: str
    retry_after_s: float | None = None


class Retry(NamedTuple):
    """An attempt that failed and will be followed by another one after `wait_s`."""

    model: str
    kind: Kind
    text: str
    attempt: int
    wait_s: float


def failure_of(error: Exception) -> Failure:
    """What a client's exception means; the clients share no type, so names and codes decide."""
    text = error_line(error) or type(error).__name__
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return _of_status(status, text, _headers(error))
    names = [kind.__name__ for kind in type(error).__mro__]
    if any(name in TIMEOUTS for name in names):
        return Failure("timeout", text)
    if any(name in CONNECTIONS for name in names):
        return Failure("connection", text)
    if any(TOO_LONG in name for name in names):
        return Failure("request", text)
    if "APIError" in names or isinstance(error, (ValueError, TypeError, LookupError)):
        return Failure("server", f"it sent what is no chat answer ({text})")
    return Failure("unknown", f"{type(error).__name__}: {text}")


def _of_status(status: int, text: str, headers: Mapping[str, str]) -> Failure:
    if status in REFUSED_KEY:
        return Failure("refused_key", text)
    if status == RATE_LIMIT:
        if any(word in text for word in NO_MONEY):
            return Failure("budget", text)
        return Failure("rate_limit", text, retry_after(headers.get("retry-after")))
    if status == WAITED_TOO_LONG or 500 <= status <= LAST_SERVER:
        return Failure("server", text, retry_after(headers.get("retry-after")))
    return Failure("request", text)


def _headers(error: Exception) -> Mapping[str, str]:
    headers = getattr(getattr(error, "response", None), "headers", None)
    return headers if isinstance(headers, Mapping) else {}


def retry_after(value: str | None) -> float | None:
    """Seconds that a Retry-After header asks for (RFC 9110, 10.2.3): a number or a date."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


@dataclass
class Patience:
    """What is left of the attempts and of the time for one answer."""

    options: ChatOptions
    requests: int = 0
    """Requests sent so far, for all samples."""
    began: float = field(default_factory=time.monotonic)
    _attempt: int = 0
    _stalls: int = 0

    @property
    def left_s(self) -> float:
        """Seconds until the time for the answer is spent."""
        return self.options.wall_s - self.spent_s

    @property
    def spent_s(self) -> float:
        """Seconds since the question was put."""
        return time.monotonic() - self.began

    def begin(self) -> None:
        """Count a request."""
        self.requests += 1
        self._attempt += 1

    def succeed(self) -> None:
        """An attempt gave something: the next sample has all its attempts again."""
        self._attempt = self._stalls = 0

    @property
    def stalls_left(self) -> bool:
        """True where a stall now would be followed by another attempt."""
        more = self._attempt < self.options.attempts and self.left_s > 0
        return more and self._stalls + 1 < STALLS

    def wait_after(self, failure: Failure) -> float | None:
        """Seconds to wait before the next attempt, None where there is to be none."""
        if failure.kind in ("refused_key", "request", "budget", "unknown"):
            return None
        self._stalls += failure.kind == "timeout"
        if self._stalls >= STALLS or self._attempt >= self.options.attempts:
            return None
        wait = min(self._wait(failure), self.options.longest_wait_s)
        return wait if wait < self.left_s else None

    def _wait(self, failure: Failure) -> float:
        if failure.retry_after_s is not None:
            return failure.retry_after_s
        grown: float = self.options.backoff_s * 2 ** (self._attempt - 1)
        # Jitter keeps the samples of many runs from knocking at the same moment again.
        return grown * random.uniform(0.5, 1.0)


class OptionFallback(NamedTuple):
    """What a refusal names, and the options that do without it."""

    words: tuple[str, ...]
    change: Callable[[ChatOptions], ChatOptions]


OPTION_FALLBACKS = (
    OptionFallback(("stream_options",), lambda options: options.evolve(stream_usage=False)),
    OptionFallback(
        ("max_completion_tokens",),
        lambda options: options.evolve(limit_field="max_completion_tokens"),
    ),
    OptionFallback(("temperature", "top_p"), lambda options: options.evolve(send_sampling=False)),
)
IN_WORDS = OptionFallback(
    ("response_format", "schema", "tool"), lambda options: options.evolve(structured="text")
)
"""Only for a question with a schema."""


def without_refused_option(
    options: ChatOptions, failure: Failure, question: ModelRequest
) -> ChatOptions | None:
    """`options` without what the endpoint objects to; None where it names none of them."""
    if failure.kind != "request":
        return None
    text = failure.text.lower()
    tried: list[OptionFallback] = [*OPTION_FALLBACKS]
    if question.answer_schema:
        tried.append(IN_WORDS)
    for item in tried:
        changed = item.change(options)
        if changed != options and any(word in text for word in item.words):
            return changed
    return None


HAPPENED: dict[Kind, str] = {
    "refused_key": "refuses the key",
    "rate_limit": "takes no more requests for now",
    "budget": "takes no more requests, the account is empty",
    "request": "refuses the request",
}
NEXT: dict[Kind, str] = {
    "refused_key": "set {key} in the environment to a key that is valid there",
    "rate_limit": "'agentkernel resume' later, or ask for fewer samples",
    "budget": "top the account up, then 'agentkernel resume'",
    "request": "check the model's name and what this endpoint takes",
    "unknown": "check the provider's name, its package and {key} in the environment",
}
ANY_NEXT = "check that the endpoint runs, then 'agentkernel resume' goes on from here"


def unavailable(
    name: str, base_url: str | None, failure: Failure, requests: int, spent_s: float
) -> ModelUnavailable:
    """The error for the model `name`, after `requests` that took `spent_s` seconds."""
    where = f" at {url_without_credentials(base_url)}" if base_url else ""
    happened = HAPPENED.get(failure.kind, "does not answer")
    provider = name.removeprefix("chat:").partition(":")[0]
    step = NEXT.get(failure.kind, ANY_NEXT).format(key=f"{provider.upper()}_API_KEY")
    tries = f"{requests} request{'' if requests == 1 else 's'} in {spent_s:.1f} s"
    text = redacted_message(failure.text, base_url).rstrip(".")
    return ModelUnavailable(f"Model {name!r}{where} {happened}: {text} ({tries}). Next: {step}.")


def redacted_message(text: str, base_url: str | None) -> str:
    """What an endpoint or its client says, without a key and without the URL's credentials."""
    return redact(redact_url(text, base_url))
