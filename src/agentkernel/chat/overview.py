"""Overview of a candidate's kernels, launches, memory accesses and products, by its text alone.

A model may explain the file in its own words, with the overview as evidence.
"""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Literal, NamedTuple

from agentkernel.agents.answers import without_reasoning
from agentkernel.agents.models.protocol import Model
from agentkernel.agents.prompts import render, shortened
from agentkernel.domain.exchange import Message, ModelRequest, Sampling
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.policy.kernel_source import kernel_functions
from agentkernel.tools.judge.policy.names import COMPUTE_METHODS, TORCH_PLAIN

Notes = tuple[tuple[int | None, str], ...]
"""(line counted from 1, or None for the file as a whole; words), in the order of the file."""
MOST_READ = 256 * 1024
"""Characters of a file that is read, as many as of one that is pasted: it takes seconds."""
MOST_WORDS = 4_000
"""Characters of a model's explanation that are shown."""
CODE_WIDTH = 90
"""Characters of code that a note quotes at most."""
MOST_VALUES = 8
"""Values of a parameter that are told: a kernel may be launched a thousand times."""
NAMESPACES = {
    "triton.language.extra.libdevice": "tl",
    "triton.language.math": "tl",
    "triton.language": "tl",
    "triton": "triton",
    "torch.nn.functional": "F",
    "torch.nn": "nn",
    "torch": "torch",
}
"""Modules -> the name that the notes use for them, inner ones first."""
SIZES = ("numel", "size", "stride", "cdiv", "next_power_of_2", "max", "min")
"""Functions whose result is a number rather than a tensor."""
SET_UP = TORCH_PLAIN | {"autograd", "inference_mode", "manual_seed", "compile"}
"""Of torch, what computes nothing on the GPU."""
CUSTOM = ("reduce", "associative_scan")
"""Reductions by a function of the file."""
REDUCED = ("sum", "max", "min", "argmax", "argmin", "xor_sum", "cumsum", "cumprod", "sort")
UNMASKED = "not masked"
OperationKind = Literal["program", "load", "store", "atomic", "reduction", "product"]
COUNTED: tuple[OperationKind, ...] = ("load", "store", "atomic", "reduction", "product")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Values = dict[str, ast.expr]
"""What the names of a function were given last."""


class Launch(NamedTuple):
    """One `kernel[grid](...)`. `passed`: parameter, or option such as num_warps -> its code."""

    kernel: str
    line: int
    where: str
    grid: tuple[str, ...]
    passed: dict[str, str]


class Operation(NamedTuple):
    """What a call in a kernel does; `masked` holds for loads, stores and atomics."""

    kind: OperationKind
    words: str
    masked: bool = False


@dataclass
class Kernel:
    """A function that Triton compiles, once it is known what the file launches it with."""

    name: str
    node: ast.FunctionDef
    tuned: dict[str, str]
    """Constant or option -> the values that `triton.autotune` chooses from."""
    launches: list[Launch] = field(default_factory=list)

    @cached_property
    def parameters(self) -> dict[str, bool]:
        """Parameter -> whether it is known when the kernel is compiled."""
        given = self.node.args
        return {
            item.arg: item.annotation is not None and "constexpr" in code(item.annotation)
            for item in (*given.posonlyargs, *given.args, *given.kwonlyargs)
        }

    @cached_property
    def passed(self) -> dict[str, str]:
        """Parameter or option -> the code that the launches pass for it."""
        told = values_by_name(pair for launch in self.launches for pair in launch.passed.items())
        return told | {name: f"{values} (tuned)" for name, values in self.tuned.items()}

    @cached_property
    def assigned(self) -> Values:
        """Name of the kernel -> what it is given first."""
        given = [
            assigned_names(target, node.value)
            for node in ast.walk(self.node)
            if isinstance(node, ast.Assign)
            for target in node.targets
        ]
        return {name: value for names in reversed(given) for name, value in names.items()}

    def shown(self, node: ast.expr | None) -> str:
        """`node` as code, a name with what it was given first."""
        if node is None:
            return "?"
        given = self.assigned.get(node.id) if isinstance(node, ast.Name) else None
        return code(node) + (f" ({code(given)})" if given is not None else "")


class Statement(NamedTuple):
    """A statement of the file; of a compound one, `last` is the end of its head."""

    node: ast.stmt
    first: int
    last: int
    where: str
    """The function or class that it stands in, "" for the module."""
    kernel: Kernel | None


