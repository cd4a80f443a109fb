"""A run factory whose coder is a team: a scripted compiler, and models with scripted answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from agentkernel.agents.model_coder import ModelCoder
from agentkernel.agents.models.protocol import Model, OnText, ignore
from agentkernel.agents.models.provider import ModelProvider, RecordedModel
from agentkernel.agents.planner import RulesPlanner
from agentkernel.agents.reviewer import Reviewer, Reviews
from agentkernel.agents.team import TeamCoder, TeamPlanner
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import ModelUnavailable
from agentkernel.domain.exchange import ModelRequest, Reply, Usage
from agentkernel.domain.plan import Analysis, RooflineClass
from agentkernel.domain.profile import Profile, ProfileFailed, Ratio
from agentkernel.domain.settings import Settings
from agentkernel.domain.verdict import Verdict
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.targets import ResolvedTarget
from agentkernel.workflows.deps import Deps
from tests.agents.models.model_cases import SAMPLING, ScriptedModel
from tests.workflows.fakes import ANALYSIS, FakeWorkshop, measurement, mismatch, profile, verdict

NAMED = re.compile(r"'''drawn up as (\w+)'''")
SPENT = Usage(prompt=600, completion=400)


def source(name: str) -> str:
    """A file of a member; `name` says what becomes of it."""
    return (
        "import torch\nfrom torch import nn\n\n\n"
        f"class ModelNew(nn.Module):\n    '''drawn up as {name}'''\n"
    )


def answer(name: str) -> str:
    """A model's answer that holds that file."""
    return f"Here it is:\n```python\n{source(name)}```\n"


@dataclass
class Speaking(ScriptedModel):
    """A scripted model that counts its tokens, and says the same again once it has said all."""

    def ask(self, question: ModelRequest, on_text: OnText = ignore) -> Reply:
        if not self.answers:
            self.questions.append(question)
            return Reply(texts=("I have said all.",), finish=("stop",), usage=SPENT)
        return super().ask(question, on_text).evolve(usage=SPENT)


@dataclass
class TeamShop(FakeWorkshop):
    """`answers`: member -> what it says; `speeds`: a member's file -> its speedup over eager, None
    for a wrong one. `estimates`: the same files' times where no GPU is."""

    answers: dict[str, list[str | ModelUnavailable]] = field(default_factory=dict)
    speeds: dict[str, float | None] = field(default_factory=dict)
    estimates: dict[str, float] = field(default_factory=dict)
    by_class: dict[RooflineClass, tuple[str, ...]] = field(default_factory=dict)
    analysis: Analysis = ANALYSIS
    reviewer: Speaking | None = None
    models: dict[str, Speaking] = field(default_factory=dict)

    @contextmanager
    def equip(
        self,
        loaded: LoadedProblem,
        settings: Settings,
        resolved: ResolvedTarget,
        provider: ModelProvider,
    ) -> Iterator[Deps]:
        self.models = {name: Speaking(said, name=name) for name, said in self.answers.items()}

        def kept(model: Model) -> Model:
            return (
                RecordedModel(model, provider.records, provider.prices)
                if provider.records
                else model
            )

        reviews = Reviews(Reviewer(kept(self.reviewer), SAMPLING)) if self.reviewer else None
        members = [
            ModelCoder(
                name, kept(model), SAMPLING.evolve(seed=seed),
                answered=provider.answered(), reviews=reviews, seed_step=len(self.models),
            )
            for seed, (name, model) in enumerate(self.models.items())
        ]  # fmt: skip
        team = TeamCoder(self.coder, members, self.by_class, reviews=reviews)
        with super().equip(loaded, settings, resolved, provider) as kit:
            planner = TeamPlanner(
                RulesPlanner(self.coder.hypotheses, most=9), team, settings.budget.rounds,
                from_scratch=settings.team.from_scratch, beam=settings.team.beam, reviews=reviews,
            )  # fmt: skip
            tools = replace(kit.tools, analyse=lambda: self.analysis)
            yield Deps(replace(kit.crew, coder=team, planner=planner), tools)

    def questions(self, member: str) -> list[ModelRequest]:
        """What a member was asked in this session."""
        return self.models[member].questions

    def _judge(self, candidate: Candidate) -> Verdict:
        named = NAMED.search(candidate.source)
        if named is None:
            return super()._judge(candidate)
        self.judged.append(candidate.sha256)
        if self.on_judge is not None:
            self.on_judge(candidate)
        wrong = named[1] in self.speeds and self.speeds[named[1]] is None
        return verdict(candidate, mismatch() if wrong else None)

    def _profile(self, candidate: Candidate) -> Profile | ProfileFailed:
        named = NAMED.search(candidate.source)
        if named is None:
            return super()._profile(candidate)
        speedup = self.speeds.get(named[1])
        if speedup is None:
            return profile(candidate, estimate_us=self.estimates[named[1]])
        eager = Ratio(value=speedup, low=speedup - 0.01, high=speedup + 0.01)
        ratio = speedup / 1.3
        compiled = Ratio(value=ratio, low=ratio - 0.01, high=ratio + 0.01)
        own_us = 20.0 / speedup
        return profile(candidate, measurement(eager, compiled, candidate_us=own_us))
