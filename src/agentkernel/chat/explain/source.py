"""Kernels, launches, constants and imports of a Triton file, from its syntax tree."""

from __future__ import annotations

import ast
import warnings
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from agentkernel.storage.source_text import parse_source

CODE_WIDTH = 90
"""Characters of code that a sentence quotes at most."""
NAMESPACES = {
    "triton": "triton",
    "triton.language": "tl",
    "triton.language.math": "tl",
    "triton.language.extra.libdevice": "tl",
    "torch": "torch",
    "torch.nn": "nn",
    "torch.nn.functional": "F",
}
"""Modules -> the name that the explanations use for them."""
SIZES = ("numel", "size", "stride", "cdiv", "next_power_of_2", "max", "min")
"""Functions whose result is a number rather than a tensor."""
MOST_VALUES = 8
"""Values of a parameter that are told: a kernel may be launched a thousand times."""
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Known = Callable[[str], ast.expr | None]
"""What a name was given."""


@dataclass(frozen=True)
class Launch:
    """One `kernel[grid](...)`. `arguments`: parameter -> code; `options`: num_warps and such."""

    kernel: str
    line: int
    call: ast.Call
    grid: tuple[str, ...]
    arguments: dict[str, str]
    options: dict[str, str]


@dataclass(frozen=True)
class Kernel:
    """A function under `triton.jit`. `constants` are its compile-time parameters; a helper is
    called by kernels and never launched."""

    name: str
    node: FunctionNode
    parameters: tuple[str, ...]
    constants: frozenset[str]
    launches: tuple[Launch, ...]
    tuned: dict[str, tuple[str, ...]]
    """Constant -> the values that `triton.autotune` chooses from."""
    helper: bool

    def launched_with(self, parameter: str) -> str:
        """The code that the launches pass, "" where nothing is known of it."""
        if parameter in self.tuned:
            return " or ".join(self.tuned[parameter]) + " (tuned)"
        return self._passed.get(parameter, "")

    @cached_property
    def _passed(self) -> dict[str, str]:
        """Parameter -> the code of all launches together, cut past a few."""
        found: dict[str, dict[str, None]] = {}
        for launch in self.launches:
            for name, value in launch.arguments.items():
                if value:
                    found.setdefault(name, {})[value] = None
        return {name: join_alternatives(tuple(values)) for name, values in found.items()}


@dataclass(frozen=True)
class TritonFile:
    """A parsed file; `imported`: local name -> canonical dotted name."""

    tree: ast.Module
    lines: tuple[str, ...]
    imported: dict[str, str]
    kernels: dict[str, Kernel]
    layers: dict[str, str]
    """`self.proj` -> the code that made it in `__init__`."""

    @cached_property
    def launches(self) -> dict[ast.expr, Launch]:
        """Call -> the launch that it is."""
        kernels = self.kernels.values()
        return {launch.call: launch for kernel in kernels for launch in kernel.launches}

    def called(self, node: ast.expr) -> str:
        """Canonical name of what is called: "tl.load", "torch.mm", ".to" for a method."""
        return canonical(node, self.imported)


def parse_file(source: str) -> TritonFile:
    """The file's parts. Nothing is run. Raises SyntaxError where the text is no Python that can
    be read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        tree = parse_source(source)
    imported = _imports(tree)
    jitted = {node.name: node for node in functions(tree) if _is_jitted(node, imported)}
    launches: dict[str, list[Launch]] = {name: [] for name in jitted}
    for launch in _launches(tree, jitted, imported):
        launches[launch.kernel].append(launch)
    kernels = {
        name: _kernel(node, tuple(launches[name]), imported) for name, node in jitted.items()
    }
    return TritonFile(tree, tuple(source.split("\n")), imported, kernels, _layers(tree))


def functions(tree: ast.AST) -> Iterator[FunctionNode]:
    """All functions below `tree`, in the order of the file."""
    found = [node for node in ast.walk(tree) if isinstance(node, FunctionNode)]
    yield from sorted(found, key=lambda node: node.lineno)


def code(node: ast.AST, width: int = CODE_WIDTH) -> str:
    """`node` as one line of code, cut past `width` characters."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= width else text[: width - 3] + "..."


def join_alternatives(values: Sequence[str]) -> str:
    """`a or b`; past a few, how many more there are."""
    more = len(values) - MOST_VALUES
    words = " or ".join(values[:MOST_VALUES])
    return f"{words} or {more} more" if more > 0 else words