@dataclass(frozen=True)
class TritonFile:
    """A parsed file; `imported`: local name -> dotted name; `layers`: `self.proj` -> its code."""

    tree: ast.Module
    lines: tuple[str, ...]
    imported: dict[str, str]
    kernels: dict[str, Kernel]
    statements: tuple[Statement, ...]
    layers: dict[str, str] = field(default_factory=dict)
    launches: dict[ast.expr, Launch] = field(default_factory=dict)

    @cached_property
    def operations(self) -> dict[ast.stmt, list[Operation]]:
        """Statement of a kernel -> what it does; the kernel's own -> all that is done in it. What
        stands inside a call comes before it."""
        found: dict[ast.stmt, list[Operation]] = {x.node: [] for x in self.kernels.values()}
        for item in self.statements:
            if item.kernel is not None and item.node is not item.kernel.node:
                calls = [node for node in expressions(item.node) if isinstance(node, ast.Call)]
                done = [operation(call, item.kernel, self) for call in sorted(calls, key=_ends)]
                found[item.node] = [each for each in done if each is not None]
                found[item.kernel.node] += found[item.node]
        return found

    def is_helper(self, kernel: Kernel) -> bool:
        """True for a function that kernels call: it is not launched and does not touch memory."""
        done = {item.kind for item in self.operations[kernel.node]}
        return not kernel.launches and done <= {"reduction", "product"}

    @cached_property
    def forward(self) -> frozenset[str]:
        """The functions that run in a call of the drop-in, as far as their names say so."""
        methods = {item.where for item in self.statements if item.kernel is None and item.where}
        found = {name for name in methods if name.startswith("ModelNew.")} - {"ModelNew.__init__"}
        found |= {launch.where for launch in self.launches.values()}
        return frozenset(found or {name for name in methods if name.split(".")[-1] == "forward"})


def read_file(source: str) -> TritonFile:
    """The file's parts. Nothing is run. Raises SyntaxError for no Python that can be read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        tree = parse_source(source)
    imported = _imports(tree)
    found = kernel_functions(tree)
    kernels = {name: Kernel(name, node, _tuned(node, imported)) for name, node in found}
    compiled: dict[ast.AST, Kernel] = {item.node: item for item in kernels.values()}
    statements = tuple(_statements(tree, "", None, compiled))
    file = TritonFile(tree, tuple(source.split("\n")), imported, kernels, statements)
    known: dict[str, Values] = {}
    for item in statements:
        if item.kernel is None:
            _learn(item, known.setdefault(item.where, {}), file)
    return file


def _statements(
    node: ast.AST, where: str, kernel: Kernel | None, compiled: Mapping[ast.AST, Kernel]
) -> Iterator[Statement]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            own = compiled.get(child, kernel)
            inner = f"{where}.{child.name}" if isinstance(child, Function | ast.ClassDef) else where
            heads = list(expressions(child))
            ends = heads if hasattr(child, "body") else [child]
            first = min(item.lineno for item in (child, *heads))
            last = max([child.lineno, *(item.end_lineno or 0 for item in ends)])
            yield Statement(child, first, last, where, own)
            yield from _statements(child, inner.lstrip("."), own, compiled)
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from _statements(child, where, kernel, compiled)


def expressions(node: ast.AST) -> Iterator[ast.expr | ast.arg]:
    """The expressions of a statement, without those of statements inside it."""
    waiting = [node]
    while waiting:
        for child in ast.iter_child_nodes(waiting.pop()):
            if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                waiting.append(child)
                if isinstance(child, ast.expr | ast.arg):
                    yield child


def _learn(item: Statement, known: Values, file: TritonFile) -> None:
    """Launches and layers of one statement, then what it gives its names."""
    for call in expressions(item.node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Subscript):
            launched = call.func.value
            if isinstance(launched, ast.Call) and len(launched.args) == 1:
                launched = launched.args[0]  # a wrapper such as `wrap_triton(kernel)`
            kernel = file.kernels.get(dotted(launched))
            if kernel is not None:
                launch = _launch(call, call.func.slice, kernel, item, known)
                file.launches[call] = launch
                kernel.launches.append(launch)
    if isinstance(item.node, ast.Assign):
        for target in item.node.targets:
            known |= assigned_names(target, item.node.value)
            if dotted(target).startswith("self.") and isinstance(item.node.value, ast.Call):
                file.layers[dotted(target)] = code(item.node.value, 60)


def _launch(
    call: ast.Call, grid: ast.expr, kernel: Kernel, item: Statement, known: Values
) -> Launch:
    placed = takewhile(lambda value: not isinstance(value, ast.Starred), call.args)
    given = dict(zip(kernel.parameters, placed, strict=False))
    named = [(item.arg, item.value) for item in call.keywords if item.arg is not None]
    given |= sorted(named, key=lambda item: item[0] not in kernel.parameters)
    passed = {name: _passed(value, known) for name, value in given.items()}
    grid = known.get(grid.id, grid) if isinstance(grid, ast.Name) else grid
    grid = grid.body if isinstance(grid, ast.Lambda) else grid
    axes = grid.elts if isinstance(grid, ast.Tuple | ast.List) else [grid]
    sizes = tuple(_passed(axis, known) for axis in axes)
    return Launch(kernel.name, call.lineno, item.where, sizes, passed)


def _passed(value: ast.expr, known: Values) -> str:
    """An argument's code; a name of a size is followed to where the size comes from."""
    source = known.get(value.id) if isinstance(value, ast.Name) else None
    if source is not None:
        called = dotted(source.func).rpartition(".")[2] if isinstance(source, ast.Call) else ""
        plain = isinstance(source, ast.Attribute | ast.Subscript | ast.Constant | ast.BinOp)
        value = source if plain or called in SIZES else value
    return code(value, 60)


