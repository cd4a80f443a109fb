"""Untrusted text made safe for prompts, and secrets kept out of any text that is shown.

A module's comments, a retrieved document, a log and a model's reply are data. Each is put in a
fence longer than any run of backticks inside it, shortened in the middle where it is long, and
without the marks by which chat templates separate the speakers. Secrets are the values of
environment variables whose names look like keys.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from agentkernel.domain.errors import one_line

MOST = 24_000
"""Characters of one piece of data, head and tail together."""
HEAD_SHARE = 0.6
LINE_MOST = 200
RUN = re.compile(r"`+")
SPEAKERS = re.compile(
    r"<(?=[|｜][^<>\n]{1,40}[|｜]>)|<(?=/?s>|<?/?SYS>|(?:start|end)_of_turn>)|\[(?=/?INST\])"
)
"""What begins a mark of Llama's, Qwen's, Mistral's, Gemma's and DeepSeek's chat templates."""
UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""Control characters, and those that reorder or hide what a person sees; tab and newline stay."""


def fenced(text: str, language: str = "", most: int = MOST) -> str:
    """`text` in a fence of its own that nothing inside it can close."""
    inside = harmless(shortened(text, most)).strip("\n")
    longest = max((len(run) for run in RUN.findall(inside)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{inside}\n{fence}"


def inline(text: object, most: int = LINE_MOST) -> str:
    """`text` on one line, without backticks: a name or a reason in the middle of a sentence."""
    words = " ".join(harmless(str(text)).replace("`", "'").split())
    return words if len(words) <= most else words[: most - 3].rstrip() + "..."


def shortened(text: str, most: int = MOST) -> str:
    """At most about `most` characters of `text`: its head and its tail, with what is left out."""
    if len(text) <= most:
        return text
    head = int(most * HEAD_SHARE)
    tail = most - head
    left_out = len(text) - head - tail
    return f"{text[:head]}\n... {left_out} characters left out ...\n{text[-tail:]}"


def harmless(text: str) -> str:
    """`text` without unseen characters, and with the marks of chat templates broken up."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return SPEAKERS.sub(lambda mark: f"{mark[0]} ", UNSEEN.sub("", text))


SECRET_NAME = re.compile(
    r"(^|_)(API)?(KEY|TOKEN|SECRET|PASS|PASSWD|PASSWORD|PWD|CREDENTIALS?)(_|\d|$)"
)
SHORTEST = 8
"""A shorter value is no key, and would be cut out of ordinary words."""


class Secret(NamedTuple):
    """An environment variable that looks like a key."""

    name: str
    value: str


def secrets() -> tuple[Secret, ...]:
    """The keys of the environment, longest first: one may begin with another."""
    found = (
        Secret(name, value)
        for name, value in os.environ.items()
        if len(value) >= SHORTEST and SECRET_NAME.search(name.upper())
    )
    return tuple(sorted(found, key=lambda item: -len(item.value)))


def redact(text: str) -> str:
    """`text` with every secret's name in place of its value."""
    for secret in secrets():
        text = text.replace(secret.value, f"<{secret.name}>")
    return text


def error_line(error: object) -> str:
    """What `error` says, on one line that is safe to show: a key is hidden before the line is cut,
    as the rest of a key that a cut has halved looks like nothing."""
    return one_line(UNSEEN.sub(" ", redact(str(error))))


class Redactor:
    """Redacts a text that comes in pieces: what may be the beginning of a key is held back."""

    def __init__(self) -> None:
        self._secrets = secrets()
        self._held = ""

    def feed(self, piece: str) -> str:
        """What can be said by now."""
        text = redact(self._held + piece)
        begun = max((_overlap(text, item.value) for item in self._secrets), default=0)
        self._held = text[len(text) - begun :]
        return text[: len(text) - begun]

    def rest(self) -> str:
        """What was held back, when no more comes."""
        held, self._held = self._held, ""
        return held


def url_without_credentials(url: str) -> str:
    """`url` without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def redact_url(text: str, url: str | None) -> str:
    """`text` with `url`, and the credentials in it, written as `url_without_credentials` does."""
    if not url:
        return text
    parts = urlsplit(url)
    credentials = parts.netloc.rpartition("@")[0]
    for hidden in (credentials, credentials.partition(":")[2], parts.query):
        if hidden:
            text = text.replace(hidden, "<hidden>")
    return text


def _overlap(text: str, secret: str) -> int:
    """Length of the longest end of `text` that is a true beginning of `secret`."""
    most = min(len(text), len(secret) - 1)
    return next((size for size in range(most, 0, -1) if text.endswith(secret[:size])), 0)
