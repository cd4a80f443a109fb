"""Worker processes that load untrusted modules, write Triton code for them or judge it.

A worker reads one line of JSON per request and writes one per answer. It does one kind of work:
TorchInductor without a GPU changes torch for good, so nothing is judged in that process. Each
worker lives on and is asked by its own thread; candidates run in the sandbox, and a worker that
hangs or dies loses only its current request. Loading and capturing a module takes about as long
as judging a file for it, so files for one module go to one worker while there are others to do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, Self, TypeVar

from pydantic import TypeAdapter

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import AgentKernelError, SandboxUnavailable, one_line
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import Failure, LoadFailed, RunFailed, Verdict, hack_name
from agentkernel.runtime.pool import end_with_parent
from agentkernel.tools.judge.policy.check import check_policy
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.sandbox.watchdog import readable
from agentkernel.training.judged_problems import POLICY, JudgedProblems, Verification

if TYPE_CHECKING:
    from agentkernel.compiler.lift.inductor_code import GraphRecord
    from agentkernel.tools.problem.capture import Captured
    from agentkernel.tools.problem.loading import LoadedProblem


WorkKind = Literal["write", "judge"]
READY = "ready"
LIBRARY_ALONE = "nothing is left to Triton"
"""How the lifter begins to say that every step is a library call."""
TEMPLATES = "gemm_triton"
"""The variant that writes matrix products itself."""


class WorkerRequest(Frozen):
    """A problem's file and, for the judge, the Triton code for it."""

    path: str
    answer: str = ""


class WrittenCode(Frozen):
    """Standalone Triton code, and who wrote it: a variant of TorchInductor's settings."""

    kind: Literal["written"] = "written"
    answer: str
    kernels: tuple[str, ...]
    variant: str


class JudgeFinding(Frozen):
    """`accepted` None: the judge came to no answer, and `reason` says why."""

    kind: Literal["judged"] = "judged"
    accepted: bool | None
    interpreted: bool = True
    reason: str = ""
    verdict: Verdict | None = None


class WorkerFailed(Frozen):
    """No code, and why."""

    kind: Literal["failed"] = "failed"
    reason: str


WorkerAnswer = WrittenCode | JudgeFinding | WorkerFailed


def writing(target: Target) -> Callable[[WorkerRequest], WorkerAnswer]:
    """What answers questions with code, for the GPU that is here or else for `target`."""
    from agentkernel.compiler.lift.inductor_process import prepare_process

    pretended = prepare_process(target)
    return lambda question: _written(question.path, pretended)


def _written(path: str, pretended: bool) -> WrittenCode | WorkerFailed:
    """As `torch.compile` writes it; where that calls the library alone, by its own templates."""
    from agentkernel.compiler.drop_in.envelope import eval_only
    from agentkernel.compiler.lift.inductor_code import record_graph
    from agentkernel.tools.problem.specialise import specialise

    loaded = load_problem(path)
    captured = capture(loaded)
    graph = record_graph(specialise(captured))
    differs = eval_only(loaded, captured)
    found = _lifted(loaded, captured, graph, "default", pretended, differs)
    if isinstance(found, WorkerFailed) and found.reason.startswith(LIBRARY_ALONE):
        found = _lifted(loaded, captured, graph, TEMPLATES, pretended, differs)
    return found


def _lifted(
    loaded: LoadedProblem,
    captured: Captured,
    graph: GraphRecord,
    variant: str,
    pretended: bool,
    differs_in_training: bool,
) -> WrittenCode | WorkerFailed:
    from agentkernel.compiler.lift.drop_in import lift
    from agentkernel.compiler.lift.inductor_code import NotLifted, find_variant
    from agentkernel.compiler.lift.inductor_process import generate_code

    code = generate_code(graph, find_variant(variant), pretended)
    if isinstance(code, NotLifted):
        return WorkerFailed(reason=code.reason)
    source = lift(code, loaded, captured, differs_in_training=differs_in_training)
    if isinstance(source, NotLifted):
        return WorkerFailed(reason=source.reason)
    refused = check_policy(source.text, POLICY)
    if refused is not None:
        return WorkerFailed(reason=f"policy {POLICY!r}: {refused.text}")
    return WrittenCode(answer=source.text, kernels=source.kernels, variant=variant)


