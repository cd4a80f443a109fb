"""Agents and tools of a run on this machine, and the content keys of finished work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from agentkernel.agents.coder_factory import FileCoder, FilePlanner, make_coder
from agentkernel.agents.compiler_coder import CompilerCoder
from agentkernel.agents.debugger import ModelDebugger, RulesDebugger, fixes_from, no_known_fixes
from agentkernel.agents.instruments import Instruments, InstrumentSettings, local_instruments
from agentkernel.agents.model_coder import ModelCoder
from agentkernel.agents.models.provider import ModelProvider
from agentkernel.agents.planner import (
    MODEL_IDEAS,
    Hypotheses,
    ModelPlanner,
    RulesPlanner,
    TurnPlanner,
)
from agentkernel.agents.protocols import Coder, Debugger, DraftRequest, Planner, Retriever, Searcher
from agentkernel.agents.retriever import (
    KnowledgeRetriever,
    RecordedRetriever,
    apply_hints,
)
from agentkernel.agents.segment_coder import JudgeSegment
from agentkernel.agents.strategies import hypotheses as compiler_hypotheses
from agentkernel.agents.strategies import prefetch_inductor
from agentkernel.agents.team import TeamCoder, TeamPlanner
from agentkernel.compiler.lift.inductor_process import InductorWriter
from agentkernel.compiler.partitions import coverage
from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.candidate import Candidate, TrialResult
from agentkernel.domain.certificate import ModuleGraph, Versions
from agentkernel.domain.errors import KnowledgeError, OutputError, ProblemError, one_line
from agentkernel.domain.knowledge import Structure
from agentkernel.domain.plan import Analysis, Hypothesis
from agentkernel.domain.profile import ProfileFailed
from agentkernel.domain.settings import Settings
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import Policy, Precision, Verdict
from agentkernel.knowledge.base import KnowledgeBase, open_base
from agentkernel.knowledge.documents import family_of
from agentkernel.knowledge.graph_structure import structure_of_graph
from agentkernel.knowledge.store import folder_of
from agentkernel.remote.address import parse_address
from agentkernel.remote.instruments import RemoteInstruments, resolve_target
from agentkernel.remote.line import RemoteLine, Tell
from agentkernel.runtime import gpu_lock
from agentkernel.runtime.stages import stage
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.reference.rehearsal import capture_checked
from agentkernel.tools.judge.settings import (
    JudgeSettings,
    fresh_seed,
    judge_sha256,
    keyed_seed,
)
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.problem.module_graph import problem_graph
from agentkernel.tools.profiler import ProfileSettings
from agentkernel.tools.roofline.model import analyse
from agentkernel.tools.search.space import Forms, Space
from agentkernel.tools.search.store import ScheduleStore, open_schedule_store
from agentkernel.tools.targets import ResolvedTarget, find_target, versions_of
from agentkernel.workflows.deps import Agents, Deps, ExperienceStore, Tools
from agentkernel.workflows.outcome import Baselines, side_effect_note

if TYPE_CHECKING:
    from collections.abc import Callable


class JudgeScope(Frozen):
    """All that a judgement depends on beside the candidate."""

    problem: str
    precision: Precision
    policy: Policy
    device: str
    seed: int | None
    """None: a fresh one for each judgement, which the verdict names."""
    seeds: int
    budget_s: float
    kernelbench: bool = False
    judge_sha256: str
    versions: Versions
    declared_sizes: bool = False


class ProfileScope(Frozen):
    """All that a profile depends on beside the candidate."""

    problem: str
    target: str
    device: str
    seed: int
    max_autotune: bool = False
    versions: Versions


def work_key(scope: Frozen, candidate: Candidate) -> str:
    """Key of a judgement or a profile of `candidate`."""
    return sha256_text(f"{scope.model_dump_json()}\n{candidate.sha256}")


def draft_key(scope: str, request: DraftRequest) -> str:
    """Key of a draft; `scope` names the problem, the coder and the versions."""
    history = [
        f"{item.candidate.sha256}:{item.verdict.gate if item.verdict else ''}"
        for item in request.history
    ]
    parts = (
        scope,
        request.target.name,
        request.goals.model_dump_json(),
        request.hypothesis.strategy + request.hypothesis.because,
        "".join(item.model_dump_json() for item in request.plan.decisions),
        *history,
        request.diagnosis.model_dump_json() if request.diagnosis else "",
        str(request.round),
    )
    return sha256_text("\n".join(parts))


class LocalRunFactory:
    """What this machine has: its GPU where there is one, else interpreter and cross-compiler."""

    def resolve(self, settings: Settings) -> ResolvedTarget:
        """The target in force. Raises UnknownTarget."""
        return find_target(settings.target)

    def judge_sha256(self) -> str:
        """Fingerprint of the judge's own files."""
        return judge_sha256()

    @contextmanager
    def equip(
        self,
        loaded: LoadedProblem,
        settings: Settings,
        resolved: ResolvedTarget,
        desk: ModelProvider,
    ) -> Iterator[Deps]:
        """Agents and tools for one problem; the module is captured once, on first use."""

        @cache
        def captured() -> Captured:
            with stage("capture"):
                return capture_checked(loaded)

        warnings: list[str] = []
        with (
            self.instruments(loaded, captured, settings, resolved) as instruments,
            InductorWriter(resolved.target, left_s=desk.left_s) as writer,
        ):
            with stage("start"):
                instruments.begin()
            with stage("knowledge"):  # meanwhile workers import and baselines compile
                known = open_knowledge(settings, warnings.append)
            store = open_schedules(resolved, desk.note)
            with (
                nullcontext() if known is None else known,
                nullcontext() if store is None else store,
            ):
                searcher = StagedSearcher(instruments.searcher)
                judge_segment = segment_judge(settings, resolved, desk.judge_key)
                coder = make_coder(
                    settings.coder, searcher, writer, desk, settings, store, judge_segment
                )
                bench = Bench(loaded, resolved, captured, instruments)
                made = _tools(settings, coder, bench, known, desk.judge_key)
                tools = replace(made, warnings=tuple(warnings))
                yield Deps(make_agents(settings, resolved, coder, captured, desk, known), tools)

    def instruments(
        self,
        loaded: LoadedProblem,
        captured: Callable[[], Captured],
        settings: Settings,
        resolved: ResolvedTarget,
    ) -> AbstractContextManager[Instruments]:
        """What judges, times and searches, put away with the block."""
        chosen = instrument_settings(settings, resolved)
        return local_instruments(loaded, captured, resolved, chosen)


