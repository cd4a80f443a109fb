"""Memory of a case: planned before anything is allocated, shared with the worker, measured.

The plan says what judging and timing a module will hold, and which route of the judge fits.

A case shares the same memory between parent and candidate for each of its calls.

The measurement asks the device how much is free every few milliseconds: it counts what the
candidate's process holds and leaves out what this process's allocator keeps for the next tensor.
Where other runs share the device it cannot tell their memory apart, and nothing is measured.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import torch

from agentkernel.domain.problem import ShapeSet
from agentkernel.runtime import gpu_lock
from agentkernel.tools.judge.cases.layouts import Placement, placement, whole
from agentkernel.tools.judge.cases.values import tensors_of
from agentkernel.tools.judge.memory_count import (
    Counted,
    bytes_of,
    count_graph,
    count_module,
    device_free,
    meta_inputs,
    meta_weights,
)
from agentkernel.tools.judge.reference.oracle_inputs import ReferenceCase
from agentkernel.tools.judge.reference.sliced import Slicing, find_slicing
from agentkernel.tools.sandbox.session import Worker
from agentkernel.tools.sandbox.tensors import TensorRef

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.tools.problem.capture import Captured


MUCH_BYTES = 1 << 28
REST_S = 60.0


class CaseMemory:
    """Copies of a question's inputs, each with the storage around it, and buffers for outputs;
    with `recalls` buffers for the outputs of the call before as well. Nothing of it is kept where
    the device has no room for all: torch.OutOfMemoryError."""

    def __init__(
        self, worker: Worker, reference_case: ReferenceCase, recalls: bool = False
    ) -> None:
        self._worker = worker
        self._inputs: dict[int, TensorRef] = {}
        self._places: dict[int, Placement] = {}
        self._scalars = list(reference_case.inputs)
        self._outputs: list[TensorRef | None] = []
        self._recalls: list[TensorRef | None] = []
        try:
            self._fill(reference_case, recalls)
        except BaseException:
            self.release()
            raise

    def _fill(self, reference_case: ReferenceCase, recalls: bool) -> None:
        worker = self._worker
        for position, value in tensors_of(reference_case.inputs):
            self._places[position] = placement(value)
            flat = whole(value)
            plain = placement(value) == _plain(value) and flat.numel() == value.numel()
            self._inputs[position] = worker.share(flat.view(value.shape) if plain else flat)
        leaves = reference_case.answer.leaves
        self._outputs.extend(self._buffer(leaf) for leaf in leaves)
        self._recalls.extend(self._buffer(leaf) for leaf in leaves if recalls)

    def join(self, position: int, other: int) -> None:
        """Make the input at `position` the tensor at `other`."""
        self._worker.release([self._inputs[position]])
        self._inputs[position] = self._inputs[other]
        self._places[position] = self._places[other]

    def payload(self, recall: bool) -> dict[str, object]:
        """What the worker is told of it."""
        inputs: list[object] = list(self._scalars)
        views: list[object] = [None] * len(inputs)
        for position, ref in self._inputs.items():
            inputs[position] = ref
            where = self._places[position]
            if ref.shape != where.shape:
                views[position] = (where.shape, where.stride, where.offset)
        return {
            "inputs": inputs,
            "views": views,
            "outputs": self._outputs,
            "recall": self._recalls if recall else [],
            "kept": bool(self._recalls),
        }

    def write(self, reference_case: ReferenceCase) -> None:
        """The question's inputs, in place; NaN (or a sentinel) in every output buffer."""
        for position, flat in self.storages():
            flat.copy_(whole(cast("torch.Tensor", reference_case.inputs[position])))
        self._scalars = list(reference_case.inputs)
        for ref in (*self._outputs, *self._recalls):
            if ref is not None:
                poison_buffer(self._worker.shared(ref))

    def storages(self) -> list[tuple[int, torch.Tensor]]:
        """Position and flat storage of every tensor input, as the candidate sees it."""
        return [
            (position, self._worker.shared(ref).view(-1)) for position, ref in self._inputs.items()
        ]

    def found(self) -> list[torch.Tensor | None]:
        """The output buffers themselves."""
        return [None if ref is None else self._worker.shared(ref) for ref in self._outputs]

    def results(self) -> list[torch.Tensor | None]:
        """A copy of the outputs of the last call."""
        return [None if item is None else item.clone() for item in self.found()]

    def recalled(self) -> list[torch.Tensor | None]:
        """The outputs of the call before, as they were after the last call."""
        return [None if ref is None else self._worker.shared(ref) for ref in self._recalls]

    def release(self) -> None:
        """Let go of all of it."""
        buffers = [ref for ref in (*self._outputs, *self._recalls) if ref is not None]
        release_shared(self._worker, [*self._inputs.values(), *buffers])

    def _buffer(self, leaf: object) -> TensorRef | None:
        if not isinstance(leaf, torch.Tensor):
            return None
        room = torch.empty_like(leaf, memory_format=torch.contiguous_format)
        return self._worker.share(poison_buffer(room))


