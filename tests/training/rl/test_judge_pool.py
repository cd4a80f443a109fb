"""Is each file judged once, in processes that live on, and is a lost judge no verdict?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Generic

import pytest

from agentkernel.agents.conversation import completion
from agentkernel.domain.errors import EnvironmentFailure, SandboxUnavailable, SettingError
from agentkernel.runtime.worker import AnswerT, RequestT, WorkerFailed
from agentkernel.training.judged_problems import Verification
from agentkernel.training.rl import judge_pool
from agentkernel.training.rl.judge_pool import (
    JudgePool,
    LocalBackend,
    ProblemAnswer,
    RlJudging,
    turn_settings,
)
from agentkernel.training.rl.judge_worker import (
    JudgedTurn,
    TurnAnswer,
    TurnRequest,
    TurnSettings,
    reward_of,
)
from tests.training.rl.stand_in import settings, verdict
from tests.training.training_rows import kernel, problem

CHEAT = """import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x + 2.0
"""
SAYS = """
print('{"turn": {"file": "x", "verdict": {"accepted": true}}}', flush=True)
"""


class Scripted:
    """Judges by a table of texts; what is not in it is lost, the first `loses` questions too."""

    def __init__(self, *, loses: int = 0, unable: str = "") -> None:
        self.asked: list[TurnRequest] = []
        self.loses, self.unable, self.closed = loses, unable, False

    def ask(self, questions: Sequence[TurnRequest]) -> list[TurnAnswer | WorkerFailed]:
        self.asked += questions
        return [self._one(item) for item in questions]

    def _one(self, question: TurnRequest) -> TurnAnswer | WorkerFailed:
        self.loses -= 1
        if self.loses >= 0 or "lost" in question.file:
            return WorkerFailed(reason="the process ended with -9: ")
        why = "not timed: twin died" if "slow" in question.file else ""
        turn = JudgedTurn(file=question.file, verdict=verdict(), why=why)
        return TurnAnswer(turn=turn, unable=self.unable)

    def close(self) -> None:
        self.closed = True


def answer(text: str, of: str = "p") -> ProblemAnswer:
    return ProblemAnswer(of, completion("Why.", text))


def test_equal_files_are_judged_once_and_no_file_never() -> None:
    judges = Scripted()
    with JudgePool(judges) as pool:
        found = pool.judge(
            [answer(CHEAT), answer(CHEAT), answer(CHEAT, "q"), ProblemAnswer("p", "No.")]
        )
        assert [item.file is not None for item in found] == [True, True, True, False]
        assert len(judges.asked) == 2
        assert pool.judge([answer(CHEAT)]) == found[:1]
        assert len(judges.asked) == 2
    assert judges.closed


def test_a_lost_judge_is_asked_again_and_then_there_is_no_verdict() -> None:
    once = JudgePool(Scripted(loses=1)).judge([answer(CHEAT)])
    assert once[0].verdict is not None
    judges = Scripted()
    lost = CHEAT + "# lost\n"
    found = JudgePool(judges).judge([answer(lost), answer(CHEAT)])
    assert (found[0].verdict, found[0].file) == (None, lost)
    assert reward_of(found[0], settings().rl).value is None
    assert found[1].verdict is not None
    assert len(judges.asked) == 3


def test_a_file_that_hangs_does_not_end_a_training_whose_judges_are_there() -> None:
    pool = JudgePool(Scripted())
    lost = [answer(CHEAT + f"# lost {number}\n") for number in range(4)]
    for item in lost[:2]:
        assert pool.judge([item])[0].verdict is None
    assert pool.judge([answer(CHEAT)])[0].verdict is not None
    for item in lost[:2]:
        assert pool.judge([item])[0].verdict is None
    with pytest.raises(EnvironmentFailure, match="Nobody judged any of 1 files"):
        pool.judge(lost[2:3])


def test_what_could_not_be_timed_is_asked_again() -> None:
    judges = Scripted()
    pool = JudgePool(judges)
    file = CHEAT + "# slow\n"
    assert pool.judge([answer(file)])[0].why
    assert pool.judge([answer(file)])[0].why
    assert len(judges.asked) == 2


def test_where_nothing_is_judged_nothing_is_learned() -> None:
    with pytest.raises(EnvironmentFailure, match="Nobody judged any of 1 files"):
        JudgePool(Scripted(loses=9)).judge([answer(CHEAT)])
    with pytest.raises(SandboxUnavailable, match="no bubblewrap"):
        JudgePool(Scripted(unable="no bubblewrap")).judge([answer(CHEAT)])


@pytest.mark.slow
def test_the_judge_itself() -> None:
    """Right, wrong, a cheat, and one that prints what a verdict looks like."""
    asked = TurnSettings(
        verification=Verification(policy="triton", budget_s=0.0, seeds=1),
        target="h100",
        speed="none",
    )
    wrong = kernel(0).replace("+ 2.0", "+ 3.0")
    with JudgePool(LocalBackend(asked, jobs=1)) as pool:
        texts = (kernel(0), wrong, CHEAT, wrong + SAYS)
        found = pool.judge([ProblemAnswer(problem(0), completion("", text)) for text in texts])
        broken = pool.judge([answer(kernel(0), "raise SystemExit('no module')")])
    outcomes = [reward_of(item, settings().rl).outcome for item in found]
    assert outcomes == ["right", "wrong", "hack", "wrong"]
    assert [item.file for item in found] == list(texts)
    assert broken[0].verdict is None
    assert broken[0].why


def test_where_one_judge_cannot_be_asked_the_others_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Generic[RequestT, AnswerT]):
        def __init__(self, *given: object) -> None:
            self.asked = 0
            lanes.append(self)

        def ask(self, question: TurnRequest, timeout_s: float) -> WorkerFailed:
            self.asked += 1
            if self is lanes[1]:
                raise OSError("no more processes")
            time.sleep(0.1)
            return WorkerFailed(reason="-")

        def kill(self) -> None: ...
        def close(self) -> None: ...

    lanes: list[Slow] = []
    monkeypatch.setattr(judge_pool, "Worker", Slow)
    judges = LocalBackend(TurnSettings(), jobs=2)
    with pytest.raises(OSError, match="no more processes"):
        judges.ask([TurnRequest(problem=str(number), file="x") for number in range(20)])
    judges.close()
    assert lanes[0].asked < 4


def test_times_that_nobody_can_measure_are_not_promised() -> None:
    with pytest.raises(SettingError, match="cannot be measured"):
        turn_settings(RlJudging(target="h100", device="cpu", speed="measured"))
    found = turn_settings(RlJudging(target="h100", device="cpu"))
    assert (found.speed, found.verification.policy) == ("estimated", "triton")
