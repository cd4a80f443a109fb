"""How is a text heard while a model still writes it?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from transformers.generation.streamers import BaseStreamer

from agentkernel.agents.models.local_text import decode, first_stop
from agentkernel.agents.models.protocol import OnText

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BROKEN = "\ufffd"
"""What a decoder writes for bytes that are not a whole character (yet)."""


class FirstSample(BaseStreamer):
    """Tells a listener the first row's text as it comes, up to a stop string and without it."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        ends: frozenset[int],
        stop: Sequence[str],
        on_text: OnText,
    ) -> None:
        self._tokenizer, self._ends, self._stop = tokenizer, ends, stop
        self._on_text = on_text
        self._tokens: list[int] = []
        self._before, self._read = 0, 0
        self._held = ""
        self._prompt_is_next, self._done = True, False

    def put(self, value: torch.Tensor) -> None:
        """The prompt first, then one token of each row a call."""
        if self._prompt_is_next:
            self._prompt_is_next = False
            return
        if self._done:
            return
        token = int(value.reshape(-1)[0])
        if token in self._ends:
            self.end()
            return
        self._tokens.append(token)
        self._hear(self._decoded())

    def end(self) -> None:
        """What was held back is text after all, as no more is coming."""
        if self._done:
            return
        self._hear(self._decoded(last=True))
        if not self._done:
            self._say(len(self._held))
        self._done = True

    def _decoded(self, last: bool = False) -> str:
        """The text of the tokens that are new since the last call that gave any. They are decoded
        with those before them: a tokenizer may write a word otherwise at the beginning."""
        known = decode(self._tokenizer, self._tokens[self._before : self._read])
        text = decode(self._tokenizer, self._tokens[self._before :])
        if not last and (text.endswith(BROKEN) or len(text) <= len(known)):
            return ""
        self._before, self._read = self._read, len(self._tokens)
        return text[len(known) :]

    def _hear(self, text: str) -> None:
        self._held += text
        cut = first_stop(self._held, self._stop)
        if cut is not None:
            self._say(cut)
            self._done = True
            return
        begun = (
            size
            for word in self._stop
            for size in range(1, len(word))
            if self._held.endswith(word[:size])
        )
        self._say(len(self._held) - max(begun, default=0))

    def _say(self, size: int) -> None:
        if size:
            self._on_text(self._held[:size])
            self._held = self._held[size:]


__all__ = ["FirstSample"]
