"""Overview and annotated listing of a Triton file."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from agentkernel.chat.explain.host import argument_notes, forward_steps, host_notes, launch_of
from agentkernel.chat.explain.kernel import (
    axis_notes,
    kernel_heading,
    kernel_notes,
    launch_constants,
)
from agentkernel.chat.explain.roles import notable_statements
from agentkernel.chat.explain.source import (
    FunctionNode,
    Kernel,
    TritonFile,
    code,
    first_line,
    functions,
    parse_file,
)

Notes = tuple[tuple[int | None, str], ...]
"""(line counted from 1, or None for the file as a whole; words), in the order of the file."""
MOST_READ = 256 * 1024
"""Characters of a file that is read, as many as of one that is pasted: it takes seconds."""
CLOSING = frozenset(")]}, \t")
OPENERS = ("else", "try", "except", "finally", "with", "case", "match")


class Span(NamedTuple):
    """Lines `first` to `last` of the file belong together and mean `words`."""

    first: int
    last: int
    words: str


def explain(source: str, first: int | None = None, last: int | None = None) -> Notes:
    """What `source` does: without a line the whole of it, kernel by kernel; with `first` that line,
    with both every statement from there to there.

    Never raises: text that is no Python is described by its form.
    """
    source = source.replace("\r\n", "\n")
    lines = source.split("\n")
    count = len(lines) - 1 if lines[-1] == "" and len(lines) > 1 else len(lines)
    if len(source) > MOST_READ:
        return _by_form(lines, count, first, last, too_long_text(source))
    try:
        if first is None:
            return _whole(parse_file(source))
        words = _read_lines(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return _by_form(lines, count, first, last, parse_error_text(error))
    return _range(words, lines, count, first, last)


def _range(
    words: dict[int, Span], lines: list[str], count: int, first: int, last: int | None
) -> Notes:
    end = first if last is None else last
    first, end = min(first, end), max(first, end)
    if first < 1 or first > count:
        return ((None, f"There is no line {first}: the file has lines 1 to {count}."),)
    notes: list[tuple[int | None, str]] = []
    told = ""
    for line in range(first, min(end, count) + 1):
        span = words.get(line)
        text = span.words if span is not None else form_of(lines[line - 1])
        quiet = first != end and (not lines[line - 1].strip() or text == told)
        if not quiet:
            notes.append((line, text))
        told = text if lines[line - 1].strip() else ""
    return tuple(notes) or ((first, "blank lines"),)


def parse_error_text(error: BaseException) -> str:
    """Why a text was not parsed."""
    where = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
    why = str(error.args[0]) if error.args else type(error).__name__
    return f"This text is no Python that can be read ({why}{where})."


def too_long_text(source: str) -> str:
    """Why a text was not read."""
    return (
        f"This text has {len(source):,} characters. Expected at most {MOST_READ:,}: it is not "
        "read, and a line of it is told by its form. Next: a part of it in a file of its own."
    )


def _by_form(lines: list[str], count: int, first: int | None, last: int | None, why: str) -> Notes:
    told = (None, why)
    if first is None:
        return (told,)
    return (told, *_range({}, lines, count, first, last))


def form_of(line: str) -> str:
    """A line by its form alone."""
    text = line.strip()
    if not text:
        return "a blank line, which separates"
    if text.startswith("#"):
        return f"comment: {text.lstrip('# ')}"
    if set(text) <= CLOSING:
        return "closes what was opened above"
    head = text.split("(")[0].split()[0].rstrip(":") if text.split("(")[0].split() else ""
    if head in OPENERS:
        return f"the {head} part: {text}"
    if head in ("def", "class", "import", "from", "for", "while", "if", "return", "raise"):
        return f"a line that begins with {head}: {text}"
    if "=" in text and not text.startswith("="):
        return f"gives {text.split('=')[0].strip()} a value: {text}"
    return f"part of a statement: {text}"


@lru_cache(maxsize=8)
def _read_lines(source: str) -> dict[int, Span]:
    """The words of all lines: a session asks about many lines of few files."""
    return _line_words(parse_file(source))


def _line_words(file: TritonFile) -> dict[int, Span]:
    """Line -> what it does; a later, narrower span wins."""
    found: dict[int, Span] = {}
    for line, text in enumerate(file.lines, start=1):
        if text.strip().startswith("#"):
            found[line] = Span(line, line, form_of(text))
    comments = set(found) - _in_strings(file.tree)
    noted = [*host_notes(file)]
    for kernel in file.kernels.values():
        noted.append((kernel.node, kernel_heading(file, kernel)))
        noted += kernel_notes(file, kernel)
    for statement, words in noted:
        first, last = _reach(statement)
        for line in range(first, last + 1):
            if line in comments:
                continue
            shared = found.get(line)
            same = shared is not None and shared.first == shared.last == line == first == last
            both = f"{shared.words}; then {words}" if shared is not None and same else words
            found[line] = Span(first, last, both)
    for statement, words in noted:
        for span in _parts(statement, words, file):
            if span.first not in comments:
                found[span.first] = span
    _add_else(file, found, comments)
    return found


def _reach(statement: ast.stmt) -> tuple[int, int]:
    """First and last line of a statement, of a compound one its head alone."""
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(item.lineno for item in decorators)])
    body = getattr(statement, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
        inner = min([body[0].lineno, *(d.lineno for d in getattr(body[0], "decorator_list", []))])
        return first, max(statement.lineno, inner - 1)
    return first, statement.end_lineno or statement.lineno


def _in_strings(tree: ast.Module) -> set[int]:
    """Lines inside strings of several lines, where a # is no comment."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
            if isinstance(node, ast.Constant) and not isinstance(node.value, str):
                continue
            found |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def _parts(statement: ast.stmt, words: str, file: TritonFile) -> list[Span]:
    """Narrower words for single lines of a statement of several lines."""
    if isinstance(statement, FunctionNode):
        return _signature(statement, words, file)
    last = statement.end_lineno or statement.lineno
    if last == statement.lineno or not isinstance(statement, ast.Expr | ast.Assign):
        return []
    value = statement.value
    if isinstance(value, ast.Dict):
        return [
            Span(line, line, f"entry {code(key)} of {code(statement.targets[0])}: {code(item)}")
            for key, item in zip(value.keys, value.values, strict=True)
            if key is not None and isinstance(statement, ast.Assign)
            for line in range(key.lineno, (item.end_lineno or item.lineno) + 1)
            if key.lineno > statement.lineno
        ]
    launch = launch_of(value, file)
    if launch is None:
        return []
    kernel = file.kernels[launch.kernel]
    spans = []
    for line in range(statement.lineno + 1, last + 1):
        told = argument_notes(launch, kernel, line)
        if told:
            spans.append(Span(line, line, told))
    return spans


