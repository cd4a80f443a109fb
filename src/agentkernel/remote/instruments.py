"""The judge, the profiler and the searcher of one problem on another machine."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from pydantic import JsonValue, TypeAdapter

from agentkernel.agents.instruments import InstrumentSettings
from agentkernel.agents.protocols import Searcher
from agentkernel.domain.candidate import Candidate, TrialResult
from agentkernel.domain.profile import Profile, ProfileFailed
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import Verdict
from agentkernel.remote import wire
from agentkernel.remote.line import RemoteLine
from agentkernel.remote.problem_files import files_of
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.profiler.session import BaselineTimes, QuickTimes
from agentkernel.tools.sandbox.session import time_left
from agentkernel.tools.search import best_first
from agentkernel.tools.search.space import Forms, Schedule, Space
from agentkernel.tools.targets import ResolvedTarget

Answer = TypeVar("Answer")


def resolve_target(line: RemoteLine, name: str | None) -> ResolvedTarget:
    """The target called `name`, None for that machine's GPU, with what it can do for it. Raises
    UnknownTarget."""
    found = line.ask(wire.ResolveTarget(target=name), wire.RESOLVED)
    label, gpu = line.address.label, line.hello.gpu or "no GPU"
    return replace(
        found,
        note=f"{label}: {found.note}",
        host=f"{label}, {gpu}",
        versions=line.hello.versions,
    )


@dataclass(frozen=True)
class RemoteInstruments:
    """The instruments of another machine: they take and give the same values as this one's.

    `target` is the name that `resolved` was found by, None for that machine's GPU.
    """

    line: RemoteLine
    loaded: LoadedProblem
    target: str | None
    resolved: ResolvedTarget
    settings: InstrumentSettings

    @cached_property
    def _subject(self) -> JsonValue:
        subject = wire.Subject(
            problem=self.loaded.problem,
            files=files_of(self.loaded.problem),
            target=self.target,
            settings=self.settings,
        )
        found: JsonValue = json.loads(subject.model_dump_json())
        return found

    def ask(self, question: wire.Question, answer: TypeAdapter[Answer]) -> Answer:
        """An answer about the problem, in the time that the run has left."""
        left_s = time_left()
        limit_s = None if math.isinf(left_s) else left_s
        return self.line.ask(question, answer, self._subject, limit_s)

    @property
    def searcher(self) -> Searcher:
        """The searcher there."""
        return RemoteSearcher(self)

    @property
    def measures(self) -> bool:
        """True where a GPU there can stand for the target."""
        return self.resolved.measurable and self.resolved.target.vendor == "nvidia"

    def begin(self) -> None:
        """Start what takes long to start there."""
        self.ask(wire.Plain(kind="begin"), wire.DONE)

    def ready(self) -> bool:
        """True where a profile would begin at once."""
        return self.ask(wire.Plain(kind="ready"), wire.READY)

    def judge(self, candidate: Candidate, settings: JudgeSettings) -> Verdict:
        """The judge's finding there."""
        return self.ask(wire.Judge(candidate=candidate, settings=settings), wire.VERDICT)

    def profile(self, candidate: Candidate) -> Profile | ProfileFailed:
        """Measured there where a GPU is, else estimated."""
        return self.ask(wire.TakeProfile(candidate=candidate), wire.PROFILE)

    def baselines(self) -> BaselineTimes | ProfileFailed:
        """Times of the baselines there."""
        return self.ask(wire.Plain(kind="baselines"), wire.BASELINES)

    def quick_times(self) -> QuickTimes | None:
        """Times of few calls of the baselines there."""
        return self.ask(wire.Plain(kind="quick times"), wire.QUICK)


@dataclass(frozen=True)
class RemoteSearcher:
    """A searcher whose sources are compiled and measured on another machine."""

    instruments: RemoteInstruments

    def rank(
        self,
        problem: LoadedProblem,
        sources: Sequence[str],
        labels: Sequence[str],
        schedules: Sequence[Schedule],
        target: Target,
        forms: Forms | None = None,
    ) -> tuple[TrialResult, ...]:
        """One result a source, in the order given, then one for each of the `forms` of the fastest,
        which are written here and timed beside it in a second race there."""
        space = Space(problem, tuple(sources), tuple(labels), tuple(schedules))
        found = self._ranked(space, target)
        order = best_first(found)
        best_us = found[order[0]].time_us if order else None
        if forms is None or best_us is None:
            return found
        best = order[0]
        made = forms(best, best_us)
        if not made:
            return found
        again = Space(problem, (sources[best],), (labels[best],), (schedules[best],))
        plain, *timed = self._ranked(again.with_forms(0, made), target)
        return (*found[:best], plain, *found[best + 1 :], *timed)

    def _ranked(self, space: Space, target: Target) -> tuple[TrialResult, ...]:
        return self.instruments.ask(wire.Rank(space=_sent(space), target=target), wire.TRIALS)

    @cached_property
    def most_sampled(self) -> int:
        """As the searcher there has it."""
        return self.instruments.ask(wire.Plain(kind="most sampled"), wire.COUNT)

    def tune(self, spaces: Sequence[Space], target: Target) -> tuple[tuple[TrialResult, ...], ...]:
        """One result a source of each space."""
        sent = tuple(_sent(item) for item in spaces)
        return self.instruments.ask(wire.Tune(spaces=sent, target=target), wire.TRIALS_BY_SPACE)


def _sent(space: Space) -> wire.SpaceSent:
    return wire.SpaceSent(
        problem=space.problem.problem,
        sources=space.sources,
        labels=space.labels,
        schedules=space.schedules,
        segment=space.segment,
        hints=space.hints,
        matrix=space.matrix,
        work_us=space.work_us,
    )
