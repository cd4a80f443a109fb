"""Worker process that drafts kernels for modules, breaks some, and has all of them judged.

Kernels run in the judge's sandbox alone; a module runs here, after its text was vetted.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from agentkernel.agents.compiler_coder import MOST_VARIANTS, variants
from agentkernel.compiler.drop_in.envelope import assume_limits, eval_only
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.partitions import partitions, split_rival, structure
from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.errors import AgentKernelError, one_line
from agentkernel.domain.profile import CompileReport, Profile
from agentkernel.knowledge.graph_structure import structure_of_graph
from agentkernel.knowledge.kernelbook import PERMISSIVE
from agentkernel.runtime.worker import serve
from agentkernel.tools.compile.candidate import compile_candidate
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.profiler import ProfileSettings, profile
from agentkernel.tools.roofline.model import analyse, estimate
from agentkernel.tools.targets import find_target
from agentkernel.training.data.conversations import (
    graph_facts,
    module_facts,
    profile_facts,
    roofline_facts,
)
from agentkernel.training.data.generator import GeneratedProblem, broken_variants, trimmed_kernel
from agentkernel.training.data.rows import module_refusal
from agentkernel.training.judged_problems import Verification
from agentkernel.training.settings import HALVED, Bound, JudgedKernel
from agentkernel.training.worker_pool import is_undecided

if TYPE_CHECKING:
    from agentkernel.agents.compiler_coder import Variant
    from agentkernel.compiler.pipeline import Compiled
    from agentkernel.domain.plan import Analysis
    from agentkernel.domain.target import Target
    from agentkernel.domain.verdict import Verdict
    from agentkernel.tools.problem.capture import Captured
    from agentkernel.tools.problem.loading import LoadedProblem

Kind = Literal["write", "schedule", "broken"]
Stage = Literal["read", "load", "draft", "length", "judge", "break"]
POLICY: Literal["triton"] = "triton"
FILE = "problem.py"
"""What every problem's file is called: nothing of it shows in a kernel."""
MODES = ("ropout", "training", "BatchNorm", "InstanceNorm", "batch_norm", "instance_norm")
"""Without one of these words a module computes the same in training mode."""


class PairSettings(Frozen):
    """What is made of a problem, and how it is judged.

    `verification` are the judge's settings past what it always asks: of a right kernel's judgement,
    no case is left out that the judge requires.
    """

    kinds: tuple[Kind, ...] = ("write", "schedule", "broken")
    target: str = "h100"
    verification: Verification = Verification(time_limit_s=20.0, budget_s=0.0, seeds=1)
    interpreted_call_s: float = 1.0
    """Of a call in the interpreter, where it takes 20 ms: one kernel in fifty has a grid that takes
    minutes there, and these would take half of all the time."""
    schedules: int = Field(default=1, ge=0)
    """Further right kernels of a problem: one cut in two, where times are taken, then others of
    other forms and tiles."""
    broken: int = Field(default=1, ge=0)
    """Kernels with one mistake that the judge refuses."""
    broken_tries: int = Field(default=3, ge=1)
    """So many mistakes are tried, at most, for each that is refused."""
    trim: bool = True
    """Leave out what only says for which inputs a kernel was verified; see `trimming`."""
    problem_characters: int = 2_000
    kernel_characters: int = 4_096
    measure: bool = False
    """On a GPU: time each right kernel and eager. It takes seconds a kernel."""
    estimate: bool = False
    """Without a GPU: cross-compile each right kernel and estimate its time."""
    keep_cases: bool = False
    """Keep every judged call in the verdicts; else of a refused kernel the last one alone."""


class PairRequest(Frozen):
    """A problem to be worked on."""

    problem: GeneratedProblem


class Missed(Frozen):
    """What of a problem came to nothing, at which stage, and why."""

    problem_sha256: str
    name: str
    stage: Stage
    reason: str


class ProblemResult(Frozen):
    """What became of a problem. `cpu_s`: seconds of this process's processor a stage; the sandbox's
    are its own."""

    rows: tuple[JudgedKernel, ...] = ()
    missed: tuple[Missed, ...] = ()
    cpu_s: dict[str, float] = Field(default_factory=dict)


@dataclass
class PairJob:
    """One problem at work."""

    problem: GeneratedProblem
    settings: PairSettings
    folder: Path
    rows: list[JudgedKernel] = field(default_factory=list)
    missed: list[Missed] = field(default_factory=list)
    cpu_s: dict[str, float] = field(default_factory=dict)

    def miss(self, stage: Stage, reason: str) -> None:
        """Note what came to nothing."""
        self.missed.append(
            Missed(
                problem_sha256=self.problem.sha256,
                name=self.problem.name,
                stage=stage,
                reason=one_line(reason, 200),
            )
        )

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count this process's processor time towards `stage`."""
        begun_s = time.process_time()
        try:
            yield
        finally:
            self.cpu_s[stage] = self.cpu_s.get(stage, 0.0) + time.process_time() - begun_s


