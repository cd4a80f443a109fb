"""Which timing requests does a process answer, be it the candidate's worker or the twin?

Requests and answers are JSON values, so that the sandbox's line can carry them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from agentkernel.tools.profiler.timing.bench import Call, CallTimer
from agentkernel.tools.profiler.timing.volley import BatchMemory, Function, copy_outputs, run_batch
from agentkernel.tools.sandbox.protocol import JSON

if TYPE_CHECKING:
    import torch


class TimingServer:
    """Named callables on one `CallTimer`. Each is called with the inputs that it was added with."""

    def __init__(self, bench: CallTimer) -> None:
        self.bench = bench
        self._calls: dict[str, Call] = {}
        self._functions: dict[str, Function] = {}
        self._holding: dict[str, bool] = {}
        self._last_us: dict[str, float] = {}
        self.ground: BatchMemory | None = None
        self.tidy = False
        """Give back the memory of a turn at its end: the tensors are too large for every process to
        keep what another one needs next."""

    def add(
        self, side: str, call: Call, function: Function | None = None, *, holds: bool = True
    ) -> None:
        """Make `call` answer to the name `side`; `function` takes the inputs of a volley.

        `holds` False: its outputs are only good until its next call, so that a volley holds none.
        """
        self._calls[side] = call
        self._holding[side] = holds
        self._last_us.pop(side, None)
        if function is not None:
            self._functions[side] = function

    def drop(self, side: str) -> None:
        """Forget `side` and what its callable holds."""
        self._calls.pop(side, None)
        self._functions.pop(side, None)
        self._last_us.pop(side, None)

    def answer(self, request: Mapping[str, object]) -> dict[str, JSON]:
        """Do what `request["do"]` says with `request["side"]`; a KeyError for unknown words."""
        side = str(request["side"])
        found = {
            "block": self._block,
            "volley": self._batch,
            "answers": self._answers,
            "sustain": self._sustain,
            "peak": self._peak,
            "do_bench": self._do_bench,
            "launches": self._launches,
        }[str(request["do"])](side, request)
        self.settle()
        return found

    def settle(self) -> None:
        """The end of a turn."""
        if self.tidy:
            self.bench.give_back()

    def _block(self, side: str, request: Mapping[str, object]) -> dict[str, JSON]:
        calls = _integer(request["calls"])
        samples = self.bench.block(self._calls[side], calls, self._last_us.get(side, 0.0))
        self._last_us[side] = min(samples)
        return {"us": list(samples)}

    def _batch(self, side: str, request: Mapping[str, object]) -> dict[str, JSON]:
        calls = _integer(request["calls"])
        last_us = self._last_us.get(side, 0.0)
        fills = _integer(request["fills"])
        function, holds = self._functions[side], self._holding[side]
        done = run_batch(self._ground, self.bench, function, calls, fills, last_us, holds=holds)
        self._last_us[side] = min(done.samples_us)
        return {"us": list(done.samples_us), "strays": done.strays}

    def _answers(self, side: str, request: Mapping[str, object]) -> dict[str, JSON]:
        """Call on the rows that are asked for and deliver to the first slots, untimed."""
        import torch

        with torch.no_grad():
            for slots, index in zip(self._ground.slots, _integers(request["rows"]), strict=False):
                copy_outputs(self._functions[side](*self._ground.rows[index]), slots)
        self.bench.wait()
        return {}

    def ready_slots(self) -> list[torch.Tensor]:
        """The slots of the first call."""
        return self._ground.slots[0]

    @property
    def _ground(self) -> BatchMemory:
        if self.ground is None:
            raise RuntimeError("a volley was asked for before its ground")
        return self.ground

    def _sustain(self, side: str, request: Mapping[str, object]) -> dict[str, JSON]:
        seconds = float(str(request["seconds"]))
        done = self.bench.sustain(self._calls[side], seconds, self._last_us.get(side, 1e3))
        return {"calls": done.calls, "seconds": done.seconds}

    def _peak(self, side: str, request: Mapping[str, object]) -> dict[str, JSON]:
        return {"bytes": self.bench.peak_bytes(self._calls[side])}

    def _do_bench(self, side: str, request: Mapping[str, object]) -> dict[str, JSON]:
        return {"us": self.bench.do_bench_us(self._calls[side])}

    def _launches(self, side: str, request: Mapping[str, object]) -> dict[str, JSON]:
        found = self.bench.launches(self._calls[side])
        return {"launches": [[item.name, item.device_us] for item in found]}


def _integer(value: object) -> int:
    return int(str(value))


def _integers(value: object) -> list[int]:
    return [_integer(item) for item in cast("Sequence[object]", value)]
