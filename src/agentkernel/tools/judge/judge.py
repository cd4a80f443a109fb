"""The judgement of a candidate: policy, build, then case after case against the oracle."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import one_line
from agentkernel.domain.verdict import (
    CaseResult,
    CompileFailed,
    Failure,
    Gate,
    LoadFailed,
    Mismatch,
    RunFailed,
    Verdict,
)
from agentkernel.runtime.machine import release_cached_memory
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
from agentkernel.tools.judge.cases.edge_inputs import index_inputs, wide_inputs, zero_sign_matters
from agentkernel.tools.judge.cases.plan import (
    Case,
    LargeShape,
    NotApplicable,
    in_both_modes,
    in_modes,
    in_turns,
    interpreted_cases,
    measured_cases,
    signs_case,
    source_modes,
    state_case,
    training_case,
    wide_case,
)
from agentkernel.tools.judge.cases.shapes import (
    CaseShape,
    at_sizes,
    count_elements,
    odd_shapes,
    past_tile,
    replace_sizes,
    scaled,
)
from agentkernel.tools.judge.comparison.compare import CaseOutcome
from agentkernel.tools.judge.execution.proof import check_execution
from agentkernel.tools.judge.gradients import (
    LONG,
    SMALL,
    WIDE,
    GradientResult,
    judge_gradients,
)
from agentkernel.tools.judge.kernelbench import allclose_cases, passes_allclose
from agentkernel.tools.judge.memory import free_memory_on
from agentkernel.tools.judge.other_inputs import (
    end_cases,
    judge_aliased_inputs,
    judge_indices,
    judge_other_methods,
    judge_other_shapes,
    judge_serving_conditions,
    neighbours,
    scalar_cases,
    with_other_scalars,
)
from agentkernel.tools.judge.policy.check import check_policy, own_names
from agentkernel.tools.judge.policy.kernel_source import large_numbers, telling_sizes
from agentkernel.tools.judge.settings import (
    JudgeSettings,
    on_device,
    open_judge_worker,
    prefork_judge_workers,
    rule_of,
)
from agentkernel.tools.judge.train_mode import TrainModeResult, judge_training
from agentkernel.tools.judge.variants import (
    Variant,
    constructor_variants,
    judge_variants,
    other_calls,
)
from agentkernel.tools.judge.worker.gradients import BackwardPass
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.problem.specialise import specialise
from agentkernel.tools.sandbox.protocol import JSON
from agentkernel.tools.sandbox.session import Worker

if TYPE_CHECKING:
    from agentkernel.tools.problem.capture import Captured

INTERPRETED_ELEMENTS = 100_000
INTERPRETED_ODD_ELEMENTS = 150_000
INTERPRETED_FIXED_ELEMENTS = 400_000
"""What a candidate that holds for its declared sizes alone may take in, to be interpreted."""
ODD_FLOOR = 20_000
ODD_FACTOR = 32
"""In the interpreter an odd set has so many times the declared elements at most: a kernel tiled
for a few would take minutes for many."""
INTERPRETED_ODD_ROWS = 2_500
"""So many rows has an odd set in the interpreter: a program a row takes a millisecond, also where a
row has five elements."""
VARIED_ELEMENTS = 1 << 24
"""Other modules and calls are tried on the CPU first: of more elements they are left out."""
ODD_ELEMENTS = 1 << 24
LARGER_ELEMENTS = 1 << 28
"""On a GPU a set past the declared sizes may have so many elements."""
CONFIGURATION_CALLS = 64
"""So many calls are made for the configurations of autotuners that no other call has taken."""
GRADIENT_ELEMENTS = 1 << 12
LONGEST = 1 << 14
"""Up to so large a number of a file gradients are asked past it."""
WIDE_ELEMENTS, WIDE_S = 1 << 14, 30.0
"""The wide pass has at most so many elements as would take so long at the rate of the first one, of
which most is not the kernels' own time, and may always have the former."""
RANDOM_ELEMENTS = 1 << 11
"""Of so many it shows whether they are drawn one by one."""
STAND_IN_ELEMENTS = 1 << 26
"""Where whole copies of the declared inputs have no room, most is asked with so many elements."""
BYTES_AN_ELEMENT = 200
"""What an element of an input takes while whole copies of it, and of an output of its size, are
compared."""
UNLIMITED = 1 << 62
OOM_RETRIES = 4
PATIENCE = 2.0
"""A call that the interpreter did not finish in time gets so many times the limit, once."""
GATES: dict[str, Gate] = {
    "policy": "policy",
    "load": "load",
    "compile": "compile",
    "run": "run",
    "meta": "meta",
    "mismatch": "correctness",
    "inputs": "inputs",
    "execution": "execution",
    "races": "races",
    "timing": "timing",
}


