"""The judgement of a candidate: policy, build, then case after case against the oracle."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from agentkernel.domain.errors import one_line
from agentkernel.domain.verdict import (
    LEFT_OUT,
    NOT_JUDGED,
    CompileFailed,
    Failure,
    LoadFailed,
    Mismatch,
    RunFailed,
    Verdict,
)
from agentkernel.runtime.machine import release_cached_memory
from agentkernel.runtime.stages import at, stage
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.bounds import (
    NOT_LOOKED,
    check_compiled,
    find_out_of_bounds,
    interpreted,
    launched_forms,
    untried_configurations,
)
from agentkernel.tools.judge.case_runner import CaseRunner
from agentkernel.tools.judge.cases.edge_inputs import index_inputs
from agentkernel.tools.judge.cases.plan import (
    Case,
    NotApplicable,
    in_both_modes,
    in_modes,
    in_turns,
    source_modes,
    training_case,
)
from agentkernel.tools.judge.cases.selection import (
    INTERPRETED_ODD_ELEMENTS,
    INTERPRETED_ODD_ROWS,
    at_constants,
    end_cases,
    judged_graph,
    other_shape_cases,
    plan_cases,
    scalar_cases,
    small_case,
)
from agentkernel.tools.judge.cases.shapes import (
    CaseShape,
    count_elements,
    count_rows,
    scaled,
)
from agentkernel.tools.judge.comparison.compare import CaseOutcome
from agentkernel.tools.judge.execution.graph_operators import graph_operators
from agentkernel.tools.judge.execution.proof import check_execution
from agentkernel.tools.judge.findings import Findings, verdict_of
from agentkernel.tools.judge.gradient_cases import judge_all_gradients
from agentkernel.tools.judge.kernelbench import allclose_cases, passes_allclose
from agentkernel.tools.judge.known_kernels import kernels_of, open_knowing
from agentkernel.tools.judge.launch_form import judge_launch_form
from agentkernel.tools.judge.other_inputs import (
    judge_aliased_inputs,
    judge_indices,
    judge_other_methods,
    judge_other_shapes,
    judge_serving_conditions,
)
from agentkernel.tools.judge.pace import LONGEST_S
from agentkernel.tools.judge.policy.check import check_policy, own_names
from agentkernel.tools.judge.policy.launch_form import form_name, plain_form
from agentkernel.tools.judge.settings import (
    JudgeSettings,
    on_device,
    open_judge_worker,
    prefork_judge_workers,
    threads,
)
from agentkernel.tools.judge.train_mode import TrainModeResult, judge_training
from agentkernel.tools.judge.variants import (
    Variant,
    constructor_variants,
    judge_variants,
    other_calls,
)
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.sandbox.protocol import JSON
from agentkernel.tools.sandbox.session import Worker

if TYPE_CHECKING:
    from agentkernel.tools.problem.capture import Captured

INTERPRETED_FIXED_ELEMENTS = 400_000
"""What a candidate that holds for its declared sizes alone may take in, to be interpreted."""
VARIED_ELEMENTS = 1 << 24
"""Other modules and calls are tried on the CPU first: of more elements they are left out."""
CONFIGURATION_CALLS = 64
"""So many calls are made for the configurations of autotuners that no other call has taken."""
RANDOM_ELEMENTS = 1 << 11
"""Of so many it shows whether they are drawn one by one."""
OOM_RETRIES = 4
PATIENCE = 2.0
"""A call that the interpreter did not finish in time gets so many times the limit, once."""


@threads(1)
def judge(
    loaded: LoadedProblem, captured: Captured, source: str, settings: JudgeSettings
) -> Verdict:
    """Judge `source` (defines `ModelNew`) against `loaded`. `captured` says which sizes are free.

    Raises SandboxUnavailable where nothing can isolate the candidate, ProblemError where the
    reference itself does not run; everything else is a verdict.
    """
    started = time.monotonic()
    findings = Findings()
    failure: Failure | None = None
    if settings.static:
        operators = graph_operators(captured)
        failure = check_policy(source, settings.policy, own_names(loaded), operators)
    # Of a launch form the plain text, which lies on the same lines, goes through every gate.
    plain = plain_form(source) or source
    if failure is None:
        if settings.device == "cuda":
            prefork_judge_workers(interpreted(settings))
        failure = _judge_alone(loaded, captured, plain, settings, findings)
    if failure is None and settings.device == "cuda":
        failure = _look_for_overruns(loaded, captured, plain, interpreted(settings), findings)
    if settings.device == "cpu" and _timed_out(failure):
        longer = settings.evolve(time_limit_s=PATIENCE * settings.time_limit_s)
        findings = Findings()
        at(f"again with {longer.time_limit_s:g} s a call")
        failure = _judge_alone(loaded, captured, plain, longer, findings)
        findings.notes.append(f"judged again with {longer.time_limit_s:g} s a call: slow machine")
        if failure is not None and _timed_out(failure):
            why = f"the interpreter gave no answer within {longer.time_limit_s:g} s a call"
            failure = _unknown(failure, why)
    if failure is None and plain != source:
        failure = _judge_launch_form(loaded, captured, source, settings, findings)
    release_cached_memory(settings.device)
    return verdict_of(loaded, source, settings, findings, failure, time.monotonic() - started)


def workers_taken(source: str, settings: JudgeSettings) -> int:
    """How many workers a judgement of `source` takes on a GPU, one after the other: for the cases
    and for other modules, KernelBench's rule and a launch form where there is one."""
    return 2 + settings.kernelbench + (plain_form(source) is not None)


