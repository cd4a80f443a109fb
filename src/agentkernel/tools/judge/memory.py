"""Which memory do parent and candidate share during a case? The same for each of its calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from agentkernel.tools.judge.cases.layouts import Placement, placement, whole
from agentkernel.tools.judge.cases.values import tensors_of
from agentkernel.tools.judge.reference.question import ReferenceCase
from agentkernel.tools.sandbox.session import Worker
from agentkernel.tools.sandbox.tensors import TensorRef

if TYPE_CHECKING:
    import torch

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
        import torch

        if not isinstance(leaf, torch.Tensor):
            return None
        room = torch.empty_like(leaf, memory_format=torch.contiguous_format)
        return self._worker.share(poison_buffer(room))


def release_shared(worker: Worker, refs: Sequence[TensorRef]) -> None:
    """Release what a case shared. The worker unmaps it with its next request, until when the memory
    stays taken: where that is much on a device, it is asked for that alone."""
    worker.release(refs)
    if worker.device == "cuda" and sum(ref.nbytes for ref in refs) >= MUCH_BYTES:
        worker.call("agentkernel.tools.judge.child:rest", {}, REST_S)


def poison_buffer(buffer: torch.Tensor) -> torch.Tensor:
    """Fill it with NaN (or a sentinel) so that what nobody wrote shows."""
    return buffer.fill_(float("nan") if buffer.dtype.is_floating_point else 1)


def _plain(value: torch.Tensor) -> Placement:
    return placement(value.new_empty(value.shape)) if value.numel() else placement(value)


__all__ = ["CaseMemory", "poison_buffer", "release_shared"]
