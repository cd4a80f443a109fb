"""Drop-ins in the sandbox's interpreter, and how far they are from fp64."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils._pytree import tree_flatten

from agentkernel.tools.judge.comparison.compare import allowance
from agentkernel.tools.judge.comparison.errors import errors
from agentkernel.tools.sandbox.protocol import WorkerFailed
from agentkernel.tools.sandbox.session import Worker, open_worker
from agentkernel.tools.sandbox.tensors import TensorRef

OPS = "agentkernel.tools.judge.worker"
SLACK = 2.0
"""The judge's rule, doubled: a few hundred elements can be lucky in eager."""


@dataclass(frozen=True)
class Sandboxed:
    """One worker that runs drop-ins one after the other."""

    worker: Worker

    def call(
        self,
        source: str,
        module: nn.Module,
        inputs: Sequence[object],
        order: str = "shuffled",
    ) -> list[torch.Tensor]:
        """Outputs of `source`'s ModelNew() with the weights of `module`."""
        state = self._load(source, module)
        share = self.worker.share
        with torch.no_grad():
            leaves, _ = tree_flatten(module(*inputs))
        given = self._given(inputs)
        wanted = [share(torch.full_like(leaf, 7)) for leaf in leaves]
        self._ask("run", {"inputs": given, "outputs": wanted, "order": "shuffled"})
        found = [self.worker.shared(ref).clone() for ref in wanted]
        self.worker.release([*state, *self._shared(given), *wanted])
        return found

    def check(self, source: str, module: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
        """Each output against fp64, by the judge's strict rule with SLACK; integers exactly."""
        found = self.call(source, module, inputs)
        wide = [value.double() if value.is_floating_point() else value for value in inputs]
        with torch.no_grad():
            eager, _ = tree_flatten(module(*inputs))
            oracle, _ = tree_flatten(copy.deepcopy(module).double()(*wide))
        assert len(found) == len(eager)
        for value, theirs, truth in zip(found, eager, oracle, strict=True):
            if not value.is_floating_point():
                assert torch.equal(value, theirs), source
                continue
            ours = errors(value, truth, theirs)
            allowed = allowance(errors(theirs, truth, theirs), value.dtype, "strict")
            told = f"{ours} against {allowed}\n{source}"
            assert ours.norm <= SLACK * allowed.norm, told
            assert ours.element <= SLACK * allowed.element, told

    def refusal(self, source: str, module: nn.Module, inputs: Sequence[object]) -> str:
        """What the drop-in says to `inputs` instead of an answer; "" where it answers."""
        state, given = self._load(source, module), self._given(inputs)
        payload: dict[str, object] = {"inputs": given, "outputs": [], "order": "shuffled"}
        reply = self.worker.call(f"{OPS}:run", payload, 120.0)
        self.worker.release([*state, *self._shared(given)])
        return reply.log if isinstance(reply, WorkerFailed) else ""

    def _load(self, source: str, module: nn.Module) -> list[TensorRef]:
        """Build ModelNew() with the weights of `module`; the references to free later."""
        self._ask(
            "build",
            {
                "source": source, "init_args": (), "init_kwargs": {}, "seed": 0, "initial": {},
                "unnamed_dot_allowed": False,
            },
        )  # fmt: skip
        share = self.worker.share
        state = {name: share(value.detach().clone()) for name, value in module.state_dict().items()}
        self._ask("adopt", {"state": state})
        return list(state.values())

    def _given(self, inputs: Sequence[object]) -> list[object]:
        share = self.worker.share
        return [share(item) if isinstance(item, torch.Tensor) else item for item in inputs]

    @staticmethod
    def _shared(given: Sequence[object]) -> list[TensorRef]:
        return [item for item in given if isinstance(item, TensorRef)]

    def _ask(self, op: str, payload: dict[str, object]) -> None:
        reply = self.worker.call(f"{OPS}:{op}", payload, 120.0)
        assert not isinstance(reply, WorkerFailed), (
            f"{op}: {reply.log}\n{payload.get('source', '')}"
        )


@contextmanager
def sandboxed() -> Iterator[Sandboxed]:
    """An interpreting worker on the CPU."""
    with open_worker(device="cpu", interpret=True) as worker:
        yield Sandboxed(worker)
