"""Which weights and inputs of a problem are in memory, and how do other processes get them?"""

from __future__ import annotations

import copy
import math
import os
from typing import TYPE_CHECKING

from agentkernel.domain.profile import MatmulPrecision
from agentkernel.domain.verdict import Precision
from agentkernel.tools import gate
from agentkernel.tools.problems import LoadedProblem
from agentkernel.tools.profile.bench import Device
from agentkernel.tools.profile.rounds import Lost
from agentkernel.tools.profile.settings import baselines_matmul
from agentkernel.tools.sandbox.tensors import share_tensor

if TYPE_CHECKING:
    import torch

AHEAD_BYTES = 4 << 30
"""Inputs up to this size are held from the start of a run: little beside what the judge
and the search need of a GPU's memory."""


class HeldProblem:
    """The parent's weights, made once, and the inputs of one shape set at a time."""

    def __init__(
        self,
        loaded: LoadedProblem,
        *,
        seed: int,
        flush_bytes: int,
        device: Device,
        precision: Precision = "strict",
    ) -> None:
        self.loaded = loaded
        self.inputs: tuple[object, ...] = ()
        self.shape_set: int | None = None
        self._seed = seed
        self._flush_bytes = flush_bytes
        self._device: Device = device
        self._precision: Precision = precision
        self._weights: dict[str, torch.Tensor] | None = None

    @property
    def small(self) -> bool:
        """True where all of it may lie in memory from the start of a run: one shape set, a module
        made from its source, inputs of moderate size."""
        import torch

        specs = self.loaded.problem.shape_sets[0].tensors
        sizes = [math.prod(s.shape) * getattr(torch, s.dtype).itemsize for s in specs]
        several = len(self.loaded.problem.shape_sets) > 1
        return self.loaded.live is None and not several and sum(sizes) <= AHEAD_BYTES

    def make_inputs(self, shape_set: int) -> Lost | None:
        """Bring the weights and the inputs of `shape_set` into memory, and no others."""
        import torch

        self.inputs, self.shape_set = (), None
        self._empty_cache()
        try:
            with gate.working():
                self.parameters()
                self.inputs = self.loaded.make_inputs(
                    shape_set, seed=self._seed, device=self._device
                )
        except torch.OutOfMemoryError as error:
            return Lost(side="inputs", reason="memory", log=str(error))
        self.shape_set = shape_set
        return None

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
        self.inputs, self.shape_set, self._weights = (), None, None
        self._empty_cache()

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
        return {"do": "prepare", "shape_set": shape_set, "inputs": inputs, "eager": eager}

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
