"""What does a Triton file hold: which kernels, launched from where, with what?"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


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
        passed = (launch.arguments.get(parameter, "") for launch in self.launches)
        values = dict.fromkeys(value for value in passed if value)
        return " or ".join(values)


@dataclass(frozen=True)
class TritonFile:
    """A parsed file; `imported`: local name -> canonical dotted name."""

    tree: ast.Module
    lines: tuple[str, ...]
    imported: dict[str, str]
    kernels: dict[str, Kernel]
    layers: dict[str, str]
    """`self.proj` -> the code that made it in `__init__`."""

    def called(self, node: ast.expr) -> str:
        """Canonical name of what is called: "tl.load", "torch.mm", ".to" for a method."""
        return canonical(node, self.imported)


def parse_file(source: str) -> TritonFile:
    """The file's parts. Nothing is run. Raises SyntaxError, ValueError or RecursionError where the
    text is no Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        tree = ast.parse(source)
    imported = _imports(tree)
    jitted = {node.name: node for node in functions(tree) if _is_jitted(node, imported)}
    launches = tuple(_launches(tree, jitted, imported))
    kernels = {
        name: _kernel(node, tuple(item for item in launches if item.kernel == name), imported)
        for name, node in jitted.items()
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
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Subscript):
                name = _launched_name(call.func.value)
                if name in jitted and _innermost(function, call):
                    yield _launch(call, call.func.slice, jitted[name], function)


def _innermost(function: FunctionNode, call: ast.Call) -> bool:
    inner = (node for node in ast.walk(function) if isinstance(node, FunctionNode))
    return not any(
        any(item is call for item in ast.walk(node)) for node in inner if node is not function
    )


def _launched_name(node: ast.expr) -> str:
    """`kernel`, also in a wrapper such as `wrap_triton(kernel)`."""
    if isinstance(node, ast.Call) and len(node.args) == 1:
        return dotted(node.args[0])
    return dotted(node)


def _launch(call: ast.Call, grid: ast.expr, node: FunctionNode, function: FunctionNode) -> Launch:
    known = assigned(function, call.lineno)
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


def _passed(value: ast.expr, known: dict[str, ast.expr]) -> str:
    """An argument's code; a name of a size is followed to where the size comes from."""
    if isinstance(value, ast.Name) and value.id in known:
        source = known[value.id]
        called = dotted(source.func).rpartition(".")[2] if isinstance(source, ast.Call) else ""
        plain = isinstance(source, ast.Attribute | ast.Subscript | ast.Constant | ast.BinOp)
        if plain or called in SIZES:
            return code(source, 60)
    return code(value, 60)


def _grid(node: ast.expr, known: dict[str, ast.expr]) -> tuple[str, ...]:
    if isinstance(node, ast.Name) and node.id in known:
        node = known[node.id]
    if isinstance(node, ast.Lambda):
        node = node.body
    parts: Sequence[ast.expr] = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    return tuple(_passed(part, known) for part in parts)


def assigned(function: ast.AST, before: int) -> dict[str, ast.expr]:
    """Name -> what a function gives it last above line `before`."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or node.lineno >= before:
            continue
        for target in node.targets:
            if isinstance(target, ast.Name):
                found[target.id] = node.value
            elif isinstance(target, ast.Tuple):
                found |= unpacked(target, node.value)
    return found


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