@dataclass
class Findings:
    """What a judgement has gathered so far."""

    sandbox: str = ""
    cases: list[CaseResult] = field(default_factory=list)
    launches: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    repeatable: bool | None = None
    eval_only: bool = False
    gradients: bool | None = None
    kernelbench: bool | None = False


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
        failure = check_policy(source, settings.policy, own_names(loaded))
    if failure is None:
        if settings.device == "cuda":
            prefork_judge_workers(interpreted(settings))
        failure = _judge_alone(loaded, captured, source, settings, findings)
    if failure is None and settings.device == "cuda":
        failure = _look_for_overruns(loaded, captured, source, interpreted(settings), findings)
    if settings.device == "cpu" and _timed_out(failure):
        longer = settings.evolve(time_limit_s=PATIENCE * settings.time_limit_s)
        findings = Findings()
        failure = _judge_alone(loaded, captured, source, longer, findings)
        findings.notes.append(f"judged again with {longer.time_limit_s:g} s a call: slow machine")
        if failure is not None and _timed_out(failure):
            failure = _not_judged(failure, longer.time_limit_s)
    release_cached_memory(settings.device)
    return _verdict(loaded, source, settings, findings, failure, time.monotonic() - started)


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
        forms: list[JSON] = []
        if settings.device == "cpu" and worker.alive and (failure is None or _raised(failure)):
            forms = launched_forms(worker, settings, findings.notes)
        variant_wrong: Failure | None = None
        if settings.device == "cpu" and failure is None:
            # There a worker starts for as long as a small module is judged.
            variant_wrong = _judge_variants(
                loaded, captured, source, settings, findings.notes, worker
            )
    if settings.device == "cpu":
        failure = _judge_compiled(source, forms, settings, findings.notes, failure)
    if failure is None:
        failure = _judge_indices(loaded, captured, source, settings, findings.notes)
    if failure is None and settings.device == "cuda":
        failure = _judge_variants(loaded, captured, source, settings, findings.notes)
    failure = failure or variant_wrong
    if settings.kernelbench and (failure is None or isinstance(failure, Mismatch)):
        findings.kernelbench = _judge_kernelbench(loaded, captured, source, settings, findings)
    return failure


def _raised(failure: Failure) -> bool:
    """Whether the interpreter raised, of its own accord, within a kernel."""
    return isinstance(failure, RunFailed) and "InterpreterError" in failure.log


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


def _judge_kernelbench(
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    settings: JudgeSettings,
    findings: Findings,
) -> bool | None:
    """In a worker that has not gone through the strict rule's cases."""
    judged = judged_graph(captured, settings)
    with open_judge_worker(settings) as worker:
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


def judged_graph(captured: Captured, settings: JudgeSettings) -> Captured:
    """The graph whose free sizes the cases vary: none are free for a candidate that holds for the
    declared ones alone."""
    return specialise(captured) if settings.declared_sizes else captured


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


def _not_judged(failure: Failure, limit_s: float) -> Failure:
    """The same failure, saying that it is not known to be wrong."""
    return _unknown(failure, f"the interpreter gave no answer within {limit_s:g} s a call")


def _unknown(failure: Failure, why: str) -> Failure:
    if isinstance(failure, LoadFailed | RunFailed):
        log = f"could not be judged here: {why}\n{failure.log}"
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
        runner = CaseRunner(worker, loaded, judged, settings, findings.notes)
        failure: Failure | None = runner.build(source)
    if failure is not None:
        return failure
    plan = plan_cases(loaded, judged, settings, runner.fits)
    plan += _at_constants(loaded, judged, source, settings)
    if runner.turns:
        plan = in_turns(plan, runner.fits)
    elif runner.turns is False:
        findings.notes.append("its weights are too large for a second module beside the first")
    plan = in_modes(plan, runner.fits, source_modes(source), settings.seed)
    findings.notes += _routes(runner, plan)
    failure = _judge_cases(runner, plan, judged, settings, findings)
    findings.notes += runner.memory_notes()
    findings.repeatable = runner.repeatable
    if failure is not None:
        return failure
    if not findings.cases:
        return LoadFailed(log=f"No case could be judged: {'; '.join(findings.notes)}")
    with on_device(settings):
        failure = check_execution(
            worker, runner, plan, source, settings, findings.cases, findings.notes
        )
    if failure is None:
        with on_device(settings):
            failure = _judge_training(runner, plan, settings, findings)
    if failure is None:
        with on_device(settings):
            failure = _judge_gradients(runner, plan, source, settings, findings, judged)
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


