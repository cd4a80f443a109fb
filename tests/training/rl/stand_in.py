"""A world small enough for a test: a model of a few thousand weights, modules to practise on, and
somebody in the judge's place who likes letters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentkernel.domain.verdict import Failure, Gate, Verdict
from agentkernel.training.folder import save_weights
from agentkernel.training.model_shape import make_new
from agentkernel.training.rl.judge_pool import ProblemAnswer
from agentkernel.training.rl.judge_worker import JudgedTurn, Speed
from agentkernel.training.settings import NewModel, RlSettings, SamplingSettings, TrainingSettings
from agentkernel.training.sft.examples import make_tokenizer
from tests.training.training_rows import make_row, problem, write_rows

GOOD = frozenset("abcdefghijklmnopqrstuvwxyz")
TINY = NewModel(vocabulary=320, hidden=16, layers=1, heads=2, intermediate=32, window=1024)


def make_policy(folder: Path) -> Path:
    """A folder with random weights, as a fine-tuning leaves it."""
    tokenizer = make_tokenizer([problem(0), problem(1)], TINY.vocabulary, TINY.window)
    folder.mkdir(parents=True)
    save_weights(folder, make_new(TINY, tokenizer, 0), tokenizer, None, SamplingSettings())
    return folder


def make_modules(folder: Path, count: int = 3) -> Path:
    """A data folder with `count` modules to practise on, and one of another structure held out."""
    rows = [make_row(number, structure=f"train {number}") for number in range(count)]
    held_out = [make_row(90, split="held-out", structure="held out")]
    found = write_rows(folder, rows, held_out)
    place = found / "problems" / "held-out"
    place.mkdir(parents=True)
    (place / "m90.py").write_text(problem(90))
    return found


def settings(**changes: object) -> TrainingSettings:
    """Two problems, three tries of two turns, answers of four tokens; `changes` to `rl`."""
    values: dict[str, object] = {
        "steps": 6,
        "problems": 2,
        "rollouts": 3,
        "turns": 2,
        "most_tokens": 4,
        "batch": 4,
        "temperature": 1.0,
        "learning_rate": 3e-2,
        "save_steps": 2,
        "keep_at_most": 1.0,
    }
    return TrainingSettings(
        name="practice", model="-", rl=RlSettings.model_validate(values | changes)
    )


def verdict(failure: Failure | None = None, gate: Gate = "accepted") -> Verdict:
    """Accepted, or refused for `failure`."""
    return Verdict(
        candidate="0" * 64,
        problem="1" * 64,
        accepted=failure is None,
        interpreted=True,
        device="cpu",
        gate=gate,
        failure=failure,
    )


class LikesLetters:
    """Takes any answer for a file; right is one with a letter, the faster the more it has."""

    def __init__(self) -> None:
        self.asked = 0

    def judge(self, answers: Sequence[ProblemAnswer]) -> list[JudgedTurn]:
        self.asked += len(answers)
        return [_judged(item.text) for item in answers]


def _judged(text: str) -> JudgedTurn:
    good = sum(letter in GOOD for letter in text)
    if not good:
        return JudgedTurn()
    return JudgedTurn(
        file="class ModelNew: ...\n",
        verdict=verdict(),
        speed=Speed(by="estimated", speedup=float(good), own_share=good / len(text)),
        facts=(("time", "1 us"),),
    )
