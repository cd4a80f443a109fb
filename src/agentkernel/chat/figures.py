"""Figures of candidates side by side, and estimates for a module before anything is drafted.

Every figure is measured or marked as estimated. Estimates (graph, roofline, first plan) are
cached under all that they depend on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from agentkernel.agents.planner import MODEL_IDEAS, MOST, RulesPlanner
from agentkernel.agents.protocols import Goals, PlanRequest
from agentkernel.chat.replies import Compared, Roofline, RooflinePoint
from agentkernel.chat.tree import (
    Node,
    basis_of,
    fastest_of,
    for_target,
    is_accepted,
    label,
    time_us,
)
from agentkernel.domain.formatting import DASH, with_interval
from agentkernel.domain.plan import Analysis, Hypothesis, Plan
from agentkernel.domain.profile import Estimate, Measurement, Profile, Ratio
from agentkernel.domain.settings import FILE_PREFIX, Settings
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.roofline.chart import drawing_of, to_point
from agentkernel.tools.roofline.model import analyse, estimate_eager

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.domain.target import Target
    from agentkernel.domain.verdict import Precision
    from agentkernel.tools.problem.capture import Captured
    from agentkernel.tools.problem.loading import LoadedProblem
    from agentkernel.tools.targets import ResolvedTarget


Cell = Callable[[Node], str]


def compared(first: Node, second: Node) -> Compared:
    """Both beside each other; the conclusion is about `second` against `first`."""
    nodes = (first, second)
    return Compared(nodes=nodes, rows=rows_of(nodes), verdict=conclusion(first, second))


def against_module(node: Node) -> Compared:
    """One candidate against eager PyTorch, which is the module as it came."""
    name = label(node.number)
    primary = _primary(node)
    if not is_accepted(node):
        verdict = f"{name} is not right, so its speed does not count: {verdict_words(node)}."
    elif primary is not None:
        verdict = _call(name, "the module in eager PyTorch", primary.vs_eager)
    elif node.profile is not None and node.profile.baseline_estimate is not None:
        times = node.profile.baseline_estimate.time_us / node.profile.estimate.time_us
        verdict = (
            f"{name}: {times:.2f}x the module in eager PyTorch, estimated; nobody measured it."
        )
    else:
        verdict = f"{name} has no time, measured or estimated."
    return Compared(nodes=(node,), rows=rows_of((node,)), verdict=verdict)


def rows_of(nodes: Sequence[Node]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(what, one value a candidate); rows in which nobody has a value are left out."""
    table: tuple[tuple[str, Cell], ...] = (
        ("verdict", verdict_words),
        ("strategy", lambda node: node.candidate.strategy or DASH),
        ("by", lambda node: node.candidate.coder),
        ("time", _time),
        ("against eager", lambda node: _of_primary(node, lambda x: with_interval(x.vs_eager))),
        (
            "against torch.compile",
            lambda node: _of_primary(node, lambda x: with_interval(x.vs_compile)),
        ),
        (
            "against max-autotune",
            lambda node: _of_primary(node, lambda x: with_interval(x.vs_autotune)),
        ),
        ("of the roofline", lambda node: _of_primary(node, _reached)),
        ("peak memory", lambda node: _of_primary(node, _memory)),
        ("energy a call", lambda node: _of_primary(node, _energy)),
        ("launches", _launches),
        ("registers", lambda node: _of_kernels(node, "registers")),
        ("spilled bytes", lambda node: _of_kernels(node, "spill_bytes")),
        ("precision", lambda node: node.verdict.precision if node.verdict else DASH),
        ("error", _error),
        ("target", _target),
    )
    rows = [(name, tuple(cell(node) for node in nodes)) for name, cell in table]
    return tuple(row for row in rows if set(row[1]) != {DASH})


