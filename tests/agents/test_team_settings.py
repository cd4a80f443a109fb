"""Who is in a team, by which names, and how each of them is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.agents.coder_factory import check_coder, make_coder
from agentkernel.agents.compiler_coder import CompilerCoder
from agentkernel.agents.models.provider import ModelProvider
from agentkernel.agents.protocols import DraftRequest, Goals, PlanRequest
from agentkernel.agents.team import TeamCoder, TeamPlanner
from agentkernel.domain.errors import SettingError
from agentkernel.domain.settings import ClassCoders, Settings, TeamOptions
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.targets import ResolvedTarget
from agentkernel.workflows.run_factory import make_agents
from tests.compiler.first_drafts import TARGET, FirstFirst
from tests.workflows.fakes import ANALYSIS, settings, small_problem

ANN, BOB = "chat:openai:ann", "chat:openai:bob"


def team_settings(folder: Path, *more: str) -> Settings:
    return settings(folder / "runs", "coder=team", *more)


def test_each_member_has_a_name_a_temperature_and_seeds_of_its_own(tmp_path: Path) -> None:
    chosen = team_settings(tmp_path, "seed=5", "models.samples=2")
    provider = ModelProvider(options=ModelProvider().options.evolve(samples=2))
    made = make_coder(f"team:{ANN},{ANN},{BOB}", FirstFirst(), provider=provider, settings=chosen)
    assert isinstance(made, TeamCoder)
    assert [item.name for item in made.members] == [ANN, f"{ANN} #2", BOB]
    assert [item.sampling.temperature for item in made.members] == pytest.approx([0.2, 0.5, 0.2])
    used = [
        item._sampling(number).seed + sample  # type: ignore[operator]
        for item in made.members
        for number in range(1, 4)
        for sample in range(2)
    ]
    assert sorted(used) == list(range(5, 5 + 18))


def test_temperatures_and_classes_come_from_the_settings(tmp_path: Path) -> None:
    chosen = team_settings(
        tmp_path, f"team.members=[{ANN}, {BOB}]", "team.temperatures=[0.1, 0.9]",
        "team.by_class.memory=compiler", "team.by_class.compute=[chat:openai:cid]",
    )  # fmt: skip
    made = make_coder("team", FirstFirst(), provider=ModelProvider(), settings=chosen)
    assert isinstance(made, TeamCoder)
    assert [item.sampling.temperature for item in made.members] == [0.1, 0.9]
    names = {
        kind: [item.name for item in made.members_for(kind)]
        for kind in ("memory", "compute", "latency")
    }
    assert names == {"memory": [], "compute": ["chat:openai:cid"], "latency": [ANN, BOB]}
    assert chosen.policy == "mixed"


@pytest.mark.parametrize(
    ("spec", "options", "told"),
    [
        ("team", TeamOptions(), "names no model"),
        ("team:", TeamOptions(), "names no model"),
        ("team:compiler", TeamOptions(), "names no model"),
        ("team:parrot", TeamOptions(), "'parrot'"),
        ("team", TeamOptions(members=("chat:openai",)), "names no model"),
        ("team", TeamOptions(by_class=ClassCoders(mixed=("parrot",))), "'parrot'"),
        ("parrot", TeamOptions(), "'parrot'"),
    ],
)
def test_a_wrong_name_is_one_line_before_anything_is_begun(
    spec: str, options: TeamOptions, told: str
) -> None:
    with pytest.raises(SettingError, match=told):
        check_coder(spec, options)


@pytest.mark.parametrize("spec", ["compiler", ANN, f"team:{ANN}, {BOB}", f"team:compiler,{ANN}"])
def test_right_names_pass(spec: str) -> None:
    check_coder(spec, TeamOptions())


def test_the_real_compiler_drafts_what_is_its_own(tmp_path: Path) -> None:
    problem = small_problem(tmp_path)
    chosen = team_settings(tmp_path, f"team.members=[{ANN}]")
    coder = make_coder("team", FirstFirst(), provider=ModelProvider(), settings=chosen)
    captured = capture(problem)
    here = ResolvedTarget(TARGET, None, "a test", measurable=False)
    crew = make_agents(chosen, here, coder, lambda: captured, ModelProvider())
    assert isinstance(crew.planner, TeamPlanner)
    goals = Goals(policy=chosen.policy)
    plan = crew.planner.plan(PlanRequest(problem, ANALYSIS, TARGET, goals))
    assert [item.strategy for item in plan.hypotheses] == ["fused"]
    asked = DraftRequest(
        target=TARGET, goals=goals, plan=plan, hypothesis=plan.hypotheses[0], retrieved=(),
        history=(), diagnosis=None, round=1,
    )  # fmt: skip
    made = crew.coder.draft(problem, asked).candidate
    assert (made.coder, "@triton.jit" in made.source) == (CompilerCoder.name, True)


def test_a_tuned_model_is_given_the_module_as_it_was_taught(tmp_path: Path) -> None:
    chosen = team_settings(tmp_path, f"team.members=[local:kernelllm, {ANN}]")
    made = make_coder("team", FirstFirst(), provider=ModelProvider(), settings=chosen)
    assert isinstance(made, TeamCoder)
    assert [item.improves for item in made.members] == [False, True]
    assert [item.sampling.temperature for item in made.members] == [1.0, 0.2]
