"""Example of a call without storage: the module on meta and its inputs, as they are traced."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agentkernel.domain.errors import ProblemError
from agentkernel.domain.problem import ScalarSpec
from agentkernel.tools.judge.cases.layouts import dense_order, in_order
from agentkernel.tools.problem.inputs import default_value
from agentkernel.tools.problem.loading import LoadedProblem

if TYPE_CHECKING:
    from torch import nn


class Example(NamedTuple):
    """A module in eval mode with the arguments of one call, both without storage."""

    module: nn.Module
    inputs: tuple[object, ...]


def example_call(loaded: LoadedProblem, shape_set: int = 0) -> Example:
    """The module on meta; where its constructor needs real numbers, on the CPU with fake inputs."""
    try:
        module = loaded.build(seed=0, device="meta")
        if not _stray_tensors(module):
            return Example(module, _inputs(loaded, shape_set, "meta"))
    except (ProblemError, NotImplementedError):
        pass
    return real_example(loaded, shape_set)


def real_example(loaded: LoadedProblem, shape_set: int) -> Example:
    """The module on the CPU, with fake inputs."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    module = loaded.build(seed=0, device="cpu")
    with FakeTensorMode(allow_non_fake_inputs=True):
        return Example(module, _inputs(loaded, shape_set, "cpu"))


def _stray_tensors(module: nn.Module) -> bool:
    """True where an attribute, a parameter or a buffer is a real tensor, as one that the
    constructor was given stays, which cannot meet meta inputs."""
    import torch

    return any(
        isinstance(value, torch.Tensor) and value.device.type != "meta"
        for item in module.modules()
        for value in (*vars(item).values(), *item._parameters.values(), *item._buffers.values())
    )


def _inputs(loaded: LoadedProblem, shape_set: int, device: str) -> tuple[object, ...]:
    import torch

    if loaded.live_inputs and shape_set == 0:
        return tuple(_like(item, device) for item in loaded.live_inputs)
    specs = loaded.problem.shape_sets[shape_set].inputs
    values: list[object] = []
    for spec, order in zip(specs, declared_orders(loaded, shape_set), strict=True):
        if isinstance(spec, ScalarSpec):
            values.append(default_value(spec, device))
            continue
        value = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=device)
        values.append(value if order is None else in_order(value, order))
    return tuple(values)


def declared_orders(loaded: LoadedProblem, shape_set: int) -> list[tuple[int, ...] | None]:
    """The memory format of each input of a declared set, as the problem makes it; None for the
    usual one, and where that cannot be told."""
    specs = loaded.problem.shape_sets[shape_set].inputs
    try:
        orders = [dense_order(x) for x in loaded.make_inputs(shape_set, seed=0, device="meta")]
    except Exception:  # noqa: BLE001 - the user's get_inputs may need real numbers
        orders = []
    return orders if len(orders) == len(specs) else [None] * len(specs)


def _like(value: object, device: str) -> object:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