def assigned_names(target: ast.expr, value: ast.expr) -> Values:
    """Name -> value of one assignment; `a, b = x.shape` gives each name its part."""
    if isinstance(target, ast.Name):
        return {target.id: value}
    if not isinstance(target, ast.Tuple) or any(isinstance(x, ast.Starred) for x in target.elts):
        return {}
    given = value.elts if isinstance(value, ast.Tuple) else []
    if isinstance(value, ast.Attribute) and value.attr == "shape":
        axes = map(ast.Constant, range(len(target.elts)))
        given = [ast.Subscript(value, axis, ast.Load()) for axis in axes]
    parts: Values = {}
    for item, part in zip(target.elts, given, strict=False):
        parts |= assigned_names(item, part) if len(given) == len(target.elts) else {}
    return parts


def code(node: ast.AST, width: int = CODE_WIDTH) -> str:
    """`node` as one line of code, cut past `width` characters."""
    return cut(ast.unparse(node), width)


def cut(text: str, width: int = CODE_WIDTH) -> str:
    """`text` as one line, cut past `width` characters."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 3] + "..."


def alternatives(values: Iterable[str]) -> str:
    """`a or b` of different values; past a few, how many more there are."""
    found = list(dict.fromkeys(values))
    more = [f"{len(found) - MOST_VALUES} more"] if len(found) > MOST_VALUES else []
    return " or ".join(found[:MOST_VALUES] + more)


def values_by_name(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Name -> its alternatives, of (name, value)."""
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: alternatives(values) for name, values in found.items()}


