"""Overview of a candidate's kernels, launches, memory accesses and products, by its text alone.

A model may explain the file in its own words, with the overview as evidence.
"""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
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
BLANK = "\n\n"
OperationKind = Literal["program", "load", "store", "atomic", "reduction", "product"]
COUNTED: tuple[OperationKind, ...] = ("load", "store", "atomic", "reduction", "product")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Values = dict[str, ast.expr]
"""What the names of a function were given last."""


class Launch(NamedTuple):
    """One `kernel[grid](...)`. `arguments`: parameter -> code; `options`: num_warps and such."""

    kernel: str
    line: int
    where: str
    grid: tuple[str, ...]
    arguments: dict[str, str]
    options: dict[str, str]


class Operation(NamedTuple):
    """What a call in a kernel does; `masked` holds for loads, stores and atomics."""

    kind: OperationKind
    words: str
    masked: bool = False


class Statement(NamedTuple):
    """A statement of the file; of a compound one, `last` is the end of its head."""

    node: ast.stmt
    first: int
    last: int
    where: str
    """The function or class that it stands in, "" for the module."""
    kernel: str | None


@dataclass
class Kernel:
    """A function that Triton compiles, once it is known what the file launches it with."""

    name: str
    node: ast.FunctionDef
    parameters: tuple[str, ...]
    constants: tuple[str, ...]
    """Parameters that are known when it is compiled."""
    tuned: dict[str, str]
    """Constant or option -> the values that `triton.autotune` chooses from."""
    launches: list[Launch] = field(default_factory=list)

    @cached_property
    def passed(self) -> dict[str, str]:
        """Parameter or option -> the code that the launches pass for it."""
        found: dict[str, dict[str, None]] = {}
        for launch in self.launches:
            for name, value in (launch.arguments | launch.options).items():
                found.setdefault(name, {})[value] = None
        told = {name: alternatives(list(values)) for name, values in found.items()}
        return told | {name: f"{values} (tuned)" for name, values in self.tuned.items()}

    @cached_property
    def assigned(self) -> Values:
        """Name of the kernel -> what it is given first."""
        found: Values = {}
        for node in ast.walk(self.node):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    for name, value in assigned_names(target, node.value).items():
                        found.setdefault(name, value)
        return found

    def shown(self, node: ast.expr | None) -> str:
        """`node` as code, a name with what it was given first."""
        if node is None:
            return "?"
        given = self.assigned.get(node.id) if isinstance(node, ast.Name) else None
        return code(node) + (f" ({code(given)})" if given is not None else "")


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
            kernel = self.kernels.get(item.kernel or "")
            if kernel is not None and item.node is not kernel.node:
                calls = [node for node in expressions(item.node) if isinstance(node, ast.Call)]
                done = [operation(call, kernel, self) for call in sorted(calls, key=_ends)]
                found[item.node] = [each for each in done if each is not None]
                found[kernel.node] += found[item.node]
        return found

    def is_helper(self, kernel: Kernel) -> bool:
        """True for a function that kernels call: it is not launched and does not touch memory."""
        memory = ("load", "store", "atomic", "program")
        return not kernel.launches and not any(
            item.kind in memory for item in self.operations[kernel.node]
        )

    def called(self, node: ast.expr) -> str:
        """Canonical name of what is called: "tl.load", "torch.mm", ".to" for a method."""
        return canonical(node, self.imported)

    @cached_property
    def forward(self) -> frozenset[str]:
        """The functions that run in a call of the drop-in, as far as their names say so."""
        methods = {item.where for item in self.statements if item.kernel is None and item.where}
        launching = {item.where for kernel in self.kernels.values() for item in kernel.launches}
        found = {name for name in methods if name.startswith("ModelNew.")}
        found -= {"ModelNew.__init__"}
        found |= launching
        return frozenset(
            found or {name for name in methods if name.rpartition(".")[2] == "forward"}
        )


