"""The guard in the form that torch.compile traces, written out for each swapped module.

Whatever Dynamo reads while it traces becomes a guard that runs before each call of the compiled
model, on the host, while the GPU waits. So a swapped module gets a function of its own: what was
verified stands in its text as literals, which need no guard, and it reads only the tensors and
attributes of the module. `Swap.traced_inputs` checks the same with ten times as many guards; it
stays for what cannot be written this way.
"""

from __future__ import annotations

import ast
import linecache
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import torch
from torch import nn

from agentkernel.domain.base import sha256_text
from agentkernel.domain.region import Kernel
from agentkernel.storage.source_text import parse_source, read_literal
from agentkernel.swap.guard import HOOKS, PLAIN_TENSORS, Arguments, WatchedModule
from agentkernel.swap.kernel import Form, Operand
from agentkernel.tools.problem.attributes import PLAIN

if TYPE_CHECKING:
    from agentkernel.swap.kernel import Tensors

REFUSED: Final = "refused"
"""What a traced function returns where the original has to run."""
MOST_ITEMS: Final = 16
"""A longer tuple or list is compared as the object that it is."""
Traced = Callable[..., object]
_functions: dict[tuple[object, ...], Traced] = {}
"""By text and classes: uses of a kernel share one, and its guards."""


class OperandHolder:
    """Stands for `self` in the kernel's forward, with the module's own tensors as attributes."""


class _NotTraceable(Exception):
    """This region cannot be written so."""


def traced_function(
    module: nn.Module,
    kernel: Kernel,
    new: nn.Module,
    arguments: Arguments,
    operands: Sequence[Operand],
    watched: Sequence[WatchedModule],
    on_cpu: bool,
) -> Traced | None:
    """`f(module, *args, **kwargs)`: what forward returns, or REFUSED; None where the kernel's
    forward reads more of itself than its operands, or an attribute has no literal."""
    try:
        text = _text(module, kernel, new, arguments, operands, watched, on_cpu)
    except _NotTraceable:
        return None
    kinds = tuple(type(item.module) for item in watched)
    name = sha256_text(f"{kernel.sha256}\n{text}")
    key = (name, type(module), *kinds)
    if key not in _functions:
        _functions[key] = _made(text, name, new, arguments, kinds)
    return _functions[key]


def _text(
    module: nn.Module,
    kernel: Kernel,
    new: nn.Module,
    arguments: Arguments,
    operands: Sequence[Operand],
    watched: Sequence[WatchedModule],
    on_cpu: bool,
) -> str:
    paths = {id(item): path for path, item in module.named_modules()}
    places = _places(new, operands)
    known = tuple(name for names in places for name in names)
    read = _read_of_itself(kernel.source)
    if read is None or not all(_is_of(chain, known) for chain in read):
        raise _NotTraceable
    lines = ["def traced(self, *args, **kwargs):"]
    for at, item in enumerate(watched):
        lines += _place_lines(at, paths[id(item.module)])
        lines += _module_lines(f"m{at}", item)
    lines += ["    given = ARGUMENTS.bind(args, kwargs)", "    if given is None: return REFUSED"]
    lines += _input_lines(arguments.inputs, on_cpu)
    numbers = {id(item.module): at for at, item in enumerate(watched)}
    for at, operand in enumerate(operands):
        lines += _operand_lines(f"t{at}", f"m{numbers[id(operand.module)]}", operand)
    lines += _holder_lines(places)
    lines.append("    return ARGUMENTS.returned(FORWARD(g, *given))")
    return "\n".join(lines) + "\n"


def _made(
    text: str,
    name: str,
    new: nn.Module,
    arguments: Arguments,
    kinds: tuple[type[nn.Module], ...],
) -> Traced:
    filename = f"<agentkernel_traced_{name[:16]}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    namespace: dict[str, object] = {
        "torch": torch,
        "Given": OperandHolder,
        "REFUSED": REFUSED,
        "PLAIN_TENSORS": PLAIN_TENSORS,
        "ARGUMENTS": arguments,
        "FORWARD": type(new).forward,
        "KINDS": kinds,
    }
    exec(compile(text, filename, "exec"), namespace)
    made = namespace["traced"]
    assert isinstance(made, types.FunctionType)
    # Dynamo keeps at most eight graphs for one code object.
    made.__code__ = made.__code__.replace(co_name=f"traced_{name[:10]}")
    return made