def _judge_alone(
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    settings: JudgeSettings,
    findings: Findings,
) -> Failure | None:
    """In a worker of its own, which ends with the judgement; indices out of their range and
    KernelBench's rule in others."""
    with open_judge_worker(settings) as worker:
        findings.sandbox = worker.tier
        failure = _judge_in(worker, loaded, captured, source, settings, findings)
        findings.kernels = kernels_of(worker, settings) if failure is None else ()
        forms: list[JSON] = []
        if settings.device == "cpu" and worker.alive and (failure is None or _raised(failure)):
            forms = launched_forms(worker, settings, findings.notes)
        variant_wrong: Failure | None = None
        if settings.device == "cpu" and failure is None:
            # There a worker starts for as long as a small module is judged.
            variant_wrong = _judge_variants(loaded, captured, source, settings, findings, worker)
    if settings.device == "cpu":
        failure = _judge_compiled(source, forms, settings, findings.notes, failure)
    if failure is None:
        failure = _judge_indices(loaded, captured, source, settings, findings.notes)
    if failure is None and settings.device == "cuda":
        failure = _judge_variants(loaded, captured, source, settings, findings)
    failure = failure or variant_wrong
    if settings.kernelbench and (failure is None or isinstance(failure, Mismatch)):
        findings.kernelbench = _judge_kernelbench(loaded, captured, source, settings, findings)
    return failure


def _raised(failure: Failure) -> bool:
    """Whether the interpreter raised, of its own accord, within a kernel: what leaves its tensors
    is wrong on any device."""
    if not isinstance(failure, RunFailed) or failure.reason == "out_of_bounds":
        return False
    return "InterpreterError" in failure.log


def _judge_compiled(
    source: str,
    forms: list[JSON],
    settings: JudgeSettings,
    notes: list[str],
    failure: Failure | None,
) -> Failure | None:
    """What the compiler refuses, before a `failure` of the interpreter. A kernel that it takes is
    not known to be wrong because the interpreter raised."""
    refused = check_compiled(source, forms, settings, notes)
    if refused is not None or failure is None or not forms:
        return refused or failure
    return _unknown(failure, "the interpreter raised in a kernel that Triton's compiler takes")


@stage("KernelBench's rule")
def _judge_kernelbench(
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    settings: JudgeSettings,
    findings: Findings,
) -> bool | None:
    """In a worker that has not gone through the strict rule's cases."""
    judged = judged_graph(captured, settings)
    with open_knowing(settings, findings.kernels) as worker:
        with on_device(settings):
            runner = CaseRunner(worker, loaded, judged, settings, findings.notes)
            if runner.build(source) is not None:
                return False
        plan = plan_cases(loaded, judged, settings, runner.fits)
        cases = [case for case in allclose_cases(plan, settings.seed) if runner.fits(case.shape)]
        if not cases:
            findings.notes.append("KernelBench's rule not asked: whole copies have no room")
            return None
        for case in cases:
            with on_device(settings):
                found = passes_allclose(runner, loaded, case, findings.notes)
            if not found:
                return found
    return True


