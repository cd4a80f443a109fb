"""Schedules of the steps of partitions, and who serves each step, by the steps' own times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from agentkernel.agents.history import schedules_apart
from agentkernel.agents.protocols import Searcher
from agentkernel.compiler.attention import AttentionStep
from agentkernel.compiler.convolutions.step import ConvolutionStep
from agentkernel.compiler.emit import Schedule
from agentkernel.compiler.expressions import LIBRARY
from agentkernel.compiler.fusion import LibraryStep, Output, Partition, Step
from agentkernel.compiler.ir import Node, UnsupportedOp
from agentkernel.compiler.isolated_step import IsolatedStep, isolated
from agentkernel.compiler.kernel_math import MATH
from agentkernel.compiler.pipeline import Compiled, single_changes
from agentkernel.compiler.products.joined import JoinedStep
from agentkernel.compiler.products.pairs import PairStep
from agentkernel.compiler.products.step import ProductStep, with_product_steps
from agentkernel.compiler.providers import AnySchedule, Setting, provider_of
from agentkernel.compiler.providers.linear import with_linear_steps
from agentkernel.domain.candidate import TrialResult
from agentkernel.domain.plan import Won
from agentkernel.domain.target import Target
from agentkernel.tools.sandbox.session import require_time
from agentkernel.tools.search.space import Space
from agentkernel.tools.search.static import best_first
from agentkernel.tools.search.store import ScheduleStore

MOST_WHOLE = 4
"""Whole drop-ins of one partition that are measured once each of its steps is tuned."""
HEAVY = 2
"""Elementary functions from which on an epilogue may be a kernel of its own: two Mish spill 360
bytes in a tile of 128 x 128 on sm_90."""
ELEMENTARY = frozenset((*MATH, *LIBRARY))
ALL = 1 << 16
"""More schedules than any space has."""


@dataclass(frozen=True)
class Assembly:
    """A partition with one schedule a step."""

    compiled: Compiled
    schedules: Mapping[object, AnySchedule]
    times: Mapping[object, float] = field(default_factory=dict)
    """Microseconds of the steps that were timed alone, measured or estimated."""


@dataclass
class Tuner:
    """Times steps by themselves, equal ones once, and remembers what it found: in `store` beyond
    the run, where there is one."""

    searcher: Searcher
    store: ScheduleStore | None = None
    found: dict[tuple[str, ...], tuple[TrialResult, ...]] = field(default_factory=dict)
    """Target and sources of a segment -> its results."""

    def tune(self, rivals: Sequence[Rivalry], setting: Setting) -> Tuning:
        """The times of every step of the partitions, and of those that may stand in for them."""
        segments = {
            step: isolated(item.compiled, step) if item.matters(step) else None
            for item in rivals
            for step in item.steps()
        }
        distinct = {item.key: item for item in segments.values() if item is not None}
        work = sum(map(_work_us, distinct.values()))
        spaces: dict[str, _Choice] = {}
        for key, item in distinct.items():
            share = int(self.searcher.most_sampled * _work_us(item) / work)
            spaces[key] = _Choice.of(item, replace(setting, sampled=share), self._hints(item))
        self._time([item.space for item in spaces.values() if item.space], setting.target)
        for key, item in distinct.items():
            self._keep(item, spaces[key], setting.target)
        found: dict[object, _Choice] = {}
        for step, segment in segments.items():
            if segment is None:
                found[step] = _Choice(provider_of(step).schedules(step, setting))
            else:
                found[step] = spaces[segment.key]
        results = {id(item): self._known(item.space, setting.target) for item in found.values()}
        return Tuning(found, results)

    def _hints(self, segment: IsolatedStep) -> tuple[str, ...]:
        return () if self.store is None else self.store.best(segment.measured_as)

    def _keep(self, segment: IsolatedStep, choice: _Choice, target: Target) -> None:
        if self.store is None or choice.space is None:
            return
        found = zip(choice.options, self._known(choice.space, target), strict=True)
        times = {schedule_text(item): trial.time_us for item, trial in found}
        measured = {text: time_us for text, time_us in times.items() if time_us is not None}
        self.store.keep(segment.measured_as, measured)

    def _time(self, spaces: Sequence[Space], target: Target) -> None:
        new = {(target.name, *item.sources): item for item in spaces}
        new = {key: item for key, item in new.items() if key not in self.found}
        if new:
            results = self.searcher.tune(list(new.values()), target)
            self.found |= dict(zip(new, results, strict=True))

    def _known(self, space: Space | None, target: Target) -> tuple[TrialResult, ...]:
        return () if space is None else self.found[(target.name, *space.sources)]


@dataclass(frozen=True)
class Rivalry:
    """A partition with the sequences of steps that may stand in for its own products and
    attention."""

    compiled: Compiled
    stand_ins: Mapping[object, Sequence[tuple[Step, ...]]]

    def steps(self) -> Iterator[object]:
        """Every step, and every one that may stand in for it."""
        for step in self.compiled.partition.steps:
            yield step
            for others in self.stand_ins.get(step, ()):
                yield from others

    def matters(self, step: object) -> bool:
        """False for a library call that stands for nothing else: there is no choice."""
        rivals = (others for every in self.stand_ins.values() for others in every)
        return provider_of(step).own or any(step in others for others in rivals)


def with_stand_ins(compiled: Compiled, *, libraries: bool) -> Rivalry:
    """What may stand in for a step: a library call, with its epilogue as a kernel of its own or in
    the call, where `libraries` may be called; our own product with a heavy epilogue apart; products
    of one launch by one launch each."""
    outputs = compiled.partition.outputs
    # What forward returns has eager's strides, which are the kernel's to write.
    returned = {output.node for output in outputs}
    found: dict[object, list[tuple[Step, ...]]] = {}
    for step in compiled.partition.steps:
        if isinstance(step, AttentionStep) and libraries and step.node not in returned:
            read = frozenset[Node]() if step.heads_inside else frozenset((step.node,))
            found[step] = [(LibraryStep(step.node, (), read),)]
        elif isinstance(step, ProductStep) and step.node not in returned:
            found[step] = [*_products_apart(step, outputs, libraries=libraries)]
        elif isinstance(step, ConvolutionStep):
            found[step] = [step.apart] if step.apart else []  # type: ignore[list-item]
            if libraries and step.node not in returned:
                call = LibraryStep(step.node, (), frozenset((step.node,)))
                found[step].append((call, *step.followers))
        elif isinstance(step, PairStep):
            found[step] = [*_pair_apart(step, compiled, libraries=libraries)]
        elif isinstance(step, JoinedStep):
            found[step] = [step.products]  # type: ignore[list-item]
    return Rivalry(compiled, found)


def _products_apart(
    step: ProductStep, outputs: tuple[Output, ...], *, libraries: bool
) -> Iterator[tuple[Step, ...]]:
    """A product that keeps its tile in registers has few left for its epilogue: a long one spills,
    or takes tiles so small that writing and reading the product again costs less."""
    if libraries:
        call = LibraryStep(step.node, (), frozenset((step.node,)))
        apart = (call,) if step.epilogue is None else (call, step.epilogue)
        yield with_linear_steps(Partition(apart, outputs)).steps
    if step.epilogue is not None:
        functions = [node for node in step.epilogue.nodes if node.op in ELEMENTARY]
        if len(functions) >= HEAVY:
            yield (ProductStep(step.node, None), step.epilogue)  # type: ignore[misc]


def _pair_apart(
    step: PairStep, compiled: Compiled, *, libraries: bool
) -> Iterator[tuple[Step, ...]]:
    """The products one after the other, by our own GEMM or by the library."""
    calls = [LibraryStep(item.node, (), frozenset((item.node,))) for item in step.products]
    apart = Partition((*calls, step.epilogue), compiled.partition.outputs)
    yield with_product_steps(apart, compiled.symbols.hint).steps
    if libraries:
        yield apart.steps


@dataclass(frozen=True, eq=False)
class _Choice:
    """The schedules of a step, best guess first, and their sources where they can be timed."""

    options: Sequence[AnySchedule]
    space: Space | None = None

    @classmethod
    def of(cls, segment: IsolatedStep, setting: Setting, known: Sequence[str]) -> _Choice:
        """What there is for a step that can stand alone, with the `known` schedules among it as
        far as they still make sense."""
        provider, step = provider_of(segment.step), segment.step
        options = list(provider.schedules(step, setting))
        if not options:
            return cls(options)
        every = replace(setting, sampled=ALL)
        by_text = (
            {schedule_text(item): item for item in provider.schedules(step, every)} if known else {}
        )
        hints = [by_text[text] for text in known if text in by_text]
        new = [item for item in hints if item not in options]
        # Right behind the best guess: what stands last may not be compiled in time.
        options[1:1] = new
        places = tuple(options.index(item) for item in hints)
        return cls(options, _space(segment, options, places))


@dataclass(frozen=True)
class Tuning:
    """The steps' options with the times that were found for them."""

    choices: Mapping[object, _Choice]
    results: Mapping[int, tuple[TrialResult, ...]]

    def guess(self, step: object) -> AnySchedule:
        """Its schedule without any measurement."""
        return self.choices[step].options[0]

    def ranked(self, step: object) -> list[AnySchedule]:
        """Its schedules that run, the best first; all, the best guess first, where nothing is
        known."""
        options = self.choices[step].options
        order = best_first(self._results(step))
        return [options[index] for index in order] if order else list(options)

    def time_us(self, step: object) -> float | None:
        """Its time under its best schedule, measured or else estimated."""
        results = self._results(step)
        order = best_first(results)
        if not order:
            return None
        best = results[order[0]]
        return best.estimated_us if best.time_us is None else best.time_us

    def total_us(self, steps: Sequence[Step]) -> float | None:
        """The time of all, one after the other; None where one is not known."""
        times = [self.time_us(step) for step in steps]
        known = [time_us for time_us in times if time_us is not None]
        return sum(known) if len(known) == len(times) else None

    def known(self, step: object) -> bool:
        """True where it was timed by itself."""
        return bool(best_first(self._results(step)))

    def _results(self, step: object) -> tuple[TrialResult, ...]:
        return self.results[id(self.choices[step])]

    @property
    def trials(self) -> list[TrialResult]:
        """All results, the best of each segment first."""
        return [results[index] for results in self.results.values() for index in _places(results)]