def _place_lines(at: int, path: str) -> Iterator[str]:
    """`m3`, the module at `path`, if it is there and of the class that was verified."""
    yield f"    m{at} = self"
    for part in path.split(".") if path else ():
        yield f"    m{at} = m{at}._modules.get({part!r})"
        yield f"    if m{at} is None: return REFUSED"
    if path:
        yield f"    if type(m{at}) is not KINDS[{at}]: return REFUSED"


def _module_lines(name: str, item: WatchedModule) -> Iterator[str]:
    refuse = ": return REFUSED"
    yield f"    if {name}.training{refuse}"
    if item.inner:
        hooks = " or ".join(f"{name}.{hook}" for hook in HOOKS)
        yield f"    if {hooks} or 'forward' in {name}.__dict__{refuse}"
    yield f"    if len({name}._modules) != {len(item.children)}{refuse}"
    for attribute, value in (*item.own, *item.shared):
        if not attribute.isidentifier() or isinstance(value, torch.Tensor):
            raise _NotTraceable
        read = f"{name}.{attribute}"
        if _has_literal(value) or type(value) in PLAIN:
            yield f"    if {read} {_differs(value)}{refuse}"
        else:
            # Dynamo guards an object's id; what `is` says it takes for good.
            yield f"    if id({read}) != {id(value)}{refuse}"


def _differs(value: object) -> str:
    """`is not None`, `!= 8`: the comparison that is true of another value."""
    if value is None or isinstance(value, bool):
        return f"is not {value!r}"
    if isinstance(value, torch.dtype):
        return f"is not {value}"
    if not _is_literal(value):
        raise _NotTraceable
    return f"!= {value!r}"


def _has_literal(value: object) -> bool:
    return isinstance(value, torch.dtype) or _is_literal(value)


def _is_literal(value: object) -> bool:
    if type(value) in (tuple, list):
        items: Sequence[object] = value  # type: ignore[assignment]
        return len(items) <= MOST_ITEMS and all(_is_literal(item) for item in items)
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (bool, int, str)


def _input_lines(inputs: Sequence[Form | str], on_cpu: bool) -> Iterator[str]:
    first = None
    for at, form in enumerate(inputs):
        value = f"given[{at}]"
        if isinstance(form, str):
            yield f"    if {value} {_differs(_literal(form))}: return REFUSED"
            continue
        if first is None:
            first = value
            yield f"    device = {value}.device"
            if not on_cpu:
                yield "    if device.type != 'cuda': return REFUSED"
            yield "    if torch.is_autocast_enabled(device.type): return REFUSED"
        yield from _tensor_lines(value, form)
    if first is None:
        raise _NotTraceable


def _literal(text: str) -> object:
    try:
        value: object = read_literal(text)
    except (ValueError, SyntaxError) as error:
        raise _NotTraceable from error
    return value


def _tensor_lines(value: str, form: Form) -> Iterator[str]:
    yield f"    if type({value}) not in PLAIN_TENSORS: return REFUSED"
    yield f"    if {value}.dtype is not {form.dtype} or {value}.device != device: return REFUSED"
    yield f"    if {value}.shape != {form.shape!r}: return REFUSED"
    # A dimension of one element may have any stride.
    strides = [
        f"{value}.stride({axis}) != {step}"
        for axis, (size, step) in enumerate(zip(form.shape, form.stride, strict=True))
        if size > 1
    ]
    if strides and 0 not in form.shape:
        yield f"    if {' or '.join(strides)}: return REFUSED"
    yield f"    if torch.is_grad_enabled() and {value}.requires_grad: return REFUSED"