def work_on(problem: GeneratedProblem, settings: PairSettings, folder: Path) -> ProblemResult:
    """Draft, break and judge kernels for `problem`, whose file is written to `folder`.

    A text that is not plainly a module of torch operators, or under another licence than the
    permissive ones, is never run.
    """
    bench = PairJob(problem, settings, folder)
    against = module_refusal(problem.text, problem.licence, PERMISSIVE)
    if against is None and len(problem.text) > settings.problem_characters:
        against = f"{len(problem.text)} characters are more than {settings.problem_characters}"
    if against is not None:
        bench.miss("read", against)
    else:
        try:
            _work(bench)
        except AgentKernelError as error:
            bench.miss("load", one_line(error))
    return ProblemResult(rows=tuple(bench.rows), missed=tuple(bench.missed), cpu_s=bench.cpu_s)


def _work(bench: PairJob) -> None:
    path = bench.folder / FILE
    path.write_text(bench.problem.text, encoding="utf-8")
    with bench.timed("load"):
        loaded = load_problem(str(path))
    try:
        with bench.timed("capture"):
            captured = capture(loaded)
            analysis = analyse(captured, find_target(bench.settings.target).target)
        try:
            with bench.timed("draft"):
                variants = _variants(loaded, captured, bench.settings)
        except UnsupportedOp as error:
            bench.miss("draft", str(error))
            return
        _judge_all(bench, loaded, captured, analysis, variants)
    finally:
        if loaded.namespace is not None:
            sys.modules.pop(loaded.namespace.__name__, None)


def _variants(
    loaded: LoadedProblem, captured: Captured, settings: PairSettings
) -> list[tuple[str, Variant]]:
    """Strategy and drop-in: the first schedule, one cut in two where times are taken, then other
    schedules, of other forms first."""
    target = find_target(settings.target).target
    if settings.trim:
        text = loaded.problem.source
        differs = any(word in text for word in MODES) and eval_only(loaded, captured)
        assume_limits(captured, eval_only=differs)
    compiled = partitions(loaded, captured, POLICY)[0]
    more = "schedule" in settings.kinds and settings.schedules > 0
    wanted = MOST_VARIANTS if more else 1
    # The last of a few schedules differs most from the first, and more cost a tenth of a second.
    found = list(islice(variants(compiled, lambda _: None, target, wanted), min(wanted, 4)))
    first, others = found[0], found[:0:-1]
    others.sort(key=lambda item: item.forms == first.forms)
    timed = settings.measure or settings.estimate
    slow = _halved(compiled, target) if more and timed else ()
    own = structure(compiled)
    return [(own, first), *((HALVED, item) for item in slow), *((own, item) for item in others)]


def _halved(best: Compiled, target: Target) -> Iterator[Variant]:
    """The drop-in that keeps a value in memory for nothing, where the graph can be cut so: what
    people write before they fuse, and far slower than other tiles are."""
    with suppress(UnsupportedOp):
        found = split_rival(best, POLICY)
        if found is not None and len(found.partition.steps) > len(best.partition.steps):
            yield from islice(variants(found, lambda _: None, target, 1), 1)


def _judge_all(
    bench: PairJob,
    loaded: LoadedProblem,
    captured: Captured,
    analysis: Analysis,
    variants: list[tuple[str, Variant]],
) -> None:
    settings = bench.settings
    told: dict[str, object] = {
        "bound": _bound(analysis),
        "structure": " ".join(structure_of_graph(captured).ops),
        "target": settings.target,
    }
    judge = _Judge(bench, loaded, captured, analysis, told)
    right: list[str] = []
    wanted = 1 + (settings.schedules if "schedule" in settings.kinds else 0)
    for strategy, variant in variants:
        text = trimmed_kernel(variant.source.text) if settings.trim else variant.source.text
        if len(right) == wanted or text in right:
            continue
        if len(text) > settings.kernel_characters:
            if right:
                continue
            bench.miss("length", f"{len(text)} characters are more than a row may have")
            break
        how = "cut in two" if strategy == HALVED else f"other tiles: {variant.label}"
        parent, change = (right[0], how) if right else (None, "")
        if judge.expects_right(text, strategy, parent, change):
            right.append(text)
        elif strategy != HALVED:
            break
    if right and "broken" in settings.kinds and settings.broken:
        _judge_broken(bench, judge, right[0], variants[0][0])


def _judge_broken(bench: PairJob, judge: _Judge, right: str, strategy: str) -> None:
    left = bench.settings.broken
    seed = int(bench.problem.sha256[:12], 16)
    for place, broken in enumerate(broken_variants(right, seed)):
        if not left or place == bench.settings.broken * bench.settings.broken_tries:
            break
        if len(broken.text) <= bench.settings.kernel_characters:
            left -= judge.expects_wrong(broken.text, strategy, right, broken.change)


