"""TorchInductor in a process of its own: one answer a variant, a line of JSON each.

`python -m` of this module is the process; it ends with its parent. The parent asks early and
reads the answers when the code is wanted. Nothing that TorchInductor writes is run here.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

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
from agentkernel.runtime.pool import end_with_parent, lower_priority
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.specialise import UnknownSize, specialise
from agentkernel.tools.roofline.model import graph_costs


@dataclass(frozen=True)
class Job:
    """A graph, and the settings to write it under."""

    graph: GraphRecord
    variant: Variant


@dataclass(frozen=True)
class Request:
    """What to write, in order, and the GPU to write for where there is none."""

    jobs: tuple[Job, ...]
    target: Target


def main(request_path: str, reply_path: str) -> None:
    """Answer the pickled Request at the first path, line by line at the second."""
    request: Request = pickle.loads(Path(request_path).read_bytes())
    pretended = prepare_process(request.target)
    warnings.simplefilter("ignore")
    with Path(reply_path).open("w", encoding="utf-8") as reply:
        for job in request.jobs:
            answer = generate_code(job.graph, job.variant, pretended)
            reply.write(answer.model_dump_json() + "\n")
            reply.flush()


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


MODULE = "agentkernel.compiler.lift.inductor_process"
TIMEOUT_S = 120.0
LOG_CHARACTERS = 400
POLL_S = 0.1
"""How often a wait looks whether it has been called off."""

Outcome = InductorCode | NotLifted


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
    found: dict[int, Outcome] = {}
    waiting: list[tuple[int, Job]] = []
    for place, (captured, variant) in enumerate(jobs):
        try:
            waiting.append((place, Job(record_graph(specialise(captured)), variant)))
        except (Unrecordable, UnknownSize) as error:
            found[place] = NotLifted(reason=str(error), stage="record")
    while waiting:
        if stop is not None and stop.is_set():
            off = NotLifted(reason="TorchInductor was called off", stage="generate")
            found |= dict.fromkeys([place for place, _ in waiting], off)
            break
        request = Request(tuple(job for _, job in waiting), target)
        for answer in _answers(request, timeout_s, stop or threading.Event()):
            found[waiting.pop(0)[0]] = answer
    return tuple(found[place] for place in range(len(jobs)))


def _answers(request: Request, timeout_s: float, stop: threading.Event) -> list[Outcome]:
    """Answers to the first jobs of `request`, at least one: a process that ends early has failed
    at the job after its last answer."""
    with tempfile.TemporaryDirectory(prefix="agentkernel-lift-") as folder:
        given, reply, log = (Path(folder) / name for name in ("request", "reply", "log"))
        given.write_bytes(pickle.dumps(request))
        ended = _run([str(given), str(reply)], log, timeout_s * len(request.jobs), folder, stop)
        lines = reply.read_text(encoding="utf-8").splitlines() if reply.is_file() else []
        words = log.read_text(encoding="utf-8", errors="replace")[-LOG_CHARACTERS:]
    answers = [_outcome(line) for line in lines if line.endswith("}")]
    if len(answers) < len(request.jobs):
        reason = f"TorchInductor's process {ended}: {one_line(words)}"
        answers.append(NotLifted(reason=reason, stage="generate"))
    return answers


def _outcome(line: str) -> Outcome:
    if '"source"' in line:
        return InductorCode.model_validate_json(line)
    return NotLifted.model_validate_json(line)


def _run(
    arguments: Sequence[str], log: Path, timeout_s: float, folder: str, stop: threading.Event
) -> str:
    """Run the child to its end, or end it and its children; how it ended. It ends with us."""
    caches = {
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "TRITON_CACHE_DIR": f"{folder}/triton",
    }
    ours, theirs = os.pipe()
    with log.open("wb") as sink, os.fdopen(theirs, "wb"):
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, *arguments, str(ours)],
            pass_fds=(ours,),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=dict(os.environ) | caches,
            start_new_session=True,
        )
        os.close(ours)
        lower_priority(process.pid)
        try:
            return _ended(process, timeout_s, stop)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _ended(process: subprocess.Popen[bytes], timeout_s: float, stop: threading.Event) -> str:
    begin = time.monotonic()
    while time.monotonic() - begin < timeout_s:
        if stop.is_set():
            return "was called off"
        try:
            return f"ended with {process.wait(POLL_S)}"
        except subprocess.TimeoutExpired:
            continue
    return f"gave no answer within {timeout_s:g} s"


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


if __name__ == "__main__":
    from agentkernel.compiler.lift import inductor_process

    # The request was pickled with this module's name, not as __main__.
    end_with_parent(int(sys.argv[3]))
    inductor_process.main(sys.argv[1], sys.argv[2])