def _operand_lines(value: str, module: str, operand: Operand) -> Iterator[str]:
    yield f"    {value} = {module}.{operand.holder}.get({operand.name!r})"
    yield f"    if {value} is None: return REFUSED"
    yield from _tensor_lines(value, operand.form)


def _places(new: nn.Module, operands: Sequence[Operand]) -> tuple[tuple[str, ...], ...]:
    """The dotted names in `new` of each operand."""
    named: dict[tuple[int, str], str] = {}
    for path, item in new.named_modules(remove_duplicate=False):
        for tensors in (item._parameters, item._buffers):
            for name in tensors:
                named[(id(tensors), name)] = f"{path}.{name}" if path else name
    return tuple(_names_of(item.places, named) for item in operands)


def _names_of(
    places: Sequence[tuple[Tensors, str]], named: Mapping[tuple[int, str], str]
) -> tuple[str, ...]:
    found = tuple(named.get((id(tensors), name), "") for tensors, name in places)
    if not all(part.isidentifier() for name in found for part in name.split(".")):
        raise _NotTraceable
    return found


def _holder_lines(places: Sequence[Sequence[str]]) -> Iterator[str]:
    """`g` with the operands, and a holder for each module on the way to one."""
    yield "    g = Given()"
    made = {""}
    for at, names in enumerate(places):
        for name in names:
            parts = name.split(".")
            for end in range(1, len(parts)):
                path = ".".join(parts[:end])
                if path not in made:
                    made.add(path)
                    yield f"    g.{path} = Given()"
            yield f"    g.{name} = t{at}"


def _is_of(chain: str, names: Sequence[str]) -> bool:
    """Whether `weight.stride` is about the operand `weight`."""
    return any(chain == name or chain.startswith(f"{name}.") for name in names)


def _read_of_itself(source: str) -> set[str] | None:
    """The dotted names that ModelNew.forward reads of `self`; None where it does more with it."""
    try:
        tree = parse_source(source)
    except SyntaxError:
        return None
    kind = next(
        (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ModelNew"),
        None,
    )
    forward = next(
        (
            node
            for node in (kind.body if kind else ())
            if isinstance(node, ast.FunctionDef) and node.name == "forward"
        ),
        None,
    )
    if forward is None or not forward.args.args:
        return None
    own = forward.args.args[0].arg
    reader = _Reader(own)
    for statement in forward.body:
        reader.visit(statement)
    return reader.found if reader.plain else None


class _Reader(ast.NodeVisitor):
    """Collects the longest chains `self.a.b` that are read; `plain` False where self is written to
    or handed on."""

    def __init__(self, own: str) -> None:
        self.own = own
        self.found: set[str] = set()
        self.plain = True
        self._recording = False

    def visit_If(self, node: ast.If) -> None:
        """Where gradients are recorded, `self` goes to the autograd function: no such call is
        traced, for one that needs a gradient is refused before."""
        before = self._recording
        self._recording |= ast.unparse(node.test) == "torch.is_grad_enabled()"
        self.generic_visit(node)
        self._recording = before

    def visit_Call(self, node: ast.Call) -> None:
        """`Differentiable.apply(self, *tensors)`, or whatever lies below."""
        handed = self._recording and ast.unparse(node.func).endswith(".apply")
        if handed and node.args and ast.unparse(node.args[0]) == self.own:
            for item in node.args[1:]:
                self.visit(item)
        else:
            self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """A chain on self, or whatever lies below."""
        chain, inner = [node.attr], node.value
        while isinstance(inner, ast.Attribute):
            chain.append(inner.attr)
            inner = inner.value
        if not (isinstance(inner, ast.Name) and inner.id == self.own):
            self.generic_visit(node)
            return
        if not isinstance(node.ctx, ast.Load):
            self.plain = False
        self.found.add(".".join(reversed(chain)))

    def visit_Name(self, node: ast.Name) -> None:
        """Self by itself."""
        if node.id == self.own:
            self.plain = False


__all__ = ["REFUSED", "OperandHolder", "Traced", "traced_function"]