def _judge_configurations(
    runner: CaseRunner, plan: Sequence[Case], settings: JudgeSettings
) -> Failure | None:
    """Calls until every configuration of an autotuner has run: a GPU may pick any of them."""
    small = _small_case(plan, settings)
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
    small = _small_case(plan, settings)
    found = judge_serving_conditions(runner, dataclasses.replace(small, seed=small.seed + 1))
    if found.refused:
        findings.notes.append("it refuses to be called under torch.inference_mode()")
    return found.failure


def _judge_beside(
    runner: CaseRunner, plan: Sequence[Case], settings: JudgeSettings, captured: Captured
) -> Failure | None:
    """One tensor for two inputs where that may show, and the other methods of the original."""
    small = _small_case(plan, settings)
    wrong = judge_aliased_inputs(runner, small) if captured.mutated_inputs else None
    return wrong or judge_other_methods(runner, small)


def _judge_scalars(
    runner: CaseRunner, plan: Sequence[Case], settings: JudgeSettings, findings: Findings
) -> Failure | None:
    """Other numbers and flags than the declared ones, at the smallest sizes and the largest."""
    fitting = [case.shape for case in plan if case.required and runner.fits(case.shape)]
    small = _small_case(plan, settings)
    large = max(fitting, key=lambda shape: shape.elements, default=small.shape)
    found = judge_other_shapes(runner, None, scalar_cases(small, large))
    if found.refused:
        findings.notes.append(
            f"of {found.tried} other values of scalar arguments it refuses {found.refused}"
        )
    return found.failure


def _small_case(plan: Sequence[Case], settings: JudgeSettings) -> Case:
    """A plain case at the smallest sizes of the plan."""
    shapes = [case.shape for case in plan if case.shape.elements > 1] or [plan[0].shape]
    return Case(min(shapes, key=lambda shape: shape.elements), "normal", settings.seed + 8)


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
        return judge_indices(runner, _small_case(plan, settings), positions)


def _judge_variants(
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    settings: JudgeSettings,
    notes: list[str],
    first: Worker | None = None,
) -> Failure | None:
    """Other modules and calls, and this one at the ends of its sizes. Asked after the forms of
    kernels were noted: a tile of no elements, which does not compile, is a way to refuse."""
    plan = plan_cases(loaded, judged_graph(captured, settings), settings)
    small = _small_case(plan, settings)
    asked: list[Variant] = []
    if small.shape.elements <= VARIED_ELEMENTS:
        asked += constructor_variants(loaded, captured, small, settings.device, settings.seed)
        asked += other_calls(loaded, small, settings.device, settings.seed)
    else:
        notes.append(f"no other module or call was asked: {small.shape.label} is too large for it")
    if not settings.declared_sizes:
        sizes = [case.shape for case in plan if case.required]
        rows = INTERPRETED_ODD_ROWS if settings.device == "cpu" else None
        tree = parse_source(source)
        ends = end_cases(small, sizes, captured, tree, INTERPRETED_ODD_ELEMENTS, rows)
        ends = [in_both_modes(case, source_modes(source)) for case in ends]
        asked += [Variant(loaded, case) for case in ends]
    return judge_variants(asked, captured, source, settings, notes, first)


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
    for case in plan:
        spent = time.monotonic() - started
        if not case.required and spent + slowest > settings.budget_s:
            left_out += 1
            continue
        begin = time.monotonic()
        with on_device(settings):
            outcome = _run_scaled(runner, case, captured, findings.notes)
        slowest = max(slowest, time.monotonic() - begin)
        if isinstance(outcome, NotApplicable):
            findings.notes.append(f"left out: {case.label}: {outcome.reason}")
            continue
        findings.cases.extend(outcome.results)
        findings.notes += [f"needed: {outcome.permitted}"] if outcome.permitted else []
        if case.primary or not findings.launches:
            findings.launches = outcome.launches
        if outcome.failure is not None:
            return outcome.failure
    if left_out:
        findings.notes.append(f"{left_out} optional cases left out: time")
    findings.notes += runner.one_sided()
    return runner.inputs_written()


def _judge_training(
    runner: CaseRunner, plan: Sequence[Case], settings: JudgeSettings, findings: Findings
) -> Failure | None:
    """In training mode too, where that is something else."""
    import torch

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
    return training.failure or runner.inputs_written()