def _places(results: Sequence[TrialResult]) -> list[int]:
    """Indices of all results, those that run before the others."""
    order = best_first(results)
    return [*order, *(index for index in range(len(results)) if index not in order)]


def schedule_text(schedule: AnySchedule) -> str:
    """The schedule as a store keeps it."""
    fields = asdict(schedule) if isinstance(schedule, Schedule) else schedule
    return json.dumps(fields, sort_keys=True)


def _space(
    segment: IsolatedStep, options: Sequence[AnySchedule], hints: tuple[int, ...]
) -> Space | None:
    """The segment under each of its options; None where it cannot be written by itself."""
    try:
        sources = []
        for item in options:
            require_time()
            sources.append(segment.write(item))
    except UnsupportedOp:
        return None
    labels = (_constants(source.schedule) for source in sources)
    return Space(
        segment.problem,
        tuple(source.text for source in sources),
        tuple(f"{segment.name} alone: {label or 'library'}" for label in labels),
        tuple(source.schedule for source in sources),
        segment.name,
        hints,
        segment.matrix_work,
        _work_us(segment),
    )


def _work_us(segment: IsolatedStep) -> float:
    """About its time: what takes long is searched longer."""
    return provider_of(segment.step).work_us(segment.step, segment.compiled.symbols)


