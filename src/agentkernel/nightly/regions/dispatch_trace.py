"""Ops and operands of each submodule call, traced by a TorchDispatchMode.

Imports torch: import it only where a forward is about to run.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from agentkernel.domain.profile import OpCost
from agentkernel.tools.problem.attributes import (
    AttributeSnapshot,
    changed_attribute,
    snapshot_attributes,
)
from agentkernel.tools.problem.call_arguments import (
    BoundCall,
    SubmoduleCall,
    UnboundCall,
    bind_call,
    describe_call,
    describe_tensor,
    is_flat,
    label_call,
    returned,
    without_values,
)
from agentkernel.tools.roofline.op_cost import is_free, op_cost


@dataclass(frozen=True)
class _Operand:
    """A tensor as an op sees it: its number in this forward, and its name if the model has one."""

    number: int
    name: str | None
    description: str


@dataclass
class _Frame:
    """A submodule's call that has not returned yet; `start` is the number of ops before it."""

    path: str
    bound: BoundCall | UnboundCall
    start: int
    before: AttributeSnapshot
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    numbers: dict[int, str] = field(default_factory=dict)
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees each op of a forward, and through hooks to which submodules' calls it belongs."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: dict[tuple[str, tuple[str, ...]], SubmoduleCall] = {}
        self.costs: list[OpCost] = []
        self._module = module
        self._frames: list[_Frame] = []
        self._names = _names(module)
        self._numbers = WeakIdKeyDictionary()
        self._count = itertools.count()

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        given = kwargs or {}
        operands = [self._operand(item) for item in (args, given)]
        out = func(*args, **given)
        result = self._operand(out)
        if not is_free(func) and any(isinstance(item, torch.Tensor) for item in tree_leaves(out)):
            self.costs.append(op_cost(func, [*args, *given.values()], out, _size))
        for frame in self._frames:
            frame.digest.update(_line(str(func), operands, result, frame).encode())
        return out

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Follow the calls of all submodules, the model's own among them."""
        with ExitStack() as stack:
            for path, child in self._module.named_modules():
                enter, leave = self._enter(path), self._leave
                before = child.register_forward_pre_hook(enter, with_kwargs=True)
                after = child.register_forward_hook(leave)
                stack.callback(before.remove)
                stack.callback(after.remove)
            yield

    def _enter(self, path: str) -> Callable[..., None]:
        def enter(child: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            bound = bind_call(child, args, kwargs)
            frame = _Frame(path, bound, len(self.costs), snapshot_attributes(child), args, kwargs)
            self._frames.append(frame)
            if not isinstance(bound, UnboundCall):
                self._operand(bound.inputs)

        return enter

    def _leave(self, child: nn.Module, args: object, output: object) -> None:
        frame = self._frames.pop()
        costs = tuple(self.costs[frame.start :])
        bound, reason = _call_of(frame, child, output)
        if not reason and not costs:
            reason = "it does no work on the device"
        specs = describe_call(bound)
        if bound.returns is not None:
            frame.digest.update(bound.returns.text.encode())
        known = self.calls.get((frame.path, specs))
        trace = frame.digest.hexdigest()
        if known is None:
            values = replace(bound, inputs=tuple(map(without_values, bound.inputs)))
            self.calls[frame.path, specs] = SubmoduleCall(
                frame.path, values, specs, trace, costs, refused=reason
            )
            return
        if not reason and known.trace != trace:
            reason = f"its calls on {label_call(bound)} run different ops"
        refused = known.refused or reason
        self.calls[frame.path, specs] = replace(known, calls=known.calls + 1, refused=refused)

    def _operand(self, value: object) -> object:
        """`value` with each tensor as its number, its name and its description."""
        if isinstance(value, torch.Tensor):
            if value not in self._numbers:
                self._numbers[value] = next(self._count)
            name = self._names.get(id(value))
            return _Operand(self._numbers[value], name, describe_tensor(value))
        if isinstance(value, list | tuple):
            return [self._operand(item) for item in value]
        if isinstance(value, dict):
            return [(key, self._operand(value[key])) for key in sorted(value)]
        return str(value) if isinstance(value, torch.device) else value


def _names(module: nn.Module) -> dict[int, str]:
    """The model's parameters, buffers and plain tensor attributes by identity."""
    found: dict[int, str] = {}
    for path, child in module.named_modules():
        prefix = f"{path}." if path else ""
        own = {**vars(child), **child._parameters, **child._buffers}
        for key, value in own.items():
            if isinstance(value, torch.Tensor):
                found.setdefault(id(value), prefix + key)
    return found


def _line(op: str, operands: Sequence[object], result: object, frame: _Frame) -> str:
    return f"{op} {_local(operands, frame)} -> {_local(result, frame)}\n"


def _local(value: object, frame: _Frame) -> str:
    """An operand as the submodule sees it: its own parameter by name, else by first appearance."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(_local(item, frame) for item in value)}]"
    if not isinstance(value, _Operand):
        return repr(value)
    if value.number not in frame.numbers:
        prefix = f"{frame.path}." if frame.path else ""
        inside = value.name is not None and value.name.startswith(prefix)
        own = value.name.removeprefix(prefix) if inside and value.name is not None else None
        frame.numbers[value.number] = own or f"%{len(frame.numbers)}"
    return f"{frame.numbers[value.number]}:{value.description}"


def _call_of(frame: _Frame, child: nn.Module, output: object) -> tuple[BoundCall, str | None]:
    """The call that has returned, and why it is no region."""
    if isinstance(frame.bound, UnboundCall):
        return BoundCall((), ()), frame.bound.reason
    bound = frame.bound
    attribute = changed_attribute(child, frame.before)
    if attribute is not None:
        return bound, f"it sets its attribute {attribute!r}"
    apart = returned(output)
    if apart is None:
        what = type(output).__name__
        return bound, f"it returns a {what}, no tensors in tuples, lists and dicts"
    if not is_flat(apart.structure):
        bound = replace(bound, returns=apart.structure)
    if bound.structure is not None and not _unchanged(bound, child, frame):
        return bound, "it changes its arguments"
    return bound, _refused_output(apart.tensors, bound.inputs, child)


def _unchanged(bound: BoundCall, child: nn.Module, frame: _Frame) -> bool:
    """Whether lists and dicts among the arguments hold what they held before the call."""
    after = bind_call(child, frame.args, frame.kwargs)
    if isinstance(after, UnboundCall) or after.structure != bound.structure:
        return False
    return all(now is then for now, then in zip(after.inputs, bound.inputs, strict=True))


def _refused_output(
    tensors: Sequence[torch.Tensor], inputs: Sequence[object], module: nn.Module
) -> str | None:
    """Why the tensors that a call returned keep it from being a region; None where nothing does."""
    taken = {_storage(item) for item in inputs if isinstance(item, torch.Tensor)}
    if any(_storage(item) in taken for item in tensors):
        return "it returns one of its inputs, or a view of it"
    own = {_storage(item) for item in itertools.chain(module.parameters(), module.buffers())}
    if any(_storage(item) in own for item in tensors):
        return "it returns a view of its parameters"
    return None


def _storage(value: torch.Tensor) -> int:
    return int(value.untyped_storage()._cdata)


def _size(size: object) -> int:
    return int(size)  # type: ignore[call-overload, no-any-return]
