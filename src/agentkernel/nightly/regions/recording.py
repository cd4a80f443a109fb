"""Which submodules does one forward call, on which arguments, and which ops does each run?"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agentkernel.domain.errors import ProblemError, one_line
from agentkernel.domain.profile import OpCost
from agentkernel.nightly.regions.source import ModelCall, ModelSource
from agentkernel.tools.problem.flat import is_flat, returned
from agentkernel.tools.problem.regions_arguments import (
    BoundCall,
    UnboundCall,
    bind_call,
    describe_call,
)
from agentkernel.tools.problem.submodule_call import SubmoduleCall

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Recording:
    """One forward: its submodules' calls in the order of their first return, and all ops' costs."""

    calls: tuple[SubmoduleCall, ...]
    costs: tuple[OpCost, ...]


def record(loaded: ModelSource, module: nn.Module, device: str = "cpu") -> Recording:
    """Run `module` once and note every submodule's calls.

    On the CPU no memory is touched where the forward allows it. Where shapes may depend on values,
    the forward runs for real on two draws of the inputs, and what both have in common remains.
    `module` is then as it was but for the values of its tensors. Raises ProblemError where the
    forward raises.
    """
    if device == "cpu":
        with suppress(Exception, SystemExit):  # whatever fake tensors cannot do, real ones may
            return _record_fake(module, loaded.make_call("cpu"))
    try:
        first, second = (
            _record_real(module, loaded.make_call(device, seed=seed)) for seed in (0, 1)
        )
    except (Exception, SystemExit) as error:
        raise ProblemError(
            f"The forward of {loaded.spec.name} raised {type(error).__name__}: "
            f"{one_line(error, 200)}. Expected: it runs on its inputs. "
            "Next: run the model by itself in Python."
        ) from error
    return _in_common(first, second)


def record_inputs(
    loaded: ModelSource, module: nn.Module, path: str, device: str = "cpu"
) -> tuple[BoundCall, ...]:
    """Values of the arguments of `path`'s calls in one forward, one entry a description.

    The tensors are copies on the CPU. Calls that do not bind are left out.
    """
    import torch

    from agentkernel.tools.problem.attributes import preserve_attributes

    found: dict[tuple[str, ...], BoundCall] = {}
    fresh: list[tuple[str, ...] | None] = []

    def keep(child: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        bound = bind_call(child, args, kwargs)
        key = None if isinstance(bound, UnboundCall) else describe_call(bound)
        new = key is not None and key not in found
        fresh.append(key if new else None)
        if new and key is not None and isinstance(bound, BoundCall):
            found[key] = replace(bound, inputs=tuple(map(_copied, bound.inputs)))

    def see(child: nn.Module, args: object, output: object) -> None:
        key = fresh.pop()
        apart = None if key is None else returned(output)
        if key is not None and apart is not None and not is_flat(apart.structure):
            found[key] = replace(found[key], returns=apart.structure)

    child = module.get_submodule(path)
    handles = (
        child.register_forward_pre_hook(keep, with_kwargs=True),
        child.register_forward_hook(see),
    )
    call = loaded.make_call(device)
    try:
        with torch.no_grad(), preserve_attributes(module):
            module(*call.args, **call.kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return tuple(found.values())


def _copied(value: object) -> object:
    """The tensor's own elements on the CPU, with the same strides."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    if 0 in value.stride():
        steps = zip(value.shape, value.stride(), strict=True)
        index = tuple(slice(0, 1) if step == 0 else slice(size) for size, step in steps)
        copy[index].copy_(value[index])
        return copy
    return copy.copy_(value)


def _record_fake(module: nn.Module, call: ModelCall) -> Recording:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._pytree import tree_map_only

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    args, kwargs = tree_map_only(torch.Tensor, mode.from_tensor, (call.args, dict(call.kwargs)))
    with _no_logs(), mode:
        return _run(module, args, kwargs)


def _record_real(module: nn.Module, call: ModelCall) -> Recording:
    return _run(module, call.args, call.kwargs)


def _run(module: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> Recording:
    import torch

    from agentkernel.nightly.regions.trace import Recorder
    from agentkernel.tools.problem.attributes import preserve_attributes

    recorder = Recorder(module)
    with torch.no_grad(), preserve_attributes(module), recorder.hooks(), recorder:
        module(*args, **kwargs)
    return Recording(tuple(recorder.calls.values()), tuple(recorder.costs))


@contextmanager
def _no_logs() -> Iterator[None]:
    """Fake tensors log each op that they cannot run, which is expected here."""
    previous = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(previous)


def _in_common(first: Recording, second: Recording) -> Recording:
    other = {(item.path, item.specs, item.trace) for item in second.calls}
    calls = tuple(
        item
        if item.refused or (item.path, item.specs, item.trace) in other
        else replace(item, refused="its shapes or ops change with the values of the inputs")
        for item in first.calls
    )
    return Recording(calls, first.costs)