def _judge_gradients(
    runner: CaseRunner,
    plan: Sequence[Case],
    source: str,
    settings: JudgeSettings,
    findings: Findings,
    captured: Captured,
) -> Failure | None:
    """Of a file that declares a backward pass, at the smallest shape of `GRADIENT_ELEMENTS` (the
    declared one may leave no room for what a backward pass keeps) in several ways, at the largest
    one that fits, and past the file's own numbers."""
    required = [case.shape for case in plan if case.required]
    shapes = [case.shape for case in plan if case.shape.elements >= GRADIENT_ELEMENTS]
    small, sure = (min(found, key=lambda x: x.elements) for found in (shapes or required, required))
    for shape in dict.fromkeys((small, sure)):
        began = time.monotonic()
        judged = _differentiated(runner, shape, SMALL[0], source, settings, findings)
        if judged.asked:
            small = shape
            break
    findings.gradients = judged.kept
    rate = shape.elements / max(time.monotonic() - began, 1e-3)
    room = max(WIDE_ELEMENTS, int(rate * WIDE_S))
    wide = _much_wider(runner.loaded, captured, min(INTERPRETED_ODD_ELEMENTS, room))
    wide = wide or max(required, key=lambda x: x.elements)
    wide = wide if runner.differentiates(wide) else sure
    ways = [*((small, way) for way in SMALL[1:]), *((wide, way) for way in WIDE)]
    if judged.kept:
        long = _past_numbers(runner.loaded, captured, source, [small, wide])
        ways += [(long, LONG)] if long is not None and runner.differentiates(long) else []
    for shape, way in ways:
        if judged.failure is not None or not findings.gradients:
            break
        if not (way.training and findings.eval_only):
            judged = _differentiated(runner, shape, way, source, settings, findings)
    return judged.failure


def _past_numbers(
    loaded: LoadedProblem, captured: Captured, source: str, asked: Sequence[CaseShape]
) -> CaseShape | None:
    """A set of which the last free size is past the numbers of the file, which may bound what its
    backward pass does; None where that is asked anyway, or takes too many elements."""
    numbers = large_numbers(parse_source(source), 1, LONGEST)
    first = loaded.problem.shape_sets[0]
    most = INTERPRETED_ODD_ELEMENTS
    return past_tile(first, captured, most, numbers[-1], asked) if numbers else None


def _much_wider(loaded: LoadedProblem, captured: Captured, most: int) -> CaseShape | None:
    """The declared sizes but for one, the last that is free to grow to `most` elements; None where
    none is."""
    first = loaded.problem.shape_sets[0]
    declared = {item.symbol: item.size for item in captured.free_dims}
    more = most // max(1, count_elements(first))
    for name in reversed(declared) if more > 1 else ():
        sizes = declared | {name: more * declared[name]}
        grown = replace_sizes(first, captured.free_dims, sizes)
        if captured.admits(sizes) and count_elements(grown) <= most:
            return CaseShape(grown, "odd", 0)
    return None


def _differentiated(
    runner: CaseRunner,
    shape: CaseShape,
    way: BackwardPass,
    source: str,
    settings: JudgeSettings,
    findings: Findings,
) -> GradientResult:
    case = Case(shape, "normal", settings.seed + 8, gradients=True)
    others = list(with_other_scalars(shape.inputs)) if way.scalars else []
    if others:
        drawn = random.Random(settings.seed).choice(others)
        other = dataclasses.replace(case, shape=dataclasses.replace(shape, inputs=drawn))
        judged = judge_gradients(runner, other, source, way, settings.policy)
        if judged.kept or judged.failure is not None:
            return judged
    judged = judge_gradients(runner, case, source, way._replace(scalars=False), settings.policy)
    findings.notes += [judged.note] if judged.note else []
    return judged


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


def plan_cases(
    loaded: LoadedProblem,
    captured: Captured,
    settings: JudgeSettings,
    fits: Callable[[CaseShape], bool] = lambda shape: True,
) -> list[Case]:
    """The cases of one judgement, in order. `fits` says of a shape whether whole copies in fp64
    have room."""
    interpret = settings.device == "cpu"
    limit = INTERPRETED_ELEMENTS if interpret else UNLIMITED
    declared: list[CaseShape] = [
        scaled(inputs, captured, limit, index)
        for index, inputs in enumerate(loaded.problem.shape_sets)
    ]
    odd = _odd_shapes(loaded, captured, settings)
    if interpret:
        cases = interpreted_cases(declared, odd, settings.seed, settings.seeds)
    else:
        large = None if fits(declared[0]) else LargeShape(_stand_in(declared[0], captured, fits))
        cases = measured_cases(declared, odd, settings.seed, settings.seeds, large)
    if captured.mutated_buffers or captured.side_effect is not None:
        cases.append(state_case(declared[0], odd, settings.seed))
    if zero_sign_matters(captured):
        cases.append(signs_case(declared[0], odd, settings.seed))
    if wide_inputs(captured):
        cases.append(wide_case(declared[0], odd, settings.seed))
    shifted = rule_of(settings.rule).shifted
    return [case for case in cases if shifted or case.distribution != "shifted"]


