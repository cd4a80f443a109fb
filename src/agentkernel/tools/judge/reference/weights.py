"""Weights that few modules have and every module may: of any size, NaN, or met by an input."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from agentkernel.tools.judge.reference.reference import leaves_of

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.fx import Node

    from agentkernel.tools.problem.capture import Captured

POWERS = (6.0, 3.0)
"""Vectors have sizes from 10 to the minus that to 10 to the plus that, the first that the original
takes."""
WEIGHT_VALUE_SHARE = 0.125
"""Of an input so many elements are elements of the state, and so many of its rows rows of it."""
MOST_WEIGHT_VALUES = 1 << 12
MOST_NAN_WEIGHTS = 3
"""So many parameters are tried until one shows as NaN."""
STEP = 1e3
THROUGH = {
    "alias", "clone", "detach", "expand", "permute", "reshape", "select", "slice", "squeeze",
    "_to_copy", "to", "transpose", "unsqueeze", "_unsafe_view", "view",
}  # fmt: skip
"""Operators that hand on values as they are."""
SUBTRACTING = ("sub", "rsub", "cdist", "_cdist_forward", "pairwise_distance")


def is_vector(value: torch.Tensor) -> bool:
    """Whether it holds floats along one dimension."""
    return value.is_floating_point() and sum(size > 1 for size in value.shape) == 1


def spread_vector_weights(model: nn.Module, seed: int, power: float) -> None:
    """Give the elements of parameters of one dimension any size and sign, in place."""
    import torch

    for position, value in enumerate(model.parameters()):
        if not is_vector(value):
            continue
        generator = torch.Generator(device=value.device).manual_seed(seed * 1013 + position)
        share, chance = (
            torch.rand(value.shape, generator=generator, device=value.device) for _ in range(2)
        )
        size = torch.pow(10.0, power * (2 * share - 1))
        value.data.copy_(torch.where(chance < 0.5, -size, size))


def with_nan_weight(
    model: nn.Module, inputs: Sequence[object], before: Sequence[object], seed: int
) -> nn.Module | None:
    """A copy of `model` of which one element of one parameter, a drawn one, is NaN, where that
    shows beside the outputs `before`. What is NaN and does not move with that element, as zero
    times it does not, is an accident of the original's algorithm: None then."""
    import torch

    names = [n for n, v in model.named_parameters() if v.is_floating_point() and v.numel()]
    generator = torch.Generator().manual_seed(seed)
    for pick in torch.randperm(len(names), generator=generator)[:MOST_NAN_WEIGHTS].tolist():
        changed = copy.deepcopy(model)
        flat = changed.get_parameter(names[pick]).data
        draw = torch.randint(flat.numel(), (), generator=generator)
        place = tuple(int(x) for x in torch.unravel_index(draw, flat.shape))
        found = []
        for new in (STEP, -STEP, math.nan):
            flat[place] = new
            given = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
            found.append(leaves_of(changed, given))
        if None not in found and _spoils(before, found):  # type: ignore[arg-type]
            return changed
    return None


def _spoils(before: Sequence[object], found: Sequence[Sequence[object]]) -> bool:
    """Whether some outputs are NaN in the last of `found`, and those alone that are not as they
    were in one of the others either."""
    import torch

    shown = False
    for old, *others, new in zip(before, *found, strict=True):
        if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
            continue
        tensors = [cast("torch.Tensor", other) for other in others]
        if any(other.shape != old.shape for other in (*tensors, new)):
            return False
        nan = new.isnan() & ~old.isnan()
        still = nan.clone()
        for other in tensors:
            still &= other == old
        if bool(still.any()):
            return False
        shown |= bool(nan.any())
    return shown


def with_weight_values(inputs: Sequence[object], model: nn.Module, seed: int) -> list[object]:
    """`inputs` of which some elements are elements of the state of `model`, and some rows rows of
    matrices of their length: what lies on an edge, and what equals a code."""
    import torch

    state = [x.detach() for x in model.state_dict().values() if x.is_floating_point() and x.numel()]
    if not state:
        return list(inputs)
    found: list[object] = []
    for position, value in enumerate(inputs):
        if (
            not isinstance(value, torch.Tensor)
            or not value.is_floating_point()
            or not value.numel()
        ):
            found.append(value)
            continue
        generator = torch.Generator(device=value.device).manual_seed(seed * 1019 + position)
        found.append(_met(value, state, generator))
    return found


def _met(
    value: torch.Tensor, state: Sequence[torch.Tensor], generator: torch.Generator
) -> torch.Tensor:
    import torch

    device = value.device
    flat = torch.cat([x.flatten()[:MOST_WEIGHT_VALUES].to(value.dtype) for x in state])
    flat = flat[flat.isfinite()]
    if not len(flat):
        return value
    picks = torch.randint(len(flat), value.shape, generator=generator, device=device)
    chance = torch.rand(value.shape, generator=generator, device=device)
    mixed = torch.where(chance < WEIGHT_VALUE_SHARE, flat[picks], value)
    rows = [x.reshape(-1, x.shape[-1]) for x in state if x.ndim > 1]
    rows = [x for x in rows if value.ndim > 1 and x.shape[1] == value.shape[-1]]
    if rows:
        table = torch.cat([x[:MOST_WEIGHT_VALUES].to(value.dtype) for x in rows])
        lines = mixed.view(-1, mixed.shape[-1])
        count = max(1, int(WEIGHT_VALUE_SHARE * len(lines)))
        where = torch.randperm(len(lines), generator=generator, device=device)[:count]
        which = torch.randint(len(table), (count,), generator=generator, device=device)
        lines[where] = table[which]
    return mixed


def subtracted_weights(captured: Captured) -> tuple[str, ...]:
    """Names of the entries of the state from which an input is subtracted: of what lies close
    together and far from zero a square's expansion keeps nothing."""
    names = captured.parameters
    inputs = set(captured.user_inputs)
    found: list[str] = []
    for node in captured.graph.graph.nodes:
        word = str(node.target).removeprefix("aten.").partition(".")[0]
        if node.op != "call_function" or word not in SUBTRACTING:
            continue
        sources = [_source(item).name for item in node.all_input_nodes]
        if any(source in inputs for source in sources):
            found += [names[source] for source in sources if source in names]
    return tuple(dict.fromkeys(found))


def _source(node: Node) -> Node:
    """Where the values of `node` come from, past what only gives them another form."""
    while node.op == "call_function" and node.all_input_nodes:
        if str(node.target).removeprefix("aten.").partition(".")[0] not in THROUGH:
            break
        node = node.all_input_nodes[0]
    return node


def with_shifted_weights(model: nn.Module, names: Sequence[str], mean: float) -> nn.Module:
    """A copy of `model` with `mean` added to the entries `names` of its state."""
    import torch

    found = copy.deepcopy(model)
    state = found.state_dict()
    with torch.no_grad():
        for name in names:
            if state[name].is_floating_point():
                state[name].add_(mean)
    return found