class RemoteRunFactory(LocalRunFactory):
    """What another machine has: it judges, measures and searches, this one does the rest."""

    def __init__(self, line: RemoteLine) -> None:
        self._line = line

    def resolve(self, settings: Settings) -> ResolvedTarget:
        """The target in force, for that machine. Raises UnknownTarget, RemoteUnavailable."""
        return resolve_target(self._line, settings.target)

    def instruments(
        self,
        loaded: LoadedProblem,
        captured: Callable[[], Captured],
        settings: Settings,
        resolved: ResolvedTarget,
    ) -> AbstractContextManager[Instruments]:
        """Those of the other machine."""
        chosen = instrument_settings(settings, resolved)
        made = RemoteInstruments(self._line, loaded, settings.target, resolved, chosen)
        return nullcontext(made)


@contextmanager
def factory_of(settings: Settings, tell: Tell) -> Iterator[LocalRunFactory]:
    """The factory for this machine, or the one that the settings name; `tell` takes what that one
    does now. Raises SettingError, RemoteUnavailable."""
    if settings.remote is None:
        yield LocalRunFactory()
        return
    with stage("connect"):
        line = RemoteLine(parse_address(settings.remote), tell)
    with line:
        yield RemoteRunFactory(line)


def open_knowledge(settings: Settings, say: Callable[[str], None]) -> KnowledgeBase | None:
    """The knowledge base, brought up to date; None where none is wanted. What was fixed is a line,
    and so is one that cannot be kept: the run goes on without it."""
    known = settings.knowledge
    if known.limit == 0:
        return None
    where = folder_of(known.index)
    try:
        base = open_base(where, known.embedder, say=say)
        try:
            base.refresh()
        except BaseException:
            base.truth.close()
            raise
    except (OutputError, KnowledgeError) as error:
        say(f"nothing is retrieved: {one_line(error, 200)}")
        return None
    return base


