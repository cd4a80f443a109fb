"""Schedules of the steps of partitions, and who serves each step, by the steps' own times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agentkernel.agents.protocols import Searcher
from agentkernel.compiler.attention import AttentionStep
from agentkernel.compiler.fusion import LibraryStep, Step
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.pipeline import Compiled, single_changes
from agentkernel.compiler.products.step import ProductStep
from agentkernel.compiler.providers import AnySchedule, Setting, provider_of
from agentkernel.compiler.segment import Segment, segment_of
from agentkernel.domain.candidate import TrialResult
from agentkernel.tools.sandbox.session import require_time
from agentkernel.tools.search.space import Space
from agentkernel.tools.search.static import best_first

MOST_WHOLE = 4
"""Whole drop-ins of one partition that are measured once each of its steps is tuned."""
Options = Mapping[object, Sequence[AnySchedule]]


@dataclass(frozen=True)
class Assembly:
    """A partition with one schedule a step."""

    compiled: Compiled
    schedules: Mapping[object, AnySchedule]


@dataclass
class Tuner:
    """Times steps by themselves, equal ones once, and remembers what it found."""

    searcher: Searcher
    found: dict[tuple[str, ...], tuple[TrialResult, ...]] = field(default_factory=dict)
    """Target and sources of a segment -> its results."""

    def tune(self, rivals: Sequence[Rivalry], setting: Setting) -> Tuning:
        """The times of every step of the partitions, and of those that may stand in for them."""
        tuning = Tuning(setting)
        for rivalry in rivals:
            for step in rivalry.steps():
                tuning.add(rivalry.compiled, step)
        spaces = list(tuning.spaces.values())
        keys = [(setting.target.name, *space.sources) for space in spaces]
        new = {key: space for key, space in zip(keys, spaces, strict=True) if key not in self.found}
        if new:
            results = self.searcher.tune(list(new.values()), setting.target)
            self.found |= dict(zip(new, results, strict=True))
        tuning.results |= {
            name: self.found[key] for name, key in zip(tuning.spaces, keys, strict=True)
        }
        return tuning


@dataclass(frozen=True)
class Rivalry:
    """A partition with the steps that may stand in for its own products and attention."""

    compiled: Compiled
    stand_ins: Mapping[object, tuple[Step, ...]]

    def steps(self) -> Iterator[object]:
        """Every step, and every one that may stand in for it."""
        for step in self.compiled.partition.steps:
            yield step
            yield from self.stand_ins.get(step, ())


def with_stand_ins(compiled: Compiled, *, libraries: bool) -> Rivalry:
    """What may stand in for a step: a library call and its epilogue as a kernel of its own, where
    `libraries` may be called."""
    returned = {output.node for output in compiled.partition.outputs}
    found: dict[object, tuple[Step, ...]] = {}
    for step in compiled.partition.steps if libraries else ():
        # What forward returns has eager's strides, which are the kernel's to write.
        if isinstance(step, ProductStep | AttentionStep) and step.node not in returned:
            call = LibraryStep(step.node, (), frozenset((step.node,)))
            epilogue = step.epilogue if isinstance(step, ProductStep) else None
            found[step] = (call,) if epilogue is None else (call, epilogue)
    return Rivalry(compiled, found)


@dataclass
class Tuning:
    """The steps' options with the times that were found for them."""

    setting: Setting
    options: dict[object, Sequence[AnySchedule]] = field(default_factory=dict)
    """Step, or its structure's hash -> schedules, best guess first."""
    spaces: dict[str, Space] = field(default_factory=dict)
    results: dict[str, tuple[TrialResult, ...]] = field(default_factory=dict)
    _keys: dict[object, str] = field(default_factory=dict)

    def add(self, compiled: Compiled, step: object) -> None:
        """Note a step with its options; make a space of it where it can be timed alone."""
        if step in self.options:
            return
        self.options[step] = provider_of(step).schedules(step, self.setting)
        segment = segment_of(compiled, step)
        if segment is None or not self.options[step]:
            return
        if segment.key not in self.spaces:
            space = _space(segment, self.options[step])
            if space is None:
                return
            self.spaces[segment.key] = space
        self._keys[step] = segment.key

    def ranked(self, step: object) -> list[AnySchedule]:
        """Its schedules that run, the best first; all, the best guess first, where nothing is
        known."""
        options, results = self.options[step], self._results(step)
        order = best_first(results)
        return [options[index] for index in order] if order else list(options)

    def time_us(self, step: object) -> float | None:
        """Its time under its best schedule, measured or else estimated."""
        results = self._results(step)
        order = best_first(results)
        if not order:
            return None
        best = results[order[0]]
        return best.estimated_us if best.time_us is None else best.time_us

    def known(self, step: object) -> bool:
        """True where it was timed by itself."""
        return bool(best_first(self._results(step)))

    def _results(self, step: object) -> Sequence[TrialResult]:
        return self.results.get(self._keys.get(step, ""), ())

    @property
    def trials(self) -> list[TrialResult]:
        """All results, the best of each segment first."""
        return [
            item
            for results in self.results.values()
            for item in sorted(results, key=lambda item: (item.time_us is None, item.time_us or 0))
        ]


def _space(segment: Segment, options: Sequence[AnySchedule]) -> Space | None:
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
    )


def _constants(schedule: Mapping[str, Mapping[str, int]]) -> str:
    return " ".join(
        f"{key}={value}" for constants in schedule.values() for key, value in constants.items()
    )


def assemblies(rivalry: Rivalry, tuning: Tuning) -> list[Assembly]:
    """Whole drop-ins worth measuring: every step at its best, the same with library calls where
    they are faster, the first guesses, and changes of what could not be timed alone."""
    compiled = rivalry.compiled
    ranked: dict[object, list[AnySchedule]] = {
        step: tuning.ranked(step) for step in compiled.partition.steps
    }
    best = {step: items[0] for step, items in ranked.items()}
    guess = {step: tuning.options[step][0] for step in ranked}
    found = [Assembly(compiled, best), *_with_libraries(rivalry, tuning)]
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
    return found


def _with_libraries(rivalry: Rivalry, tuning: Tuning) -> Iterator[Assembly]:
    """The partition with library calls wherever these, and what is apart then, take less time."""
    faster: dict[object, tuple[Step, ...]] = {}
    for step, others in rivalry.stand_ins.items():
        own_us, times = tuning.time_us(step), [tuning.time_us(item) for item in others]
        known = [item for item in times if item is not None]
        if own_us is not None and len(known) == len(times) and sum(known) < own_us:
            faster[step] = others
    if faster:
        mixed = rivalry.compiled.replacing(faster)
        best: dict[object, AnySchedule] = {
            step: tuning.ranked(step)[0] for step in mixed.partition.steps
        }
        yield Assembly(mixed, best)