def release_shared(worker: Worker, refs: Sequence[TensorRef]) -> None:
    """Release what a case shared. The worker unmaps it with its next request, until when the memory
    stays taken: where that is much on a device, it is asked for that alone."""
    worker.release(refs)
    if worker.device == "cuda" and sum(ref.nbytes for ref in refs) >= MUCH_BYTES:
        worker.call("agentkernel.tools.judge.worker:rest", {}, REST_S)


def poison_buffer(buffer: torch.Tensor) -> torch.Tensor:
    """Fill it with NaN (or a sentinel) so that what nobody wrote shows."""
    return buffer.fill_(float("nan") if buffer.dtype.is_floating_point else 1)


def _plain(value: torch.Tensor) -> Placement:
    return placement(value.new_empty(value.shape)) if value.numel() else placement(value)


Route = Literal["whole", "slices", "offload", "eager", "none"]
RESERVE_BYTES = 1 << 30
"""For the candidate's CUDA context, cuDNN's and cuBLAS's work space and what allocators lose."""
HOST_SHARE = 0.6
"""Of the host's free memory, what copies of outputs may take."""
COMPARED = 14
"""Doubles an element of an output while it is compared: differences, scales, masks, draws."""
DEVICE_BYTES_PER_S = 1e12
HOST_BYTES_PER_S = 5e9
"""Of a copy through pageable memory."""
WHOLE_SHARE = 0.9
"""Of what is free, copies may take that could wait on the host or be made in slices: an allocator's
blocks do not lie side by side."""
WHOLE_BYTES = 24 << 30
"""Past that the declared size is asked in slices wherever there are some, even where more is free:
all cases with whole copies of it would take minutes, and as many gradients more than there is."""
PIECE = 1 << 24
"""Elements of an output that are compared at once where no axis makes slices."""
SLICE_BYTES = 4 << 30
"""A slice takes at most so much even where more is free: no time is won by larger ones."""


@dataclass(frozen=True)
class Footprint:
    """Bytes of one call at given sizes. `work` is what eager allocates at its worst moment beside
    inputs and weights, outputs among it; `double_work` the same in fp64."""

    inputs: int
    weights: int
    outputs: int
    work: int
    double_inputs: int
    double_weights: int
    double_outputs: int
    double_work: int

    @property
    def eager(self) -> int:
        """Eager's own peak: inputs, weights and work."""
        return self.inputs + self.weights + self.work

    @property
    def double(self) -> int:
        """The peak of the same call in fp64, everything whole."""
        return self.double_inputs + self.double_weights + self.double_work


@dataclass(frozen=True)
class Stage:
    """What is held at once in one part of the work, in bytes."""

    name: str
    device: int
    host: int = 0


@dataclass(frozen=True)
class FreeMemory:
    """Bytes that are free on the device and on the host, and what is kept back on the device."""

    free: int
    host_free: int = 1 << 62
    reserve: int = RESERVE_BYTES