def conclusion(first: Node, second: Node) -> str:
    """What can be said of `second` against `first`: from measured intervals, or "estimated"."""
    one, two = label(first.number), label(second.number)
    if first.number == second.number:
        return f"{one} is one candidate: there is nothing to compare it with."
    wrong = [node for node in (first, second) if not is_accepted(node)]
    if len(wrong) == 2:
        return "Neither is right: their speed does not count."
    if wrong:
        other = one if wrong[0] is second else two
        return f"{label(wrong[0].number)} is not right ({verdict_words(wrong[0])}): {other} counts."
    before, after = _primary(first), _primary(second)
    if before is not None and after is not None:
        return _measured(one, two, before, after) + _classes(first, second)
    if before is not None or after is not None:
        known = one if before is not None else two
        return f"Only {known} was measured: an estimate cannot be set against a measurement."
    return _estimated(first, second) + _classes(first, second)


def fastest_words(nodes: Sequence[Node]) -> str:
    """The fastest of nodes whose times can be compared, `c1`, or all that cannot be told from it;
    "" of none."""
    alike = fastest_alike(nodes)
    names = ", ".join(label(node.number) for node in alike)
    if len(alike) < 2:
        return names
    how = "estimated alike" if _primary(alike[0]) is None else "by their measured intervals"
    return f"{names}, between which no difference can be told ({how})"


def fastest_alike(nodes: Sequence[Node]) -> list[Node]:
    """The fastest of nodes whose times can be compared, and all that cannot be told from it."""
    best = fastest_of(nodes)
    return [
        node for node in nodes if best is not None and (node is best or not _told_apart(best, node))
    ]


def _told_apart(one: Node, other: Node) -> bool:
    before, after = _primary(one), _primary(other)
    if before is None or after is None:
        first, second = time_us(one), time_us(other)
        return first is not None and second is not None and _estimates_differ(first, second)
    ratio = _between(before, after)
    return ratio is None or not ratio.low <= 1.0 <= ratio.high


def _estimates_differ(before: float, after: float) -> bool:
    return abs(before / after - 1) >= ALIKE


ALIKE = 0.01
"""Estimated times that differ by less are alike."""


def _measured(one: str, two: str, before: Measurement, after: Measurement) -> str:
    if before.gpu.name != after.gpu.name:
        return (
            f"Measured on {before.gpu.name} and {after.gpu.name}: their times cannot be compared."
        )
    if before.shapes != after.shapes:
        return f"Measured at {before.shapes} and at {after.shapes}: other sizes, other times."
    ratio = _between(before, after)
    return f"{one} has no interval to compare with." if ratio is None else _call(two, one, ratio)


def _between(before: Measurement, after: Measurement) -> Ratio | None:
    """How many times as fast the second is; None where the first has no interval."""
    old, new = before.vs_eager, after.vs_eager
    if old.low <= 0:
        return None
    # Each was measured beside eager, which is the common measure, unless eager itself was allowed
    # another rounding in one of the runs and took another time: then the times alone are left.
    between = 1.0
    if before.baselines_matmul != after.baselines_matmul:
        mine = before.candidate.median_us / after.candidate.median_us
        between = mine / (new.value / old.value)
    return Ratio(
        value=between * new.value / old.value,
        low=between * new.low / old.high,
        high=between * new.high / old.low,
    )


def _call(name: str, other: str, ratio: Ratio) -> str:
    """By the interval alone: one that holds 1 decides nothing."""
    figures = with_interval(ratio)
    if ratio.low > 1.0:
        return f"{name} is faster than {other}: {figures}, measured."
    if ratio.high < 1.0:
        return f"{name} is slower than {other}: {figures}, measured."
    return f"No difference that can be told between {name} and {other}: {figures}, measured."


