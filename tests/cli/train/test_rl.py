"""`agentkernel train rl` on a command line of its own; needs the extra `train`."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from agentkernel.cli.options import command_of
from agentkernel.cli.train.model import rl
from agentkernel.cli.train.options import RlFlags
from agentkernel.domain.errors import SettingError
from tests.training.rl.stand_in import make_modules, make_policy

needs_trl = pytest.mark.skipif(find_spec("trl") is None, reason="the extra 'train' is not here")
FEW = ("steps=1", "problems=1", "rollouts=2", "turns=1", "most_tokens=4", "batch=2")


def call(*arguments: str) -> tuple[int, str, BaseException | None]:
    """`rl` alone, as an application of its own."""
    app = typer.Typer()
    app.command()(command_of(RlFlags, rl))
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output, result.exception


@needs_trl
def test_it_practises_and_says_how_to_use_the_model(tmp_path: Path) -> None:
    data, model = make_modules(tmp_path / "data"), make_policy(tmp_path / "model")
    folders = [str(data), "--model", str(model), "--out", str(tmp_path / "out")]
    options = ["--config", "tiny", "--target", "h100", "--device", "cpu", "--jobs", "1"]
    few = [word for item in FEW for word in ("-c", f"rl.{item}")]
    code, said, error = call(*folders, *options, *few)
    assert error is None, said
    assert code == 0
    assert "estimated for h100" in said
    assert "1 of 1 steps" in said
    assert f"--coder local:{tmp_path / 'out'}" in said.replace("\n", "")
    code, said, _ = call(*folders, *options, *few, "--json")
    assert json.loads(said)["finished"] is True


def test_what_cannot_be_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [str(tmp_path), "--model", str(tmp_path), "--out", str(out), "--config", "tiny"]
    _, _, error = call(*words, "--target", "h100", "--device", "cpu", "--speed", "measured")
    assert isinstance(error, SettingError)
    _, _, error = call(*words, "--target", "mi300x", "--device", "cuda")
    assert isinstance(error, SettingError)
    assert "no GPU here stands for" in str(error)
    _, _, error = call(*words, "-c", "rl.stepps=3")
    assert isinstance(error, SettingError)
    assert "rl.steps" in str(error)
    assert not out.exists()