def judging(verification: Verification) -> Callable[[WorkerRequest], WorkerAnswer]:
    """What answers questions with the judge's finding. The problem of the last one stays loaded."""
    problems = JudgedProblems(verification, most=1)
    return lambda question: _judged(question, problems)


def _judged(question: WorkerRequest, problems: JudgedProblems) -> JudgeFinding:
    problem = problems.load(Path(question.path))
    try:
        verdict = problems.judge(problem, question.answer)
    except SandboxUnavailable as error:
        return JudgeFinding(accepted=None, reason=one_line(error))
    if verdict is None:
        return JudgeFinding(accepted=None, reason=problem.too_large)
    if verdict.failure is None:
        return JudgeFinding(accepted=True, interpreted=verdict.interpreted, verdict=verdict)
    reason = one_line(f"{verdict.gate}: {_words(verdict.failure)}")
    undecided = is_undecided(verdict.failure)
    return JudgeFinding(
        accepted=None if undecided else False,
        interpreted=verdict.interpreted,
        reason=reason,
        verdict=verdict,
    )


def is_undecided(failure: Failure) -> bool:
    """True for what does not say that the code is wrong: time or memory ran out, or there was
    nothing to judge it on."""
    if isinstance(failure, RunFailed):
        return failure.reason in ("timeout", "memory")
    if isinstance(failure, LoadFailed):
        return failure.log.startswith(("timeout: ", "could not be judged", "No case could be"))
    return False


def _words(failure: Failure) -> str:
    told = failure.model_dump(mode="json", exclude={"kind"}, exclude_none=True)
    return ", ".join(f"{name} {value}" for name, value in told.items())


def serve(answer: Callable[[WorkerRequest], WorkerAnswer], questions: int, answers: int) -> None:
    """Answer question after question until the pipe `questions` ends. What a module raises is an
    answer; what it ends or hangs is the asker's to see."""
    with (
        os.fdopen(questions, encoding="utf-8") as asked,
        os.fdopen(answers, "w", encoding="utf-8") as told,
    ):
        print(READY, file=told, flush=True)
        for line in asked:
            print(_safely(answer, line).model_dump_json(), file=told, flush=True)