@stage("bounds")
def _look_for_overruns(
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    settings: JudgeSettings,
    findings: Findings,
) -> Failure | None:
    """In the interpreter, unless the sizes at which it holds are too many for that."""
    elements = count_elements(loaded.problem.shape_sets[0])
    if settings.declared_sizes and elements > INTERPRETED_FIXED_ELEMENTS:
        findings.notes.append(f"{NOT_LOOKED}: the declared sizes are too large to interpret")
        return None
    judged = judged_graph(captured, settings)
    plan = plan_cases(loaded, judged, settings)
    return find_out_of_bounds(loaded, judged, source, settings, plan, findings.notes)


def _timed_out(failure: Failure | None) -> bool:
    if isinstance(failure, LoadFailed):
        return failure.log.startswith("timeout: ")
    return isinstance(failure, RunFailed) and failure.reason == "timeout"


def _unknown(failure: Failure, why: str) -> Failure:
    """The same failure, saying that it is not known to be wrong."""
    if isinstance(failure, LoadFailed | RunFailed):
        log = f"{NOT_JUDGED}: {why}\n{failure.log}"
        return failure.evolve(log=log)
    return failure


def _judge_in(
    worker: Worker,
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    settings: JudgeSettings,
    findings: Findings,
) -> Failure | None:
    judged = judged_graph(captured, settings)
    with on_device(settings):
        runner = CaseRunner(worker, loaded, judged, settings, findings.notes, findings.pace)
        failure: Failure | None = runner.build(source)
    if failure is not None:
        return failure
    plan = _plan(runner, loaded, judged, source, settings)
    if runner.turns is False:
        findings.notes.append("its weights are too large for a second module beside the first")
    findings.notes += _routes(runner, plan)
    failure = _judge_cases(runner, plan, judged, settings, findings)
    plan = [case for case in plan if case.shape.label not in findings.left_out]
    findings.notes += runner.memory_notes()
    findings.repeatable = runner.repeatable
    if failure is not None:
        return failure
    if not findings.cases:
        return LoadFailed(log=f"No case could be judged: {'; '.join(findings.notes)}")
    with stage("execution proof"), on_device(settings):
        failure = check_execution(
            worker, runner, plan, source, settings, findings.cases, findings.notes
        )
    if failure is None:
        with on_device(settings):
            failure = _judge_training(runner, plan, settings, findings)
    if failure is None:
        failure = judge_all_gradients(runner, plan, source, settings, findings, judged)
    if failure is None and settings.declared_sizes:
        with on_device(settings):
            elsewhere = other_shape_cases(loaded, captured, settings)
            found = judge_other_shapes(runner, captured, elsewhere)
        failure = found.failure
        if not found.tried:
            findings.notes.append("no other sizes than the declared ones could be asked")
    if failure is None:
        with on_device(settings):
            failure = _judge_scalars(runner, plan, settings, findings)
    if failure is None and settings.device == "cpu":
        failure = _judge_configurations(runner, plan, settings)
    if failure is None and worker.alive:
        with on_device(settings):
            failure = _judge_beside(runner, plan, settings, judged)
    if failure is None and worker.alive:
        with on_device(settings):
            failure = _judge_inference(runner, plan, settings, findings)
    return failure


def _plan(
    runner: CaseRunner,
    loaded: LoadedProblem,
    judged: Captured,
    source: str,
    settings: JudgeSettings,
) -> list[Case]:
    """The cases that a candidate of this text is asked."""
    plan = plan_cases(loaded, judged, settings, runner.fits)
    plan += at_constants(loaded, judged, source, settings)
    if runner.turns:
        plan = in_turns(plan, runner.fits)
    return in_modes(plan, runner.fits, source_modes(source), settings.seed)


def _judge_launch_form(
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    settings: JudgeSettings,
    findings: Findings,
) -> Failure | None:
    """In a worker of its own, after its plain text was accepted."""
    judged = judged_graph(captured, settings)
    with open_knowing(settings, findings.kernels) as worker:
        with on_device(settings):
            runner = CaseRunner(worker, loaded, judged, settings, findings.notes)
            failure = runner.build(source)
        if failure is not None:
            return failure
        plan = _plan(runner, loaded, judged, plain_form(source) or source, settings)
        form = form_name(source) or ""
        return judge_launch_form(runner, plan, settings, findings, form)


