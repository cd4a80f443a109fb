from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from agentkernel.agents.models.local import Sample
from agentkernel.cli.options import command_of
from agentkernel.cli.train.evaluate import evaluate_model, tasks_of, verdicts, write_all
from agentkernel.cli.train.options import EvaluateFlags
from agentkernel.domain.errors import ModelUnavailable, OutputError, SettingError, TrainingError
from agentkernel.domain.exchange import Message
from agentkernel.training import worker_pool
from agentkernel.training.data.conversations import HeldOutQuestion, HeldOutQuestions, to_write
from agentkernel.training.decoding import OnAnswer
from agentkernel.training.worker_pool import STRICT, JudgedSubmission, Submission
from tests.training.rl.stand_in import make_policy
from tests.training.training_rows import kernel, make_data, make_row, problem, write_rows

app = typer.Typer()
app.command()(command_of(EvaluateFlags, evaluate_model))


@pytest.mark.slow
def test_copying_is_judged_too(tmp_path: Path) -> None:
    data = make_data(tmp_path / "data")
    (data / "problems" / "held-out" / "m3.py").write_text(problem(3))
    out = tmp_path / "figures.json"
    words = [str(data), "--model", "nearest", "--samples", "2", "--out", str(out), "--json"]
    found = CliRunner().invoke(app, [*words, "--target", "h100"], catch_exceptions=False)
    told = json.loads(found.stdout)["models"]["nearest"]
    # Of three modules one is among the training rows, and its own kernel the nearest.
    assert told["problems"] == 3
    assert told["pass_at"]["1"]["value"] == pytest.approx(1 / 3)
    assert len(json.loads(out.read_text())["nearest"]["rows"]) == 3


def test_a_mistake_is_an_error_of_one_line(tmp_path: Path) -> None:
    runner = CliRunner()
    empty = write_rows(tmp_path / "empty", [make_row(0)])
    none = runner.invoke(app, [str(empty), "--model", "nearest"])
    assert isinstance(none.exception, TrainingError)
    data = make_data(tmp_path / "data")
    unknown = runner.invoke(app, [str(data), "--model", "closest"])
    assert isinstance(unknown.exception, SettingError)
    before = runner.invoke(app, [str(data), "--model", f"untrained:{tmp_path}"])
    assert isinstance(before.exception, TrainingError)
    for words, error in (("mend", SettingError), ("optimise", TrainingError)):
        found = runner.invoke(app, [str(data), "--model", "nearest", "--task", words])
        assert isinstance(found.exception, error)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--model", "local:/nowhere/at/all"], ModelUnavailable),
        (["--model", "closest"], SettingError),
        (["--out", "{here}"], OutputError),
        (["--device", "cuda", "--target", "mi300x"], SettingError),
    ],
)
def test_all_is_tried_before_anything_is_judged(
    words: list[str], error: type[Exception], tmp_path: Path
) -> None:
    data = make_data(tmp_path / "data")
    more = [word.format(here=tmp_path) for word in words]
    found = CliRunner().invoke(app, [str(data), "--model", "nearest", *more])
    assert isinstance(found.exception, error), found.exception
    assert "pass@" not in found.output


def test_kept_answers_need_no_weights(tmp_path: Path) -> None:
    data, model = make_data(tmp_path / "data"), make_policy(tmp_path / "model")
    own = model / "agentkernel.yaml"
    own.write_text(re.sub("max_tokens: .*", "max_tokens: 4", own.read_text()))
    words = [str(data), "--model", f"local:{model}", "--samples", "2", "--target", "h100"]
    more = ["--answers", str(tmp_path / "answers"), "--json"]
    first = CliRunner().invoke(app, [*words, *more], catch_exceptions=False)
    shutil.rmtree(model)
    again = CliRunner().invoke(app, [*words, *more], catch_exceptions=False)
    told = [
        json.loads(item.stdout)["models"][f"local:{model}"]["no_file_rate"]
        for item in (first, again)
    ]
    assert told[0] == told[1]
    assert told[0]["value"] == 1.0
    gone = CliRunner().invoke(app, [*words, "--seed", "1", *more])
    assert isinstance(gone.exception, ModelUnavailable)


def test_all_answers_are_written_before_one_is_judged(tmp_path: Path) -> None:
    class Writes:
        ranked = True

        def __init__(self, name: str) -> None:
            self.name = name

        def write(
            self, conversations: Sequence[Sequence[Message]], samples: int, wrote: OnAnswer
        ) -> list[list[Sample]]:
            order.append(f"{self.name}: {len(conversations)} x {samples}")
            wrote(1, 2)
            return []

    order: list[str] = []
    asked = [
        HeldOutQuestions(
            "write", "H100", (HeldOutQuestion(tmp_path, ()), HeldOutQuestion(tmp_path, ()))
        ),
        HeldOutQuestions("repair", "H100", (HeldOutQuestion(tmp_path, ()),)),
    ]
    writers = {name: partial(Writes, name) for name in ("one", "other")}
    write_all(writers, asked, 3, silent=True)
    assert order == ["one: 2 x 3", "one: 1 x 3", "other: 2 x 3", "other: 1 x 3"]


def test_what_two_models_say_is_judged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Same:
        ranked = False

        def write(
            self, conversations: Sequence[Sequence[Message]], samples: int, wrote: OnAnswer
        ) -> list[list[Sample]]:
            return [[Sample(f"```python\n{kernel(0)}```", "stop", 3)] for _ in conversations]

    def asked(lane: object, item: Submission) -> JudgedSubmission:
        judged.append(item)
        return JudgedSubmission(True)

    judged: list[Submission] = []
    monkeypatch.setattr(worker_pool, "_asked", asked)
    path = tmp_path / "m0.py"
    path.write_text(problem(0))
    questions = [to_write([path], "h100", "triton")]
    writers = {"one": Same, "other": Same}
    found = list(verdicts(writers, questions, 1, STRICT, 1, 0, silent=True))
    assert [passed.pass_at[1].value for _, passed in found] == [1.0, 1.0]
    assert judged == [Submission(path, kernel(0))]


def test_tasks_are_asked_once_each_in_their_order() -> None:
    assert tasks_of(["repair", "write", "repair"]) == ("write", "repair")
