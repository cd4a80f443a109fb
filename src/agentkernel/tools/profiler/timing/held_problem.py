"""Which weights and inputs of a problem are in memory, and how do other processes get them?"""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, NamedTuple

from agentkernel.domain.profile import MatmulPrecision
from agentkernel.domain.rules import Precision
from agentkernel.runtime import gate
from agentkernel.tools.problem.problems import LoadedProblem
from agentkernel.tools.profiler.rounds import SideFailed
from agentkernel.tools.profiler.settings import baselines_matmul
from agentkernel.tools.profiler.timing.arena import make_room, row, row_bytes, spec_of
from agentkernel.tools.profiler.timing.bench import Device
from agentkernel.tools.profiler.timing.fresh import span_of
from agentkernel.tools.sandbox.tensors import share_tensor

if TYPE_CHECKING:
    import torch


class CallSizes(NamedTuple):
    """Bytes of the tensors that one call takes and gives."""

    inputs: int
    outputs: int


def call_sizes(loaded: LoadedProblem, shape_set: int) -> CallSizes:
    """Found on the meta device; no outputs where the module does not run there."""
    from agentkernel.tools.judge.memory_count import bytes_of, count_module, meta_inputs

    inputs = loaded.problem.shape_sets[shape_set]
    try:
        outputs = count_module(loaded.build(seed=0, device="meta"), inputs).outputs
    except Exception:  # noqa: BLE001 - the user's module may raise anything
        outputs = 0
    return CallSizes(bytes_of(meta_inputs(inputs)), outputs)


class ProblemTensors:
    """The parent's weights, made once, and the inputs of one shape set at a time."""

    def __init__(
        self,
        loaded: LoadedProblem,
        *,
        seed: int,
        flush_bytes: int,
        device: Device,
        keep_bytes: int,
        precision: Precision = "strict",
    ) -> None:
        self.loaded = loaded
        self.inputs: tuple[object, ...] = ()
        self.shape_set: int | None = None
        self._seed = seed
        self._flush_bytes = flush_bytes
        self._device: Device = device
        self._precision: Precision = precision
        self._keep_bytes = keep_bytes
        self._weights: dict[str, torch.Tensor] | None = None
        self._large: dict[int, bool] = {}
        self.pool: torch.Tensor | None = None
        """The allocation that `inputs` lie in, where a second copy of them would be too much."""

    @property
    def small(self) -> bool:
        """True where all of it may lie in memory from the start of a run: one shape set, a module
        made from its source, tensors of moderate size."""
        several = len(self.loaded.problem.shape_sets) > 1
        return self.loaded.live is None and not several and not self.large(0)

    def large(self, shape_set: int) -> bool:
        """True where the inputs and outputs of a call are more than is kept without need."""
        if shape_set not in self._large:
            sizes = call_sizes(self.loaded, shape_set)
            self._large[shape_set] = sizes.inputs + sizes.outputs > self._keep_bytes
        return self._large[shape_set]

    def make_inputs(self, shape_set: int) -> SideFailed | None:
        """Bring the weights and the inputs of `shape_set` into memory, and no others."""
        import torch

        self.drop_inputs()
        try:
            with gate.shared():
                self.parameters()
                self.inputs = self._made(shape_set)
        except torch.OutOfMemoryError as error:
            return SideFailed(side="inputs", reason="memory", log=str(error))
        self.shape_set = shape_set
        return None

    def _made(self, shape_set: int) -> tuple[object, ...]:
        """The inputs on the device; large ones in one allocation. Where the device does not hold
        them twice, they are made on the host."""
        import torch

        if not self.large(shape_set):
            return self.loaded.make_inputs(shape_set, seed=self._seed, device=self._device)
        try:
            return self._pooled(
                list(self.loaded.make_inputs(shape_set, seed=self._seed, device=self._device))
            )
        except torch.OutOfMemoryError:
            self.drop_inputs()
        return self._pooled(list(self.loaded.make_inputs(shape_set, seed=self._seed, device="cpu")))

    def _pooled(self, values: list[object]) -> tuple[object, ...]:
        """`values` moved into one allocation, each one's own memory freed as it is."""
        import torch

        specs = [spec_of(item) for item in values if isinstance(item, torch.Tensor)]
        self.pool = make_room(row_bytes(specs), self._device, alone=True)
        views = iter(row(self.pool, specs, 0))
        for place, value in enumerate(values):
            if isinstance(value, torch.Tensor):
                view = next(views)
                span_of(view).copy_(span_of(value))
                values[place] = view
        self._empty_cache()
        return tuple(values)

    def drop_inputs(self) -> None:
        """Free the inputs in memory; the weights stay."""
        self.inputs, self.shape_set, self.pool = (), None, None
        self._empty_cache()

    def parameters(self) -> dict[str, torch.Tensor]:
        """The reference's state dict on the device, made once."""
        import torch

        if self._weights is None:
            module = self.loaded.build(seed=self._seed, device=self._device)
            self._weights = {
                name: value.detach()
                for name, value in module.state_dict().items()
                if isinstance(value, torch.Tensor)
            }
        return self._weights

    @property
    def matmul_precision(self) -> MatmulPrecision:
        """What eager and torch.compile may round in their products."""
        from agentkernel.tools.float32 import matmul_precision

        return baselines_matmul(self._precision, matmul_precision())

    def release(self) -> None:
        """Free all of it."""
        self._weights = None
        self.drop_inputs()

    def start_request(self) -> dict[str, object]:
        """What a process needs to build the module with these weights."""
        import torch

        live = self.loaded.live
        return {
            "do": "start",
            "device": self._device,
            "problem": self.loaded.problem,
            "live": None if live is None else (copy.deepcopy(live).cpu(), ()),
            "seed": self._seed,
            "flush_bytes": self._flush_bytes,
            "matmul_precision": self.matmul_precision,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "state": {name: self._sendable(value) for name, value in self.parameters().items()},
        }

    def prepare_request(self, shape_set: int, *, eager: bool) -> dict[str, object]:
        """The inputs in memory; `eager`: it is timed there."""
        inputs = [self._sendable(item) for item in self.inputs]
        return {
            "do": "prepare",
            "shape_set": shape_set,
            "inputs": inputs,
            "eager": eager,
            "large": self.large(shape_set),
        }

    def _sendable(self, value: object) -> object:
        """How a process gets a value: device memory by handle, or else by copy."""
        import torch

        if not isinstance(value, torch.Tensor):
            return value
        if value.device.type == "cuda":
            shared = share_tensor(value)
            if shared.ref.kind == "ipc":
                return shared.ref
            if shared.fd is not None:
                os.close(shared.fd)
        return value.detach().cpu()

    def _empty_cache(self) -> None:
        if self._device == "cuda":
            import torch

            torch.cuda.empty_cache()