def _estimated(first: Node, second: Node) -> str:
    one, two = label(first.number), label(second.number)
    before, after = time_us(first), time_us(second)
    if before is None or after is None:
        unknown = one if before is None else two
        return f"{unknown} has no time, measured or estimated."
    if first.profile and second.profile and first.profile.target != second.profile.target:
        return (
            f"{one} is estimated for {first.profile.target}, {two} for {second.profile.target}: "
            "such times cannot be compared."
        )
    if not _estimates_differ(before, after):
        return f"No difference that can be told between {two} and {one}: both are estimated alike."
    way = "faster" if after < before else "slower"
    return (
        f"{two} is estimated {way} than {one}: {before / after:.2f}x. Nobody measured either; an "
        "estimate is no proof."
    )


def _classes(first: Node, second: Node) -> str:
    """What else is not the same, where it matters to the choice."""
    if first.verdict is None or second.verdict is None:
        return ""
    old, new = first.verdict.precision, second.verdict.precision
    if old == new:
        return ""
    return (
        f" They keep other precisions: {label(first.number)} {old}, {label(second.number)} {new}."
    )


def roofline(nodes: Sequence[Node], analysis: Analysis) -> Roofline | None:
    """The candidates and the last one's baselines under the roof of the GPU that its time is for;
    those for another one are left out by name. None where none has a time."""
    right = [node for node in nodes if node.profile is not None and is_accepted(node)]
    if not right or not analysis.memory_time_us:
        return None
    last, basis = right[-1].profile, basis_of(right[-1])
    assert last is not None
    assert basis is not None
    timed = [node for node in right if basis_of(node) == basis]
    picture = drawing_of(last, analysis)
    found = [(item, not picture.estimated) for item in picture.points if item.label != "candidate"]
    found += [
        (to_point(label(node.number), analysis, known), basis.measured)
        for node in timed
        if (known := time_us(node))
    ]
    points = tuple(
        RooflinePoint(
            label=point.label,
            intensity=point.intensity,
            gflops=point.tflops * 1e3,
            measured=measured,
        )
        for point, measured in found
        if point.tflops > 0
    )
    units = "fp32 units"
    if analysis.matmul_flops:
        units = "matrix units and fp32 units, as the problem uses them"
    return Roofline(
        target=basis.where,
        gb_per_s=picture.roof.gb_per_s,
        peak_gflops=picture.roof.peak_tflops * 1e3,
        peak_of=units,
        points=points,
        note=left_out_text([node for node in right if node not in timed]),
    )


def left_out_text(nodes: Sequence[Node]) -> str:
    """Candidates that a picture does not show, with the GPU that their times are for."""
    by_basis: dict[str, list[int]] = {}
    for node in nodes:
        basis = basis_of(node)
        if basis is not None:
            by_basis.setdefault(basis.words, []).append(node.number)
    told = [
        f"{', '.join(map(label, sorted(numbers)))} ({words})" for words, numbers in by_basis.items()
    ]
    return f"Not drawn: {'; '.join(told)}." if told else ""


def verdict_words(node: Node) -> str:
    """`right`, `right (interpreted)`, `refused at the gate ...`, or why nobody judged it."""
    if node.verdict is None:
        return f"not judged: {node.aside}" if node.aside else "not judged"
    if node.verdict.undecided:
        return node.verdict.undecided
    if not node.verdict.accepted:
        kind = node.verdict.failure.kind if node.verdict.failure is not None else ""
        return f"refused at the gate {node.verdict.gate}" + (f" ({kind})" if kind else "")
    if node.unprofiled is not None and node.unprofiled.side == "candidate":
        return f"right, but it does not run for the target: {node.unprofiled.reason}"
    return "right (interpreted)" if node.verdict.interpreted else "right"


def time_words(node: Node, target: str | None = None) -> str:
    """`10.0 us`, `2.5 us (estimated)`, or ""; with the GPU where that is another than `target`."""
    known, basis = time_us(node), basis_of(node)
    if known is None or basis is None:
        return ""
    if target is not None and not for_target(node, target):
        return f"{known:.3g} us ({basis.words})"
    return f"{known:.3g} us" + ("" if basis.measured else " (estimated)")


def bytes_words(size: int) -> str:
    """`1.5 MiB`."""
    number = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{size} B"