def _judge_configurations(
    runner: CaseRunner, plan: Sequence[Case], settings: JudgeSettings
) -> Failure | None:
    """Calls until every configuration of an autotuner has run: a GPU may pick any of them."""
    small = small_case(plan, settings)
    left = untried_configurations(runner.worker, settings)
    for more in range(CONFIGURATION_CALLS):
        if not left:
            return None
        outcome = runner.run(dataclasses.replace(small, seed=small.seed + more + 2))
        if isinstance(outcome, NotApplicable) or outcome.failure is not None:
            return None if isinstance(outcome, NotApplicable) else outcome.failure
        left = untried_configurations(runner.worker, settings)
    if not left:
        return None
    log = f"{left} configurations of the autotuner were not run by any call: name fewer"
    return CompileFailed(log=log, line=None)


def _judge_inference(
    runner: CaseRunner, plan: Sequence[Case], settings: JudgeSettings, findings: Findings
) -> Failure | None:
    """One call as it is served, under torch.inference_mode(). It comes last: what the candidate
    made in that mode cannot be written to in any other."""
    small = small_case(plan, settings)
    found = judge_serving_conditions(runner, dataclasses.replace(small, seed=small.seed + 1))
    if found.refused:
        findings.notes.append("it refuses to be called under torch.inference_mode()")
    return found.failure


def _judge_beside(
    runner: CaseRunner, plan: Sequence[Case], settings: JudgeSettings, captured: Captured
) -> Failure | None:
    """One tensor for two inputs where that may show, and the other methods of the original."""
    small = small_case(plan, settings)
    wrong = judge_aliased_inputs(runner, small) if captured.mutated_inputs else None
    return wrong or judge_other_methods(runner, small)


def _judge_scalars(
    runner: CaseRunner, plan: Sequence[Case], settings: JudgeSettings, findings: Findings
) -> Failure | None:
    """Other numbers and flags than the declared ones, at the smallest sizes and the largest."""
    fitting = [case.shape for case in plan if case.required and runner.fits(case.shape)]
    small = small_case(plan, settings)
    large = max(fitting, key=lambda shape: shape.elements, default=small.shape)
    found = judge_other_shapes(runner, None, scalar_cases(small, large))
    if found.refused:
        findings.notes.append(
            f"of {found.tried} other values of scalar arguments it refuses {found.refused}"
        )
    return found.failure


def _judge_indices(
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    settings: JudgeSettings,
    notes: list[str],
) -> Failure | None:
    """In a worker of its own: an assertion that fails on a GPU takes the process with it."""
    positions = index_inputs(captured)
    if not positions:
        return None
    judged = judged_graph(captured, settings)
    plan = plan_cases(loaded, judged, settings)
    with open_judge_worker(settings) as worker, on_device(settings):
        runner = CaseRunner(worker, loaded, judged, settings, notes)
        if runner.build(source) is not None:
            return None
        return judge_indices(runner, small_case(plan, settings), positions)


@stage("other modules")
def _judge_variants(
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    settings: JudgeSettings,
    findings: Findings,
    first: Worker | None = None,
) -> Failure | None:
    """Other modules and calls, and this one at the ends of its sizes. Asked after the forms of
    kernels were noted: a tile of no elements, which does not compile, is a way to refuse."""
    plan = plan_cases(loaded, judged_graph(captured, settings), settings)
    small = small_case(plan, settings)
    asked: list[Variant] = []
    if small.shape.elements <= VARIED_ELEMENTS:
        asked += constructor_variants(loaded, captured, small, settings.device, settings.seed)
        asked += other_calls(loaded, small, settings.device, settings.seed)
    else:
        findings.notes.append(
            f"no other module or call was asked: {small.shape.label} is too large for it"
        )
    if not settings.declared_sizes:
        sizes = [case.shape for case in plan if case.required]
        rows = INTERPRETED_ODD_ROWS if settings.device == "cpu" else None
        tree = parse_source(source)
        ends = end_cases(small, sizes, captured, tree, INTERPRETED_ODD_ELEMENTS, rows)
        ends = [
            in_both_modes(case, source_modes(source))
            for case in ends
            if not _past_time(case.shape, settings, findings)
        ]
        asked += [Variant(loaded, case) for case in ends]
    return judge_variants(asked, captured, source, settings, findings, first)