def dotted(node: ast.expr) -> str:
    """`a.b.c` of names and attributes, "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    base = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{base}.{node.attr}" if base and isinstance(node, ast.Attribute) else ""


def canonical(node: ast.expr, imported: dict[str, str]) -> str:
    """The name in the words of `NAMESPACES`; ".name" for a method of a value."""
    head, dot, rest = dotted(node).partition(".")
    name = f"{imported.get(head, head)}{dot}{rest}"
    if head in imported:
        module = next((x for x in NAMESPACES if f"{name}.".startswith(f"{x}.")), "")
        return NAMESPACES.get(module, "") + name.removeprefix(module)
    return f".{node.attr}" if isinstance(node, ast.Attribute) and head != "self" else name


def _imports(tree: ast.Module) -> dict[str, str]:
    # Snippets without imports mean what everybody means by these.
    found = {short: module for module, short in NAMESPACES.items()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            tops = [(item, item.name.split(".")[0]) for item in node.names]
            found |= {x.asname or top: x.name if x.asname else top for x, top in tops}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {x.asname or x.name: f"{node.module}.{x.name}" for x in node.names}
    return found


def _tuned(node: ast.FunctionDef, imported: dict[str, str]) -> dict[str, str]:
    pairs: list[tuple[str, str]] = []
    for call in (item for decorator in node.decorator_list for item in ast.walk(decorator)):
        if isinstance(call, ast.Call) and canonical(call.func, imported) == "triton.Config":
            pairs += [
                (str(key.value), code(value))
                for item in call.args[:1]
                if isinstance(item, ast.Dict)
                for key, value in zip(item.keys, item.values, strict=True)
                if isinstance(key, ast.Constant)
            ]
            pairs += [(option.arg or "", code(option.value)) for option in call.keywords]
    return values_by_name(pairs)


def argument(call: ast.Call, name: str, place: int | None = None) -> ast.expr | None:
    """The argument `name`, also where it is given by its place; None for a literal None too."""
    given = next((item.value for item in call.keywords if item.arg == name), None)
    if given is None and place is not None and len(call.args) > place:
        given = call.args[place]
    return None if isinstance(given, ast.Constant) and given.value is None else given


def _docstring(node: Function | ast.ClassDef | ast.Module) -> str:
    """`: ` and the first paragraph of a docstring, "" where there is none."""
    text = " ".join((ast.get_docstring(node) or "").strip().split("\n\n")[0].split())
    return f": {text}" if text else ""


def operation(call: ast.Call, kernel: Kernel, file: TritonFile) -> Operation | None:
    """What a call in a kernel does to memory or across lanes; None for arithmetic."""
    name = canonical(call.func, file.imported)
    space, dot, short = name.rpartition(".")
    if not dot or space not in ("", "tl"):
        return None
    if name in (".load", ".store"):
        words = f"{short}s by a descriptor, which checks the edges: {code(call)}"
        return Operation("load" if short == "load" else "store", words, masked=True)
    if short in ("load", "store") or short.startswith("atomic"):
        return _access(call, short, kernel)
    if name == "tl.program_id":
        return Operation("program", _program(call, kernel))
    if short in ("dot", "dot_scaled"):
        return Operation("product", _product(call))
    if short not in (*REDUCED, *CUSTOM):
        return None
    own = [call.func.value] if not space and isinstance(call.func, ast.Attribute) else []
    return Operation("reduction", _reduction(call, own + call.args, short))


def _access(call: ast.Call, short: str, kernel: Kernel) -> Operation:
    """A load, a store or an atomic operation at a pointer."""
    # tl.atomic_cas takes no mask, and has two values.
    swap = short == "atomic_cas"
    mask = None if swap else argument(call, "mask", 1 if short == "load" else 2)
    checked = argument(call, "boundary_check")
    masked = UNMASKED if checked is None else f"checked at the edges of axes {code(checked)}"
    if mask is not None:
        masked = f"masked by {kernel.shown(mask)}"
    place = kernel.shown(argument(call, "pointer", 0))
    if short == "load":
        other = argument(call, "other", 2)
        filled = f", {code(other) if other else 'undefined'} elsewhere" if mask is not None else ""
        return Operation("load", f"loads {place}, {masked}{filled}", masked != UNMASKED)
    value = argument(call, "cmp" if swap else "value", 1) or argument(call, "val")
    verb = "stores" if short == "store" else f"{short}:"
    words = f"{verb} {code(value) if value else '?'} to {place}, {masked}"
    return Operation("store" if short == "store" else "atomic", words, masked != UNMASKED)


def _program(call: ast.Call, kernel: Kernel) -> str:
    axis = argument(call, "axis", 0)
    place = axis.value if isinstance(axis, ast.Constant) else None
    grids = [launch.grid for launch in kernel.launches]
    sizes = [x[place] for x in grids if isinstance(place, int) and place < len(x)]
    of = f" of {alternatives(sizes)}" if sizes else ""
    return f"number of the program along grid axis {code(axis) if axis else 0}{of}"


def _product(call: ast.Call) -> str:
    if len(call.args) < 2:
        return f"product: {code(call)}"
    added, precision = argument(call, "acc", 2), argument(call, "input_precision")
    onto = f", added to {code(added)}" if added is not None and len(call.args) < 4 else ""
    kept = "Triton's default (TF32 for fp32 operands)"
    if precision is not None:
        kept = str(precision.value) if isinstance(precision, ast.Constant) else code(precision)
    return f"product of {code(call.args[0])} and {code(call.args[1])}{onto}; precision: {kept}"


def _reduction(call: ast.Call, given: list[ast.expr], short: str) -> str:
    if not given:
        return f"reduction: {code(call)}"
    axis = argument(call, "axis") or (given[1] if len(given) > 1 else None)
    over = f" over axis {code(axis)}" if axis is not None else ""
    by = f" by {code(given[2])}" if short in CUSTOM and len(given) > 2 else ""
    return f"{short} of {code(given[0])}{over}{by}"


def _ends(node: ast.expr) -> tuple[int, int]:
    return (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)


def _heading(kernel: Kernel, file: TritonFile) -> str:
    """A kernel with its grid, the count of its operations and what the launches fix."""
    told, done = _docstring(kernel.node), file.operations[kernel.node]
    if file.is_helper(kernel):
        return f"{kernel.name}: a helper that kernels call{told}"
    counts = Counter(item.kind for item in done)
    masked = Counter(item.kind for item in done if item.masked)
    parts = ["nothing in this file launches it"]
    if kernel.launches:
        lines = ", ".join(str(item.line) for item in kernel.launches[:MOST_VALUES])
        grids = alternatives(" x ".join(item.grid) for item in kernel.launches)
        parts = [f"launched in line {lines} with a grid of {grids}"]
    parts += [
        counted(counts[kind], kind)
        + f" ({masked[kind] or 'none'} masked)" * (kind in ("load", "store", "atomic"))
        for kind in COUNTED
        if counts[kind]
    ]
    constants = [name for name, constant in kernel.parameters.items() if constant]
    options = [x for item in kernel.launches for x in item.passed if x not in kernel.parameters]
    fixed = dict.fromkeys((*constants, *options, *kernel.tuned))
    values = [f"{name} = {kernel.passed[name]}" for name in fixed if name in kernel.passed]
    parts += [f"at the launch {', '.join(values)}"] if values else []
    return f"{kernel.name}: a kernel, {'; '.join(parts)}{told}"


def counted(number: int, one: str) -> str:
    """`no loads`, `1 load`, `2 launches`."""
    plural = one if number == 1 else f"{one}es" if one.endswith("ch") else f"{one}s"
    return f"{number or 'no'} {plural}"


def notable(item: Statement, file: TritonFile) -> list[str]:
    """What a statement does that an overview names: launches, library calls, loops, operations."""
    node, kernel = item.node, item.kernel
    if kernel is not None and node is kernel.node:
        return [_heading(kernel, file)]
    if kernel is not None:
        head = cut("\n".join(file.lines[item.first - 1 : item.last]).rstrip(" :"))
        told = [f"branch: {head}"] if isinstance(node, ast.If) else []
        if isinstance(node, ast.For | ast.While):
            told = [f"loop: {head}{_values(item, kernel)}"]
        return [*told, *(done.words for done in file.operations[node])]
    if isinstance(node, Function | ast.ClassDef):
        return []
    calls = [x for x in expressions(node) if isinstance(x, ast.Call | ast.BinOp)]
    told = [_call_words(call, file) for call in sorted(calls, key=_ends)]
    return [words for words in told if words]


def _call_words(call: ast.Call | ast.BinOp, file: TritonFile) -> str:
    """A launch, a computation of torch, or ""."""
    launch = file.launches.get(call)
    if launch is not None:
        given = ", ".join(f"{name} = {value}" for name, value in launch.passed.items())
        passed = f": {given}" if given else ""
        return f"launches {launch.kernel} with a grid of {' x '.join(launch.grid)}{passed}"
    if isinstance(call, ast.BinOp):
        return f"library call @: {code(call)}" if isinstance(call.op, ast.MatMult) else ""
    name = canonical(call.func, file.imported)
    layer = f" = {file.layers[name]}" if name in file.layers else ""
    space, _, rest = name.partition(".")
    computes = space == "F" or (space == "torch" and rest.partition(".")[0] not in SET_UP)
    known = layer or computes or (not space and rest in COMPUTE_METHODS)
    return f"library call {name}{layer}: {code(call)}" if known else ""


def _values(item: Statement, kernel: Kernel) -> str:
    """`; BLOCK is 512, columns is x.shape[-1] at the launch`: what a statement's names hold."""
    names = {x.id for x in expressions(item.node) if isinstance(x, ast.Name)}
    passed = [(x, kernel.passed.get(x, x)) for x in kernel.parameters if x in names]
    told = [f"{name} is {value}" for name, value in passed if value != name]
    return f"; {', '.join(told)} at the launch" if told else ""