def open_schedules(resolved: ResolvedTarget, say: Callable[[str], None]) -> ScheduleStore | None:
    """The measured schedules of the GPU at hand; None where it cannot stand for the target."""
    if resolved.local is None or not resolved.measurable:
        return None
    return open_schedule_store(resolved.local.name, versions_of(resolved), say)


@dataclass(frozen=True)
class StagedSearcher:
    """A searcher whose work counts for the stage "search"."""

    searcher: Searcher

    def rank(
        self,
        problem: LoadedProblem,
        sources: Sequence[str],
        labels: Sequence[str],
        schedules: Sequence[dict[str, dict[str, int]]],
        target: Target,
        forms: Forms | None = None,
    ) -> tuple[TrialResult, ...]:
        """What the searcher says."""
        with stage("search"):
            return self.searcher.rank(problem, sources, labels, schedules, target, forms)

    @property
    def most_sampled(self) -> int:
        """As the searcher has it."""
        return self.searcher.most_sampled

    def tune(self, spaces: Sequence[Space], target: Target) -> tuple[tuple[TrialResult, ...], ...]:
        """What the searcher says of the parts."""
        with stage("search"):
            return self.searcher.tune(spaces, target)


def make_agents(
    settings: Settings,
    resolved: ResolvedTarget,
    coder: Coder,
    captured: Callable[[], Captured],
    desk: ModelProvider,
    known: KnowledgeBase | None = None,
) -> Agents:
    """The agents that the settings name."""
    compiler = coder.compiler if isinstance(coder, TeamCoder) else coder

    def hypotheses(problem: LoadedProblem, target: Target) -> tuple[Hypothesis, ...]:
        if not isinstance(compiler, CompilerCoder):
            return MODEL_IDEAS
        offered = compiler_hypotheses(
            problem, captured(), measurable=resolved.measurable,
            lifting=compiler.writer is not None and target.vendor == "nvidia",
        )  # fmt: skip
        prefetch_inductor(compiler, problem, captured(), offered)
        return offered

    retriever: Retriever = RecordedRetriever()
    fixes = no_known_fixes if known is None else fixes_from(known)
    if known is not None:
        options = settings.knowledge
        retriever = KnowledgeRetriever(
            known, lambda found: structure_of(captured, found), options.limit, options.experience
        )
    recorded = desk.replay.retrieved() if desk.replay is not None else None
    if recorded is not None:
        retriever = RecordedRetriever(recorded)
    debugger: Debugger = RulesDebugger(fixes)
    chosen = settings.models
    planner = _planner(settings, coder, hypotheses, desk)
    if chosen.debugger is not None:
        debugger = ModelDebugger(
            desk.model(chosen.debugger),
            debugger,
            desk.sampling(chosen.debugger),
            desk.tell,
            fixes,
        )
    return Agents(planner, retriever, coder, debugger)


def structure_of(captured: Callable[[], Captured], analysis: Analysis) -> Structure:
    """What the problem computes, with the class of its roofline."""
    return structure_of_graph(captured(), analysis.roofline)


