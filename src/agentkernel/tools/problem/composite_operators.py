"""Composite operators that export keeps whole, set from what torch made for an earlier export."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor
    from torch._C import DispatchKey
    from torch._ops import OpOverload
    from torch.fx import Graph, Node


KNOWN_TORCH = ("2.11", "2.12", "2.13")
"""Releases whose export keeps composite operators whole as `kept_tables` has it."""
Kernels = Mapping["DispatchKey", Callable[..., object]]
Preserve = Callable[[Mapping["OpOverload", Callable[..., object]]], AbstractContextManager[None]]


@dataclass(frozen=True)
class _Preserved:
    """What torch makes of one composite operator for as long as it is to stay whole.

    `fake_rule` is None where the operator had a rule for fake tensors before.
    """

    decomposition: Callable[..., object]
    before: Kernels
    during: Kernels
    fake_rule: Callable[..., object] | None


RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
"""Operators of recurrent layers, of which a decomposition writes out every step."""
RECURRENT_CALLS = frozenset(f"aten.{name}.input" for name in RECURRENT)
"""Their overloads for padded batches."""
DROPOUT, TRAIN = 5, 6
"""Places of two of their arguments."""
_PRESERVED: dict[OpOverload, _Preserved] = {}
_TABLES = threading.RLock()


@contextmanager
def kept_tables() -> Iterator[None]:
    """Let torch set its tables of composite operators from what it made for an earlier export.

    Each export lists the operators of the dispatcher anew for every library of operators, and makes
    some twenty kernels for each of 500 operators: more than half the time of a small capture.
    Nothing is changed for a torch that is not known to do so.
    """
    import torch

    try:
        from torch._export import utils
        from torch.export import exported_program

        collect = utils._materialize_cpp_cia_ops
        override = exported_program._override_composite_implicit_decomp
    except (ImportError, AttributeError):
        known = False
    else:
        known = ".".join(torch.__version__.split(".")[:2]) in KNOWN_TORCH
    if not known:
        yield
        return
    with _TABLES:
        # No operator can be registered between two libraries' turns: once is enough for all.
        utils._materialize_cpp_cia_ops = cache(collect)
        exported_program._override_composite_implicit_decomp = partial(_preserve, override)
        try:
            yield
        finally:
            utils._materialize_cpp_cia_ops = collect
            exported_program._override_composite_implicit_decomp = override


@contextmanager
def _preserve(
    override: Preserve, table: Mapping[OpOverload, Callable[..., object]]
) -> Iterator[None]:
    """`override(table)`, made by torch only for operators that are not as they were last time."""
    from torch._subclasses.fake_impls import (
        _deregister_op_impl,
        _is_op_registered_to_fake_rule,
        op_implementations_dict,
        register_op_impl,
    )

    kept: dict[OpOverload, _Preserved] = {}
    fresh: dict[OpOverload, tuple[Kernels, bool]] = {}
    for operator, decomposition in table.items():
        ruled = _is_op_registered_to_fake_rule(operator)
        last = _PRESERVED.get(operator)
        if (
            last is not None
            and last.decomposition is decomposition
            and last.before == operator.py_kernels
            and (last.fake_rule is None) == ruled
        ):
            kept[operator] = last
        else:
            fresh[operator] = (operator.py_kernels.copy(), ruled)
    with override({operator: table[operator] for operator in fresh}):
        for operator, (before, ruled) in fresh.items():
            _PRESERVED[operator] = _Preserved(
                table[operator],
                before,
                operator.py_kernels.copy(),
                None if ruled else op_implementations_dict[operator],
            )
        try:
            for operator, last in kept.items():
                _set_kernels(operator, last.during)
                if last.fake_rule is not None:
                    register_op_impl(operator)(last.fake_rule)
            yield
        finally:
            for operator, last in kept.items():
                _set_kernels(operator, last.before)
                _deregister_op_impl(operator)


def _set_kernels(operator: OpOverload, kernels: Kernels) -> None:
    operator.py_kernels.clear()
    operator.py_kernels.update(kernels)
    operator._dispatch_cache.clear()


@contextmanager
def losses_of_samples() -> Iterator[None]:
    """Meanwhile, let the shapes of `nll_loss` come from its kernel. torch's Python rule takes the
    code of the reduction for an argument of the past, and one loss a sample for their mean."""
    import torch
    from torch._decomp import decomposition_table

    call = torch.ops.aten.nll_loss.default
    with _TABLES:
        rule = decomposition_table.pop(call, None)
        try:
            yield
        finally:
            if rule is not None:
                decomposition_table[call] = rule


@contextmanager
def recurrences_by_shape() -> Iterator[None]:
    """Meanwhile, recurrent layers say of their results no more than shapes: torch's own rule steps
    through time, a minute for 512 steps of six layers."""
    import torch
    from torch._decomp import decomposition_table

    calls = [getattr(torch.ops.aten, name).input for name in RECURRENT]
    with _TABLES:
        rules = {call: decomposition_table[call] for call in calls}
        before = {call: call.py_kernels.copy() for call in calls}
        try:
            for call in calls:
                decomposition_table[call] = _results_of_recurrence
                _set_kernels(call, dict.fromkeys(before[call], _results_of_recurrence))
            yield
        finally:
            for call in calls:
                decomposition_table[call] = rules[call]
                _set_kernels(call, before[call])


def _results_of_recurrence(
    x: Tensor, begin: Tensor | Sequence[Tensor], weights: Sequence[Tensor], biased: bool,
    layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Empty tensors of the shapes, strides and dtype of what the operator returns."""
    import torch

    states = (begin,) if isinstance(begin, torch.Tensor) else tuple(begin)
    steps, batch = (x.shape[1], x.shape[0]) if batch_first else x.shape[:2]
    wide = states[0].shape[2] * (2 if bidirectional else 1)
    output = x.new_empty((steps, batch, wide))
    last = (x.new_empty(tuple(item.shape)) for item in states)
    return (output.transpose(0, 1) if batch_first else output, *last)


def is_recurrent(node: Node) -> bool:
    """Whether a node of a graph is a recurrent layer on padded batches."""
    return str(node.target) in RECURRENT_CALLS


def same_in_both_modes(graph: Graph) -> None:
    """Let recurrent layers without dropout say so: they compute the same while training."""
    for node in graph.nodes:
        if is_recurrent(node) and node.args[DROPOUT] == 0:
            node.args = (*node.args[:TRAIN], False, *node.args[TRAIN + 1 :])