class _Judge:
    """Asks for verdicts on kernels of one problem, and keeps the rows."""

    def __init__(
        self,
        bench: PairJob,
        loaded: LoadedProblem,
        captured: Captured,
        analysis: Analysis,
        told: dict[str, object],
    ) -> None:
        self._bench = bench
        self._loaded = loaded
        self._captured = captured
        self._analysis = analysis
        self._told = told
        graph = graph_facts(captured)
        self._facts = module_facts(loaded.problem) | graph | roofline_facts(analysis)

    def expects_right(self, text: str, strategy: str, parent: str | None, change: str) -> bool:
        """Keep `text` where it is accepted; where not, it was the coder's mistake: no row."""
        verdict = self._ask(text)
        if not verdict.accepted:
            self._bench.miss("judge", f"{verdict.gate}: {verdict.failure}")
            return False
        self._keep(text, verdict, strategy, parent, change)
        return True

    def expects_wrong(self, text: str, strategy: str, parent: str, change: str) -> bool:
        """Keep `text` where it is refused for what it computes, and not for want of time."""
        verdict = self._ask(text)
        if verdict.failure is None:
            self._bench.miss("break", f"accepted: {change}")
            return False
        if is_undecided(verdict.failure):
            self._bench.miss("break", f"undecided: {change}")
            return False
        self._keep(text, verdict, strategy, parent, change)
        return True

    def _ask(self, text: str) -> Verdict:
        settings = self._bench.settings
        chosen = settings.verification.model_dump(exclude={"most_elements", "policy"})
        if settings.verification.device == "cpu":
            chosen["time_limit_s"] = min(chosen["time_limit_s"], settings.interpreted_call_s)
        with self._bench.timed("judge"):
            return judge(self._loaded, self._captured, text, JudgeSettings(policy=POLICY, **chosen))

    def _keep(
        self, text: str, verdict: Verdict, strategy: str, parent: str | None, change: str
    ) -> None:
        settings, problem = self._bench.settings, self._bench.problem
        cases = verdict.cases[-1:] if verdict.failure is not None else ()
        kept = verdict if settings.keep_cases else verdict.evolve(cases=cases)
        accepted = "interpreter" if verdict.interpreted else "gpu"
        times: dict[str, object] = {}
        if verdict.accepted:
            if settings.measure and not verdict.interpreted:
                times = self._times(text)
            elif settings.estimate:
                times = self._estimate(text)
        speed = times.pop("facts", {})
        row = {
            "problem": problem.text,
            "kernel": text,
            "coder": "compiler",
            "source": problem.source,
            "licence": problem.licence,
            "label": accepted if verdict.accepted else "refused",
            "policy": POLICY,
            "strategy": strategy,
            "parent": None if parent is None else sha256_text(parent),
            "change": change,
            "verdict": kept,
            "facts": self._facts | (speed if isinstance(speed, dict) else {}),
        }
        self._bench.rows.append(JudgedKernel.model_validate(row | self._told | times))

    def _times(self, text: str) -> dict[str, object]:
        """What the profiler measured; nothing where it could not."""
        chosen = ProfileSettings(compare_compile=False, extras=False)
        resolved = find_target(self._bench.settings.target)
        found = profile(self._loaded, self._captured, text, resolved, chosen)
        if not isinstance(found, Profile) or not found.measurements:
            return {}
        first = found.measurements[0]
        return {
            "time_us": first.candidate.median_us,
            "eager_us": first.eager.median_us,
            "gpu": found.measured_on,
            "facts": profile_facts(found, self._analysis, resolved.target),
        }

    def _estimate(self, text: str) -> dict[str, object]:
        """The estimated time; nothing where `text` does not compile for the target."""
        target = find_target(self._bench.settings.target).target
        with self._bench.timed("estimate"):
            report = compile_candidate(self._loaded, text, target)
        if not isinstance(report, CompileReport) or not all(item.fits for item in report.kernels):
            return {}
        found = estimate(report, self._analysis, target)
        profile = Profile(
            candidate=sha256_text(text), target=target.name, report=report, estimate=found
        )
        return {
            "estimated_us": round(found.time_us, 3),
            "facts": profile_facts(profile, self._analysis, target),
        }


def _bound(analysis: Analysis) -> Bound:
    """What the module waits for; of small ones, where launches decide, what it would wait for."""
    if analysis.roofline == "latency":
        return "memory" if analysis.memory_time_us >= analysis.compute_time_us else "compute"
    return analysis.roofline


def make(line: Connection, settings: str) -> None:
    """Serve under `settings`, a PairSettings in JSON."""
    chosen, frozen = PairSettings.model_validate_json(settings), False

    def answer(request: PairRequest) -> ProblemResult:
        nonlocal frozen
        worked = work_on(request.problem, chosen, Path(folder))
        if not frozen:
            # What the first problem has imported is there to stay: collecting garbage, which each
            # capture sets off many times, need not go through it again.
            gc.collect()
            gc.freeze()
        frozen = True
        return worked

    with tempfile.TemporaryDirectory(prefix="agentkernel-pairs-") as folder:
        serve(line, PairRequest, answer)
