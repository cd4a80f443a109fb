"""Runs tell what their models took, and whose each diagnosis was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentkernel.agents.models.provider import ModelProvider
from agentkernel.agents.protocols import Attempt, Diagnosis
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.exchange import (
    AgentName,
    Exchange,
    Message,
    ModelRequest,
    Reply,
    Sampling,
    Usage,
)
from agentkernel.domain.settings import Settings
from agentkernel.domain.verdict import Verdict
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.targets import ResolvedTarget
from agentkernel.workflows.deps import Agents, Deps
from agentkernel.workflows.models import price_lines, priced_as
from agentkernel.workflows.optimize import run
from agentkernel.workflows.outcome import Result
from agentkernel.workflows.state import OptimizeRequest
from tests.workflows.fakes import FakeWorkshop, Script, mismatch, settings, small_problem

MODEL = "chat:openai:m"


def exchange(
    agent: AgentName, round_: int, cost: float | None, model: str = MODEL, tokens: int = 100
) -> Exchange:
    question = ModelRequest(
        agent=agent,
        round=round_,
        messages=(Message(role="user", text=f"{agent} {round_} {cost}"),),
        sampling=Sampling(temperature=0.0, max_tokens=10),
    )
    usage = Usage(prompt=tokens, completion=tokens // 10, cached=tokens // 2)
    reply = Reply(texts=("a",), finish=("stop",), usage=usage, seconds=1.5)
    return Exchange(model=model, question=question, reply=reply, cost_usd=cost, attempts=2)


class OwnWords:
    """A debugger whose advice is no rule's; the second refused candidate is left to the rules."""

    def __init__(self, rules: object) -> None:
        self.rules = rules
        self.said = 0

    def diagnose(
        self, candidate: Candidate, verdict: Verdict, history: tuple[Attempt, ...]
    ) -> Diagnosis:
        made: Diagnosis = self.rules.diagnose(candidate, verdict, history)  # type: ignore[attr-defined]
        self.said += 1
        words = {"advice": "Mask the | tail.", "by": MODEL}
        return made.evolve(**words) if self.said == 1 else made


@dataclass
class AskingWorkshop(FakeWorkshop):
    """A run factory in whose runs these questions were asked, and a model diagnosed."""

    asked: tuple[Exchange, ...] = ()

    @contextmanager
    def equip(
        self,
        loaded: LoadedProblem,
        settings: Settings,
        resolved: ResolvedTarget,
        desk: ModelProvider,
    ) -> Iterator[Deps]:
        for item in self.asked:
            desk.records.save_exchange(item.question.key(item.model), item)
        with super().equip(loaded, settings, resolved, desk) as (crew, tools):
            debugger = OwnWords(crew.debugger)
            yield Deps(Agents(crew.planner, crew.retriever, crew.coder, debugger), tools)


def ran(folder: Path, asked: tuple[Exchange, ...], *overrides: str) -> Result:
    chosen = settings(folder / "runs", "budget.rounds=1", *overrides)
    wrong = Script("rows", failure=mismatch("tail"), repaired=False)
    request = OptimizeRequest(small_problem(folder), chosen)
    return run(request, workshop=AskingWorkshop((wrong,), asked=asked))


def report_of(result: Result) -> str:
    assert result.report is not None
    return Path(result.report).read_text()


def test_a_run_without_models_says_nothing_of_them(tmp_path: Path) -> None:
    result = ran(tmp_path, ())
    assert (result.tokens, result.cost_usd, result.unpriced) == (None, None, 0)
    assert "## Models" not in report_of(result)


def test_tokens_and_money_in_the_result_and_the_report(tmp_path: Path) -> None:
    asked = (exchange("coder", 1, 0.02), exchange("coder", 2, 0.01), exchange("debugger", 1, None))
    result = ran(tmp_path, asked)
    assert (result.tokens, result.cost_usd, result.unpriced) == (330, 0.03, 1)
    assert not result.replayed
    text = report_of(result)
    assert "| coder | 2 | 4 | 200 | 20 | 100 | 0.0300 | 3.0 | – |" in text
    assert "| debugger | 1 | 2 | 100 | 10 | 50 | no price known | 1.5 | – |" in text
    assert "| 1 | 2 | 4 | 200 | 20 | 100 | at least 0.0200 | 3.0 | – |" in text
    assert "| total | 3 | 6 | 300 | 30 | 150 | at least 0.0300 | 4.5 | – |" in text
    assert f"1 of 3 answers of `{MODEL}` have no known price" in text


def test_each_diagnosis_has_its_author(tmp_path: Path) -> None:
    result = ran(tmp_path, (exchange("debugger", 1, 0.01),), f"models.debugger={MODEL}@http://h/v1")
    rows = [line for line in report_of(result).splitlines() if "| mismatch:tail |" in line]
    assert len(rows) == 2
    assert f"| 1 | {MODEL} | mismatch:tail | repair | Mask the / tail. |" in rows[0]
    assert "| 1 | the rules | mismatch:tail | next hypothesis | " in rows[1]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (exchange("coder", 1, None), "No price is known for 'openai:m@http://h/v1'"),
        (exchange("coder", 1, None, tokens=0), "counts no tokens"),
        (exchange("coder", 1, None, model="local:./w"), "runs in this process"),
    ],
)
def test_what_has_no_price_has_a_line(asked: Exchange, words: str, tmp_path: Path) -> None:
    result = ran(tmp_path, (asked,), f"coder={MODEL}", "models.base_url=http://h/v1")
    assert result.cost_usd is None
    assert words in report_of(result)


def test_a_member_of_a_team_is_priced_at_its_own_endpoint(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "runs", f"coder=team:compiler,{MODEL}@http://own/v1")
    assert priced_as(MODEL, chosen) == f"{MODEL}@http://own/v1"


def test_what_has_a_price_has_no_line(tmp_path: Path) -> None:
    from agentkernel.agents.models.costs import totals

    chosen = settings(tmp_path / "runs")
    assert list(price_lines(totals((exchange("coder", 1, 0.0),)).by_model, chosen)) == []


def test_expectations_are_held_against_measured_times(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "runs", "budget.rounds=1")
    shop = AskingWorkshop((Script("rows", speedup=2.0),), asked=(exchange("planner", 0, 0.01),))
    shop.coder.predicted_us = 5.0
    text = report_of(run(OptimizeRequest(small_problem(tmp_path), chosen), workshop=shop))
    assert "- the rules: 0 of 1 expectations held" in text
    assert "measured / predicted time 2.00×" in text
