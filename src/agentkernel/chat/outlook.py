"""What can be said of a module for a target before anything was drafted, worked out only once?"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from agentkernel.domain.plan import Analysis, Hypothesis, Plan
from agentkernel.domain.profile import Estimate
from agentkernel.domain.settings import FILE_PREFIX, Settings

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.agents.protocols import Goals
    from agentkernel.domain.rules import Precision
    from agentkernel.domain.target import Target
    from agentkernel.tools.problem.capture import Captured
    from agentkernel.tools.problem.problems import LoadedProblem
    from agentkernel.tools.targets import ResolvedTarget

Key = TypeVar("Key")
Value = TypeVar("Value")
COMPILER = "compiler"
MOST_CACHED = 16
"""Graphs, figures and plans of each kind: whoever walks through sizes needs the last few."""
NOTE = (
    "Planned by rule, nothing was run yet. A run also asks what is known of such modules, and a "
    "model where one plans: both may change the order."
)


class ModuleEstimate(NamedTuple):
    """The roofline of a module, and its time in eager PyTorch; both estimated."""

    analysis: Analysis
    eager: Estimate


class GraphKey(NamedTuple):
    """All that a graph hangs on: source, arguments, shapes and dtypes (`sha256`), and the very
    class, which stands for whatever else its file imported when it was loaded."""

    sha256: str
    module_class: type[nn.Module]


class EstimateKey(NamedTuple):
    """`target`: the whole of it as JSON, since one name may mean two descriptions."""

    graph: GraphKey
    target: str
    precision: Precision


class PlanKey(NamedTuple):
    """What the rules' plan hangs on beside the figures. `most`: ideas in it."""

    figures: EstimateKey
    goals: str
    coder: str
    most: int
    measurable: bool


@dataclass
class EstimateCache:
    """Graph, figures and first plan of modules, each kept under all that it hangs on.

    A live module is looked at anew each time: its owner may change it between two questions.
    Several threads may ask; one works at a time, and a failure is not kept.
    """

    _graphs: dict[GraphKey, Captured] = field(default_factory=dict)
    _figures: dict[EstimateKey, ModuleEstimate] = field(default_factory=dict)
    _plans: dict[PlanKey, Plan] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def figures(
        self, loaded: LoadedProblem, target: Target, precision: Precision
    ) -> ModuleEstimate:
        """What bounds the module on `target`. Raises ProblemError."""
        with self._lock:
            key = estimate_key(loaded, target, precision)
            return cached_value(
                self._figures, key, loaded, lambda: self._look(loaded, target, precision)
            )

    def first_plan(
        self, loaded: LoadedProblem, resolved: ResolvedTarget, goals: Goals, settings: Settings
    ) -> Plan:
        """What the rules would try, without a draft, a run or a model. Raises ProblemError."""
        with self._lock:
            key = plan_key(loaded, resolved, goals, settings)
            return cached_value(
                self._plans, key, loaded, lambda: self._plan(loaded, resolved, goals, key)
            )

    def holds(
        self, loaded: LoadedProblem, resolved: ResolvedTarget, goals: Goals, settings: Settings
    ) -> bool:
        """True where the figures and the first plan are at hand; nobody waits for the answer."""
        if not self._plans or not self._lock.acquire(blocking=False):
            return False
        try:
            key = plan_key(loaded, resolved, goals, settings)
            return key in self._plans and key.figures in self._figures
        finally:
            self._lock.release()

    def _graph(self, loaded: LoadedProblem) -> Captured:
        from agentkernel.tools.problem.capture import capture

        return cached_value(self._graphs, graph_key(loaded), loaded, lambda: capture(loaded))

    def _look(self, loaded: LoadedProblem, target: Target, precision: Precision) -> ModuleEstimate:
        from agentkernel.tools.roofline.roofline import analyse, estimate_eager

        captured = self._graph(loaded)
        return ModuleEstimate(
            analyse(captured, target, precision), estimate_eager(captured, target)
        )

    def _plan(
        self, loaded: LoadedProblem, resolved: ResolvedTarget, goals: Goals, key: PlanKey
    ) -> Plan:
        from agentkernel.agents.coder import coverage
        from agentkernel.agents.planner import RulesPlanner

        target, captured = resolved.target, self._graph(loaded)
        covered = coverage(loaded, captured)
        analysis = self.figures(loaded, target, goals.precision).analysis.model_copy(
            update={"patterns": covered.patterns, "uncovered": covered.uncovered}
        )

        def offered(problem: LoadedProblem, target: Target) -> tuple[Hypothesis, ...]:
            return hypotheses_of(key.coder, problem, captured, resolved)

        rules = RulesPlanner(offered, most=key.most)
        return rules.plan(loaded, analysis, target, goals, (), ())


def hypotheses_of(
    coder: str, loaded: LoadedProblem, captured: Captured, resolved: ResolvedTarget
) -> tuple[Hypothesis, ...]:
    """What the coder of that name could try, best first; a given file is no idea."""
    from agentkernel.agents.planner import MODEL_IDEAS
    from agentkernel.agents.strategies import hypotheses

    if coder.startswith(FILE_PREFIX):
        return ()
    if coder != COMPILER and not coder.startswith("team"):
        return MODEL_IDEAS
    lifting = resolved.target.vendor == "nvidia"
    return hypotheses(loaded, captured, lifting=lifting, measurable=resolved.measurable)


def graph_key(loaded: LoadedProblem) -> GraphKey:
    """What a module's graph is kept under."""
    return GraphKey(loaded.problem.sha256, loaded.module_class)


def estimate_key(loaded: LoadedProblem, target: Target, precision: Precision) -> EstimateKey:
    """What a module's figures are kept under."""
    return EstimateKey(graph_key(loaded), target.model_dump_json(), precision)


def plan_key(
    loaded: LoadedProblem, resolved: ResolvedTarget, goals: Goals, settings: Settings
) -> PlanKey:
    """What a module's first plan is kept under."""
    from agentkernel.agents.planner import MOST

    return PlanKey(
        estimate_key(loaded, resolved.target, goals.precision),
        goals.model_dump_json(),
        settings.coder,
        settings.budget.rounds if settings.in_turns else MOST,
        resolved.measurable,
    )


def cached_value(
    known: dict[Key, Value], key: Key, loaded: LoadedProblem, make: Callable[[], Value]
) -> Value:
    """The value of `key`, made where it is not known; that of a live module is not kept."""
    if loaded.live is not None:
        return make()
    if key not in known:
        value = make()
        while len(known) >= MOST_CACHED:
            del known[next(iter(known))]
        known[key] = value
    return known[key]
