"""One thing about a candidate's launches changed, as a new candidate for the judge.

The text is changed and nothing else: warps, stages, a register limit and a block's width stand in
the calls that launch kernels, and `input_precision` in those of `tl.dot`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentkernel.chat import actions
from agentkernel.chat.facts import NO_CANDIDATE, kernels_of
from agentkernel.chat.launches import (
    NoChange,
    blocks_of,
    divides_k,
    in_grid,
    kernel_name,
    kernels_meant,
    launches_of,
    option,
    row_of,
    usual,
)
from agentkernel.chat.library_calls import LibraryProduct, library_products
from agentkernel.chat.queries import not_possible, of_another_target
from agentkernel.chat.replies import Reply, StepRan, TextReply
from agentkernel.chat.requests import CandidateRef, Knob, SetKnob
from agentkernel.chat.session_state import SessionState
from agentkernel.chat.steps import HandWritten, verdict_holds
from agentkernel.chat.tree import Node, is_accepted, label, problem_of, right_here
from agentkernel.storage.source_text import parse_source

OPTIONS: dict[Knob, str] = {"warps": "num_warps", "stages": "num_stages", "registers": "maxnreg"}
"""Options of a launch in Triton."""
MOST: dict[Knob, int] = {"warps": 32, "stages": 8, "registers": 255, "block": 2**16}
"""1,024 threads a block, 255 registers a thread (CUDA C++ Programming Guide, compute capabilities
8.0 to 12.0); Triton pipelines no deeper in shared memory's size; a row in registers."""
USUAL: dict[Knob, int] = {"warps": 4, "stages": 3}
"""Of a launch that names none: Triton's defaults."""
FEWEST_REGISTERS = 24
FEWER = 0.75


class Edit(NamedTuple):
    """Text to put in place of bytes `start` to `end` of a source."""

    start: int
    end: int
    text: str


class AlreadySo(NoChange):
    """What is wished is what there is, or no matter of the launch: other wishes beside it are."""


class Changed(NamedTuple):
    """A text with the wishes in it, and what is to be said of those that it had already."""

    source: str
    told: tuple[str, ...]


def set_knobs(work: SessionState, wishes: tuple[SetKnob, ...], text: str) -> Reply:
    """Change one candidate by all the wishes and have the one new text judged; one that was
    judged before is gone back to."""
    node, note = base_of(work, wishes[0].candidate)
    if node is None:
        return not_possible(note)
    try:
        found = changed_by(work, node, wishes)
    except NoChange as why:
        return TextReply(text=_lines(note, str(why)))
    known = judged_before(work, found.source)
    if known is not None:
        moved = actions.stand_at(work, known)
        return moved.evolve(text=_lines(note, moved.text))
    reply = actions.offer(work, HandWritten(found.source, "wished"), node.number, text)
    if not isinstance(reply, StepRan):
        return reply
    told = (note, *found.told, *_of_the_block(work, node, reply, wishes), _left_alone(node, wishes))
    return reply.evolve(text=_lines(reply.text, *told))


def _lines(*texts: str) -> str:
    return "\n".join(filter(None, texts))


def base_of(work: SessionState, named: CandidateRef) -> tuple[Node | None, str]:
    """The candidate that a wish changes, and what is to be said of it: without a current one it is
    the newest right one. None with the line that says why there is none."""
    if not work.tree.nodes:
        return None, NO_CANDIDATE
    if named != "current" or work.place.candidate is not None or not work.judged_here:
        return work.node(named), ""
    right = right_here(work.tree)
    if not right:
        return None, "No candidate is right yet. 'use 4 warps on c1' names the one to be changed."
    name = label(right[-1].number)
    return right[-1], f"Changed from {name}, the newest right one: no candidate was current."


def _of_the_block(
    work: SessionState, base: Node, ran: StepRan, wishes: tuple[SetKnob, ...]
) -> list[str]:
    """That a wrong result is the block's doing, where it is all that was changed of a right one."""
    made = [node for number in ran.made if (node := work.tree.node(number)) is not None]
    wrong = [
        node
        for node in made
        if node.verdict is not None
        and node.verdict.failure is not None
        and node.verdict.failure.kind == "mismatch"
    ]
    if not is_accepted(base) or {wish.knob for wish in wishes} != {"block"}:
        return []
    return [
        f"The block is the cause: {label(node.number)} differs from {label(base.number)}, which is "
        "right, in its width alone. A kernel that holds a whole row in one block needs one at "
        "least as wide as the row, unless its text loops over the row."
        for node in wrong
    ]