def read_file(source: str) -> TritonFile:
    """The file's parts. Nothing is run. Raises SyntaxError for no Python that can be read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        tree = parse_source(source)
    imported = _imports(tree)
    kernels = {name: _kernel(name, node, imported) for name, node in kernel_functions(tree)}
    names = {id(kernel.node): name for name, kernel in kernels.items()}
    statements = tuple(_statements(tree, "", None, names))
    file = TritonFile(tree, tuple(source.split("\n")), imported, kernels, statements)
    known: dict[str, Values] = {}
    for item in statements:
        if item.kernel is None:
            _learn(item, known.setdefault(item.where, {}), file)
    return file


def _kernel(name: str, node: ast.FunctionDef, imported: dict[str, str]) -> Kernel:
    given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    fixed = [x.arg for x in given if x.annotation and "constexpr" in code(x.annotation)]
    names = tuple(item.arg for item in given)
    return Kernel(name, node, names, tuple(fixed), _tuned(node, imported))


def _statements(
    node: ast.AST, where: str, kernel: str | None, names: dict[int, str]
) -> Iterator[Statement]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            own = names.get(id(child), kernel)
            inner = f"{where}.{child.name}" if isinstance(child, Function | ast.ClassDef) else where
            heads = [item for item in expressions(child) if hasattr(item, "lineno")]
            first = min([child.lineno, *(item.lineno for item in heads)])
            last = max([child.lineno, *(item.end_lineno or 0 for item in heads)])
            if not any(isinstance(item, ast.stmt) for item in ast.iter_child_nodes(child)):
                last = child.end_lineno or last
            yield Statement(child, first, last, where, own)
            yield from _statements(child, inner.lstrip("."), own, names)
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from _statements(child, where, kernel, names)


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
            kernel = file.kernels.get(_launched_name(call.func.value))
            if kernel is not None:
                launch = _launch(call, call.func.slice, kernel, item, known)
                file.launches[call] = launch
                kernel.launches.append(launch)
    if isinstance(item.node, ast.Assign):
        for target in item.node.targets:
            known |= assigned_names(target, item.node.value)
            if dotted(target).startswith("self.") and isinstance(item.node.value, ast.Call):
                file.layers[dotted(target)] = code(item.node.value, 60)


def _launched_name(node: ast.expr) -> str:
    """`kernel`, also in a wrapper such as `wrap_triton(kernel)`."""
    if isinstance(node, ast.Call) and len(node.args) == 1:
        node = node.args[0]
    return dotted(node)


def _launch(
    call: ast.Call, grid: ast.expr, kernel: Kernel, item: Statement, known: Values
) -> Launch:
    arguments: dict[str, str] = {}
    options: dict[str, str] = {}
    for name, value in zip(kernel.parameters, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        arguments[name] = _passed(value, known)
    for given in call.keywords:
        if given.arg is not None:
            into = arguments if given.arg in kernel.parameters else options
            into[given.arg] = _passed(given.value, known)
    grid = known.get(grid.id, grid) if isinstance(grid, ast.Name) else grid
    grid = grid.body if isinstance(grid, ast.Lambda) else grid
    axes = grid.elts if isinstance(grid, ast.Tuple | ast.List) else [grid]
    sizes = tuple(_passed(axis, known) for axis in axes)
    return Launch(kernel.name, call.lineno, item.where, sizes, arguments, options)


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
    parts: Values = {}
    if isinstance(target, ast.Tuple) and not any(isinstance(x, ast.Starred) for x in target.elts):
        shape = isinstance(value, ast.Attribute) and value.attr == "shape"
        given = value.elts if isinstance(value, ast.Tuple) else ()
        for place, item in enumerate(target.elts):
            if len(given) == len(target.elts):
                parts |= assigned_names(item, given[place])
            elif shape and isinstance(item, ast.Name):
                parts[item.id] = ast.Subscript(value, ast.Constant(place), ast.Load())
    return parts


def code(node: ast.AST, width: int = CODE_WIDTH) -> str:
    """`node` as one line of code, cut past `width` characters."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= width else text[: width - 3] + "..."


def alternatives(values: Sequence[str]) -> str:
    """`a or b`; past a few, how many more there are."""
    more = len(values) - MOST_VALUES
    words = " or ".join(values[:MOST_VALUES])
    return f"{words} or {more} more" if more > 0 else words