def _planner(
    settings: Settings, coder: Coder, hypotheses: Hypotheses, desk: ModelProvider
) -> Planner:
    """Rules, or the model that the settings name; a given file leaves nothing to plan.

    In a team the compiler's strategies are the rules', and the model says what the members are to
    try.
    """
    if isinstance(coder, FileCoder):
        return FilePlanner(coder)
    named = settings.models.planner
    if not isinstance(coder, TeamCoder):
        rules = RulesPlanner(hypotheses)
        free = not isinstance(coder, CompilerCoder)
        ideas = _agent_or_rules(named, rules, desk, free=free) if named else rules
        return TurnPlanner(ideas) if isinstance(coder, ModelCoder) else ideas
    ideas = RulesPlanner(lambda problem, target: MODEL_IDEAS)
    return TeamPlanner(
        RulesPlanner(hypotheses, most=settings.budget.rounds),
        coder,
        settings.budget.rounds,
        from_scratch=settings.team.from_scratch,
        beam=settings.team.beam,
        reviews=coder.reviews,
        ideas=_agent_or_rules(named, ideas, desk, free=True) if named else None,
    )


def _agent_or_rules(named: str, rules: Planner, desk: ModelProvider, *, free: bool) -> ModelPlanner:
    return ModelPlanner(desk.model(named), rules, desk.sampling(named), free, desk.tell)


@dataclass(frozen=True)
class Bench:
    """A problem with what it is worked on with. `captured` traces the module on first use."""

    loaded: LoadedProblem
    resolved: ResolvedTarget
    captured: Callable[[], Captured]
    instruments: Instruments


def _tools(
    settings: Settings,
    coder: Coder,
    bench: Bench,
    known: KnowledgeBase | None,
    judge_key: str | None,
) -> Tools:
    loaded, resolved, captured = bench.loaded, bench.resolved, bench.captured
    instruments = bench.instruments
    judging = judge_settings(settings, resolved)
    versions = versions_of(resolved)
    judge_scope = _judge_scope(loaded, settings, judging, versions)
    profile_scope = ProfileScope(
        problem=loaded.problem.sha256,
        target=resolved.target.name,
        device=resolved.local.name if resolved.local and resolved.measurable else "none",
        seed=settings.seed,
        max_autotune=settings.profile.max_autotune,
        versions=versions,
    )
    draft_scope = sha256_text(f"{judge_scope.model_dump_json()}{coder.name}{settings.seed}")

    def scope_of(candidate: Candidate) -> JudgeScope:
        return judge_scope.evolve(declared_sizes=candidate.declared_sizes)

    @cache
    def run_analysis() -> Analysis:
        facts = analyse(captured(), resolved.target, settings.goals.precision)
        covered = coverage(loaded, captured())
        return facts.evolve(patterns=covered.patterns, uncovered=covered.uncovered)

    def run_judge(candidate: Candidate) -> Verdict:
        verdict = instruments.judge(candidate, _judging(settings, resolved, judge_key, candidate))
        effect = captured().side_effect
        if effect is None:
            return verdict
        return verdict.evolve(notes=(*verdict.notes, side_effect_note(effect)))

    def run_graph() -> ModuleGraph | None:
        try:
            return problem_graph(loaded, captured())
        except ProblemError:
            return None

    return Tools(
        analyse=run_analysis,
        judge=run_judge,
        profile=instruments.profile,
        baselines=lambda: _baselines(instruments),
        quick_baseline_us=lambda: _quick_baseline_us(instruments),
        baselines_ready=instruments.ready,
        apply_hints=apply_hints,
        judge_key=lambda candidate: work_key(scope_of(candidate), candidate),
        profile_key=lambda candidate: work_key(profile_scope, candidate),
        draft_key=lambda request: draft_key(draft_scope, request),
        graph=run_graph,
        memory=_memory(settings, resolved, known, lambda: structure_of(captured, run_analysis())),
    )


def _memory(
    settings: Settings,
    resolved: ResolvedTarget,
    known: KnowledgeBase | None,
    structure: Callable[[], Structure],
) -> ExperienceStore | None:
    """Where experience goes; None where none is kept. A target without a family has none: it would
    be found for every other."""
    family = family_of(resolved.target.arch)
    if known is None or family is None or not settings.knowledge.experience:
        return None
    if settings.models.replay is not None:
        return None  # what it finds is the other run's
    return ExperienceStore(family, structure, known.remember)


