"""How long does the device work for each submodule's calls in one forward? Measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkernel.nightly.regions.source import ModelCall
from agentkernel.tools.problem.regions_arguments import UnboundCall, bind_call, describe_call

if TYPE_CHECKING:
    import torch
    from torch import nn

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
