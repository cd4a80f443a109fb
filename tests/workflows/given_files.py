"""A run factory whose coder is a given file: the words in it say what the judge finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from agentkernel.agents.coder_factory import FileCoder, FilePlanner, make_coder
from agentkernel.agents.models.provider import ModelProvider
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.profile import Profile, ProfileFailed, Ratio
from agentkernel.domain.settings import Settings
from agentkernel.domain.verdict import Verdict
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.search import StaticSearcher
from agentkernel.tools.targets import ResolvedTarget
from agentkernel.workflows.deps import Deps
from tests.workflows.fakes import FakeWorkshop, Script, measurement, mismatch, profile, verdict

RIGHT = "class ModelNew:\n    '''fast'''\n"
SLOW = "class ModelNew:\n    '''slow'''\n"
WRONG = "class ModelNew:\n    '''wrong'''\n"


@dataclass
class GivenShop(FakeWorkshop):
    """`wrong` is refused, `slow` is slower than eager, all else is faster than both."""

    scripts: tuple[Script, ...] = ()
    drafting: list[FileCoder] = field(default_factory=list)

    @contextmanager
    def equip(
        self,
        loaded: LoadedProblem,
        settings: Settings,
        resolved: ResolvedTarget,
        desk: ModelProvider,
    ) -> Iterator[Deps]:
        coder = make_coder(settings.coder, StaticSearcher(1.0), None, desk, settings)
        assert isinstance(coder, FileCoder)
        self.drafting.append(coder)
        with super().equip(loaded, settings, resolved, desk) as kit:
            crew = replace(kit.crew, coder=coder, planner=FilePlanner(coder))
            yield Deps(crew, kit.tools)

    def _judge(self, candidate: Candidate) -> Verdict:
        self.judged.append(candidate.sha256)
        if self.on_judge is not None:
            self.on_judge(candidate)
        return verdict(candidate, mismatch("tail") if "wrong" in candidate.source else None)

    def _profile(self, candidate: Candidate) -> Profile | ProfileFailed:
        value = 0.5 if "slow" in candidate.source else 2.0
        ratio = Ratio(value=value, low=value - 0.01, high=value + 0.01)
        return profile(candidate, measurement(ratio, ratio, candidate_us=20.0 / value))