def statement_words(item: Statement, file: TritonFile) -> str:
    """What any statement is."""
    found, kernel = notable(item, file), item.kernel
    values = _values(item, kernel) if kernel is not None and item.node is not kernel.node else ""
    if found:
        return "; then ".join(found) + ("" if found[0].startswith("loop: ") else values)
    if isinstance(item.node, Function | ast.ClassDef):
        return f"{item.where}.{item.node.name}".lstrip(".") + _docstring(item.node)
    what = "no access to memory, reduction or product" if kernel else "no launch or library call"
    return f"in {item.where or 'the file itself'}: {what}{values}"


def explain(source: str, first: int | None = None, last: int | None = None) -> Notes:
    """What `source` does: without a line the whole of it, kernel by kernel; with `first` that line,
    with both every statement from there to there.

    Never raises: of text that is no Python the lines alone are told.
    """
    source = source.replace("\r\n", "\n")
    lines = source.split("\n")
    lines = lines[:-1] if lines[-1] == "" and len(lines) > 1 else lines
    why = (
        f"This text has {len(source):,} characters. Expected at most {MOST_READ:,}: it is not "
        "read. Next: a part of it in a file of its own."
    )
    try:
        if len(source) <= MOST_READ:
            file = read_file(source)
            return _whole(file) if first is None else _range(lines, first, last, file)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        at = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.args[0] if error.args else type(error).__name__
        why = f"This text is no Python that can be read ({reason}{at})."
    return ((None, why), *(() if first is None else _range(lines, first, last, read_file(""))))