def instrument_settings(settings: Settings, resolved: ResolvedTarget) -> InstrumentSettings:
    """How the instruments of a run are set."""
    return InstrumentSettings(
        judging=judge_settings(settings, resolved),
        profiling=profile_settings(settings),
        seed=settings.seed,
    )


def judge_settings(settings: Settings, resolved: ResolvedTarget) -> JudgeSettings:
    """How the judge is set for one judgement: on the GPU where it can stand for the target, else
    interpreted."""
    return JudgeSettings(
        precision=settings.goals.precision,
        policy=settings.policy,
        device="cuda" if resolved.measurable else "cpu",
        seed=fresh_seed() if settings.judge.seed is None else settings.judge.seed,
        seeds=settings.judge.seeds,
        time_limit_s=settings.judge.time_limit_s,
        budget_s=settings.judge.budget_s,
        allow_unsandboxed=settings.judge.allow_unsandboxed,
        kernelbench=settings.judge.kernelbench,
    )


def _judging(
    settings: Settings, resolved: ResolvedTarget, judge_key: str | None, candidate: Candidate
) -> JudgeSettings:
    """How the judge is set for `candidate`."""
    asked = judge_settings(settings, resolved)
    asked = asked.evolve(declared_sizes=candidate.declared_sizes)
    if settings.judge.seed is None and judge_key is not None:
        return asked.evolve(seed=keyed_seed(judge_key, candidate.sha256))
    return asked


def segment_judge(
    settings: Settings, resolved: ResolvedTarget, judge_key: str | None
) -> JudgeSegment:
    """The judge of what a model writes of a module: here, interpreted where the whole is judged on
    another machine."""

    def judge_one(loaded: LoadedProblem, captured: Captured, candidate: Candidate) -> Verdict:
        asked = _judging(settings, resolved, judge_key, candidate).evolve(policy="triton")
        here = asked if settings.remote is None else asked.evolve(device="cpu")
        with stage("judge"):
            return judge(loaded, captured, candidate.source, here)

    return judge_one


def profile_settings(settings: Settings) -> ProfileSettings:
    """How a profile is taken. Where others wait for the GPU, without what decides nothing."""
    return ProfileSettings(
        seed=settings.seed,
        precision=settings.goals.precision,
        max_autotune=settings.profile.max_autotune,
        autotune_limit_s=settings.profile.autotune_limit_s,
        records=not gpu_lock.has_other_users(),
        allow_unsandboxed=settings.judge.allow_unsandboxed,
    )


def _judge_scope(
    loaded: LoadedProblem, settings: Settings, judging: JudgeSettings, versions: Versions
) -> JudgeScope:
    return JudgeScope(
        problem=loaded.problem.sha256,
        precision=judging.precision,
        policy=judging.policy,
        device=judging.device,
        seed=settings.judge.seed,
        seeds=judging.seeds,
        budget_s=judging.budget_s,
        kernelbench=judging.kernelbench,
        judge_sha256=judge_sha256(),
        versions=versions,
    )


def _quick_baseline_us(instruments: Instruments) -> float | None:
    found = instruments.quick_times()
    if found is None:
        return None
    return found.eager_us if found.compiled_us is None else min(found.eager_us, found.compiled_us)


def _baselines(instruments: Instruments) -> Baselines | ProfileFailed | None:
    """The baselines on the primary shapes, None where nothing can be measured. What is handed back
    hangs on them, so that they get a second chance."""
    if not instruments.measures:
        return None
    found = instruments.baselines()
    if isinstance(found, ProfileFailed):
        found = instruments.baselines()
    if isinstance(found, ProfileFailed):
        return found
    compiled, autotuned = found.compiled, found.autotuned
    return Baselines(
        eager_us=found.eager.median_us,
        compiled_us=compiled.median_us if compiled is not None else None,
        autotuned_us=autotuned.median_us if autotuned is not None else None,
        autotune_error=found.autotune_error,
        baselines_matmul=found.matmul_precision,
    )