def _safely(answer: Callable[[WorkerRequest], WorkerAnswer], line: str) -> WorkerAnswer:
    try:
        return answer(WorkerRequest.model_validate_json(line))
    except AgentKernelError as error:
        return WorkerFailed(reason=one_line(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a strange module may raise anything
        return WorkerFailed(reason=one_line(f"{type(error).__name__}: {error}"))


def main(work: str, settings: str, questions: str, answers: str) -> None:
    """Serve one kind of work; `settings` is a Target to write for, or a Verification, in JSON."""
    end_with_parent(int(questions))
    warnings.simplefilter("ignore")
    if work == "write":
        served = writing(Target.model_validate_json(settings))
    else:
        served = judging(Verification.model_validate_json(settings))
    serve(served, int(questions), int(answers))


MODULE = "agentkernel.training.worker_pool"
START_S = 180.0
"""What a process may take to import torch and TorchInductor on a busy machine."""
MOST_ASKED = 200
"""Then a fresh process goes on: modules that were loaded, and what torch keeps of their graphs,
never leave a process."""
LOG_CHARACTERS = 300
THREADS = "1"
"""Of torch in a process, unless the environment says another number: several stand side by side,
and the modules are small."""
ANSWERS: TypeAdapter[WorkerAnswer] = TypeAdapter(WorkerAnswer)
RequestT = TypeVar("RequestT", bound=Frozen)
AnswerT = TypeVar("AnswerT")


class WorkerProcess(Generic[RequestT, AnswerT]):
    """A process of `module`, run with `arguments` and the numbers of its two pipes; the next
    question starts another where it is gone. `told` reads its answers, a line of JSON each."""

    def __init__(self, module: str, arguments: Sequence[str], told: TypeAdapter[AnswerT]) -> None:
        self._module = module
        self._arguments = tuple(arguments)
        self._told = told
        self._process: _Process | None = None

    def ask(self, question: RequestT, timeout_s: float) -> AnswerT | WorkerFailed:
        """The answer, or Failed where the process dies or takes more than `timeout_s`."""
        process = self._ready()
        if isinstance(process, WorkerFailed):
            return process
        line = process.line_after(question.model_dump_json() + "\n", timeout_s)
        if line is None:
            return self._lost(process, timeout_s)
        process.asked += 1
        if process.asked >= MOST_ASKED:
            self.close()
        return self._told.validate_json(line)

    def _ready(self) -> _Process | WorkerFailed:
        if self._process is None:
            self._process = process = _Process(self._module, self._arguments)
            if process.line_after("", START_S) != READY:
                return self._lost(process, START_S)
        return self._process

    def _lost(self, process: _Process, timeout_s: float) -> WorkerFailed:
        ended = process.ended()
        self.close()
        if ended is None:
            return WorkerFailed(reason=f"no answer within {timeout_s:g} s")
        return WorkerFailed(reason=one_line(f"the process ended with {ended}: {process.log_end}"))

    def kill(self) -> None:
        """End what is at work, from another thread: whoever asked gets Failed."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process and all that it started."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class PairWorker(WorkerProcess[WorkerRequest, WorkerAnswer]):
    """A process for one kind of work of `pair_process`."""

    def __init__(self, work: WorkKind, settings: str) -> None:
        super().__init__(MODULE, (work, settings), ANSWERS)


class _Process:
    """The process with both its pipes; nothing that a module prints or reads gets into them."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        self.asked = 0
        self.log_end = ""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        theirs_in, self._questions = os.pipe()
        self._answers, theirs_out = os.pipe()
        self._folder = tempfile.TemporaryDirectory(prefix="agentkernel-pairs-")
        self._left = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, str(theirs_in), str(theirs_out)],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={"OMP_NUM_THREADS": THREADS}
            | os.environ
            | {"TORCHINDUCTOR_CACHE_DIR": self._folder.name},
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)

    def line_after(self, text: str, timeout_s: float) -> str | None:
        """The next line, once `text` is sent; None where there is none in time or ever."""
        end = time.monotonic() + timeout_s
        try:
            self._send(text.encode())
            while b"\n" not in self._left:
                wait_s = end - time.monotonic()
                if wait_s <= 0 or not readable((self._answers,), wait_s):
                    return None
                piece = os.read(self._answers, 1 << 16)
                if not piece:
                    return None
                self._left += piece
        except OSError:  # it is gone, or was closed meanwhile
            return None
        line, _, self._left = self._left.partition(b"\n")
        return line.decode()

    def _send(self, text: bytes) -> None:
        while text:
            text = text[os.write(self._questions, text) :]

    def ended(self) -> int | None:
        """How it ended; None while it lives."""
        try:
            return self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End it at once, with what it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End it, keep what it said last, and leave nothing open."""
        self.kill()
        self._process.wait()
        self._log.seek(0)
        self.log_end = self._log.read()[-LOG_CHARACTERS:].decode(errors="replace")
        for end in (self._questions, self._answers):
            os.close(end)
        self._log.close()
        self._folder.cleanup()


class JudgeQueue:
    """The places of questions about `problems`, each handed out once. For several threads."""

    def __init__(self, problems: Sequence[str]) -> None:
        self._left: dict[str, deque[int]] = {}
        for place, problem in enumerate(problems):
            self._left.setdefault(problem, deque()).append(place)
        self._judges: Counter[str] = Counter()
        """How many judges took a question about it last."""
        self._problems = tuple(problems)
        self._lock = threading.Lock()

    def after(self, place: int | None) -> int | None:
        """The next question for the judge that answered `place` last, None where it has not begun:
        one about the same problem, else about one that nobody is at, else about any of which
        something is left. None where all are handed out."""
        with self._lock:
            last = None if place is None else self._problems[place]
            if not self._left:
                return None
            if last in self._left:
                return self._take(last)
            if last is not None:
                self._judges[last] -= 1
            # A problem that nobody is at comes before those that others are at, the longest first.
            found = min(
                self._left, key=lambda item: (self._judges[item] > 0, -len(self._left[item]))
            )
            self._judges[found] += 1
            return self._take(found)

    def clear(self) -> None:
        """Nothing is left for anybody."""
        with self._lock:
            self._left.clear()

    def _take(self, problem: str) -> int:
        places = self._left[problem]
        place = places.popleft()
        if not places:
            del self._left[problem]
        return place


STRICT = Verification(policy="triton", time_limit_s=8.0, budget_s=2.0, seeds=2)
"""The strict rule under the policy `triton`, without cases past the required ones for long. Right
files for modules that pairs are made of take a second a call in the interpreter."""
RL_VERIFICATION = STRICT.evolve(time_limit_s=2.0, budget_s=0.0, seeds=1)
"""The required cases alone, as where pairs are made: a right answer takes half a second. A step
waits for its slowest answer, so a call has two seconds; kernels of pairs take one at most."""
ANSWER_S = 240.0
"""What one candidate may take in all, loading the problem included."""
Done = Callable[[int, int], None]
"""Hears how many are judged, and of how many."""


class Submission(NamedTuple):
    """A problem's file and a candidate for it."""

    problem: Path
    source: str


