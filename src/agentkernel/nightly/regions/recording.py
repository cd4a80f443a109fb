"""Recording and timing of the submodule calls of one forward.

Device time comes from torch.profiler, in microseconds, as medians over several forwards.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from agentkernel.domain.errors import ProblemError, one_line
from agentkernel.domain.nightly import ZooModel
from agentkernel.domain.profile import OpCost
from agentkernel.tools.problem.call_arguments import (
    BoundCall,
    SubmoduleCall,
    UnboundCall,
    bind_call,
    describe_call,
    is_flat,
    returned,
)

if TYPE_CHECKING:
    import torch
    from torch import nn

    from agentkernel.swap.end_to_end import Call as ModelCall
    from agentkernel.swap.end_to_end import ModelSource as BuiltModel

    class ModelSource(BuiltModel, Protocol):
        """A model that can be built and called again and again, by its entry in the zoo."""

        @property
        def spec(self) -> ZooModel: ...


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

    from agentkernel.nightly.regions.dispatch_trace import Recorder
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


FORWARDS = 5
WARM_UP = 3
MARK = "agentkernel region "

CallKey = tuple[str, tuple[str, ...]]
"""A submodule's path, and the descriptions of its arguments."""


@dataclass(frozen=True)
class Span:
    """A named stretch of the host's time, in microseconds."""

    name: str
    start_us: float
    end_us: float
    thread: int = 0


@dataclass(frozen=True)
class Launch:
    """Device work by when the host asked for it."""

    start_us: float
    device_us: float
    thread: int = 0


@dataclass(frozen=True)
class Timeline:
    """Medians over several forwards, in microseconds.

    `wall_us`: one forward, without a profiler. `device_us`: all its device work. `calls`: device
    work of all calls of a submodule on one kind of arguments in one forward.
    """

    wall_us: float
    device_us: float
    calls: Mapping[CallKey, float]


def measure(module: nn.Module, call: ModelCall, device: str, forwards: int = FORWARDS) -> Timeline:
    """Run `module` on `call` warmed up: its wall time, then torch.profiler's view of each call.

    On the CPU, an op's own time stands for the device's.
    """
    import torch

    with torch.no_grad():
        for _ in range(WARM_UP):
            module(*call.args, **call.kwargs)
        wall_us = statistics.median(_wall_us(module, call, device) for _ in range(forwards))
        keys: dict[CallKey, int] = {}
        with _marks(module, keys):
            module(*call.args, **call.kwargs)
            profiled = [profile_forward(module, call, device) for _ in range(forwards)]
    totals = [time_in_spans(spans, launches) for spans, launches in profiled]
    device_us = [sum(item.device_us for item in launches) for _, launches in profiled]
    names = {f"{MARK}{index}": key for key, index in keys.items()}
    return Timeline(
        wall_us,
        statistics.median(device_us),
        {
            key: statistics.median(item.get(name, 0.0) for item in totals)
            for name, key in names.items()
        },
    )


def time_in_spans(spans: Sequence[Span], launches: Sequence[Launch]) -> dict[str, float]:
    """Name -> device time of the launches within its spans, each once however deep it lies.

    Spans of one thread nest or follow one another.
    """
    totals = {span.name: 0.0 for span in spans}
    for thread in {item.thread for item in launches}:
        waiting = sorted(
            (item for item in spans if item.thread == thread),
            key=lambda item: (-item.start_us, item.end_us),
        )
        open_spans: list[Span] = []
        for launch in sorted(
            (item for item in launches if item.thread == thread), key=lambda item: item.start_us
        ):
            while waiting and waiting[-1].start_us <= launch.start_us:
                open_spans.append(waiting.pop())
            open_spans = [item for item in open_spans if item.end_us >= launch.start_us]
            for name in {item.name for item in open_spans}:
                totals[name] += launch.device_us
    return totals


def profile_forward(
    module: nn.Module, call: ModelCall, device: str
) -> tuple[list[Span], list[Launch]]:
    """One forward under torch.profiler: the marked spans, and what was launched when."""
    import torch
    from torch._C._autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    on_gpu = device != "cpu"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as record:
        module(*call.args, **call.kwargs)
        if on_gpu:
            torch.cuda.synchronize()
    spans: list[Span] = []
    launches: list[Launch] = []
    for event in record.events() or ():
        if event.device_type != DeviceType.CPU:
            continue
        start, end = event.time_range.start, event.time_range.end
        if event.name.startswith(MARK):
            spans.append(Span(event.name, start, end, event.thread))
        own = _device_us(event) if on_gpu else _host_us(event)
        if own > 0:
            launches.append(Launch(start, own, event.thread))
    return spans, launches


def _device_us(event: torch.autograd.profiler_util.FunctionEvent) -> float:
    """Kernels that this event launched itself; a span's own image on the device is none."""
    return float(sum(item.duration for item in event.kernels if item.name != event.name))


def _host_us(event: torch.autograd.profiler_util.FunctionEvent) -> float:
    return 0.0 if event.name.startswith(MARK) else float(event.self_cpu_time_total)


def _wall_us(module: nn.Module, call: ModelCall, device: str) -> float:
    import torch

    on_gpu = device != "cpu"
    if on_gpu:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    module(*call.args, **call.kwargs)
    if on_gpu:
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e6


@contextmanager
def _marks(module: nn.Module, keys: dict[CallKey, int]) -> Iterator[None]:
    """Give each submodule's calls a span of the profiler; `keys` gets the number of each kind."""
    import torch

    opened: list[torch.profiler.record_function] = []

    def enter(path: str, child: nn.Module, args: object, kwargs: dict[str, object]) -> None:
        bound = bind_call(child, args if isinstance(args, tuple) else (args,), kwargs)
        specs = () if isinstance(bound, UnboundCall) else describe_call(bound)
        number = keys.setdefault((path, specs), len(keys))
        opened.append(torch.profiler.record_function(f"{MARK}{number}"))
        opened[-1].__enter__()  # type: ignore[no-untyped-call]

    def leave(child: nn.Module, args: object, output: object) -> None:
        opened.pop().__exit__(None, None, None)

    with ExitStack() as stack:
        for path, child in module.named_modules():
            before = child.register_forward_pre_hook(
                lambda child, args, kwargs, path=path: enter(path, child, args, kwargs),
                with_kwargs=True,
            )
            stack.callback(before.remove)
            stack.callback(child.register_forward_hook(leave).remove)
        yield
