"""How is a text told to people, logs and records without the keys of this environment?"""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from agentkernel.agents.fences import UNSEEN
from agentkernel.domain.errors import one_line

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
