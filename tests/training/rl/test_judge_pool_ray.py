"""Do the workers of a Ray cluster judge as the processes here do? Needs the extra `ray`."""

from __future__ import annotations

import importlib.util

import pytest

from agentkernel.agents.conversation import completion
from agentkernel.domain.errors import MissingDependency
from agentkernel.training.judged_problems import Verification
from agentkernel.training.rl.judge_pool import JudgePool, LocalBackend, ProblemAnswer, RayBackend
from agentkernel.training.rl.judge_worker import TurnSettings, reward_of
from tests.training.rl.stand_in import settings
from tests.training.training_rows import kernel, problem

HERE = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HERE, reason="the extra 'ray' is not here")
ASKED = TurnSettings(
    verification=Verification(policy="triton", budget_s=0.0, seeds=1), target="h100", speed="none"
)


def test_without_the_package_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"pip install '\.\[ray\]'"):
        RayBackend("auto", ASKED)


@needs_ray
@pytest.mark.slow
def test_a_cluster_that_nobody_started() -> None:
    with pytest.raises(MissingDependency, match=r"No Ray cluster answers at '127\.0\.0\.1:9'"):
        RayBackend("127.0.0.1:9", ASKED, patience_s=5.0)


@needs_ray
@pytest.mark.slow
def test_the_same_verdicts_as_here() -> None:
    texts = (kernel(0), kernel(1), "class ModelNew:\n    pass\n")
    asked = [ProblemAnswer(problem(0), completion("", text)) for text in texts]
    with JudgePool(LocalBackend(ASKED, jobs=1)) as pool:
        here = [reward_of(item, settings().rl) for item in pool.judge(asked)]
    with JudgePool(RayBackend("local", ASKED)) as pool:
        there = [reward_of(item, settings().rl) for item in pool.judge(asked)]
    assert here == there
    assert [item.outcome for item in here] == ["right", "wrong", "hack"]
