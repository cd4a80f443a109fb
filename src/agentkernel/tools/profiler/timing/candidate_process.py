"""How is a candidate loaded, fed and timed behind the sandbox's walls?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from agentkernel.tools.profiler.rounds import SideFailed
from agentkernel.tools.profiler.timing.arena import Buffers
from agentkernel.tools.profiler.timing.clock import TimedProcess
from agentkernel.tools.profiler.timing.fresh import sums_of
from agentkernel.tools.profiler.timing.volleys import BatchDriver
from agentkernel.tools.profiler.timing.worker_ops import CANDIDATE
from agentkernel.tools.sandbox.protocol import JSON
from agentkernel.tools.sandbox.session import Worker, WorkerFailed
from agentkernel.tools.sandbox.tensors import TensorRef

if TYPE_CHECKING:
    from types import TracebackType

    import torch

    from agentkernel.domain.structure import DataStructure

OPS = "agentkernel.tools.profiler.timing.worker_ops"


class CandidateProcess:
    """A worker that holds one candidate; a `Line` for RemoteSide. Closes the worker at its end."""

    def __init__(self, worker: Worker, timeout_s: float) -> None:
        self._worker = worker
        self._timeout_s = timeout_s
        self._inputs: list[TensorRef] = []
        self._weights: dict[str, TensorRef] = {}

    @property
    def pids(self) -> list[int]:
        """The worker and its launcher, as this process numbers them."""
        return self._worker.outer_pids()

    def load(
        self,
        source: str,
        init_args: Sequence[object],
        init_kwargs: Mapping[str, object],
        arguments: DataStructure | None,
        weights: Mapping[str, torch.Tensor],
        *,
        seed: int,
        flush_bytes: int,
    ) -> SideFailed | None:
        """Build `ModelNew` with the parent's weights; a Lost where that fails."""
        self._weights = {name: self._worker.share(tensor) for name, tensor in weights.items()}
        payload: dict[str, object] = {
            "source": source,
            "class_name": "ModelNew",
            "init_args": tuple(init_args),
            "init_kwargs": dict(init_kwargs),
            "arguments": arguments,
            "seed": seed,
            "flush_bytes": flush_bytes,
            "state": self._weights,
        }
        return _lost(self._call("load", payload, self._timeout_s))

    def prepare(self, inputs: Sequence[object], *, large: bool = False) -> SideFailed | None:
        """Share the inputs of a shape set and warm the candidate up on them. `large`: they exist
        once, in an allocation of their own, and no turn's memory is kept for the next one."""
        import torch

        share = self._worker.share_resident if large else self._worker.share
        shared = [share(item) if isinstance(item, torch.Tensor) else item for item in inputs]
        self._inputs = [item for item in shared if isinstance(item, TensorRef)]
        payload = {"inputs": shared, "large": large}
        return _lost(self._call("prepare", payload, self._timeout_s))

    def ground(self, volleys: BatchDriver) -> TimedProcess | SideFailed | None:
        """Share the memory of volleys; None where this device shares none between processes."""
        share = self._worker.share_resident if volleys.layout.resident else self._worker.share
        refs = {name: share(item) for name, item in volleys.buffers._asdict().items()}
        if any(ref.kind == "staged" for ref in refs.values()):
            self._worker.release(list(refs.values()))
            return None
        self._inputs += refs.values()
        views = Buffers(**{name: self._worker.shared(ref) for name, ref in refs.items()})
        timed_process = TimedProcess(
            self,
            views,
            volleys.layout,
            volleys.device,
            volleys.limit_s,
            volleys.baseline_process.event_us,
        )
        volleys.write(timed_process)
        payload = {
            "layout": volleys.layout,
            "values": volleys.values,
            "buffers": refs,
            "limit_s": volleys.limit_s,
        }
        return _lost(self._call("ground", payload, self._timeout_s)) or timed_process

    def weight_sums(self) -> dict[str, bytes]:
        """A checksum of each parameter and buffer, as the worker's memory holds them."""
        return sums_of({name: self._worker.shared(ref) for name, ref in self._weights.items()})

    def forget(self) -> SideFailed | None:
        """Unmap the inputs, so that the parent may free them."""
        self._worker.release(self._inputs)
        self._inputs = []
        return _lost(self._call("forget", {}, self._timeout_s))

    def ask(self, request: Mapping[str, object], timeout_s: float) -> dict[str, JSON] | SideFailed:
        """A timing request."""
        return self._call("measure", request, timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._worker.close()

    def _call(
        self, op: str, payload: Mapping[str, object], timeout_s: float
    ) -> dict[str, JSON] | SideFailed:
        answer = self._worker.call(f"{OPS}:{op}", payload, timeout_s)
        if isinstance(answer, WorkerFailed):
            return SideFailed(side=CANDIDATE, reason=answer.reason, log=answer.log)
        return answer


def _lost(answer: dict[str, JSON] | SideFailed) -> SideFailed | None:
    return answer if isinstance(answer, SideFailed) else None
