"""A given file is drafted once, as it stands; what is no such file is refused in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.agents.coder_factory import (
    MOST_BYTES,
    FileCoder,
    FilePlanner,
    check_coder,
    make_coder,
)
from agentkernel.agents.protocols import Attempt, DraftRequest, Goals, PlanRequest
from agentkernel.domain.errors import SettingError
from agentkernel.domain.plan import Hypothesis, Plan
from agentkernel.domain.settings import TeamOptions
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.search import StaticSearcher
from agentkernel.tools.targets import load_targets
from tests.workflows.fakes import ANALYSIS, attempt, settings, small_problem

TEXT = "class ModelNew:\n    pass\n"
TARGET = load_targets()["h100-sxm"]


def asked(*history: Attempt) -> DraftRequest:
    idea = Hypothesis(strategy="given", reason="r")
    return DraftRequest(
        target=TARGET, goals=Goals(), plan=Plan(analysis=ANALYSIS, hypotheses=(idea,)),
        hypothesis=idea, retrieved=(), history=history, diagnosis=None, round=3,
    )  # fmt: skip


def offered(coder: FileCoder, problem: LoadedProblem, *history: Attempt) -> list[str]:
    plan = FilePlanner(coder).plan(PlanRequest(problem, ANALYSIS, TARGET, Goals(), history))
    return [item.strategy for item in plan.hypotheses]


def test_the_text_is_drafted_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    coder = make_coder(f"file:{tmp_path / 'kernel.py'}", StaticSearcher(1.0))
    candidate = coder.draft(small_problem(tmp_path), asked(attempt(name="b"))).candidate
    assert (candidate.source, candidate.coder) == (TEXT, "file:kernel.py")
    assert (candidate.strategy, candidate.round) == ("given", 3)


def test_the_same_text_is_not_drafted_again(tmp_path: Path) -> None:
    coder, problem = FileCoder("file:k.py", TEXT), small_problem(tmp_path)
    made = coder.draft(problem, asked(attempt(name=TEXT)))
    assert made.candidate is None
    assert "file:k.py was tried" in made.none.reason


def test_the_plan_offers_the_text_until_it_was_tried(tmp_path: Path) -> None:
    coder, problem = FileCoder("file:k.py", TEXT), small_problem(tmp_path)
    other = attempt(name="another")
    named = other.candidate.evolve(strategy="given")
    assert offered(coder, problem) == ["given"]
    assert offered(coder, problem, other.evolve(candidate=named)) == ["given"]
    assert offered(coder, problem, attempt(name=TEXT)) == []
    asked = PlanRequest(problem, ANALYSIS, TARGET, Goals(), exhausted=("given",))
    assert FilePlanner(coder).plan(asked).hypotheses == ()


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (None, "No such file"),
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"\xff\xfe\x00", "decode"),
        (b"class ModelNew:\n    x = '\x00'\n", "is binary"),
        (b"#" * (MOST_BYTES + 1), "bytes"),
    ],
    ids=["gone", "nothing", "blank", "encoding", "zero", "long"],
)
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes | None, hint: str) -> None:
    path = tmp_path / "kernel.py"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingError, match=hint) as raised:
        check_coder(f"file:{path}", TeamOptions())
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("spec", "hint"), [("file:", "names no file"), ("file:.", "directory")])
def test_a_path_that_cannot_be_one(spec: str, hint: str) -> None:
    with pytest.raises(SettingError, match=hint):
        check_coder(spec, TeamOptions())


def test_a_given_file_may_keep_the_librarys_products(tmp_path: Path) -> None:
    assert settings(tmp_path / "runs", "coder=file:k.py").policy == "mixed"
    assert settings(tmp_path / "runs", "coder=file:k.py", "goals.policy=triton").policy == "triton"
    assert settings(tmp_path / "runs", "coder=chat:openai:m").policy == "triton"