@dataclass(frozen=True)
class MemoryPlan:
    """How a module is judged in `room`.

    "slices": the axis is gone through in slices of `slice_units` units; "eager": nothing in fp64
    fits, so that eager's own output is what is compared with; "none": not even eager's call fits.
    `eager_on_host` and `found_on_host`: where outputs wait to be compared. `again`: a second call
    has room beside what the first one left. `reason` says why no earlier route was taken.
    """

    footprint: Footprint
    stages: tuple[Stage, ...]
    route: Route
    room: FreeMemory
    slicing: Slicing | None = field(default=None, compare=False)
    slice_units: int = 0
    eager_on_host: bool = False
    found_on_host: bool = False
    again: bool = False
    reason: str = ""

    @property
    def peak(self) -> Stage:
        """The stage that holds most on the device."""
        return max(self.stages, key=lambda stage: stage.device)

    @property
    def differentiates(self) -> bool:
        """Whether eager's gradients, those in fp64 and the candidate's have room beside each other:
        a backward pass keeps what forward made, and each input has a gradient of its size."""
        held = self.footprint
        wanted = 2 * held.double + 5 * (held.inputs + held.weights + held.outputs) + 2 * held.work
        return self.route == "whole" and wanted + self.room.reserve <= WHOLE_SHARE * self.room.free

    @property
    def seconds(self) -> float:
        """A rough time for one case: what is moved over the device's and the host's bandwidth."""
        held = self.footprint
        passes = 1 if self.slicing is None else self.slicing.passes
        moved = 20 * held.inputs + 120 * held.outputs + 4 * passes * held.double
        host = held.outputs * (self.eager_on_host + self.found_on_host) * 2
        return moved / DEVICE_BYTES_PER_S + host / HOST_BYTES_PER_S

    @property
    def label(self) -> str:
        """For people: the route with its figures."""
        peak = self.peak
        words = {
            "whole": "whole tensors in fp64",
            "slices": f"fp64 in slices ({self.slices} of an independent axis)",
            "offload": "fp64 whole, kept on the host",
            "eager": "compared with eager, nothing in fp64",
            "none": "does not fit",
        }[self.route]
        return (
            f"{words}: {gigabytes(peak.device)} wanted in stage '{peak.name}', "
            f"{gigabytes(self.room.free)} free"
        )

    @property
    def placing(self) -> tuple[Route, bool, bool]:
        """What decides how much the device holds beside the candidate's call."""
        return self.route, self.eager_on_host, self.found_on_host

    @property
    def slices(self) -> int:
        """Into how many slices the axis is cut; 0 for another route."""
        if self.slicing is None or not self.slice_units:
            return 0
        return math.ceil(self.slicing.extent / self.slice_units)


def free_memory_on(device: str, pretended: int | None = None) -> FreeMemory | None:
    """What may be taken on `device` now, at most `pretended`; None on the CPU, where nothing is
    short unless something is pretended."""
    if device == "cpu":
        return None if pretended is None else FreeMemory(pretended, host_free(), 0)
    if not torch.cuda.is_available():
        return None
    torch.cuda.empty_cache()
    free = device_free()
    return FreeMemory(min(free, pretended or free), host_free())


