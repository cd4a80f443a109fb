"""What does the process do that loads strange modules, writes their Triton code and judges it?

A process does one kind of work: TorchInductor without a GPU changes torch for good, and nothing is
judged with that. It reads a line of JSON a question and writes one for the answer.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import AgentKernelError, SandboxUnavailable, one_line
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import Failure, LoadFailed, RunFailed, Verdict
from agentkernel.runtime.processes import end_with_parent
from agentkernel.training.judged_problems import POLICY, JudgedProblems, Verification

if TYPE_CHECKING:
    from agentkernel.compiler.lift.record import GraphRecord
    from agentkernel.tools.problem.capture import Captured
    from agentkernel.tools.problem.problems import LoadedProblem

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
    from agentkernel.compiler.lift.child import prepare_process

    pretended = prepare_process(target)
    return lambda question: _written(question.path, pretended)


def _written(path: str, pretended: bool) -> WrittenCode | WorkerFailed:
    """As `torch.compile` writes it; where that calls the library alone, by its own templates."""
    from agentkernel.compiler.drop_in.limits import eval_only
    from agentkernel.compiler.lift.record import record_graph
    from agentkernel.tools.problem.capture import capture
    from agentkernel.tools.problem.problems import load_problem
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
    from agentkernel.compiler.lift.child import generate_code
    from agentkernel.compiler.lift.code import NotLifted
    from agentkernel.compiler.lift.variants import find_variant
    from agentkernel.compiler.lift.write import lift
    from agentkernel.tools.judge.policy.policy import check_policy

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


if __name__ == "__main__":
    main(*sys.argv[1:])
