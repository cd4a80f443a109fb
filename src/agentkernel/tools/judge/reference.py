"""What is the right answer? Eager PyTorch in the problem's dtype, and the same module in fp64."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.utils._pytree import TreeSpec


@dataclass(frozen=True)
class Answer:
    """One call of the reference. `leaves` are eager's outputs in order, `oracle` the fp64 ones
    (None for what is no floating tensor); `*_after` show what the reference wrote to."""

    leaves: list[object]
    spec: TreeSpec
    oracle: list[torch.Tensor | None]
    inputs_before: list[object]
    inputs_after: list[object]
    state_after: dict[str, torch.Tensor]
    note: str | None = None
    no_oracle: bool = False


class KeepDouble(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Explicit casts of fp64 values to narrower floats do nothing: the oracle stays in fp64."""

    def __torch_dispatch__(  # type: ignore[no-untyped-def] # torch's own signature
        self, func, types, args=(), kwargs=None
    ):
        """Run `func`, with a narrowing target dtype replaced by fp64."""
        import torch

        kwargs = dict(kwargs or {})
        dtype = kwargs.get("dtype")
        if func is torch.ops.aten._to_copy.default and dtype is not None:
            source = args[0]
            if source.dtype == torch.float64 and dtype.is_floating_point:
                kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


def call_reference(model: nn.Module, inputs: Sequence[object]) -> Answer:
    """Run `model` (left as it is) on copies of `inputs`, eagerly and in fp64."""
    import torch
    from torch.utils._pytree import tree_flatten

    with torch.no_grad():
        eager = copy.deepcopy(model)
        given = _copies(inputs)
        leaves, spec = tree_flatten(eager(*given))
        leaves = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        state = {name: value.detach() for name, value in eager.state_dict().items()}
        exact = _oracle(model, inputs, leaves)
    return Answer(leaves, spec, exact.values, list(inputs), given, state, exact.note, exact.missing)


@dataclass(frozen=True)
class Exact:
    """The fp64 outputs; `missing` where the module does not run in fp64 and eager stands in."""

    values: list[torch.Tensor | None]
    note: str | None
    missing: bool


def _oracle(model: nn.Module, inputs: Sequence[object], leaves: Sequence[object]) -> Exact:
    import torch
    from torch.utils._pytree import tree_flatten

    try:
        with KeepDouble():  # type: ignore[no-untyped-call]
            exact, _ = tree_flatten(_doubled(model)(*[_double(value) for value in inputs]))
        note, missing = None, False
    except (RuntimeError, TypeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        exact = list(leaves)
        missing = True
        note = f"no fp64 oracle ({_one_line(error)}): eager itself is the reference"
    found: list[torch.Tensor | None] = []
    for leaf, value in zip(leaves, exact, strict=True):
        if isinstance(leaf, torch.Tensor) and leaf.dtype.is_floating_point:
            if value.dtype != torch.float64 and note is None:
                note = f"the oracle comes out as {value.dtype}, not fp64"
            found.append(value.double())
        else:
            found.append(None)
    return Exact(found, note, missing)


def _doubled(model: nn.Module) -> nn.Module:
    """A copy in fp64, plain tensor attributes included."""
    import torch

    double = copy.deepcopy(model).double()
    for module in double.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
                setattr(module, name, value.double())
    return double


def _double(value: object) -> object:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return value.double() if value.dtype.is_floating_point else value.clone()


def _copies(values: Sequence[object]) -> list[object]:
    """Copies with the strides that the values have: what refuses them refuses the copies."""
    import torch

    return [
        torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        ).copy_(value)
        if isinstance(value, torch.Tensor)
        else value
        for value in values
    ]


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:160]