def host_free() -> int:
    """Bytes of memory that the host can still give, as the kernel estimates it (proc(5))."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


def gigabytes(size: int) -> str:
    """For people: `6.44 GB`, `12.3 MB`."""
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def measure(captured: Captured, inputs: ShapeSet, module: nn.Module | None = None) -> Footprint:
    """Count the bytes of one call at `inputs` on tensors without storage.

    Args:
        captured: the module's graph, which is run in the problem's dtypes and in fp64.
        inputs: the sizes.
        module: the module on the meta device; its own forward says best what eager holds. Where it
            is missing or does not run there, the graph does.

    Raises:
        One of NOT_COUNTED where the graph does not run at these sizes.
    """
    given, weights = meta_inputs(inputs), meta_weights(captured)
    wide, wide_weights = meta_inputs(inputs, double=True), meta_weights(captured, double=True)
    eager = _of_module(module, inputs) or count_graph(captured, inputs)
    double = count_graph(captured, inputs, double=True)
    return Footprint(
        inputs=bytes_of(given),
        weights=bytes_of(list(weights.values())),
        outputs=eager.outputs,
        work=eager.peak,
        double_inputs=bytes_of(wide),
        double_weights=bytes_of(list(wide_weights.values())),
        double_outputs=double.outputs,
        double_work=double.peak,
    )


def _of_module(module: nn.Module | None, inputs: ShapeSet) -> Counted | None:
    if module is None:
        return None
    try:
        return count_module(module, inputs)
    except Exception:  # noqa: BLE001 - the user's forward may not run without storage
        return None


def plan_memory(
    captured: Captured, inputs: ShapeSet, room: FreeMemory, module: nn.Module | None = None
) -> MemoryPlan:
    """The first route of a judgement at `inputs` that fits `room`.

    Raises as `measure` does.
    """
    held = measure(captured, inputs, module)
    whole = _whole_stages(held, room)
    most = WHOLE_SHARE * room.free
    fits = all(stage.device <= most for stage in whole)
    uncut = MemoryPlan(held, whole, "whole", room, again=_again(held, whole) <= most)
    if fits and uncut.peak.device <= WHOLE_BYTES:
        return uncut
    if held.eager + room.reserve > room.free:
        reason = (
            f"eager itself takes {gigabytes(held.eager)} of {gigabytes(room.free)}, of which "
            f"{gigabytes(room.reserve)} are kept back"
        )
        return MemoryPlan(held, _large_stages(held, room, 0), "none", room, reason=reason)
    found = find_slicing(captured, inputs)
    if isinstance(found, Slicing):
        plan = _sliced(held, found, room)
        if plan is not None:
            return plan
        found = "one slice in fp64 takes more than is free"
    if fits:
        return uncut
    return _uncut(held, room, found)


def _whole_stages(held: Footprint, room: FreeMemory) -> tuple[Stage, ...]:
    """Everything at once, as for small tensors: copies of inputs and weights for each side."""
    resident, outputs = 3 * held.weights + room.reserve, held.outputs + held.double_outputs
    largest = held.double_outputs
    return (
        Stage("eager", 2 * held.inputs + resident + held.weights + held.work + held.outputs),
        Stage("oracle", 2 * held.inputs + resident + held.double + held.outputs),
        Stage("candidate", 4 * held.inputs + resident + outputs + 2 * held.outputs + held.work),
        Stage("compare", 3 * held.inputs + resident + outputs + held.outputs + COMPARED * largest),
    )


def _again(held: Footprint, whole: Sequence[Stage]) -> int:
    """A second call: the next question beside the first, and outputs as they were then, as the
    candidate's process has them still and as it delivers them once more."""
    candidate = next(stage for stage in whole if stage.name == "candidate")
    return candidate.device + held.inputs + 4 * held.outputs + held.double_outputs


def _resident(held: Footprint, room: FreeMemory) -> int:
    """Inputs once, weights for the original, the case and the candidate."""
    return held.inputs + 3 * held.weights + room.reserve


def _beside(held: Footprint, room: FreeMemory) -> int:
    """Copies of the outputs that the device holds beside the candidate's own call."""
    left = int(WHOLE_SHARE * room.free) - _resident(held, room) - held.work
    return max((count for count in (0, 1, 2) if count * held.outputs <= left), default=0)


def _large_stages(held: Footprint, room: FreeMemory, compared: int) -> tuple[Stage, ...]:
    """Inputs once; outputs beside them as far as they fit. `compared`: what a piece takes."""
    beside = _beside(held, room)
    resident, host = _resident(held, room), (2 - beside) * held.outputs
    outputs = beside * held.outputs
    return (
        Stage("eager", resident + held.work),
        Stage("candidate", resident + held.work + outputs, host),
        Stage("compare", resident + outputs + compared, host),
    )


