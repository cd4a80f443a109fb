"""TorchInductor's wrapper as a list of steps with the launch options and the grid of each
kernel."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentkernel.compiler.expressions import tiles_text
from agentkernel.compiler.lift.inductor_code import InductorCode, InductorKernel, LaunchConfig


class Unliftable(Exception):
    """Something that no lifted file can hold; the text says what."""


@dataclass(frozen=True)
class Allocate:
    """`name` gets memory of this form."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Launch:
    """A kernel runs on these arguments, the wrapper's expressions."""

    kernel: str
    args: tuple[ast.expr, ...]


@dataclass(frozen=True)
class LibraryCallStep:
    """A library operator; `target` gets its result, or `out` among the keywords does."""

    target: str | None
    function: str
    args: tuple[ast.expr, ...]
    keywords: tuple[tuple[str, ast.expr], ...]


@dataclass(frozen=True)
class RequireLayout:
    """`name`, a library's result, is laid out so: TorchInductor's kernels rely on it."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Rename:
    """`name` is another name for `value`."""

    name: str
    value: ast.expr


@dataclass(frozen=True)
class Free:
    """`name` is not needed any more."""

    name: str


@dataclass(frozen=True)
class Return:
    """The results, in order."""

    values: tuple[ast.expr, ...]


Step = Allocate | Launch | LibraryCallStep | RequireLayout | Rename | Free | Return

GUARDS = ("assert_alignment", "args.clear", "torch.cuda.set_device",
          "start_graph", "end_graph")  # fmt: skip
"""Calls that only check or prepare: the drop-in checks its inputs itself."""
STREAMS = ("get_raw_stream",)
ALLOCATORS = ("empty_strided_cuda", "empty_strided")


@dataclass(frozen=True)
class Wrapper:
    """The wrapper's arguments, in order, and its steps; `choices`: a name that steps launch -> the
    kernels that it may stand for."""

    arguments: tuple[str, ...]
    steps: tuple[Step, ...]
    choices: Mapping[str, tuple[str, ...]]


def read_wrapper(source: str) -> Wrapper:
    """The steps of the wrapper in TorchInductor's `source`. Raises Unliftable for unknown ones."""
    tree = ast.parse(source)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "call"]
    if len(calls) != 1:
        raise Unliftable(f"the wrapper has {len(calls)} functions named call")
    arguments: list[str] = []
    steps: list[Step] = []
    for statement in _flat(calls[0].body):
        names = _arguments(statement)
        if names is not None:
            arguments += names
        else:
            steps += _steps(statement)
    return Wrapper(tuple(arguments), tuple(steps), dict(_choices(tree)))