def _left_alone(base: Node, wishes: tuple[SetKnob, ...]) -> str:
    """That a library's products keep their tensor cores where the own kernels were told so."""
    told = any(wish.knob == "tensor_cores" and not wish.value for wish in wishes)
    left = [item for item in library_products(base) if item.tensor_cores is not False]
    return f"{_the_librarys(left)}: that is as it was." if told and left else ""


def _the_librarys(products: Sequence[LibraryProduct]) -> str:
    """`The product is the library's (aten.mm, fp16: on tensor cores)`."""
    which = "The product is" if len(products) == 1 else "The products are"
    return f"{which} the library's ({'; '.join(item.words for item in products)})"


def judged_before(work: SessionState, source: str) -> Node | None:
    """The candidate of that very text, for the sizes in force. A time for another target is none
    for the one in force, nor is a pass under a looser precision or policy."""
    for node in work.tree.nodes:
        same = node.verdict is not None and problem_of(work.tree, node) == work.place.problem
        holds = not is_accepted(node) or verdict_holds(work, node)
        aimed = holds and not of_another_target(work, node)
        if same and aimed and node.candidate.source == source:
            return node
    return None


def changed_by(work: SessionState, node: Node, wishes: tuple[SetKnob, ...]) -> Changed:
    """A candidate's text with all the wishes in it. Raises NoChange where none changes it, or one
    cannot be."""
    source, told = work.source(node.number), []
    for wish in wishes:
        meant = _as_before(work, node, wish) if wish.former else wish
        try:
            source = changed(source, node, meant)
        except AlreadySo as why:
            told.append(str(why))
    if len(told) == len(wishes):
        raise AlreadySo("\n".join(dict.fromkeys(told)))
    return Changed(source, tuple(told))


def _as_before(work: SessionState, node: Node, wish: SetKnob) -> SetKnob:
    """The wish for what the candidate had that this one was made from. Raises NoChange."""
    parent = work.tree.node(node.parent) if node.parent is not None else None
    named = OPTIONS.get(wish.knob)
    if parent is None or named is None:
        raise NoChange(f"What {label(node.number)} had before is not known. 'undo' goes back.")
    tree = parse_source(work.source(parent.number))
    calls = launches_of(tree, kernels_meant(wish.kernels, tree, label(parent.number)))
    values = {option(call, named) for call in calls}
    if len(values) != 1:
        raise NoChange(f"The launches of {label(parent.number)} differ in it: name a number.")
    (value,) = values
    usual = USUAL.get(wish.knob, 0)
    return wish.evolve(value=usual if value is None else value, former=False)


def changed(source: str, node: Node, intent: SetKnob) -> str:
    """`source` with the wish in it. Raises NoChange with one line."""
    name = label(node.number)
    tree = parse_source(source)
    lines = _starts(source)
    if intent.knob == "deterministic":
        raise AlreadySo(_deterministic(node))
    if intent.knob == "split_k":
        raise (NoChange if intent.value else AlreadySo)(_split_k(name, source, intent))
    if intent.knob == "tensor_cores" and intent.value:
        raise _with_tensor_cores(node)
    if intent.knob == "persistent":
        raise NoChange(
            f"Whether {name} loops over tiles is how it is written, not its launch. 'edit the "
            f"kernel' "
            "opens it, 'try the next idea' drafts it in another way."
            if intent.value == 0
            else f"{name} cannot be made persistent by its launch: that is another kernel, with a "
            "loop over tiles. 'run' searches persistent forms wherever a product has them."
        )
    kernels = kernels_meant(intent.kernels, tree, name)
    if intent.knob == "tensor_cores":
        if kernels:
            raise NoChange(
                "Tensor cores are a matter of all products of a text at once: nothing is changed. "
                "'no tensor cores' asks for that."
            )
        edits = list(_dots_in_ieee(tree, lines, node))
    else:
        launches = launches_of(tree, kernels)
        if not launches:
            raise NoChange(f"{name} launches no kernel of its own whose launch could be changed.")
        edits = list(_launched(intent, node, tree, launches, source))
    text = _applied(source, edits)
    if text == source:
        raise AlreadySo(f"{name} is so already: nothing to change.")
    return text


def _split_k(name: str, source: str, intent: SetKnob) -> str:
    """What is to be said of a product's sum that several blocks share."""
    splits = "split_k" in source.lower()
    if splits or intent.value:
        return (
            f"{name} {'splits' if splits else 'does not split'} its sums over blocks: that is how "
            "the kernel adds up, not its launch. 'try the next idea' drafts it in another way."
        )
    return f"{name} does not split its sums over blocks. Nothing to change."