def _sliced(held: Footprint, slicing: Slicing, room: FreeMemory) -> MemoryPlan | None:
    """With the largest slices that fit; None where one unit does not."""
    beside = _beside(held, room)
    resident = _resident(held, room) + beside * held.outputs + slicing.whole_bytes
    left = room.free - resident
    computed, compared = held.double_inputs + held.double_work, COMPARED * held.double_outputs
    unit = max(1, (computed + compared) // slicing.extent)
    units = min(slicing.extent, min(SLICE_BYTES, left) // unit) if left > 0 else 0
    if units < 1:
        # One unit is compared in pieces of its own.
        few = min(compared, COMPARED * 8 * PIECE)
        unit = (computed + 2 * held.double_outputs) // slicing.extent + few
        units = int(unit <= left)
    if units < 1 or (2 - beside) * held.outputs > HOST_SHARE * room.host_free:
        return None
    stages = _large_stages(held, room, slicing.whole_bytes + units * unit)
    placed = (beside < 2, beside < 1)
    return MemoryPlan(held, stages, "slices", room, slicing, units, *placed)


def _uncut(held: Footprint, room: FreeMemory, reason: str) -> MemoryPlan:
    """Without slices: fp64 as a whole, before anything else lies beside it; else without fp64."""
    compared = COMPARED * min(8 * PIECE, held.double_outputs)
    stages = _large_stages(held, room, compared)
    beside = _beside(held, room)
    placed = (beside < 2, beside < 1)
    oracle = held.inputs + 2 * held.weights + held.double + room.reserve
    oracle += held.outputs if beside == 2 else 0
    host = held.double_outputs + (2 - beside) * held.outputs
    if oracle <= room.free and host <= HOST_SHARE * room.host_free:
        stages = (Stage("oracle", oracle, held.double_outputs), *stages)
        return MemoryPlan(held, stages, "offload", room, None, 0, *placed, reason=reason)
    return MemoryPlan(held, stages, "eager", room, None, 0, *placed, reason=reason)


POLL_S = 0.02
"""A look takes a millisecond of the judge's own interpreter: every 4 ms they took a tenth of a
judgement (llama_block, H200)."""
WORTH_BYTES = 1 << 30
"""A plan of less is not held against anything: contexts and allocators' blocks weigh more."""


class MeasuredMemory:
    """The most that was held in each stage, by its name, over all cases of one shape. `free` says
    how many bytes are free now, None where there is nothing to ask; `before`: how many were when
    the plan was made."""

    def __init__(self, plan: MemoryPlan, free: Callable[[], int] | None, before: int) -> None:
        self.plan = plan
        self._before = before
        self._free = free if plan.peak.device >= WORTH_BYTES else None
        self._most: dict[str, int] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Look at the device while the stage lasts."""
        if self._free is None:
            yield
            return
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(name, self._free, ended), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    @property
    def text(self) -> str:
        """`eager 9.66 GB of 9.91 GB planned, ...`; "" where nothing was looked at."""
        planned = {stage.name: stage.device for stage in self.plan.stages}
        return ", ".join(
            f"{name} {gigabytes(most)} of {gigabytes(planned[name])} planned"
            for name, most in self._most.items()
            if name in planned
        )

    def _watch(self, name: str, free: Callable[[], int], ended: threading.Event) -> None:
        while True:
            last = ended.is_set()
            held = self._before - free()
            self._most[name] = max(self._most.get(name, 0), held)
            if last:
                return
            ended.wait(POLL_S)


def free_memory_reader(device: str) -> Callable[[], int] | None:
    """Asks a CUDA device; None on the CPU, and where other runs share the device."""
    if device == "cpu" or gpu_lock.has_other_users():
        return None

    def free() -> int:
        # memory_reserved() and memory_allocated() flatten and sort all of it: 0.4 ms each.
        held = torch.cuda.memory_stats_as_nested_dict()  # empty before the first allocation
        reserved, allocated = (
            int(held[name]["all"]["current"]) if held else 0
            for name in ("reserved_bytes", "allocated_bytes")
        )
        return int(torch.cuda.mem_get_info()[0]) + reserved - allocated

    return free
