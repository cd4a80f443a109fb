"""TorchInductor at work beside a run: asked early, read when its code is wanted."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from agentkernel.compiler.lift.code import InductorCode, NotLifted
from agentkernel.compiler.lift.generate import generate_many
from agentkernel.compiler.lift.variants import Variant, variants_for
from agentkernel.domain.errors import TimeIsUp
from agentkernel.domain.target import Target
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.roofline.roofline import graph_costs

Codes = tuple[InductorCode | NotLifted, ...]


class InductorWriter:
    """What TorchInductor writes for graphs, one answer a variant; a graph is asked about once.

    Its process works while the caller does something else; `close` ends it.
    """

    def __init__(
        self,
        target: Target,
        variants: Sequence[Variant] | None = None,
        left_s: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """`variants` None: those that fit the operators of each graph. `left_s`: how long an answer
        may still be waited for."""
        self._target = target
        self._left_s = left_s
        self._variants = None if variants is None else tuple(variants)
        self._pool = ThreadPoolExecutor(1, "torchinductor")
        self._stop = threading.Event()
        self._asked: dict[int, tuple[Captured, Future[Codes]]] = {}

    def begin(self, captured: Captured) -> None:
        """Ask for the code of `captured` now."""
        if id(captured.graph) not in self._asked:
            future = self._pool.submit(self._write, captured)
            self._asked[id(captured.graph)] = (captured, future)

    def codes(self, captured: Captured) -> Codes:
        """The answers, in the order of the variants; waits for them. Raises TimeIsUp."""
        self.begin(captured)
        left = self._left_s()
        try:
            return self._asked[id(captured.graph)][1].result(
                None if left == math.inf else max(left, 0.0)
            )
        except TimeoutError as error:
            raise TimeIsUp("TorchInductor had not answered when the time limit ended.") from error

    def close(self) -> None:
        """End what is still at work."""
        self._stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, captured: Captured) -> Codes:
        variants = self._variants or variants_for({cost.kind for cost in graph_costs(captured)})
        jobs = [(captured, variant) for variant in variants]
        return generate_many(jobs, self._target, stop=self._stop)
