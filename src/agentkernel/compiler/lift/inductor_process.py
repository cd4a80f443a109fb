"""TorchInductor in a process of its own: one answer a variant.

The parent asks early and takes the answers when the code is wanted. Nothing that TorchInductor
writes is run here.
"""

from __future__ import annotations

import math
import pickle
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

import torch
from pydantic import TypeAdapter

from agentkernel.compiler.lift.inductor_code import (
    GraphRecord,
    InductorCode,
    NotLifted,
    Unrecordable,
    Variant,
    record_graph,
    variants_for,
)
from agentkernel.domain.errors import TimeIsUp, one_line
from agentkernel.domain.target import Target
from agentkernel.runtime.pool import lower_priority
from agentkernel.runtime.stages import stage
from agentkernel.runtime.worker import ChildProcess, WorkerDied, serve_frames
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.specialise import UnknownSize, specialise
from agentkernel.tools.roofline.model import graph_costs


@dataclass(frozen=True)
class Job:
    """A graph, and the settings to write it under."""

    graph: GraphRecord
    variant: Variant


def serve(line: Connection, target: str) -> None:
    """Answer pickled Jobs in JSON, for `target` (a Target in JSON) where there is no GPU."""
    pretended = prepare_process(Target.model_validate_json(target))
    warnings.simplefilter("ignore")

    def answer(frame: bytes) -> bytes:
        job: Job = pickle.loads(frame)
        return generate_code(job.graph, job.variant, pretended).model_dump_json().encode()

    serve_frames(line, answer)


def prepare_process(target: Target) -> bool:
    """Let TorchInductor write in this process; True where it has to pretend that `target` is here.
    Never undone: what runs code of a GPU or is judged belongs to another process."""
    if torch.cuda.is_available():
        return False
    from agentkernel.compiler.lift import no_driver

    no_driver.stand_in_for_driver(target)
    no_driver.skip_passes_that_need_a_device()
    no_driver.take_the_first_template()
    no_driver.send_bindings_to_aten()
    return True


def generate_code(
    graph: GraphRecord, variant: Variant, pretended: bool
) -> InductorCode | NotLifted:
    """What TorchInductor writes, in a process made ready by `prepare_process`, which says
    `pretended`."""
    from agentkernel.compiler.lift.inductor_codegen import inductor_source, kernels_of

    try:
        device = torch.device("cuda", 0)
        source = inductor_source(graph, variant, device, pretended=pretended)
        kernels = kernels_of(source)
    except Exception as error:  # noqa: BLE001 - whatever TorchInductor raises is its answer
        traceback.print_exc()
        return NotLifted(reason=_reason(error, pretended), stage="generate")
    return InductorCode(
        variant=variant.name,
        source=source,
        kernels=kernels,
        inputs=tuple(name for name, form in graph.inputs if form is not None),
        torch_version=torch.__version__,
        pretended=pretended,
    )


def _reason(error: Exception, pretended: bool) -> str:
    """Why TorchInductor wrote nothing. An operator that torch can only run, not infer the shapes
    of, is named: it asks for the GPU that is pretended."""
    if pretended and isinstance(error, NotImplementedError) and "Could not run" in str(error):
        called = [
            value
            for frame, _ in traceback.walk_tb(error.__traceback__)
            if isinstance(value := frame.f_locals.get("func"), torch._ops.OpOverload)
        ]
        name = str(called[-1]) if called else "an operator"
        return (
            f"TorchInductor cannot write {name} without a GPU: its shapes are known by running it"
        )
    return f"{type(error).__name__}: {one_line(error, 300)}"


ENTRY = "agentkernel.compiler.lift.inductor_process:serve"
FOLDERS = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
TIMEOUT_S = 120.0
LOG_CHARACTERS = 400

Outcome = InductorCode | NotLifted
OUTCOMES: TypeAdapter[Outcome] = TypeAdapter(Outcome)


def generate(
    captured: Captured, variant: Variant, target: Target, *, timeout_s: float = TIMEOUT_S
) -> Outcome:
    """What TorchInductor writes for `captured` at its declared sizes under `variant`.

    With a GPU the code is for that one, else for `target`. TorchInductor runs in a process of its
    own and nothing that it writes is run there.
    """
    return generate_many([(captured, variant)], target, timeout_s=timeout_s)[0]


def generate_many(
    jobs: Sequence[tuple[Captured, Variant]],
    target: Target,
    *,
    timeout_s: float = TIMEOUT_S,
    stop: threading.Event | None = None,
) -> tuple[Outcome, ...]:
    """`generate` for several graphs and variants, one outcome each, in one process while it lives.

    `timeout_s` holds for each on average. One that kills the process or outlasts the time costs
    that process, not the others' answers. `stop` calls it off: what has no answer then is not
    lifted.
    """
    stop = stop or threading.Event()
    found: dict[int, Outcome] = {}
    waiting: list[tuple[int, Job]] = []
    for place, (captured, variant) in enumerate(jobs):
        try:
            waiting.append((place, Job(record_graph(specialise(captured)), variant)))
        except (Unrecordable, UnknownSize) as error:
            found[place] = NotLifted(reason=str(error), stage="record")
    while waiting:
        if stop.is_set():
            off = NotLifted(reason="TorchInductor was called off", stage="generate")
            found |= dict.fromkeys([place for place, _ in waiting], off)
            break
        for answer in _answers([job for _, job in waiting], target, timeout_s, stop):
            found[waiting.pop(0)[0]] = answer
    return tuple(found[place] for place in range(len(jobs)))


def _answers(
    jobs: Sequence[Job], target: Target, timeout_s: float, stop: threading.Event
) -> Iterator[Outcome]:
    """Answers to the first of `jobs`, at least one: where the process ends, it has failed at the
    job that it was asked about last."""
    end = time.monotonic() + timeout_s * len(jobs)
    child = ChildProcess(ENTRY, (target.model_dump_json(),), folders=FOLDERS)
    with closing(child):
        lower_priority(child.pid)
        for job in jobs:
            reply = child.ask(pickle.dumps(job), max(end - time.monotonic(), 0.0), stop)
            if isinstance(reply, WorkerDied):
                yield NotLifted(reason=_lost(reply, timeout_s * len(jobs), stop), stage="generate")
                return
            yield OUTCOMES.validate_json(reply)


def _lost(died: WorkerDied, limit_s: float, stop: threading.Event) -> str:
    how = f"ended with {died.exit_code}"
    if died.exit_code is None:
        how = "was called off" if stop.is_set() else f"gave no answer within {limit_s:g} s"
    return f"TorchInductor's process {how}: {one_line(died.log[-LOG_CHARACTERS:])}"


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

    @stage("wait for TorchInductor")
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