def _signature(node: FunctionNode, words: str, file: TritonFile) -> list[Span]:
    spans = [
        Span(line, line, decorator_words(item))
        for item in node.decorator_list
        for line in range(item.lineno, (item.end_lineno or item.lineno) + 1)
    ]
    kernel = file.kernels.get(node.name)
    if kernel is None:
        return spans
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    by_line: dict[int, list[str]] = {}
    for item in arguments:
        if item.lineno > node.lineno:
            by_line.setdefault(item.lineno, []).append(parameter_words(item.arg, kernel))
    return [*spans, *(Span(line, line, "; ".join(told)) for line, told in by_line.items())]


def parameter_words(name: str, kernel: Kernel) -> str:
    """`columns: argument, x.shape[-1] at the launch`."""
    passed = kernel.launched_with(name)
    kind = "compile-time constant" if name in kernel.constants else "argument"
    return f"{name}: {kind}" + (f", {passed} at the launch" if passed else "")


def decorator_words(node: ast.expr) -> str:
    """What a decorator makes of the function below it."""
    name = code(node)
    if "autotune" in name.split("(")[0]:
        return f"tries several configurations and keeps the fastest for each key: {name}"
    if "heuristics" in name.split("(")[0]:
        return f"computes compile-time constants from the arguments: {name}"
    if name.split("(")[0].endswith("jit"):
        return "compiles the function below for the GPU, with Triton"
    return f"wraps the function below: {name}"


