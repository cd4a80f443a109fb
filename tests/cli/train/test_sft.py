from __future__ import annotations

import json
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from agentkernel.cli.options import command_of
from agentkernel.cli.train import model
from agentkernel.cli.train.model import command_words, sft
from agentkernel.cli.train.options import SftFlags
from agentkernel.domain.errors import SettingError, TrainingError
from tests.training.training_rows import make_data, make_row, write_rows

app = typer.Typer()
app.command()(command_of(SftFlags, sft))
needs_trl = pytest.mark.skipif(find_spec("trl") is None, reason="the extra 'train' is not here")


@needs_trl
def test_a_call_says_what_came_out_and_how_to_use_it(tmp_path: Path) -> None:
    data, out = make_data(tmp_path / "data", 6), tmp_path / "out"
    words = [str(data), "--config", "tiny", "--out", str(out), "-c", "sft.most_steps=2"]
    first = CliRunner().invoke(app, words, catch_exceptions=False)
    assert first.exit_code == 0
    text = " ".join(first.stdout.split())
    assert "6 rows" in text
    assert "2 of 2 steps" in text
    assert f"--coder local:{out}" in "".join(first.stdout.split("\n"))
    again = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    found = json.loads(again.stdout)
    assert (found["finished"], found["steps"], found["rows"]) == (True, 2, 6)


def test_several_gpus_get_the_words_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[str]] = []

    def on_several(context: typer.Context, gpus: str) -> None:
        found.append(command_words(context))
        raise typer.Exit(7)

    monkeypatch.setattr(model, "_launch_ranks", on_several)
    out = str(tmp_path / "out")
    words = [str(tmp_path), "--out", out, "--config", "tiny", "-c", "sft.batch=1", "--json"]
    call = [*words, "-c", "sft.epochs=3", "--model", "there", "--gpus", "auto"]
    assert CliRunner().invoke(app, call).exit_code == 7
    told = found[0]
    assert told[:2] == ["train", "sft"]
    assert told[-2:] == ["--", str(tmp_path)]
    assert "--gpus" not in told
    for pair in (("--model", "there"), ("-c", "sft.batch=1"), ("-c", "sft.epochs=3")):
        assert pair in list(pairwise(told))
    # The same words mean the same call.
    assert CliRunner().invoke(app, ["--gpus", "2", *told[2:]]).exit_code == 7
    assert found[1] == told


def test_more_gpus_than_there_are_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    words = [str(tmp_path), "--config", "tiny", "--out", str(tmp_path / "out"), "--gpus", "2"]
    found = CliRunner().invoke(app, words)
    assert isinstance(found.exception, SettingError)
    assert "--gpus auto" in str(found.exception)


def test_a_mistake_is_an_error_of_one_line(tmp_path: Path) -> None:
    runner = CliRunner()
    words = [str(tmp_path), "--out", str(tmp_path / "out")]
    unknown = runner.invoke(app, [*words, "--config", "smaller"])
    assert isinstance(unknown.exception, SettingError)
    setting = runner.invoke(app, [*words, "-c", "sft.epoch=3"])
    assert "sft.epochs" in str(setting.exception)


@needs_trl
def test_a_poisoned_row_is_an_error_of_one_line(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "data", [make_row(0, label="refused")])
    words = [str(data), "--config", "tiny", "--out", str(tmp_path / "out")]
    found = CliRunner().invoke(app, words)
    assert isinstance(found.exception, TrainingError)
    assert "\n" not in str(found.exception)