def dotted(node: ast.expr) -> str:
    """`a.b.c` of names and attributes, "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    base = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{base}.{node.attr}" if base and isinstance(node, ast.Attribute) else ""


def canonical(node: ast.expr, imported: dict[str, str]) -> str:
    """The name in the words of `NAMESPACES`; ".name" for a method of a value."""
    head, dot, rest = dotted(node).partition(".")
    if head and head in imported:
        return _short(f"{imported[head]}{dot}{rest}").replace("tl.math.", "tl.")
    if isinstance(node, ast.Attribute) and head != "self":
        return f".{node.attr}"
    return f"{head}{dot}{rest}"


def _short(name: str) -> str:
    for module, short in NAMESPACES.items():
        if name == module or name.startswith(f"{module}."):
            return f"{short}{name[len(module) :]}"
    return name


def _imports(tree: ast.Module) -> dict[str, str]:
    # Snippets without imports mean what everybody means by these.
    found = {name: name for name in ("tl", "triton", "torch", "nn", "F")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                name = item.name if item.asname else item.name.split(".")[0]
                found[item.asname or name] = _short(name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for item in node.names:
                found[item.asname or item.name] = _short(f"{node.module}.{item.name}")
    return found


def _tuned(node: ast.FunctionDef, imported: dict[str, str]) -> dict[str, str]:
    found: dict[str, dict[str, None]] = {}
    for call in (item for decorator in node.decorator_list for item in ast.walk(decorator)):
        if not isinstance(call, ast.Call) or canonical(call.func, imported) != "triton.Config":
            continue
        for item in call.args[:1]:
            if isinstance(item, ast.Dict):
                for key, value in zip(item.keys, item.values, strict=True):
                    if isinstance(key, ast.Constant):
                        found.setdefault(str(key.value), {})[code(value)] = None
        for option in call.keywords:
            found.setdefault(option.arg or "", {})[code(option.value)] = None
    return {name: alternatives(list(values)) for name, values in found.items()}


def argument(call: ast.Call, name: str, place: int | None = None) -> ast.expr | None:
    """The argument `name`, also where it is given by its place; None for a literal None too."""
    given = next((item.value for item in call.keywords if item.arg == name), None)
    if given is None and place is not None and len(call.args) > place:
        given = call.args[place]
    return None if isinstance(given, ast.Constant) and given.value is None else given


def _docstring(node: Function | ast.ClassDef | ast.Module) -> str:
    """`: ` and the first paragraph of a docstring, "" where there is none."""
    text = (ast.get_docstring(node) or "").strip()
    return f": {' '.join(text.partition(BLANK)[0].split())}" if text else ""


def operation(call: ast.Call, kernel: Kernel, file: TritonFile) -> Operation | None:
    """What a call in a kernel does to memory or across lanes; None for arithmetic."""
    name = file.called(call.func)
    space, _, short = name.rpartition(".")
    if space not in ("", "tl") or not name.startswith(("tl.", ".")):
        return None
    if name in (".load", ".store"):
        return Operation(
            "load" if short == "load" else "store",
            f"{short}s by a descriptor, which checks the edges: {code(call)}",
            masked=True,
        )
    if short == "load":
        return _load(call, kernel)
    if short == "store" or short.startswith("atomic"):
        return _store(call, short, kernel)
    if name == "tl.program_id":
        return Operation("program", _program(call, kernel))
    if short in ("dot", "dot_scaled"):
        return Operation("product", _product(call))
    if short not in (*REDUCED, *CUSTOM):
        return None
    given = [*call.args]
    if name[0] == "." and isinstance(call.func, ast.Attribute):
        given.insert(0, call.func.value)
    return Operation("reduction", _reduction(call, given, short))


def _load(call: ast.Call, kernel: Kernel) -> Operation:
    mask, other = argument(call, "mask", 1), argument(call, "other", 2)
    place = kernel.shown(argument(call, "pointer", 0))
    filled = "" if mask is None else f", {code(other) if other else 'undefined'} elsewhere"
    masked = _mask(mask, argument(call, "boundary_check"), kernel)
    return Operation("load", f"loads {place}, {masked}{filled}", masked != UNMASKED)


def _store(call: ast.Call, short: str, kernel: Kernel) -> Operation:
    # tl.atomic_cas takes no mask, and has two values.
    value = argument(call, "cmp" if short == "atomic_cas" else "value", 1) or argument(call, "val")
    mask = None if short == "atomic_cas" else argument(call, "mask", 2)
    place = kernel.shown(argument(call, "pointer", 0))
    masked = _mask(mask, argument(call, "boundary_check"), kernel)
    verb = "stores" if short == "store" else f"{short}:"
    words = f"{verb} {code(value) if value else '?'} to {place}, {masked}"
    return Operation("store" if short == "store" else "atomic", words, masked != UNMASKED)


def _mask(mask: ast.expr | None, checked: ast.expr | None, kernel: Kernel) -> str:
    if mask is not None:
        return f"masked by {kernel.shown(mask)}"
    return UNMASKED if checked is None else f"checked at the edges of axes {code(checked)}"


def _program(call: ast.Call, kernel: Kernel) -> str:
    axis = argument(call, "axis", 0)
    place = axis.value if isinstance(axis, ast.Constant) else None
    sizes: dict[str, None] = {}
    for launch in kernel.launches:
        if isinstance(place, int) and place < len(launch.grid):
            sizes[launch.grid[place]] = None
    of = f" of {alternatives(list(sizes))}" if sizes else ""
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


def library_call(node: ast.Call | ast.BinOp, file: TritonFile) -> str:
    """The name of a computation of torch (`torch.mm`, `F.linear`, a layer), "" for another."""
    if isinstance(node, ast.BinOp):
        return "@" if isinstance(node.op, ast.MatMult) else ""
    name = file.called(node.func)
    if name in file.layers:
        return f"{name} = {file.layers[name]}"
    space, _, rest = name.partition(".")
    if space == "F" or (space == "torch" and rest.partition(".")[0] not in SET_UP):
        return name
    return name if not space and rest in COMPUTE_METHODS else ""


def _ends(node: ast.expr) -> tuple[int, int]:
    return (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)


def _heading(kernel: Kernel, file: TritonFile) -> str:
    """A kernel with its grid, the count of its operations and what the launches fix."""
    told = _docstring(kernel.node)
    done = file.operations[kernel.node]
    if file.is_helper(kernel):
        return f"{kernel.name}: a helper that kernels call{told}"
    counts = Counter(item.kind for item in done)
    masked = Counter(item.kind for item in done if item.masked)
    parts = ["nothing in this file launches it"]
    if kernel.launches:
        lines = ", ".join(str(item.line) for item in kernel.launches[:MOST_VALUES])
        grids = dict.fromkeys(" x ".join(item.grid) for item in kernel.launches)
        parts = [f"launched in line {lines} with a grid of {alternatives(list(grids))}"]
    parts += [
        counted(counts[kind], kind)
        + f" ({masked[kind] or 'none'} masked)" * (kind in ("load", "store", "atomic"))
        for kind in COUNTED
        if counts[kind]
    ]
    options = [name for launch in kernel.launches for name in launch.options]
    fixed = dict.fromkeys((*kernel.constants, *options, *kernel.tuned))
    values = [f"{name} = {kernel.passed[name]}" for name in fixed if name in kernel.passed]
    parts += [f"at the launch {', '.join(values)}"] if values else []
    return f"{kernel.name}: a kernel, {'; '.join(parts)}{told}"


def counted(number: int, one: str) -> str:
    """`no loads`, `1 load`, `2 launches`."""
    plural = one if number == 1 else f"{one}es" if one.endswith("ch") else f"{one}s"
    return f"{number or 'no'} {plural}"


def notable(item: Statement, file: TritonFile) -> list[str]:
    """What a statement does that an overview names: launches, library calls, loops, operations."""
    node = item.node
    kernel = file.kernels.get(item.kernel or "")
    if kernel is not None and node is kernel.node:
        return [_heading(kernel, file)]
    if kernel is not None:
        head = [f"branch: {_head(item, file)}"] if isinstance(node, ast.If) else []
        if isinstance(node, ast.For | ast.While):
            head = [f"loop: {_head(item, file)}{_values(item, kernel)}"]
        return [*head, *(done.words for done in file.operations[node])]
    if isinstance(node, Function | ast.ClassDef):
        return []
    found = []
    calls = [x for x in expressions(node) if isinstance(x, ast.Call | ast.BinOp)]
    for call in sorted(calls, key=_ends):
        launch = file.launches.get(call)
        name = "" if launch is not None else library_call(call, file)
        if launch is not None:
            found.append(_launch_words(launch))
        elif name:
            found.append(f"library call {name}: {code(call)}")
    return found


def _launch_words(launch: Launch) -> str:
    given = [f"{name} = {value}" for name, value in (launch.arguments | launch.options).items()]
    passed = f": {', '.join(given)}" if given else ""
    return f"launches {launch.kernel} with a grid of {' x '.join(launch.grid)}{passed}"


def _head(item: Statement, file: TritonFile) -> str:
    """The text of a statement's head on one line."""
    text = " ".join(" ".join(file.lines[item.first - 1 : item.last]).split()).rstrip(":")
    return text if len(text) <= CODE_WIDTH else f"{text[: CODE_WIDTH - 3]}..."


