"""Does a model with more rounds get on: from its best file, anew where that is worn out?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from agentkernel.agents.model_coder import ModelCoder
from agentkernel.agents.models.local_presets import Prompt
from agentkernel.agents.models.protocol import OnText, ignore
from agentkernel.agents.models.provider import ModelProvider, RecordedModel
from agentkernel.agents.planner import MODEL_IDEAS, RulesPlanner, TurnPlanner
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import PromptTooLong
from agentkernel.domain.exchange import ModelRequest, Reply, Sampling
from agentkernel.domain.profile import Profile, ProfileFailed, Ratio
from agentkernel.domain.settings import Settings
from agentkernel.domain.verdict import CompileFailed, Verdict
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.targets import ResolvedTarget
from agentkernel.workflows.deps import Deps
from agentkernel.workflows.events import CandidateDrafted, Decided, Event
from agentkernel.workflows.optimize import resume, run
from agentkernel.workflows.outcome import Result
from agentkernel.workflows.state import OptimizeRequest
from tests.workflows.fakes import (
    FakeWorkshop,
    measurement,
    mismatch,
    profile,
    settings,
    small_problem,
    verdict,
)

NAME = "local:small"
NAMED = re.compile(r"'''(\w+?)(\d+)'''")
Writes = Callable[[str | None, int], str]
"""Of the file that it is shown (None: the module alone) and the number of the question, the kind of
file that a model writes: `right`, `far` (wrong values), `broken` (does not compile)."""


def source(kind: str, number: int) -> str:
    return (
        "import torch\nfrom torch import nn\n\n\n"
        f"class ModelNew(nn.Module):\n    '''{kind}{number}'''\n"
    )


@dataclass
class SmallModel:
    """Writes what `writes` says, and keeps what it was asked."""

    writes: Writes
    longest: int | None = None
    """Messages for which its window has room."""
    name: str = NAME
    questions: list[ModelRequest] = field(default_factory=list)
    shown: list[str | None] = field(default_factory=list)
    before: int = 0
    """Questions of earlier sessions."""

    def ask(self, question: ModelRequest, on_text: OnText = ignore) -> Reply:
        if self.longest is not None and len(question.messages) > self.longest:
            raise PromptTooLong("The prompt has 9 tokens, the window 8.")
        self.questions.append(question)
        turns = [item.text for item in question.messages if item.role == "assistant"]
        found = NAMED.search(turns[-1]) if turns else None
        self.shown.append("".join(found.groups()) if found else None)
        number = len(self.questions) + self.before
        kind = self.writes(self.shown[-1], number)
        text = f"Here:\n```python\n{source(kind, number)}```\n"
        return Reply(texts=(text,), finish=("stop",))


@dataclass
class TurnShop(FakeWorkshop):
    """A run factory whose coder is a small model alone; a later right file is slower."""

    model: SmallModel | None = None
    prompt: Prompt = "taught"
    scripts: tuple = ()  # type: ignore[type-arg]

    @contextmanager
    def equip(
        self,
        loaded: LoadedProblem,
        settings: Settings,
        resolved: ResolvedTarget,
        desk: ModelProvider,
    ) -> Iterator[Deps]:
        assert self.model is not None
        assert desk.records is not None
        coder = ModelCoder(
            NAME, RecordedModel(self.model, desk.records, desk.prices),
            Sampling(temperature=0.5, max_tokens=1000, seed=7), self.prompt, desk.answered(),
            turns=settings.turns, seed_step=1,
        )  # fmt: skip
        planner = TurnPlanner(RulesPlanner(lambda problem, target: MODEL_IDEAS))
        with super().equip(loaded, settings, resolved, desk) as kit:
            yield Deps(replace(kit.crew, coder=coder, planner=planner), kit.tools)

    def _judge(self, candidate: Candidate) -> Verdict:
        self.judged.append(candidate.sha256)
        if self.on_judge is not None:
            self.on_judge(candidate)
        kind, _ = _named(candidate)
        if kind == "broken":
            failure = CompileFailed(log="no such thing", line=5)
            return verdict(candidate, failure).evolve(gate="compile")
        return verdict(candidate, mismatch() if kind == "far" else None)

    def _profile(self, candidate: Candidate) -> Profile | ProfileFailed:
        _, number = _named(candidate)
        eager = Ratio(value=1.1, low=1.09, high=1.11)
        return profile(candidate, measurement(eager, eager, candidate_us=10.0 + number))


def _named(candidate: Candidate) -> tuple[str, int]:
    found = NAMED.search(candidate.source)
    assert found is not None
    return found[1], int(found[2])


class Run:
    """A run of the small model, with what happened in it."""

    def __init__(self, folder: Path, shop: TurnShop, *overrides: str, again: bool = False) -> None:
        assert shop.model is not None
        self.model = shop.model
        self.events: list[Event] = []
        runs = folder / "runs"
        if again:
            self.result: Result = resume("last", self.events.append, runs=runs, workshop=shop)
            return
        wanted = ("goals.speedup=9", "budget.patience=null", *overrides)
        chosen = settings(runs, f"coder={NAME}", *wanted)
        asked = OptimizeRequest(small_problem(folder), chosen)
        self.result = run(asked, self.events.append, workshop=shop)

    @property
    def drafts(self) -> list[CandidateDrafted]:
        return [item for item in self.events if isinstance(item, CandidateDrafted)]

    @property
    def stop(self) -> str | None:
        return next(item for item in reversed(self.events) if isinstance(item, Decided)).stop


def shop(writes: Writes, **more: object) -> TurnShop:
    longest = more.pop("longest", None)
    return TurnShop(model=SmallModel(writes, longest=longest), **more)  # type: ignore[arg-type]


def worse(shown: str | None, number: int) -> str:
    """Each second turn is worse than the first."""
    return "far" if shown is None else "broken"


def test_one_that_writes_worse_second_turns_is_asked_from_its_best(tmp_path: Path) -> None:
    made = Run(tmp_path, shop(worse), "budget.rounds=2")
    assert made.model.shown == [None, "far1", "far1", None, "far4", "far4"]
    names = [item.candidate for item in made.drafts]
    assert [item.parent for item in made.drafts] == [
        *(None, names[0], names[0]), *(None, names[3], names[3])
    ]  # fmt: skip


def test_the_last_one_where_that_is_asked(tmp_path: Path) -> None:
    made = Run(tmp_path, shop(worse), "budget.rounds=1", "turns.shown=last")
    assert made.model.shown[:3] == [None, "far1", "broken2"]


def test_the_best_right_file_stands_in_the_prompt(tmp_path: Path) -> None:
    made = Run(tmp_path, shop(lambda shown, number: "right"), "budget.rounds=3")
    assert made.model.shown == [None, "right1", "right1"]
    last = made.model.questions[-1].messages
    assert [item.role for item in last] == ["user", "assistant", "user"]
    assert source("right", 1) in last[1].text
    assert "Right. What it does" in last[2].text
    assert made.drafts[2].parent == made.drafts[0].candidate


@pytest.mark.parametrize(
    "patience",
    [1, 2, 3],
)
@pytest.mark.slow
def test_more_rounds_bring_more_lines_and_no_file_is_asked_about_for_ever(
    tmp_path: Path, patience: int
) -> None:
    made = Run(tmp_path, shop(worse), "budget.rounds=8", f"turns.patience={patience}")
    shown = made.model.shown
    assert max(shown.count(name) for name in shown if name) == patience
    assert shown.count(None) > 2
    assert made.stop == "rounds"
    assert made.result.drafts == len(shown) > 8
    seeds = [item.sampling.seed for item in made.model.questions]
    assert len(set(seeds)) == len(seeds), "the same question again has another answer"


@pytest.mark.slow
def test_the_ninth_draft_is_right_where_the_first_eight_are_not(tmp_path: Path) -> None:
    def late(shown: str | None, number: int) -> str:
        return "right" if number > 8 else "broken"

    few = Run(tmp_path / "few", shop(late), "budget.rounds=2", "budget.repairs=1")
    many = Run(tmp_path / "many", shop(late), "budget.rounds=12", "budget.repairs=1")
    assert (few.result.drafts, few.result.candidate) == (4, None)
    assert many.result.drafts > 9
    assert "right9" in many.model.shown, "it goes on from that one"
    assert many.drafts[-1].strategy.startswith("turn ")


@pytest.mark.slow
def test_a_file_too_long_for_the_window_gives_way_to_the_module(tmp_path: Path) -> None:
    made = Run(tmp_path, shop(worse, longest=1), "budget.rounds=2")
    assert set(made.model.shown) == {None}
    assert made.result.drafts == len(made.model.shown) > 2
    assert {item.parent for item in made.drafts} == {None}
    none = Run(tmp_path / "none", shop(worse, longest=0), "budget.rounds=2")
    assert "the window 8" in none.result.reason


def test_a_chat_model_is_shown_its_best_and_the_one_before(tmp_path: Path) -> None:
    made = Run(tmp_path, shop(worse, prompt="coder"), "budget.rounds=1")
    assert made.model.shown == [None, "far1", "far1"]
    roles = [item.role for item in made.model.questions[-1].messages]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    assert source("broken", 2) in made.model.questions[-1].messages[1].text


@pytest.mark.slow
def test_a_killed_run_asks_nothing_twice_and_shows_the_same(tmp_path: Path) -> None:
    whole = Run(tmp_path / "whole", shop(worse), "budget.rounds=4")

    def stop(candidate: Candidate) -> None:
        if _named(candidate)[1] == 5:
            raise KeyboardInterrupt

    first = Run(tmp_path, shop(worse, on_judge=stop), "budget.rounds=4")
    assert first.result.interrupted
    later = shop(worse)
    assert later.model is not None
    later.model.before = 5
    made = Run(tmp_path, later, again=True)
    assert [*first.model.shown, *made.model.shown] == whole.model.shown
    folder = next((tmp_path / "runs").iterdir())
    (folder / "checkpoint.sqlite").unlink()
    Path(made.result.report or "").unlink()
    lost = Run(tmp_path, shop(worse), again=True)
    assert lost.model.questions == []
    assert len(lost.drafts) == len(whole.model.shown)
