"""A candidate file with its problem and target, loaded for `judge` and `profile`.

Imports torch. The candidate's source is read here and never executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from agentkernel.agents.instruments import Instruments
from agentkernel.cli.configuration import settings_from
from agentkernel.cli.early import read_source
from agentkernel.cli.options import SettingsFlags, Subject
from agentkernel.cli.terminal import print_plain
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.profile import Profile, ProfileFailed
from agentkernel.domain.settings import Settings
from agentkernel.domain.verdict import Verdict
from agentkernel.tools.judge.judge import judge as run_judge
from agentkernel.tools.judge.reference.rehearsal import capture_checked
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.profiler import profile as run_profile
from agentkernel.tools.targets import ResolvedTarget, find_target
from agentkernel.workflows.run_factory import factory_of, judge_settings, profile_settings


@dataclass(frozen=True)
class LoadedCandidate:
    """A problem, a candidate's source and the machine it is tried on: this one, or that of
    `there`."""

    settings: Settings
    resolved: ResolvedTarget
    loaded: LoadedProblem
    source: str
    there: Instruments | None = None

    @cached_property
    def captured(self) -> Captured:
        """The module's graph."""
        return capture_checked(self.loaded)

    @property
    def judging(self) -> JudgeSettings:
        """As the judge is set: on the GPU where there is a fitting one, else interpreted."""
        return judge_settings(self.settings, self.resolved)

    @property
    def candidate(self) -> Candidate:
        """The file as a candidate."""
        return Candidate(source=self.source, coder="file", round=1)

    def judge(self, settings: JudgeSettings) -> Verdict:
        """The judge's finding."""
        if self.there is not None:
            return self.there.judge(self.candidate, settings)
        return run_judge(self.loaded, self.captured, self.source, settings)

    def profile(self) -> Profile | ProfileFailed:
        """Measured against eager and torch.compile where a GPU fits, else estimated."""
        if self.there is not None:
            return self.there.profile(self.candidate)
        return run_profile(
            self.loaded,
            self.captured,
            self.source,
            self.resolved,
            profile_settings(self.settings),
        )


def load_subject(subject: Subject) -> LoadedProblem:
    """The module that a command works on."""
    return load_problem(subject.reference, subject.inputs or (), subject.init, subject.kwargs)


@contextmanager
def open_candidate(
    subject: Subject, candidate: Path, flags: SettingsFlags, values: Mapping[str, object]
) -> Iterator[LoadedCandidate]:
    """Read the problem and the candidate, which is not executed here. What another machine does is
    told on stderr."""
    settings = settings_from(flags, values)
    source = read_source(candidate)
    loaded = load_subject(subject)
    if settings.remote is None:
        yield LoadedCandidate(settings, find_target(settings.target), loaded, source)
        return
    with factory_of(settings, tell) as factory:
        resolved = factory.resolve(settings)
        bench = LoadedCandidate(settings, resolved, loaded, source)
        with factory.instruments(loaded, lambda: bench.captured, settings, resolved) as there:
            yield replace(bench, there=there)


def tell(host: str, text: str) -> None:
    """A line on what another machine does."""
    print_plain(f"{host}: {text}", error=True)
