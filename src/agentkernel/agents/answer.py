"""Where in a model's answer is the file that it was asked for?"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from agentkernel.agents.edits import apply_edits, edit_is_open, find_edits
from agentkernel.agents.json_text import JSON, objects_in, without_reasoning
from agentkernel.storage.source_text import parse_source

FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n]*$", re.M)
IMPORTS, TEXTS, DEFINITIONS = ("import ", "from "), ('"""', "'''", "#"), ("@", "class ", "def ")
STARTS = (*IMPORTS, *TEXTS, *DEFINITIONS)
MOST_TEXT = 120_000
"""Characters of an answer that are read, its end: no drop-in is longer."""
MOST_PARSES = 200
MOST_FENCES = 120
"""Pieces of one answer that are parsed, and fences of it that are paired, the last ones: prose of
any length must not cost minutes."""


class Answer(NamedTuple):
    """The file that an answer holds. `source` None: none that is complete.

    `truncated`: the answer stops before its last block, thought or edit is closed.
    """

    source: str | None
    truncated: bool


class _Block(NamedTuple):
    text: str
    place: int
    closed: bool


def extract_module(
    answer: str, class_name: str = "ModelNew", parent: str | None = None
) -> str | None:
    """The last complete file in `answer` that defines `class_name`, else None.

    Takes fenced blocks first, an unclosed one included, then edits of `parent`, code inside JSON,
    and the bare text between the prose; of a file that does not parse never a piece.
    """
    return read_answer(answer, class_name, parent).source


def read_answer(answer: str, class_name: str = "ModelNew", parent: str | None = None) -> Answer:
    """The file, with the word whether the answer was cut short."""
    text, search = without_reasoning(answer[-MOST_TEXT:]), _Search(class_name)
    truncated = _cut(answer, text)
    block = next((item for item in _blocks(text) if search.defines(item.text)), None)
    edited = None if parent is None else _edited(text, parent, block, search)
    source = edited or (block.text if block else None)
    if source is None:
        source = _inside_json(text, search) or _bare(text, search)
    return Answer(None if source is None else source.strip("\n") + "\n", truncated)


class _Search:
    """Says what defines the class, as often as one answer is worth."""

    def __init__(self, class_name: str) -> None:
        self.head = f"class {class_name}"
        self._name = class_name
        self._parses = 0

    @property
    def spent(self) -> bool:
        """True where nothing more is parsed."""
        return self._parses >= MOST_PARSES

    def parse(self, block: str) -> ast.Module | int:
        """The tree, or the line where `block` stops being Python."""
        self._parses += 1
        if self._parses > MOST_PARSES:
            return 0
        try:
            return parse_source(block)
        except SyntaxError as error:
            return error.lineno or 0

    def defines(self, block: str) -> bool:
        """True where `block` is valid Python with a top-level class of that name."""
        if self.head not in block:
            return False
        tree = self.parse(block)
        return not isinstance(tree, int) and any(
            isinstance(node, ast.ClassDef) and node.name == self._name for node in tree.body
        )


def _blocks(text: str) -> Iterator[_Block]:
    """What may stand between fences, the last opened first.

    A fence inside the code (in a docstring) closes nothing: the next ones are tried too, and the
    end of the text where none fits.
    """
    fences = list(FENCE.finditer(text))[-MOST_FENCES:]
    for index in range(len(fences) - 1, -1, -1):
        opening = fences[index]
        for closing in fences[index + 1 :]:
            if _closes(closing, opening):
                inside = text[opening.end() + 1 : closing.start()]
                yield _Block(textwrap.dedent(inside), opening.start(), True)
        inside = text[opening.end() + 1 :]
        yield _Block(textwrap.dedent(inside), opening.start(), False)


def _closes(closing: re.Match[str], opening: re.Match[str]) -> bool:
    same = closing[1][0] == opening[1][0] and len(closing[1]) >= len(opening[1])
    return same and not closing[2]


def _edited(text: str, parent: str, block: _Block | None, search: _Search) -> str | None:
    """`parent` after the answer's edits, where they come after its last whole file and fit."""
    found = find_edits(text)
    if found is None or (block is not None and block.place > found.place):
        return None
    for source in (parent, ""):
        made = apply_edits(source, found.edits)
        if made is not None and search.defines(made):
            return made
    return None


def _inside_json(text: str, search: _Search) -> str | None:
    """The last string of a JSON object that is such a file, fenced or not."""
    strings = [item for found in objects_in(text) for item in _strings(found)]
    for item in reversed([item for item in strings if search.head in item]):
        for block in (item, *(block.text for block in _blocks(item))):
            if search.defines(block):
                return block
    return None


def _strings(value: JSON) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _bare(text: str, search: _Search) -> str | None:
    """The longest run of lines that parses and defines the class, in an answer without fences."""
    lines = text.split("\n")
    fences = [index for index, line in enumerate(lines) if FENCE.match(line)]
    for index in fences:
        lines[index] = ""
    named = [index for index, line in enumerate(lines) if line.startswith(search.head)]
    if not named:
        return None
    heads = [index for index in range(named[-1] + 1) if lines[index].startswith(STARTS)]
    for head in heads:
        if search.spent:
            break
        end = len(lines)
        while end > head:
            block = "\n".join(lines[head:end])
            if search.defines(block):
                fence = max((index for index in fences if index < head), default=0)
                if _is_torn(lines[fence:head], lines[head]):
                    break
                return None if _goes_on(lines[end:]) else block
            stop = search.parse(block)
            shorter = head + stop - 1 if isinstance(stop, int) else head
            end = shorter if shorter < end else end - 1
            if search.head not in "\n".join(lines[head:end]):
                break
    return None


def _is_torn(before: list[str], first: str) -> bool:
    """Whether a file began before the line `first`, which is no beginning: then it has a mistake in
    between, and the rest of it is another file than the one that was written."""
    return first.startswith(DEFINITIONS) and any(
        line.startswith((*IMPORTS, *DEFINITIONS)) for line in before
    )


def _goes_on(rest: list[str]) -> bool:
    """Whether what follows is code, not prose: then the file was broken off inside it."""
    first = next((line for line in rest if line.strip()), "")
    return first.startswith((" ", "\t", *STARTS))


def _cut(answer: str, text: str) -> bool:
    """Whether a thought, the last fence or an edit is left open."""
    if answer.rfind("<think>") > answer.rfind("</think>"):
        return True
    opening: re.Match[str] | None = None
    for fence in FENCE.finditer(text):
        if opening is None:
            opening = fence
        elif _closes(fence, opening):
            opening = None
    return opening is not None or edit_is_open(text)


__all__ = ["Answer", "extract_module", "read_answer"]