def _range(lines: list[str], first: int, last: int | None, file: TritonFile) -> Notes:
    end = first if last is None else last
    first, end = min(first, end), max(first, end)
    if first < 1 or first > len(lines):
        return ((None, f"There is no line {first}: the file has lines 1 to {len(lines)}."),)
    here = [item for item in file.statements if item.first <= end and item.last >= first]
    told: dict[int, list[str]] = {}
    for item in [x for x in here if notable(x, file)] or (here if first == end else []):
        told.setdefault(max(first, item.first), []).append(statement_words(item, file))
    if told:
        return tuple((line, "; then ".join(told[line])) for line in sorted(told))
    nothing = "no access to memory, reduction, product, launch or library call"
    return ((first, _loose(lines[first - 1].strip()) if first == end else nothing),)


def _loose(text: str) -> str:
    """A line that is no statement of its own."""
    if text.startswith("#"):
        return f"comment: {text.lstrip('# ')}"
    return f"part of a statement: {text}" if text else "a blank line"


def _whole(file: TritonFile) -> Notes:
    """The file, then whatever is notable in it, in the order of the file."""
    notes = [
        (item.node.lineno, words)
        for item in file.statements
        if (kernel := item.kernel) is None or item.node is kernel.node or not file.is_helper(kernel)
        if kernel is not None or item.where in file.forward
        for words in notable(item, file)
    ]
    return ((None, _summary(file, [words for _, words in notes])), *notes)


def _summary(file: TritonFile, told: Sequence[str]) -> str:
    helpers = [name for name, kernel in file.kernels.items() if file.is_helper(kernel)]
    kernels = [name for name in file.kernels if name not in helpers]
    named = [counted(len(kernels), "kernel") + (f": {', '.join(kernels)}" if kernels else "")]
    named += [f"{counted(len(helpers), 'helper')}: {', '.join(helpers)}"] if helpers else []
    calls = sum(words.startswith("library call") for words in told)
    named.append(f"{counted(len(file.launches), 'launch')} and {counted(calls, 'library call')}")
    return f"{_docstring(file.tree)} {'; '.join(named)}.".removeprefix(": ").strip()


def ask_explanation(
    model: Model, sampling: Sampling, source: str, notes: Notes, lines: tuple[int, int] | None
) -> str:
    """A model's words on `source`, or on its `lines`; "" where it says nothing. Raises
    ModelUnavailable."""
    text = render("explain", source=source, notes=notes, lines=lines)
    asked = (Message(role="user", text=text),)
    reply = model.ask(ModelRequest(agent="reader", round=0, messages=asked, sampling=sampling))
    return shortened(without_reasoning(reply.texts[0] if reply.texts else "").strip(), MOST_WORDS)