class JudgedSubmission(NamedTuple):
    """`accepted` None: the judge came to no answer. `hack` names a candidate that did not do the
    work that was asked for."""

    accepted: bool | None
    reason: str = ""
    hack: str | None = None
    verdict: Verdict | None = None


Judgements = dict[Submission, JudgedSubmission]
"""What was found so far, under one way of judging."""


def jobs_here() -> int:
    """As many workers as processors that this process may use."""
    return max(len(os.sched_getaffinity(0)), 1)


def judge_all(
    asked: Sequence[Submission],
    verification: Verification = STRICT,
    jobs: int | None = None,
    done: Done = lambda number, total: None,
    known: Judgements | None = None,
) -> tuple[JudgedSubmission, ...]:
    """What the judge found, in the order of `asked`; the same candidate is judged once. `known`
    holds answers under the same `verification`: what is there is not judged again, and new ones
    are put there. Where the judge came to none, the next who asks may be luckier."""
    known = {} if known is None else known
    different = [item for item in dict.fromkeys(asked) if item not in known]
    todo = JudgeQueue([str(item.problem) for item in different])
    found: dict[Submission, JudgedSubmission] = {}
    counting = threading.Lock()
    lanes = min(jobs or jobs_here(), len(different))

    def work(worker_process: PairWorker) -> None:
        place: int | None = None
        while (place := todo.after(place)) is not None:
            item = different[place]
            answer = _asked(worker_process, item)
            with counting:
                found[item] = answer
                done(len(found), len(different))

    with ExitStack() as stack:
        settings = verification.model_dump_json()
        workers = [stack.enter_context(PairWorker("judge", settings)) for _ in range(lanes)]
        threads = [
            threading.Thread(target=work, args=(worker_process,), daemon=True)
            for worker_process in workers
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:
            # Who waits for a verdict gets none, so that the threads end before their processes.
            todo.clear()
            for worker_process in workers:
                worker_process.kill()
            for thread in threads:
                thread.join()
            raise
    known.update((item, answer) for item, answer in found.items() if answer.accepted is not None)
    found = known | found
    return tuple(found.get(item, JudgedSubmission(None, "nobody judged it")) for item in asked)


def _asked(worker_process: PairWorker, item: Submission) -> JudgedSubmission:
    answer = worker_process.ask(WorkerRequest(path=str(item.problem), answer=item.source), ANSWER_S)
    if isinstance(answer, JudgeFinding):
        verdict = answer.verdict
        hack = hack_name(verdict) if verdict is not None else None
        return JudgedSubmission(answer.accepted, answer.reason, hack, verdict)
    return JudgedSubmission(
        None, answer.reason if isinstance(answer, WorkerFailed) else "no verdict"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