def dotted(node: ast.expr) -> str:
    """`a.b.c` of names and attributes, "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def canonical(node: ast.expr, imported: dict[str, str]) -> str:
    """The name in the words of `NAMESPACES`; ".name" for a method of a value."""
    name = dotted(node)
    head, _, rest = name.partition(".")
    if name and head in imported:
        name = f"{imported[head]}.{rest}" if rest else imported[head]
        for module, short in sorted(NAMESPACES.items(), key=lambda item: -len(item[0])):
            if name.startswith(module + "."):
                return f"{short}.{name[len(module) + 1 :]}"
        return name.replace("tl.math.", "tl.")
    if isinstance(node, ast.Attribute) and head != "self":
        return f".{node.attr}"
    return name


def first_line(node: ast.AST) -> str:
    """The first sentence of a docstring, "" where there is none."""
    if not isinstance(node, FunctionNode | ast.ClassDef | ast.Module):
        return ""
    text = (ast.get_docstring(node) or "").strip()
    return " ".join(text.split("\n\n")[0].split()) if text else ""


def keyword(call: ast.Call, name: str, place: int | None = None) -> ast.expr | None:
    """The argument `name`, also where it is given by its place."""
    for item in call.keywords:
        if item.arg == name:
            return item.value
    if place is not None and len(call.args) > place:
        return call.args[place]
    return None


def _imports(tree: ast.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                name = item.name if item.asname else item.name.split(".")[0]
                found[item.asname or name] = NAMESPACES.get(name, name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            base = NAMESPACES.get(node.module, node.module)
            for item in node.names:
                full = f"{node.module}.{item.name}"
                found[item.asname or item.name] = NAMESPACES.get(full, f"{base}.{item.name}")
    # Snippets without imports mean what everybody means by these.
    for name in ("tl", "triton", "torch", "nn", "F"):
        found.setdefault(name, name)
    return found


def _decorators(node: FunctionNode, imported: dict[str, str]) -> Iterator[tuple[str, ast.expr]]:
    for item in node.decorator_list:
        yield canonical(item.func if isinstance(item, ast.Call) else item, imported), item


def _is_jitted(node: FunctionNode, imported: dict[str, str]) -> bool:
    return any(name == "triton.jit" for name, _ in _decorators(node, imported))


def _kernel(node: FunctionNode, launches: tuple[Launch, ...], imported: dict[str, str]) -> Kernel:
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    constants = frozenset(
        item.arg for item in every if item.annotation and "constexpr" in code(item.annotation)
    )
    calls = {
        canonical(item.func, imported) for item in ast.walk(node) if isinstance(item, ast.Call)
    }
    works = calls & {"tl.program_id", "tl.store", "tl.atomic_add"}
    return Kernel(
        name=node.name,
        node=node,
        parameters=tuple(item.arg for item in every),
        constants=constants,
        launches=launches,
        tuned=_tuned(node, imported),
        helper=not launches and not works,
    )


def _tuned(node: FunctionNode, imported: dict[str, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for name, decorator in _decorators(node, imported):
        if name != "triton.autotune":
            continue
        for call in ast.walk(decorator):
            if not isinstance(call, ast.Call) or canonical(call.func, imported) != "triton.Config":
                continue
            if call.args and isinstance(call.args[0], ast.Dict):
                for key, value in zip(call.args[0].keys, call.args[0].values, strict=True):
                    if isinstance(key, ast.Constant):
                        found.setdefault(str(key.value), {})[code(value)] = None
            for item in call.keywords:
                found.setdefault(item.arg or "", {})[code(item.value)] = None
    return {name: tuple(values) for name, values in found.items()}


def _launches(
    tree: ast.Module, jitted: dict[str, FunctionNode], imported: dict[str, str]
) -> Iterator[Launch]:
    for function in functions(tree):
        known: Assigned | None = None
        for call in own_nodes(function):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Subscript):
                name = _launched_name(call.func.value)
                if name in jitted:
                    known = known or Assigned(function)
                    yield _launch(call, call.func.slice, jitted[name], known)


def own_nodes(function: FunctionNode) -> Iterator[ast.AST]:
    """All nodes of a function as `ast.walk` has them, without those of functions inside it."""
    waiting = deque(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.popleft()
        if not isinstance(node, FunctionNode):
            yield node
            waiting.extend(ast.iter_child_nodes(node))


def _launched_name(node: ast.expr) -> str:
    """`kernel`, also in a wrapper such as `wrap_triton(kernel)`."""
    if isinstance(node, ast.Call) and len(node.args) == 1:
        return dotted(node.args[0])
    return dotted(node)


def _launch(call: ast.Call, grid: ast.expr, node: FunctionNode, assigned: Assigned) -> Launch:
    known = partial(assigned.above, call.lineno)
    names = [item.arg for item in (*node.args.posonlyargs, *node.args.args)]
    arguments: dict[str, str] = {}
    for name, value in zip(names, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        arguments[name] = _passed(value, known)
    every = {*names, *(item.arg for item in node.args.kwonlyargs)}
    options: dict[str, str] = {}
    for item in call.keywords:
        if item.arg is not None:
            where = arguments if item.arg in every else options
            where[item.arg] = _passed(item.value, known)
    return Launch(node.name, call.lineno, call, _grid(grid, known), arguments, options)


def _passed(value: ast.expr, known: Known) -> str:
    """An argument's code; a name of a size is followed to where the size comes from."""
    source = known(value.id) if isinstance(value, ast.Name) else None
    if source is not None:
        called = dotted(source.func).rpartition(".")[2] if isinstance(source, ast.Call) else ""
        plain = isinstance(source, ast.Attribute | ast.Subscript | ast.Constant | ast.BinOp)
        if plain or called in SIZES:
            return code(source, 60)
    return code(value, 60)