def _choices(tree: ast.Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    """`multi_kernel_0 = async_compile.multi_kernel("multi_kernel_0", [a, b])`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if ast.unparse(node.value.func) != "async_compile.multi_kernel":
            continue
        kernels = node.value.args[1]
        if isinstance(kernels, ast.List):
            names = tuple(ast.unparse(item) for item in kernels.elts)
            yield ast.unparse(node.targets[0]), names


def _flat(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, without the device guards around them."""
    for statement in body:
        if isinstance(statement, ast.With):
            yield from _flat(statement.body)
        else:
            yield statement


def _arguments(statement: ast.stmt) -> list[str] | None:
    """Names in `a, b = args`."""
    if not isinstance(statement, ast.Assign) or ast.unparse(statement.value) != "args":
        return None
    target = statement.targets[0]
    items = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return [ast.unparse(item) for item in items]


def _steps(statement: ast.stmt) -> Iterator[Step]:
    if isinstance(statement, ast.Delete):
        yield from (Free(ast.unparse(item)) for item in statement.targets)
    elif isinstance(statement, ast.Return) and isinstance(statement.value, ast.Tuple):
        yield Return(tuple(statement.value.elts))
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        yield from _bare_call(statement.value)
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        yield from _assignment(statement.targets[0].id, statement.value)
    elif not isinstance(statement, ast.Pass):
        raise Unliftable(f"the wrapper says {ast.unparse(statement)[:100]}")


def _bare_call(call: ast.Call) -> Iterator[Step]:
    function = ast.unparse(call.func)
    if function in GUARDS:
        return
    if function == "assert_size_stride":
        name, shape, strides = call.args[:3]
        yield RequireLayout(ast.unparse(name), numbers(shape), numbers(strides))
    elif function.endswith(".run"):
        yield Launch(function.removesuffix(".run"), tuple(call.args))
    else:
        yield LibraryCallStep(None, function, tuple(call.args), _keywords(call))


def _assignment(name: str, value: ast.expr) -> Iterator[Step]:
    if not isinstance(value, ast.Call):
        yield Rename(name, value)
        return
    function = ast.unparse(value.func)
    if function in ALLOCATORS:
        yield _allocation(name, value)
    elif function == "reinterpret_tensor":
        yield Rename(name, value)
    elif function not in STREAMS:
        yield LibraryCallStep(name, function, tuple(value.args), _keywords(value))


def _allocation(name: str, call: ast.Call) -> Allocate:
    shape, strides, dtype = call.args[:3]
    return Allocate(name, numbers(shape), numbers(strides), ast.unparse(dtype))


def _keywords(call: ast.Call) -> tuple[tuple[str, ast.expr], ...]:
    return tuple((item.arg or "", item.value) for item in call.keywords)


def literal(node: ast.expr) -> object:
    """A plain value. Raises Unliftable where it is none."""
    try:
        value: object = ast.literal_eval(node)
    except (ValueError, TypeError) as error:
        raise Unliftable(f"{ast.unparse(node)[:80]} is not fixed") from error
    return value


def number(node: ast.expr) -> int:
    """A plain integer. Raises Unliftable where it is none."""
    value = literal(node)
    if not isinstance(value, int):
        raise Unliftable(f"{ast.unparse(node)[:80]} is no whole number")
    return value


def numbers(node: ast.expr) -> tuple[int, ...]:
    """A tuple of plain integers. Raises Unliftable where a size is symbolic."""
    if not isinstance(node, ast.Tuple | ast.List):
        raise Unliftable(f"{ast.unparse(node)[:80]} is no tuple of sizes")
    return tuple(number(item) for item in node.elts)


Number = Callable[[int, int], int]
OPERATORS: Mapping[type[ast.operator], Number] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
FUNCTIONS: Mapping[str, Callable[..., int]] = {"max": max, "min": min}


def launch_grid(config: LaunchConfig, sizes: Mapping[str, int]) -> str:
    """The grid as Python: `(-(-8192 // 1024),)` where it is a quotient, else numbers.

    `sizes` are the kernel's arguments that are numbers.
    """
    known = dict(sizes) | {k: v for k, v in config.constants if isinstance(v, int)}
    for line in config.prefix:
        statement = ast.parse(line.strip()).body[0]
        if not isinstance(statement, ast.Assign):
            raise Unliftable(f"the grid needs {line.strip()}")
        known[ast.unparse(statement.targets[0])] = _value(statement.value, known)
    axes = [_axis(text, known) for text in config.grid]
    while len(axes) > 1 and axes[-1] == "1":
        axes.pop()
    return f"({axes[0]},)" if len(axes) == 1 else f"({', '.join(axes)})"


def _axis(text: str, known: Mapping[str, int]) -> str:
    node = ast.parse(text, mode="eval").body
    value = _value(node, known)
    quotient = _rounded_up(node)
    if quotient is None or value == 1:
        return str(value)
    size, block = (_value(part, known) for part in quotient)
    return tiles_text(str(size), block)


def _rounded_up(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """(a, b) of `-(a // -b)`."""
    if not isinstance(node, ast.UnaryOp) or not isinstance(node.op, ast.USub):
        return None
    inner = node.operand
    if not isinstance(inner, ast.BinOp) or not isinstance(inner.op, ast.FloorDiv):
        return None
    if isinstance(inner.right, ast.UnaryOp) and isinstance(inner.right.op, ast.USub):
        return inner.left, inner.right.operand
    return None


def _value(node: ast.expr, known: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, known)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_value(node.left, known), _value(node.right, known))
    if isinstance(node, ast.Call) and ast.unparse(node.func) in FUNCTIONS:
        return FUNCTIONS[ast.unparse(node.func)](*(_value(item, known) for item in node.args))
    if isinstance(node, ast.IfExp):
        return _value(node.body if _value(node.test, known) else node.orelse, known)
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
        return int(_value(node.left, known) == _value(node.comparators[0], known))
    raise Unliftable(f"the grid depends on {ast.unparse(node)}")


@dataclass(frozen=True)
class LaunchOption:
    """A kernel with one of its configurations."""

    kernel: InductorKernel
    config: LaunchConfig


def options_of(code: InductorCode, wrapper: Wrapper) -> dict[str, tuple[LaunchOption, ...]]:
    """Launched name -> its options, the one that TorchInductor would try first at the front.

    Where the wrapper chooses among several kernels at run time, their options follow each other.
    """
    kernels = {kernel.variable: kernel for kernel in code.kernels}
    found: dict[str, tuple[LaunchOption, ...]] = {}
    for step in wrapper.steps:
        if isinstance(step, Launch) and step.kernel not in found:
            names = wrapper.choices.get(step.kernel, (step.kernel,))
            known = [kernels[name] for name in names if name in kernels]
            found[step.kernel] = tuple(
                LaunchOption(kernel, config) for kernel in known for config in kernel.configs
            )
            if not found[step.kernel]:
                raise Unliftable(f"no way to launch {step.kernel} is known")
    return found


def chosen_options(
    options: Mapping[str, tuple[LaunchOption, ...]], choices: Mapping[str, int]
) -> dict[str, LaunchOption]:
    """One option a launched name: number `choices[name]`, else the first."""
    return {name: items[choices.get(name, 0)] for name, items in options.items()}