def baseline_us(profile: Profile) -> tuple[float, bool] | None:
    """The faster baseline's time and whether it was measured; None where nothing is known."""
    if profile.measurements:
        first = profile.measurements[0]
        compiled = first.compiled.median_us if first.compiled else first.eager.median_us
        return min(first.eager.median_us, compiled), True
    eager = profile.baseline_estimate
    return None if eager is None else (eager.time_us, False)


def _primary(node: Node) -> Measurement | None:
    return node.profile.measurements[0] if node.profile and node.profile.measurements else None


def _of_primary(node: Node, words: Callable[[Measurement], str]) -> str:
    primary = _primary(node)
    return DASH if primary is None else words(primary)


def _time(node: Node) -> str:
    primary = _primary(node)
    if primary is None:
        return time_words(node) or DASH
    times = primary.candidate
    return f"{times.median_us:.4g} us [{times.p10_us:.4g}, {times.p90_us:.4g}]"


def _reached(primary: Measurement) -> str:
    return f"{primary.roofline_fraction:.0%}"


def _memory(primary: Measurement) -> str:
    own, eager = primary.peak_memory_bytes, primary.eager_peak_memory_bytes
    return f"{bytes_words(own)} (eager {bytes_words(eager)})"


def _energy(primary: Measurement) -> str:
    if primary.energy_mj is None:
        return DASH
    eager = "" if primary.eager_energy_mj is None else f" (eager {primary.eager_energy_mj:.3g} mJ)"
    return f"{primary.energy_mj:.3g} mJ{eager}"


def _launches(node: Node) -> str:
    primary = _primary(node)
    if primary is not None:
        return str(primary.launches)
    report = node.profile.report if node.profile else None
    return DASH if report is None else str(len(report.kernels) + len(report.library_ops))


def _of_kernels(node: Node, name: str) -> str:
    report = node.profile.report if node.profile else None
    found = [getattr(item, name) for item in report.kernels] if report else []
    known = [str(item) for item in found if item is not None]
    return ", ".join(known) or DASH


def _error(node: Node) -> str:
    if node.verdict is None or node.verdict.worst_error is None:
        return DASH
    eager = node.verdict.worst_eager_error
    beside = [] if eager is None else [f"eager {eager:.1e}"]
    beside += filter(None, [node.verdict.margin_text])
    return f"{node.verdict.worst_error:.1e}" + (f" ({', '.join(beside)})" if beside else "")


def _target(node: Node) -> str:
    if node.profile is None:
        return DASH
    where = node.profile.measured_on
    return f"{node.profile.target}, measured on {where}" if where else node.profile.target


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
        return cached_value(self._graphs, graph_key(loaded), loaded, lambda: capture(loaded))

    def _look(self, loaded: LoadedProblem, target: Target, precision: Precision) -> ModuleEstimate:
        captured = self._graph(loaded)
        return ModuleEstimate(
            analyse(captured, target, precision), estimate_eager(captured, target)
        )

    def _plan(
        self, loaded: LoadedProblem, resolved: ResolvedTarget, goals: Goals, key: PlanKey
    ) -> Plan:
        from agentkernel.compiler.partitions import coverage

        target, captured = resolved.target, self._graph(loaded)
        covered = coverage(loaded, captured)
        analysis = self.figures(loaded, target, goals.precision).analysis.evolve(
            patterns=covered.patterns, uncovered=covered.uncovered
        )

        def offered(problem: LoadedProblem, target: Target) -> tuple[Hypothesis, ...]:
            return hypotheses_of(key.coder, problem, captured, resolved)

        rules = RulesPlanner(offered, most=key.most)
        return rules.plan(PlanRequest(loaded, analysis, target, goals))


def hypotheses_of(
    coder: str, loaded: LoadedProblem, captured: Captured, resolved: ResolvedTarget
) -> tuple[Hypothesis, ...]:
    """What the coder of that name could try, best first; a given file is no idea."""
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