def _add_else(file: TritonFile, found: dict[int, Span], comments: set[int]) -> None:
    """The lines of `else:`, which no statement owns."""
    for node in ast.walk(file.tree):
        if not isinstance(node, ast.If | ast.For | ast.While) or not node.orelse:
            continue
        end = node.body[-1].end_lineno or node.body[-1].lineno
        for line in range(end + 1, node.orelse[0].lineno):
            if line not in comments and file.lines[line - 1].strip().startswith("else"):
                test = code(node.test) if isinstance(node, ast.If | ast.While) else "the loop"
                words = f"otherwise, if not {test}"
                found[line] = Span(line, line, words)


def _whole(file: TritonFile) -> Notes:
    """The file, then every kernel, then what `forward` launches, in the order of the file."""
    notes: list[tuple[int | None, str]] = []
    for kernel in file.kernels.values():
        notes += _kernel_story(file, kernel)
    steps = [(line, _shortened(words, file)) for line, words in forward_steps(file)]
    count = len(steps)
    notes += [
        (line, f"step {place} of {count}: {words}") for place, (line, words) in enumerate(steps, 1)
    ]
    for function in functions(file.tree):
        if function.name == "forward" and function.name not in file.kernels and not steps:
            notes.append((function.lineno, "forward: no kernel is launched and no library called"))
            break
    return ((None, _overview(file, steps)), *sorted(notes, key=lambda item: item[0] or 0))


def _shortened(words: str, file: TritonFile) -> str:
    """A launch without its constants, where they stand at its kernel already."""
    for kernel in file.kernels.values():
        constants = launch_constants(kernel) if len(kernel.launches) == 1 else ""
        if constants and words.startswith(f"launches {kernel.name} with "):
            return words.removesuffix(f", {constants}")
    return words


def _overview(file: TritonFile, steps: list[tuple[int, str]]) -> str:
    kernels = [item.name for item in file.kernels.values() if not item.helper]
    helpers = [item.name for item in file.kernels.values() if item.helper]
    told = first_line(file.tree)
    launches = sum(words.startswith("launches") for _, words in steps)
    parts = [told] if told else []
    parts.append(
        f"{_count(len(kernels), 'kernel')}{': ' if kernels else ''}{', '.join(kernels)}"
        + (f"; {_count(len(helpers), 'helper')}: {', '.join(helpers)}" if helpers else "")
        + f"; {_count(launches, 'launch', 'launches')}"
        + f" and {_count(len(steps) - launches, 'library call')}."
    )
    formula = _formula(file)
    if formula is not None:
        parts.append(f"Gradients: the backward pass differentiates {formula}, in plain torch.")
    return " ".join(parts)


def _formula(file: TritonFile) -> str | None:
    """The function of the file that its backward pass alone calls."""
    backward = [item for item in functions(file.tree) if item.name == "backward"]
    called = {
        node.func.id
        for item in backward
        for node in ast.walk(item)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    defined = [item.name for item in file.tree.body if isinstance(item, ast.FunctionDef)]
    return next((name for name in defined if name in called), None)


def _count(number: int, one: str, many: str = "") -> str:
    word = one if number == 1 else many or f"{one}s"
    return f"{number or 'no'} {word}"


def _kernel_story(file: TritonFile, kernel: Kernel) -> list[tuple[int | None, str]]:
    line = kernel.node.lineno
    notes: list[tuple[int | None, str]] = [(line, kernel_heading(file, kernel))]
    if kernel.helper:
        return notes
    notes += [(line, text) for text in axis_notes(file, kernel)]
    constants = launch_constants(kernel)
    if constants:
        notes.append((line, f"at the launch: {constants}"))
    named = notable_statements(kernel, file)
    worth = (
        (statement.lineno, words)
        for statement, words in kernel_notes(file, kernel)
        if statement in named
    )
    return [*notes, *_once(worth)]


def _once(notes: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """What was told of an earlier line is not told again: that line is named."""
    first: dict[str, int] = {}
    for line, words in notes:
        told = first.setdefault(words, line)
        if told == line:
            yield line, words
        else:
            yield line, f"{words.partition(':')[0]}: again as in line {told}"


__all__ = ["explain"]
