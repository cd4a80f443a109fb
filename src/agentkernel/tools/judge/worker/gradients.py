"""Gradients of the candidate's calls in the worker, and the ways to take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import torch
from torch.utils._pytree import tree_leaves

from agentkernel.tools.judge.cases.layouts import Layout
from agentkernel.tools.judge.cases.values import Distribution
from agentkernel.tools.judge.worker.calls import watched
from agentkernel.tools.judge.worker.storage import call_inputs, deliver, is_ref

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.tools.sandbox.protocol import JSON
    from agentkernel.tools.sandbox.worker import WorkerState


Form = Literal["plain", "strided", "expanded", "transposed"]
Beside = Literal["", "first", "last"]
Wanted = Literal["all", "inputs", "parameters"]
Round = Literal["plain", "small", "large", "infinite", "one", "rest", "changed"]


class BackwardPass(NamedTuple):
    """One way to differentiate a call: how the gradients of its outputs lie in memory (`ends`),
    what requires a gradient (`wanted`), whether a second call comes before its backward pass and is
    differentiated `beside` it, first or last; in `training` mode; the gradients themselves
    differentiated (`twice`); the `rounds` of backward passes over the same graph, whose gradients
    are all looked at after the last one; the `values` of the inputs and their `layout`; with other
    `scalars` than the declared ones.

    Rounds: given gradients as they are drawn, `small`, `large`, with `infinite` ones and NaN among
    them, of `one` output, of the `rest`; those of the first round again, after inputs and
    parameters were `changed` in place (it raises, or has the old values).
    """

    ends: Form = "plain"
    wanted: Wanted = "all"
    beside: Beside = ""
    training: bool = False
    twice: bool = False
    rounds: tuple[Round, ...] = ("plain",)
    values: Distribution = "normal"
    layout: Layout = "contiguous"
    scalars: bool = False

    @property
    def label(self) -> str:
        """For people."""
        words = [f"{self.ends} gradients"] if self.ends != "plain" else []
        words += [f"of the {self.wanted} alone"] if self.wanted != "all" else []
        words += ["two calls before the backward passes"] if self.beside else []
        words += ["training mode"] if self.training else []
        words += ["differentiated twice"] if self.twice else []
        words += ["other numbers"] if self.scalars else []
        return ", ".join(words)


def differentiable(value: object) -> bool:
    """Whether a gradient can be recorded of it."""
    return isinstance(value, torch.Tensor) and (
        value.dtype.is_floating_point or value.dtype.is_complex
    )


@dataclass(frozen=True)
class RecordedForward:
    """A call whose gradients are recorded: its result as it was returned, and what they are
    wanted of, by the name of input or parameter."""

    result: object
    leaves: Mapping[str, torch.Tensor]


def record_forward(
    model: Callable[..., object],
    named: Mapping[str, torch.Tensor],
    inputs: Sequence[object],
    wanted: Wanted = "all",
    call: Callable[[Callable[[], object]], object] = lambda work: work(),
) -> RecordedForward:
    """Call `model` on `inputs`; the parameters are `named`. What is not `wanted` requires no
    gradient meanwhile. `call` runs the call itself."""
    given = [
        item.detach().requires_grad_(wanted != "parameters") if differentiable(item) else item  # type: ignore[attr-defined]
        for item in inputs
    ]
    leaves = {
        f"input {index}": item
        for index, item in enumerate(given)
        if isinstance(item, torch.Tensor) and item.requires_grad
    }
    frozen = [item for item in named.values() if item.requires_grad and wanted == "inputs"]
    for item in frozen:
        item.requires_grad_(False)
    try:
        leaves |= {name: value for name, value in named.items() if value.requires_grad}
        with torch.enable_grad():
            result = call(lambda: model(*given))
    finally:
        for item in frozen:
            item.requires_grad_(True)
    return RecordedForward(result, leaves)


def gradients(
    recorded: RecordedForward,
    outputs: Sequence[object],
    ends: Sequence[torch.Tensor | None],
    twice: bool = False,
    last: bool = True,
) -> dict[str, torch.Tensor]:
    """Gradients of the products of `outputs` with `ends`, by the name of input or parameter; those
    that no output depends on are left out. Differentiated `twice`, the gradients, and the `ends`,
    of the sum of the squares of these gradients. The graph is kept where this is not the `last`
    time that it is differentiated."""
    pairs = [
        (output, end.detach().requires_grad_(twice))
        for output, end in zip(outputs, ends, strict=True)
        if end is not None and isinstance(output, torch.Tensor) and output.requires_grad
    ]
    leaves = dict(recorded.leaves)
    if not pairs or not leaves:
        return {}
    found = torch.autograd.grad(
        [output for output, _ in pairs],
        list(leaves.values()),
        [end for _, end in pairs],
        allow_unused=True,
        retain_graph=twice or not last,
        create_graph=twice,
    )
    if not twice:
        return _named(leaves, found)
    total = sum((item.square().sum() for item in found if item is not None), torch.zeros(()))
    return _named(leaves, torch.autograd.grad(total, list(leaves.values()), allow_unused=True))


def _named(
    leaves: Mapping[str, torch.Tensor], found: Sequence[torch.Tensor | None]
) -> dict[str, torch.Tensor]:
    pairs = zip(leaves, found, strict=True)
    return {name: value for name, value in pairs if value is not None}


def rolled(inputs: Sequence[object]) -> list[object]:
    """The same values in other places, for a second call, which takes what the first takes."""
    return [
        item.detach().flatten().roll(1).view(item.shape) if differentiable(item) else item  # type: ignore[attr-defined]
        for item in inputs
    ]


def change(values: Sequence[torch.Tensor]) -> Callable[[], None]:
    """Write other numbers to all of `values`, as an operator in place does; what is returned puts
    the old ones back."""
    kept = [item.detach().clone() for item in values]
    with torch.no_grad():
        for item in values:
            item.mul_(-1.5).add_(0.75)

    def put_back() -> None:
        with torch.no_grad():
            for item, old in zip(values, kept, strict=True):
                item.copy_(old)

    return put_back


def differentiate(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Differentiate one call in the `way` that `gradients.Pass` says, for `ends`, gradients of its
    outputs in each round; those of inputs and parameters go to the buffers in `gradients` after the
    last one. The call is watched; its outputs are delivered as by `run`, and once more after the
    backward passes. `refuses_changes` says that a round of changed inputs raised."""
    model = cast("nn.Module", state.memory["model"])
    way = BackwardPass(**cast("dict[str, bool]", payload["way"]))  # type: ignore[arg-type]
    refs = cast("Mapping[str, Sequence[object]]", payload["ends"])
    rounds = {
        name: [None if ref is None else state.open(ref) for ref in ends]
        for name, ends in refs.items()
    }
    rooms = cast("Mapping[str, Mapping[str, object]]", payload["gradients"])
    values = call_inputs(payload, state)
    named = dict(model.named_parameters())
    recorded: list[RecordedForward] = []

    def call() -> object:
        recorded.append(record_forward(model, named, values, way.wanted))
        return recorded[-1].result

    reply = watched(call, values, payload, state)
    first = next(iter(rounds.values()))
    second = record_forward(model, named, rolled(values), way.wanted) if way.beside else None
    beside = () if second is None else tree_leaves(second.result)
    if second is not None and way.beside == "first":
        gradients(second, beside, first)
    leaves = tree_leaves(recorded[0].result)
    found: dict[str, Mapping[str, torch.Tensor]] = {}
    for name, ends in rounds.items():
        last = name == [*rounds][-1] and "changed" not in rooms
        found[name] = gradients(recorded[0], leaves, ends, way.twice, last)
    if second is not None and way.beside == "last":
        gradients(second, beside, first)
    # The caller still holds the outputs: what the backward passes did to them counts.
    for leaf, ref in zip(leaves, cast("Sequence[object]", payload["outputs"]), strict=False):
        if isinstance(leaf, torch.Tensor) and is_ref(ref):
            with torch.no_grad():
                deliver(leaf, state.open(ref))
    if "changed" in rooms:
        changed = _once_changed(recorded[0], leaves, first, named)
        found["changed"] = changed or {}
        reply["refuses_changes"] = changed is None
    with torch.no_grad():
        for name, wanted in rooms.items():
            for place, ref in wanted.items():
                if place in found[name]:
                    deliver(found[name][place], state.open(ref))
    return reply


def _once_changed(
    recorded: RecordedForward,
    leaves: Sequence[object],
    ends: Sequence[torch.Tensor | None],
    named: Mapping[str, torch.Tensor],
) -> dict[str, torch.Tensor] | None:
    """The gradients after inputs and parameters were written to in place; None where that raises,
    as eager does where it needs the old values."""
    put_back = change([*{id(x): x for x in (*recorded.leaves.values(), *named.values())}.values()])
    try:
        return gradients(recorded, leaves, ends)
    except Exception:  # noqa: BLE001 - whatever it raises, the caller gets no wrong gradient
        return None
    finally:
        put_back()
