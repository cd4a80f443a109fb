"""Parsing of a model's answer: JSON objects, typed values, whole files and edits.

Edits are SEARCH/REPLACE blocks or a unified diff. Only the text of an edit counts: file names in
a diff are not read, and what is edited is the parent's source, never a file on disk.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias, TypeVar

from pydantic import ValidationError

from agentkernel.agents.models.protocol import Model, OnText
from agentkernel.agents.prompts import render, shortened
from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import ModelUnavailable, NotRecorded, one_line
from agentkernel.domain.exchange import Message, ModelRequest, Reply
from agentkernel.storage.source_text import parse_source

JSON = None | bool | int | float | str | list["JSON"] | dict[str, "JSON"]
THOUGHT = re.compile(r"<think>.*?(</think>|\Z)", re.S)
THOUGHT_END = "</think>"
LONGEST = 400_000
"""Characters at the end of an answer that are looked at; no answer worth reading is longer."""

OBJECT = re.compile(r'\{(?=\s{0,100}["}])')
MOST_TRIES = 5_000
"""Beginnings that come to nothing before the search ends: each costs a look at the text before."""


def without_reasoning(answer: str) -> str:
    """`answer` without its thoughts: some templates open the thought in the prompt, so that only
    its end is seen."""
    text = THOUGHT.sub("", answer[-LONGEST:].replace("\r\n", "\n").replace("\r", "\n"))
    return text.rpartition(THOUGHT_END)[2]


def objects_in(answer: str) -> list[dict[str, JSON]]:
    """The outermost JSON objects of `answer` in order; bare, fenced or in the middle of prose."""
    return list(_scan(without_reasoning(answer)))


def _scan(text: str) -> Iterator[dict[str, JSON]]:
    decoder = json.JSONDecoder(strict=False)
    tries, begin = 0, OBJECT.search(text)
    while begin is not None and tries < MOST_TRIES:
        try:
            found, end = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            tries, end = tries + 1, begin.start() + 1
        else:
            yield found
        begin = OBJECT.search(text, end)


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
    asked = question.evolve(answer_schema=schema)
    reply = model.ask(asked)
    found = read_reply(reply, kind)
    if not isinstance(found, NotStructured):
        return found
    cut = any(item != "stop" for item in reply.finish)
    told = render("repair_json", problem=found.reason, schema=schema, cut=cut)
    # An empty turn is refused by most providers.
    said = Message(role="assistant", text=found.text or "(nothing)")
    messages = (*asked.messages, said, Message(role="user", text=told))
    return read_reply(model.ask(asked.evolve(messages=messages)), kind)


def ask_or_tell(
    model: Model, question: ModelRequest, kind: type[K], tell: OnText, wanted: str, instead: str
) -> K | None:
    """The model's answer as a `kind`; None where it gives none that can be read, or none at all:
    `tell` hears what was `wanted` and who answers `instead`. Raises NotRecorded."""
    try:
        found = ask_structured(model, question, kind)
    except NotRecorded:
        raise
    except ModelUnavailable as error:
        tell(f"{instead}: {one_line(error)}")
        return None
    if not isinstance(found, NotStructured):
        return found
    tell(f"{model.name} gave no {wanted} that can be read; {instead}")
    return None


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


SEARCH = re.compile(r"^<{5,9} ?SEARCH\b")
MIDDLE = re.compile(r"^={5,9}[ \t]*$")
REPLACE = re.compile(r"^>{5,9} ?REPLACE\b")
HUNK = re.compile(r"^@@(?: -(?P<start>\d+)(?:,\d+)? \+\d+(?:,\d+)? @@)?[^\n]*$")
MARKS = ("+", "-", " ", "\\")
MOST = 200
"""Edits of one answer that are applied."""
DIFF_END = re.compile(r"^(diff --git |--- |\+\+\+ |index [0-9a-f]+\.\.|```|~~~)")


class Edit(NamedTuple):
    """Lines to be found and what stands there afterwards; `near`: the claimed line, 0 for none."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    near: int = 0


class Edits(NamedTuple):
    """All edits of an answer, with the place in it where the last one begins."""

    edits: tuple[Edit, ...]
    place: int


def find_edits(text: str) -> Edits | None:
    """The SEARCH/REPLACE blocks of `text`, else the hunks of its diffs; None where neither is."""
    return _edit_blocks(text) or _hunks(text)


def apply_edits(source: str, edits: tuple[Edit, ...]) -> str | None:
    """`source` after all edits, in order; None where one finds no place or more than one."""
    lines = source.split("\n")
    for edit in edits:
        place = _find(lines, edit)
        if place is None:
            return None
        lines[place : place + len(edit.old)] = edit.new
    return "\n".join(lines)


def edit_is_open(text: str) -> bool:
    """True where the last SEARCH block of `text` does not come to its REPLACE."""
    is_open = False
    for line in text.split("\n"):
        is_open = (is_open or bool(SEARCH.match(line))) and not REPLACE.match(line)
    return is_open


def _find(lines: list[str], edit: Edit) -> int | None:
    """Where the old lines stand, exactly or but for the space at the ends of lines."""
    size = len(edit.old)
    if not size:
        return 0 if not any(lines) else None
    for form in (str, str.rstrip):
        wanted = [form(line) for line in edit.old]
        shaped = [form(line) for line in lines]
        places = [at for at in range(len(lines) - size + 1) if shaped[at : at + size] == wanted]
        if len(places) == 1:
            return places[0]
        if places and edit.near:
            return min(places, key=lambda at: abs(at + 1 - edit.near))
    return None


def _edit_blocks(text: str) -> Edits | None:
    edits: list[Edit] = []
    last, offset = 0, 0
    sides: list[list[str]] = []
    for line in text.split("\n"):
        if SEARCH.match(line):
            sides, begin = [[]], offset
        elif len(sides) == 1 and MIDDLE.match(line):
            sides.append([])
        elif len(sides) == 2 and REPLACE.match(line):
            edits.append(Edit(tuple(sides[0]), tuple(sides[1])))
            sides, last = [], begin
        elif sides:
            sides[-1].append(line)
        offset += len(line) + 1
    return Edits(tuple(edits[:MOST]), last) if edits else None


def _hunks(text: str) -> Edits | None:
    edits: list[Edit] = []
    last, offset, near = 0, 0, 0
    hunk: list[str] | None = None
    for line in [*text.split("\n"), "@@"]:
        head = HUNK.match(line)
        if hunk is not None and (head or DIFF_END.match(line)):
            edits.append(_hunk(hunk, near))
            hunk = None
        if head and offset < len(text):
            hunk, near, last = [], int(head["start"] or 0), offset
        elif hunk is not None:
            hunk.append(line)
        offset += len(line) + 1
    changes = tuple(edit for edit in edits if edit.old != edit.new)
    return Edits(changes[:MOST], last) if changes else None


def _hunk(lines: list[str], near: int) -> Edit:
    """One hunk, without the prose that may follow it where no fence closes it.

    A line without a mark is context whose leading space was lost.
    """
    while lines and lines[-1][:1] not in MARKS:
        lines = lines[:-1]
    old, new = [], []
    for line in lines:
        mark, rest = line[:1], line[1:] if line[:1] in MARKS else line
        if mark not in ("+", "\\"):
            old.append(rest)
        if mark not in ("-", "\\"):
            new.append(rest)
    return Edit(tuple(old), tuple(new), near)


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
