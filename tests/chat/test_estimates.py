"""Is a module worked out once, never for another question than the one that was asked?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.agents.planner import MODEL_IDEAS
from agentkernel.agents.protocols import Goals
from agentkernel.chat import figures
from agentkernel.chat.figures import MOST_CACHED, EstimateCache
from agentkernel.chat.replies import Explained, Planned, StepRan, TextReply
from agentkernel.chat.requests import Intent, OnCandidate, Plain, Size, TryIdea
from agentkernel.chat.requests import SetShapes as Shapes
from agentkernel.chat.session import Session
from agentkernel.domain.errors import ProblemError
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.loading import LoadedProblem, load_problem, problem_from_module
from agentkernel.tools.targets import find_target
from tests.workflows import fakes

PRODUCT = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return x @ y


def get_inputs():
    return [torch.randn(2048, 2048), torch.randn(2048, 2048)]


def get_init_inputs():
    return []
"""
SMALL = "x float32[4, 8]"
LOOKS: tuple[Intent, ...] = (
    Plain(name="plan"),
    Plain(name="ideas"),
    OnCandidate(name="profile"),
    OnCandidate(name="roofline"),
)


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shapes of every graph that was captured in eval mode; the compiler's rules look at
    others, for training and at the smallest sizes."""
    seen: list[str] = []
    real = figures.capture

    def counted(loaded: LoadedProblem, shape_set: int = 0, *, training: bool = False) -> Captured:
        if not training:
            seen.append(loaded.problem.shape_sets[0].label)
        return real(loaded, shape_set, training=training)

    monkeypatch.setattr(figures, "capture", counted)
    return seen


def test_a_module_is_captured_once_a_session(session: Session, captured: list[str]) -> None:
    for _ in range(2):
        for look in LOOKS:
            assert isinstance(session.do(look), Planned | Explained)
    assert captured.count(SMALL) == 1


def test_another_target_or_precision_has_other_figures_of_the_same_graph(
    tmp_path: Path, captured: list[str]
) -> None:
    path = tmp_path / "product.py"
    path.write_text(PRODUCT)
    outlook, loaded = EstimateCache(), load_problem(str(path))
    asked = (("h100", "strict"), ("a100", "strict"), ("h100", "tf32"), ("h100", "strict"))
    bounds = [
        outlook.figures(loaded, find_target(name).target, precision).analysis.bound_us  # type: ignore[arg-type]
        for name, precision in asked
    ]
    assert bounds[0] == bounds[3]
    assert len(set(bounds)) == 3
    assert len(captured) == 1


def test_other_sizes_are_another_graph(session: Session, captured: list[str]) -> None:
    before = session.do(Plain(name="plan"))
    session.do(Shapes(sizes=(Size(name="batch", value=64),)))
    after = session.do(Plain(name="plan"))
    assert isinstance(before, Planned)
    assert isinstance(after, Planned)
    assert after.plan.analysis.bytes_min > before.plan.analysis.bytes_min
    session.say("undo")
    assert session.do(Plain(name="plan")) == before
    assert (captured.count(SMALL), captured.count("x float32[64, 8]")) == (1, 1)


def test_a_file_that_was_loaded_again_is_looked_at_again(
    tmp_path: Path, captured: list[str]
) -> None:
    outlook, target = EstimateCache(), find_target("h100").target
    for _ in range(2):
        outlook.figures(fakes.small_problem(tmp_path), target, "strict")
    assert len(captured) == 2


def test_a_live_module_is_looked_at_each_time(captured: list[str]) -> None:
    from torch import nn, ones

    outlook, target = EstimateCache(), find_target("h100").target
    module = nn.Sequential(nn.ReLU())
    loaded = problem_from_module(module, (ones(4, 8),))
    one = outlook.figures(loaded, target, "strict")
    module.append(nn.Softmax(dim=-1))
    two = outlook.figures(loaded, target, "strict")
    assert one.analysis.op_counts != two.analysis.op_counts


def test_a_failure_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outlook, target = EstimateCache(), find_target("h100").target
    loaded = fakes.small_problem(tmp_path)

    def fail(loaded: LoadedProblem) -> Captured:
        raise ProblemError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(figures, "capture", fail)
        with pytest.raises(ProblemError):
            outlook.figures(loaded, target, "strict")
    assert outlook.figures(loaded, target, "strict").analysis.bound_us > 0


@pytest.mark.slow
def test_only_the_last_few_are_kept(tmp_path: Path) -> None:
    outlook, target = EstimateCache(), find_target("h100").target
    for _ in range(MOST_CACHED + 3):
        outlook.figures(fakes.small_problem(tmp_path), target, "strict")
    assert len(outlook._graphs) == len(outlook._figures) == MOST_CACHED


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("coder", "ideas"),
    [
        ("compiler", ("fused",)),
        ("chat:openai:gpt", tuple(item.strategy for item in MODEL_IDEAS)),
        ("team", ("fused",)),
        ("file:/nowhere.py", ()),
    ],
)
def test_the_first_plan_names_what_its_coder_would_try(
    tmp_path: Path, coder: str, ideas: tuple[str, ...]
) -> None:
    loaded, resolved = fakes.small_problem(tmp_path), find_target("h100")
    settings = fakes.settings(tmp_path / "runs").evolve(coder=coder)
    plan = EstimateCache().first_plan(loaded, resolved, Goals(), settings)
    assert tuple(item.strategy for item in plan.hypotheses)[: len(ideas)] == ideas
    assert bool(plan.hypotheses) == bool(ideas)
    assert all(item.predicted_us for item in plan.hypotheses)


def test_before_a_run_the_plan_says_that_it_is_by_rule(session: Session) -> None:
    before = session.do(Plain(name="plan"))
    assert isinstance(before, Planned)
    assert before.plan.hypotheses
    assert before.note.startswith("Planned by rule, nothing was run yet.")
    session.say("run")
    after = session.do(Plain(name="plan"))
    assert isinstance(after, Planned)
    assert after.note == ""


def test_an_idea_of_the_first_plan_can_be_tried(session: Session) -> None:
    found = session.do(Plain(name="ideas"))
    assert isinstance(found, Planned)
    unknown = session.do(TryIdea(idea=9))
    assert isinstance(unknown, TextReply)
    assert f"1. {found.plan.hypotheses[0].strategy}" in unknown.text
    assert isinstance(session.do(TryIdea(idea=1)), StepRan | TextReply)
    assert session.tree.steps