def _with_tensor_cores(node: Node) -> NoChange:
    name = label(node.number)
    core = next((item.tensor_core for item in kernels_of(node) if item.tensor_core), None)
    if core is not None:
        return AlreadySo(f"{name} uses tensor cores ({core}). Nothing to change.")
    products = [item for item in library_products(node) if item.tensor_cores]
    if products:
        return AlreadySo(f"{name} uses tensor cores. {_the_librarys(products)}: nothing to change.")
    return NoChange(
        f"{name} uses no tensor cores. They multiply in 16 bits or in tf32: 'allow tf32' or "
        "'use fp16 inputs', then 'run', draft products on them where the module has products."
    )


def _deterministic(node: Node) -> str:
    name, verdict = label(node.number), node.verdict
    if verdict is not None and verdict.repeatable:
        return f"{name} is: the same inputs twice gave the same bits. Nothing to change."
    return (
        f"Whether {name} repeats its bits is a matter of how it adds up, not of its launch. "
        "'try the next idea' drafts it in another way."
    )


def _value(intent: SetKnob, node: Node, launches: list[ast.Call]) -> int:
    """What the option is set to."""
    knob = intent.knob
    value = intent.value
    if knob == "registers" and value is None:
        launched = set(map(kernel_name, launches))
        compiled = [kernel for kernel in kernels_of(node) if kernel.name in launched]
        used = max((kernel.registers or 0 for kernel in compiled or kernels_of(node)), default=0)
        value = int(used * FEWER) // 8 * 8
        if value < FEWEST_REGISTERS:
            raise NoChange(f"{label(node.number)} needs {used} registers a thread: few already.")
    elif value is None:
        now = [option(call, OPTIONS[knob]) for call in launches]
        first = next((item for item in now if item is not None), USUAL[knob])
        step = 2 if knob == "warps" else 1
        grown = first * step if knob == "warps" else first + step
        shrunk = first // step if knob == "warps" else first - step
        value = grown if intent.more else shrunk
    return _checked(knob, value)


def _checked(knob: Knob, value: int) -> int:
    """The value, where it can be one. Raises NoChange."""
    if knob == "registers" and value == 0:
        return value
    most, power = MOST[knob], knob in ("warps", "block")
    if not 1 <= value <= most or (power and value & (value - 1) != 0):
        kind = "a power of two " if power else ""
        raise NoChange(f"{value} cannot be: expected {kind}from 1 to {most}.")
    return value


def _launched(
    intent: SetKnob, node: Node, tree: ast.AST, launches: list[ast.Call], source: str
) -> Iterator[Edit]:
    lines = _starts(source)
    if intent.knob == "block":
        yield from _blocks(intent, tree, launches, lines)
        return
    value = _value(intent, node, launches)
    name = OPTIONS[intent.knob]
    if intent.knob == "registers" and value == 0:
        yield from _without(name, launches, lines, source)
        return
    for call in launches:
        given = [item for item in call.keywords if item.arg == name]
        if given:
            yield _over(given[0].value, lines, str(value))
        elif not _is_so(intent.knob, value, kernel_name(call), node):
            end = _end(call, lines) - 1
            before = source.encode()[:end].rstrip()
            comma = "" if before.endswith((b",", b"(")) else ","
            yield Edit(len(before), end, f"{comma} {name}={value}")


def _is_so(knob: Knob, value: int, kernel: str, node: Node) -> bool:
    """Whether each launch of a kernel was compiled with so many warps or stages, unsaid or not."""
    found = [item for item in kernels_of(node) if item.name == kernel]
    now = [{"warps": item.num_warps, "stages": item.num_stages}.get(knob) for item in found]
    return bool(now) and set(now) == {value}


def _without(name: str, launches: list[ast.Call], lines: list[int], source: str) -> Iterator[Edit]:
    """The launches without the option, and without the comma before it."""
    data = source.encode()
    for call in launches:
        for item in call.keywords:
            if item.arg == name:
                start = lines[item.lineno - 1] + item.col_offset
                before = data[:start].rstrip()
                comma = before.endswith(b",")
                yield Edit(len(before) - comma, _end(item.value, lines), "")


def _blocks(
    intent: SetKnob, tree: ast.AST, launches: list[ast.Call], lines: list[int]
) -> Iterator[Edit]:
    """One block's width, in the launch's constants and where its grid counts with it."""
    widths: dict[str, int] = {}
    for call in launches:
        widths |= blocks_of(call)
    meant = [name for name in widths if not intent.axis or name.endswith(f"_{intent.axis}")]
    if len(meant) > 1 and intent.value is None:
        # "Bigger blocks" means one that can be: the only one of several, else one is to be named.
        meant = [name for name in meant if _may_be(intent, name, tree, launches, lines)] or meant
    if len(meant) != 1:
        listed = ", ".join(f"{key} {width}" for key, width in widths.items())
        said = f"It has {listed}" if widths else "Its blocks are no constants of a launch"
        first = next(iter(meant or widths), "")
        width = _wished(intent, widths[first]) if widths else 0
        say = f"'{first} = {width}' names one" if widths else "'/edit' opens it"
        raise NoChange(f"{said}: {say}, and what comes of it is judged.")
    yield from _one_block(intent, meant[0], tree, launches, lines)


