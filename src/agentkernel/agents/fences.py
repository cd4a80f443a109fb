"""How does text that others wrote stand in a prompt without being able to leave its place?

A module's comments, a retrieved document, a log and a model's reply are data. Each stands in a
fence longer than any run of backticks inside it, cut in the middle where it is long, and without
the marks by which chat templates tell who speaks.
"""

from __future__ import annotations

import re

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