def _values(item: Statement, kernel: Kernel) -> str:
    """`; BLOCK is 512, columns is x.shape[-1] at the launch`: what a statement's names hold."""
    names = {x.id for x in expressions(item.node) if isinstance(x, ast.Name)}
    passed = {x: kernel.passed.get(x, x) for x in kernel.parameters if x in names}
    told = [f"{name} is {value}" for name, value in passed.items() if value != name]
    return f"; {', '.join(told)} at the launch" if told else ""


def statement_words(item: Statement, file: TritonFile) -> str:
    """What any statement is."""
    found = notable(item, file)
    kernel = file.kernels.get(item.kernel or "")
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
    return ((None, why), *(() if first is None else _range(lines, first, last, None)))


def _range(lines: list[str], first: int, last: int | None, file: TritonFile | None) -> Notes:
    end = first if last is None else last
    first, end = min(first, end), max(first, end)
    if first < 1 or first > len(lines):
        return ((None, f"There is no line {first}: the file has lines 1 to {len(lines)}."),)
    end = min(end, len(lines))
    found: dict[int, list[Statement]] = {}
    for item in file.statements if file is not None else ():
        for line in range(max(first, item.first), min(end, item.last) + 1):
            found.setdefault(line, []).append(item)
    notes: list[tuple[int | None, str]] = []
    before: list[Statement] = []
    for line in range(first, end + 1):
        text, here = lines[line - 1].strip(), found.get(line, [])
        if here and file is not None and here != before:
            told = [x for x in here if notable(x, file)] or (here if first == end else [])
            words = "; then ".join(statement_words(item, file) for item in told)
            notes += [(line, words)] if words else []
        elif not here and first == end:
            notes.append((line, _loose(text)))
        before = here
    nothing = "no access to memory, reduction, product, launch or library call"
    return tuple(notes) or ((first, nothing),)


def _loose(text: str) -> str:
    """A line that is no statement of its own."""
    if text.startswith("#"):
        return f"comment: {text.lstrip('# ')}"
    return f"part of a statement: {text}" if text else "a blank line"


def _whole(file: TritonFile) -> Notes:
    """The file, then whatever is notable in it, in the order of the file."""
    notes: list[tuple[int | None, str]] = []
    for item in file.statements:
        kernel = file.kernels.get(item.kernel or "")
        if kernel is None:
            named = item.where in file.forward
        else:
            named = item.node is kernel.node or not file.is_helper(kernel)
        if named:
            notes += [(item.node.lineno, words) for words in notable(item, file)]
    return ((None, _summary(file, [words for _, words in notes])), *notes)


def _summary(file: TritonFile, told: Sequence[str]) -> str:
    helpers = [name for name, kernel in file.kernels.items() if file.is_helper(kernel)]
    kernels = [name for name in file.kernels if name not in helpers]
    named = [
        counted(len(names), word) + (f": {', '.join(names)}" if names else "")
        for names, word in ((kernels, "kernel"), (helpers, "helper"))
        if names or word == "kernel"
    ]
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