def _grid(node: ast.expr, known: Known) -> tuple[str, ...]:
    if isinstance(node, ast.Name):
        node = known(node.id) or node
    if isinstance(node, ast.Lambda):
        node = node.body
    parts: Sequence[ast.expr] = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    return tuple(_passed(part, known) for part in parts)


class Assigned:
    """What a function gives its names. In a name's list every value stands behind the line of its
    statement; of those above a line, the one that `ast.walk` meets last counts."""

    def __init__(self, function: ast.AST) -> None:
        met: dict[str, list[tuple[int, int, ast.expr]]] = {}
        for order, node in enumerate(ast.walk(function)):
            if not isinstance(node, ast.Assign):
                continue
            for target in node.targets:
                for name, value in assigned_names(target, node.value).items():
                    met.setdefault(name, []).append((node.lineno, order, value))
        self._lines: dict[str, list[int]] = {}
        self._values: dict[str, list[ast.expr]] = {}
        for name, values in met.items():
            values.sort(key=lambda item: item[:2])
            self._lines[name] = [line for line, _, _ in values]
            self._values[name] = []
            latest = -1
            for _, order, value in values:
                kept = self._values[name][-1:] if order < latest else [value]
                self._values[name] += kept
                latest = max(latest, order)

    def above(self, line: int, name: str) -> ast.expr | None:
        """What `name` is given above `line`, None where it is not."""
        place = bisect_left(self._lines.get(name, []), line)
        return self._values[name][place - 1] if place else None


def assigned_names(target: ast.expr, value: ast.expr) -> dict[str, ast.expr]:
    """Name -> value of one assignment."""
    if isinstance(target, ast.Name):
        return {target.id: value}
    return unpacked(target, value) if isinstance(target, ast.Tuple) else {}


def unpacked(target: ast.Tuple, value: ast.expr) -> dict[str, ast.expr]:
    """`a, b = x.shape` gives each name its part; empty where the parts are not seen."""
    parts: dict[str, ast.expr] = {}
    if any(isinstance(item, ast.Starred) for item in target.elts):
        return parts
    if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
        for item, part in zip(target.elts, value.elts, strict=True):
            if isinstance(item, ast.Tuple):
                parts |= unpacked(item, part)
            elif isinstance(item, ast.Name):
                parts[item.id] = part
    elif isinstance(value, ast.Attribute) and value.attr == "shape":
        for place, item in enumerate(target.elts):
            if isinstance(item, ast.Name):
                parts[item.id] = ast.Subscript(value, ast.Constant(place), ast.Load())
    return parts


def _layers(tree: ast.Module) -> dict[str, str]:
    """`self.NAME` -> the call that made it, over all `__init__` of the file."""
    found: dict[str, str] = {}
    for function in functions(tree):
        if function.name != "__init__":
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                for target in node.targets:
                    if dotted(target).startswith("self."):
                        found[dotted(target)] = code(node.value, 60)
    return found
