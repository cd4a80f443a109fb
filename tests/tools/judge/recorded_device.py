"""A device of the CPU's own on which launches are recorded and replayed, for the block's tests."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator

import torch

from agentkernel.tools.judge.policy.graph_form import BLOCK


class AnyTensor(type(torch.Tensor)):  # type: ignore[misc]
    """Makes every tensor one of its class to `isinstance`."""

    def __instancecheck__(cls, item: object) -> bool:
        return isinstance(item, torch.Tensor)


class OnDevice(torch.Tensor, metaclass=AnyTensor):
    """A tensor that says it lies on a GPU."""

    is_cuda = True

    def get_device(self) -> int:
        return 0

    def record_stream(self, stream: Stream) -> None:
        """A stream that reads it is noted."""
        stream.device.log.append(("record_stream", stream.number))


def placed(tensor: torch.Tensor) -> OnDevice:
    return tensor.as_subclass(OnDevice)


class Stream:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.number = device.next_stream()

    def wait_stream(self, other: Stream) -> None:
        self.device.log.append(("wait_stream", self.number, other.number))

    def wait_event(self, event: Event) -> None:
        self.device.log.append(("wait_event", self.number, event.recorded_on))


class Event:
    def __init__(self, device: Device) -> None:
        self._device = device
        self.recorded_on: int | None = None

    def record(self, stream: Stream | None = None) -> None:
        self.recorded_on = (stream or self._device.current).number
        self._device.log.append(("record", self.recorded_on))


class Graph:
    def __init__(self, device: Device) -> None:
        self._device = device
        self.launches: list[Callable[[], object]] = []

    def capture_begin(self, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        assert not self._device.recording
        self._device.recording.append(self)

    def capture_end(self) -> None:
        self._device.recording.remove(self)

    def replay(self) -> None:
        self._device.replays += 1
        for launch in self.launches:
            launch()


class Device:
    """Its `log` has what streams did; `launch` is a kernel's."""

    def __init__(self) -> None:
        self.log: list[tuple[object, ...]] = []
        self.recording: list[Graph] = []
        self.replays = 0
        self.streams = -1
        self.default = self.current = Stream(self)

    def next_stream(self) -> int:
        self.streams += 1
        return self.streams

    def launch(self, work: Callable[[], object]) -> None:
        """What runs now, or with each replay of the graph that is being recorded."""
        if self.recording:
            self.recording[-1].launches.append(work)
        else:
            work()

    def wait(self) -> None:
        """What no graph can hold."""
        if self.recording:
            raise RuntimeError("operation not permitted when stream is capturing")

    @contextlib.contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before


class Cuda:
    """What the block asks of torch.cuda."""

    def __init__(self, device: Device) -> None:
        self.CUDAGraph = lambda: Graph(device)
        self.Stream = lambda: Stream(device)
        self.Event = lambda: Event(device)
        self.stream = device.on
        self.current_stream = lambda: device.current
        self.default_stream = lambda: device.default
        self.current_device = lambda: 0
        self.is_current_stream_capturing = lambda: bool(device.recording)


class Internals:
    """What it asks of torch._C."""

    def __init__(self, device: Device) -> None:
        self._cuda_getCurrentRawStream = lambda index: device.current.number

    def _cuda_clearCublasWorkspaces(self) -> None:  # noqa: N802 - torch's own name
        """There are none."""


class Torch:
    """torch with that device."""

    Tensor = OnDevice

    def __init__(self, device: Device) -> None:
        self.cuda = Cuda(device)
        self._C = Internals(device)

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)

    def empty_strided(self, *args: object, **kwargs: object) -> OnDevice:
        return placed(torch.empty_strided(*args, **kwargs))  # type: ignore[call-overload]


def block_on(device: Device) -> dict[str, object]:
    """The block's names, for modules whose kernels `device.launch` runs."""
    names: dict[str, object] = {
        "torch": Torch(device),
        "threading": threading,
        "weakref": weakref,
    }
    exec(compile(BLOCK, "<block>", "exec"), names)
    return names