def _at_constants(
    loaded: LoadedProblem, captured: Captured, source: str, settings: JudgeSettings
) -> list[Case]:
    """Plain calls at sizes that the source itself tells from others, as far as they are small."""
    try:
        sizes = telling_sizes(parse_source(source))
    except SyntaxError:
        return []
    shapes = (
        ()
        if not sizes
        else at_sizes(loaded.problem.shape_sets[0], captured, INTERPRETED_ODD_ELEMENTS, sizes)
    )
    return [Case(shape, "normal", settings.seed + 9) for shape in shapes]


def _stand_in(
    shape: CaseShape, captured: Captured, fits: Callable[[CaseShape], bool]
) -> CaseShape | None:
    """The largest scaled shape of at most STAND_IN_ELEMENTS that fits; None where there is none."""
    limit = min(STAND_IN_ELEMENTS, shape.elements // 2)
    while limit > 1:
        found = scaled(shape.inputs, captured, limit, shape.index)
        if found.origin == "declared":
            return None
        if fits(found):
            return found
        limit //= 4
    return None


def other_shape_cases(
    loaded: LoadedProblem, captured: Captured, settings: JudgeSettings
) -> list[Case]:
    """A plain call at each size that the problem does not name: all sizes others, then one."""
    first = loaded.problem.shape_sets[0]
    limit = _larger(settings) if settings.device == "cuda" else 2 * count_elements(first)
    odd = (*_odd_shapes(loaded, captured, settings), *neighbours(first, captured, limit))
    return [Case(shape, "normal", settings.seed + 5) for shape in dict.fromkeys(odd)]


def _larger(settings: JudgeSettings) -> int:
    """Elements of a set past the declared sizes that whole copies have room for."""
    room = free_memory_on(settings.device, settings.device_bytes)
    return LARGER_ELEMENTS if room is None else min(LARGER_ELEMENTS, room.free // BYTES_AN_ELEMENT)


def _odd_shapes(
    loaded: LoadedProblem, captured: Captured, settings: JudgeSettings
) -> tuple[CaseShape, ...]:
    first = loaded.problem.shape_sets[0]
    if settings.device == "cuda":
        larger = _larger(settings)
        return odd_shapes(first, captured, ODD_ELEMENTS, larger, seed=settings.seed)
    few = min(INTERPRETED_ODD_ELEMENTS, max(ODD_FLOOR, ODD_FACTOR * count_elements(first)))
    return odd_shapes(first, captured, few, few, INTERPRETED_ODD_ROWS, settings.seed)


def _verdict(
    loaded: LoadedProblem,
    source: str,
    settings: JudgeSettings,
    findings: Findings,
    failure: Failure | None,
    seconds: float,
) -> Verdict:
    return Verdict(
        candidate=sha256_text(source),
        problem=loaded.problem.sha256,
        accepted=failure is None,
        interpreted=settings.device == "cpu",
        device=_device_name(settings),
        gate="accepted" if failure is None else GATES[failure.kind],
        failure=failure,
        cases=tuple(findings.cases),
        launches=findings.launches,
        precision=settings.precision,
        rule=rule_of(settings.rule).version,
        policy=settings.policy,
        sandbox=findings.sandbox,
        seconds=round(seconds, 3),
        seed=settings.seed,
        notes=tuple(dict.fromkeys(findings.notes)),
        repeatable=findings.repeatable,
        eval_only=findings.eval_only,
        gradients=findings.gradients,
        declared_sizes=settings.declared_sizes,
        kernelbench=_kernelbench(settings, findings, failure),
    )


def _kernelbench(
    settings: JudgeSettings, findings: Findings, failure: Failure | None
) -> bool | None:
    """What was found; False for a candidate refused for anything but its numbers."""
    if not settings.kernelbench:
        return None
    numbers = failure is None or isinstance(failure, Mismatch)
    return findings.kernelbench if numbers else False


def _device_name(settings: JudgeSettings) -> str:
    if settings.device == "cpu":
        return "triton interpreter"
    import torch

    return torch.cuda.get_device_name()


__all__ = ["JudgeSettings", "judge", "plan_cases"]