def _wished(intent: SetKnob, width: int) -> int:
    """The width that is wished of a block, twice or half of what it is where none is named."""
    if intent.value is not None:
        return intent.value
    return width * 2 if intent.more else max(width // 2, 1)


def _may_be(
    intent: SetKnob, name: str, tree: ast.AST, launches: list[ast.Call], lines: list[int]
) -> bool:
    """Whether the launches can have the block `name` wider or narrower."""
    try:
        return bool(list(_one_block(intent, name, tree, launches, lines)))
    except NoChange:
        return False


def _one_block(
    intent: SetKnob, name: str, tree: ast.AST, launches: list[ast.Call], lines: list[int]
) -> Iterator[Edit]:
    for call in launches:
        width = option(call, name)
        if width is None:
            continue
        value = _checked(intent.knob, _wished(intent, width))
        places = in_grid(tree, call, name)
        _fits_the_row(tree, call, name, value)
        even = divides_k(call, value) if name.endswith("_K") else None
        given = [usual(item.value) for item in call.keywords if item.arg == name]
        for place in (*given, *places):
            yield _over(place, lines, str(value))
        if even is not None:
            yield _over(even[0], lines, even[1])


def _fits_the_row(tree: ast.AST, call: ast.Call, name: str, width: int) -> None:
    """Raises NoChange where a row that the block holds whole does not fit into the new width."""
    row = row_of(tree, call, name)
    if row is None or width == row.columns or (row.masked and width > row.columns):
        return
    narrow = f"a row of {row.columns} must fit into it, and {width} is less"
    wide = f"it reads without a mask, and {width} reads past the row of {row.columns}"
    why = narrow if width < row.columns else wide
    raise NoChange(
        f"{kernel_name(call)} holds a whole row in its {name}: {why}. Nothing is changed. 'use 4 "
        "warps' spreads a row over other threads, 'try the next idea' drafts another form."
    )


def _dots_in_ieee(tree: ast.AST, lines: list[int], node: Node) -> Iterator[Edit]:
    """Products in fp32 without tensor cores. Raises NoChange where none runs on them, or where
    their operands have 16 bits, which Triton multiplies there alone."""
    name = label(node.number)
    cores = {kernel.tensor_core for kernel in kernels_of(node)} - {None}
    if not cores:
        raise NoChange(_without_own_cores(name, library_products(node)))
    if any(str(core).endswith("f16") for core in cores):
        raise NoChange(
            f"{name} multiplies operands of 16 bits, which Triton does on tensor cores alone. "
            "'strict precision' and 'run' draft products without reduced operands."
        )
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr != "dot":
            continue
        given = [item for item in call.keywords if item.arg == "input_precision"]
        if given:
            yield _over(given[0].value, lines, '"ieee"')
        else:
            end = _end(call, lines) - 1
            yield Edit(end, end, ', input_precision="ieee"')


def _without_own_cores(name: str, products: tuple[LibraryProduct, ...]) -> str:
    """Why there is nothing to change where no own kernel uses tensor cores: the library cannot be
    told what to multiply on, and what can be done instead."""
    on = [item for item in products if item.tensor_cores is not False]
    if not on:
        also = f" {_the_librarys(products)}." if products else ""
        return f"{name} uses no tensor cores.{also} Nothing to change."
    if any(item.is_half for item in on):
        instead = (
            "Triton too multiplies 16 bits on tensor cores alone: 'use fp32 inputs', 'only your "
            "own kernels' and 'run' draft a product that can be told."
        )
    else:
        instead = (
            "'only your own kernels' and 'run' draft the product in Triton, which can be told."
        )
    return (
        f"{name}: its own kernels use no tensor cores. {_the_librarys(on)}, which cannot be told "
        f"so: nothing is changed. {instead}"
    )


def _starts(source: str) -> list[int]:
    """Where each line begins, in bytes: what `ast` counts columns in."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _over(node: ast.expr, lines: list[int], text: str) -> Edit:
    return Edit(lines[node.lineno - 1] + node.col_offset, _end(node, lines), text)


def _end(node: ast.expr, lines: list[int]) -> int:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return lines[node.end_lineno - 1] + node.end_col_offset


def _applied(source: str, edits: list[Edit]) -> str:
    data = source.encode()
    for edit in sorted(set(edits), reverse=True):
        data = data[: edit.start] + edit.text.encode() + data[edit.end :]
    return data.decode()