def _judge_cases(
    runner: CaseRunner,
    plan: Sequence[Case],
    captured: Captured,
    settings: JudgeSettings,
    findings: Findings,
) -> Failure | None:
    """Case after case, until one fails."""
    started = time.monotonic()
    slowest = 0.0
    left_out = 0
    for number, case in enumerate(plan):
        at(f"{number} of {len(plan)} cases done")
        spent = time.monotonic() - started
        if not case.required and spent + slowest > settings.budget_s:
            left_out += 1
            continue
        if _past_time(case.shape, settings, findings):
            continue
        begin = time.monotonic()
        with on_device(settings):
            outcome = _run_scaled(runner, case, captured, findings.notes)
        slowest = max(slowest, time.monotonic() - begin)
        if isinstance(outcome, NotApplicable):
            findings.notes.append(f"{LEFT_OUT}{case.label}: {outcome.reason}")
            continue
        findings.cases.extend(outcome.results)
        findings.notes += [f"needed: {outcome.permitted}"] if outcome.permitted else []
        if case.primary or not findings.launches:
            findings.launches = outcome.launches
        if outcome.failure is not None:
            return outcome.failure
    if left_out:
        findings.notes.append(f"{left_out} optional cases left out: time")
    at(f"{len(plan)} of {len(plan)} cases done, further checks")
    findings.notes += runner.observed.one_sided()
    return runner.observed.inputs_written()


def _past_time(shape: CaseShape, settings: JudgeSettings, findings: Findings) -> bool:
    """Whether a call at `shape` would take too long in the interpreter for a size that the judge
    has chosen past the rows of its other sets; the notes say what is left out.

    Sets within those rows are asked however long they take: a candidate that is slow on purpose
    gets no case left out that every other one is asked.
    """
    if settings.device != "cpu" or shape.origin == "declared":
        return False
    if count_rows(shape.inputs) <= INTERPRETED_ODD_ROWS or findings.pace.has(shape):
        return False
    seconds = findings.pace.predicted_s(shape)
    if seconds is None or seconds <= LONGEST_S:
        return False
    findings.leave_out(shape, seconds)
    return True


def _judge_training(
    runner: CaseRunner, plan: Sequence[Case], settings: JudgeSettings, findings: Findings
) -> Failure | None:
    """In training mode too, where that is something else."""
    primary = next(case.shape for case in plan if case.primary)
    odd = [case.shape for case in plan if case.shape.origin == "odd"]
    shapes = sorted({primary, *odd}, key=lambda shape: shape.elements)
    wide = next((shape for shape in shapes if shape.elements >= RANDOM_ELEMENTS), shapes[-1])
    try:
        training = judge_training(runner, training_case(primary, odd, settings.seed), wide)
    except torch.OutOfMemoryError as error:
        training = TrainModeResult(note=f"training mode not judged: {one_line(error, 120)}")
        release_cached_memory(settings.device)
    findings.notes += [training.note] if training.note else []
    findings.eval_only = training.eval_only
    return training.failure or runner.observed.inputs_written()


def _run_scaled(
    runner: CaseRunner, case: Case, captured: Captured, notes: list[str]
) -> CaseOutcome | NotApplicable:
    """Run `case`; where it has no room by any route, on a quarter, and so on, which is noted."""
    wanted = case.shape.label
    outcome = runner.run(case, follow_ups=True)
    first = outcome
    for _ in range(OOM_RETRIES):
        if not isinstance(outcome, NotApplicable) or not outcome.out_of_memory:
            break
        shape = scaled(case.shape.inputs, captured, case.shape.elements // 4, case.shape.index)
        if shape.label == case.shape.label:
            break
        case = dataclasses.replace(case, shape=shape)
        outcome = runner.run(case, follow_ups=True)
    if isinstance(first, NotApplicable) and outcome is not first:
        notes.append(f"{wanted} was judged at {case.shape.label} instead: {first.reason}")
    return outcome


def _routes(runner: CaseRunner, plan: Sequence[Case]) -> list[str]:
    """How shapes without room for whole copies are judged, and what is asked elsewhere."""
    shapes = {case.shape.label: case.shape for case in plan if not runner.fits(case.shape)}
    found = []
    for label, shape in shapes.items():
        route = runner.plan(shape)
        asked = [case.distribution for case in plan if case.shape.label == label]
        if route is not None:
            names = ", ".join(dict.fromkeys(asked))
            found.append(f"at {label}: {route.label}; asked there: {names}")
    return found