def _constants(schedule: Mapping[str, Mapping[str, int]]) -> str:
    return " ".join(
        f"{key}={value}" for constants in schedule.values() for key, value in constants.items()
    )


def remembered(compiled: Compiled, won: Won, setting: Setting) -> Assembly | None:
    """Each kernel under what comes nearest to the schedule that won, of all schedules that make
    sense; None where the winner had other kernels."""
    steps = compiled.partition.steps
    own = [step for step in steps if provider_of(step).own]
    if len(own) != len(won.schedule):
        return None
    wanted = dict(zip(own, won.schedule.values(), strict=True))
    forms = won.forms if len(won.forms) == len(steps) else ("",) * len(steps)
    every = replace(setting, sampled=ALL)
    chosen: dict[object, AnySchedule] = {}
    for step, form in zip(steps, forms, strict=True):
        options = provider_of(step).schedules(step, every)
        if not options:
            return None
        chosen[step] = min(options, key=lambda item: _apart(item, wanted.get(step, {}), form))
    return Assembly(compiled, chosen)


def _apart(option: AnySchedule, constants: dict[str, int], form: str) -> float:
    own = option.constants if isinstance(option, Schedule) else option
    own_form = option.form if isinstance(option, Schedule) else ""
    return schedules_apart({"": own}, {"": constants}, (own_form,), (form,))


def assemblies(rivalry: Rivalry, tuning: Tuning) -> list[Assembly]:
    """Whole drop-ins worth measuring: every step at its best, the same with what may stand in where
    that is faster, the first guesses, and changes of what could not be timed alone."""
    compiled = rivalry.compiled
    ranked: dict[object, list[AnySchedule]] = {
        step: tuning.ranked(step) for step in compiled.partition.steps
    }
    best = {step: items[0] for step, items in ranked.items()}
    guess = {step: tuning.guess(step) for step in ranked}
    found = [Assembly(compiled, best), *_with_stand_ins(rivalry, tuning)]
    found.append(Assembly(compiled, guess))
    counts = {
        step: 2 if tuning.known(step) else MOST_WHOLE
        for step, items in ranked.items()
        if len(items) > 1
    }
    counts = {step: min(count, len(ranked[step])) for step, count in counts.items()}
    for changes in single_changes(counts, compiled.symbols, MOST_WHOLE):
        changed = {step: ranked[step][index] for step, index in changes.items()}
        found.append(Assembly(compiled, best | changed))
    known = {step: tuning.time_us(step) for step in rivalry.steps()}
    times = {step: time_us for step, time_us in known.items() if time_us is not None}
    return [replace(item, times=times) for item in found]


def _with_stand_ins(rivalry: Rivalry, tuning: Tuning) -> Iterator[Assembly]:
    """The partition with the fastest of what may stand in, wherever that takes less time."""
    faster: dict[object, tuple[Step, ...]] = {}
    for step, every in rivalry.stand_ins.items():
        own_us = tuning.time_us(step)
        times = {others: tuning.total_us(others) for others in every}
        known = {others: time_us for others, time_us in times.items() if time_us is not None}
        best = min(known, key=lambda others: known[others], default=None)
        if own_us is not None and best is not None and known[best] < own_us:
            faster[step] = best
    if faster:
        mixed = rivalry.compiled.replacing(faster)
        chosen: dict[object, AnySchedule] = {
            step: tuning.ranked(step)[0] for step in mixed.partition.steps
        }
        yield Assembly(mixed, chosen)
