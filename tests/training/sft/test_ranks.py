"""Two processes that train one model, on a CPU; needs the extra `train`.

What is equal: a step of two ranks is of the very rows of one process's step with twice the batch,
but for a pass's last step, where the ranks fill up with rows that they had before.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from agentkernel.domain.errors import RankLost, TrainingError
from agentkernel.domain.exchange import Sampling
from agentkernel.training import checkpoints, model
from agentkernel.training.curve import LossPoint, read_points
from agentkernel.training.distributed import Ranks, current_ranks, launch, process_group
from agentkernel.training.evaluate.evaluation import LocalWriter
from agentkernel.training.folder import read_record
from agentkernel.training.settings import TrainingSettings, load_training, with_model
from agentkernel.training.sft.train import train_sft
from tests.training.tiny_models import make_model
from tests.training.training_ranks import Job, command_for, in_a_process
from tests.training.training_rows import make_data, make_row

# Their first runs are shared: one process makes them.
pytestmark = pytest.mark.xdist_group("ranks")
needs_trl = pytest.mark.skipif(find_spec("trl") is None, reason="the extra 'train' is not here")
SHORT = ("sft.epochs=1", "sft.save_steps=2")
PARTS = ("sft.most_steps=5", "sft.save_steps=2", "sft.shard=full")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("rows") / "data")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("base") / "model", window=2048)


@pytest.fixture(scope="module")
def together(data: Path, base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One launch of two ranks, as the libraries take longer to load than a training: copies, parts
    of a model that has weights, one that rank 1 was asked to end, one that rank 1 is killed in."""
    place = tmp_path_factory.mktemp("together")
    jobs = [
        Job(str(data), str(place / "copies"), SHORT),
        Job(
            str(data),
            str(place / "parts"),
            ("sft.most_steps=3", "sft.save_steps=1", "sft.shard=full", "sft.evaluate_problems=1"),
            model=str(base),
            evaluations=3,
        ),
        Job(str(data), str(place / "asked"), PARTS, rank=1, signal=signal.SIGTERM, step=1),
        Job(str(data), str(place / "killed"), PARTS, rank=1, signal=signal.SIGKILL, step=3),
    ]
    with pytest.raises(RankLost, match=r"Process 1 of the 2 .* SIGKILL") as caught:
        launch(command_for(place, *jobs), 2)
    assert "\n" not in str(caught.value)
    return place


def losses(out: Path) -> list[float]:
    return [point.loss for point in read_points(out, LossPoint) if point.loss is not None]


@pytest.mark.slow
@needs_trl
def test_two_ranks_learn_what_one_does_with_twice_the_batch(
    together: Path, data: Path, tmp_path: Path
) -> None:
    alone = train_sft(data, load_training("tiny", [*SHORT, "sft.batch=4"]), tmp_path)
    record = read_record(together / "copies")
    assert record is not None
    assert (record.ranks, record.sharded, record.batch) == (2, False, 4)
    assert (alone.record.ranks, alone.record.batch) == (1, 4)
    assert record.planned_steps == alone.record.planned_steps == 3
    ours, theirs = losses(together / "copies"), losses(tmp_path)
    assert len(ours) == 3
    assert ours[:2] == pytest.approx(theirs[:2], rel=1e-6)
    assert ours[2] == pytest.approx(theirs[2], rel=1e-3)
    first, second = (read_points(out, LossPoint) for out in (together / "copies", tmp_path))
    assert [point.tokens for point in first[:2]] == [point.tokens for point in second[:2]]
    assert not checkpoints.folder_of(together / "copies").exists()


@pytest.mark.slow
@needs_trl
def test_only_the_first_rank_says_and_writes(together: Path) -> None:
    said = (together / "copies.said").read_text().splitlines()
    assert said[:2] == ["30 rows", "a tokenizer of 400 tokens, made from the rows"]
    assert said[2].endswith("weights on CPU x 2, a batch of 4 rows in all")
    steps = [
        point.step
        for point in read_points(together / "copies", LossPoint)
        if point.loss is not None
    ]
    assert steps == [1, 2, 3]


@needs_trl
@pytest.mark.slow
def test_a_model_in_parts_ends_as_a_folder_like_any_other(
    together: Path, base: Path, data: Path, tmp_path: Path
) -> None:
    out = together / "parts"
    record = read_record(out)
    assert record is not None
    assert (record.ranks, record.sharded, record.finished) == (2, True, True)
    assert record.parameters == record.trained_parameters
    assert "weights and optimizer states in parts" in (together / "parts.said").read_text()
    # The judge saw the model at each step, from a checkpoint in parts.
    judged = [point.step for point in read_points(out, LossPoint) if point.pass_at_1 is not None]
    assert judged == [1, 2, 3]
    assert not list(out.glob(".*.tmp"))
    few = load_training("tiny", ["sft.most_steps=3", "sft.batch=4"])
    alone = train_sft(data, with_model(few, str(base)), tmp_path)
    assert losses(out)[:2] == pytest.approx(losses(tmp_path)[:2], rel=1e-5)
    ours, theirs = (load_file(place / "model.safetensors") for place in (out, alone.out))
    assert ours.keys() == theirs.keys()
    before = load_file(base / "model.safetensors")
    for name, weight in ours.items():
        moved = (weight - before[name]).abs().max()
        assert moved > 0
        assert (weight - theirs[name]).abs().max() < moved, name
    configs = [json.loads((place / "config.json").read_text()) for place in (out, alone.out)]
    assert configs[0] == configs[1]
    writer = LocalWriter(f"local:{out}", Sampling(temperature=1.0, max_tokens=5, seed=0))
    assert len(writer.write([make_row(1).messages], 2)[0]) == 2


@pytest.mark.slow
@needs_trl
def test_a_signal_to_one_rank_ends_all_after_the_same_step(together: Path) -> None:
    record = read_record(together / "asked")
    assert record is not None
    assert (record.ended, record.steps) == ("signal", 1)
    last = checkpoints.last_complete(checkpoints.folder_of(together / "asked"))
    assert last is not None
    whole = checkpoints.read_checkpoint(last)
    assert whole is not None
    assert (whole.step, whole.ranks, whole.sharded) == (1, 2, True)
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= whole.files.keys()


@pytest.mark.slow
@needs_trl
def test_another_number_of_ranks_is_a_mistake_of_one_line(together: Path, data: Path) -> None:
    with pytest.raises(TrainingError, match="on 2 processes, and this is one on 1") as caught:
        train_sft(data, load_training("tiny", PARTS), together / "asked")
    assert "--gpus 2" in str(caught.value)
    assert "\n" not in str(caught.value)


@needs_trl
@pytest.mark.slow
def test_after_a_kill_the_same_call_ends_where_it_would_have(
    together: Path, data: Path, tmp_path: Path
) -> None:
    out = together / "killed"
    last = checkpoints.last_complete(checkpoints.folder_of(out))
    assert last is not None
    assert last.name == "checkpoint-2"
    killed = Job(str(data), str(out), PARTS)
    whole = Job(str(data), str(tmp_path / "whole"), PARTS)
    other = Job(str(data), str(together / "asked"), ("sft.shard=none", *PARTS[:2]))
    # The last one is a mistake: its words come once, its exit code comes through.
    call = in_a_process(command_for(tmp_path, killed, whole, other), 2)
    found = subprocess.run(call, capture_output=True, text=True, check=False)
    assert found.returncode == TrainingError.exit_code, found.stderr
    told = [line for line in found.stderr.splitlines() if "Error" in line]
    assert len(told) == 1
    assert "sft.shard=full" in told[0]
    assert "goes on from step 2 of 5" in Path(f"{out}.said").read_text()
    assert losses(out) == pytest.approx(losses(tmp_path / "whole"), rel=1e-6)
    ours, theirs = (load_file(place / "model.safetensors") for place in (out, tmp_path / "whole"))
    for name, weight in ours.items():
        assert torch.allclose(weight, theirs[name], rtol=1e-5, atol=1e-7)


@needs_trl
@pytest.mark.slow
def test_the_command_starts_its_own_processes_and_torchrun_does_it_too(
    data: Path, tmp_path: Path
) -> None:
    words = ["train", "sft", str(data), "--config", "tiny", "-c", "sft.most_steps=2", "--out"]
    python = [sys.executable, "-m"]
    torchrun = [*python, "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    calls = (
        [*python, "agentkernel", *words, str(ours), "--gpus", "2", "--json"],
        [*torchrun, "agentkernel", *words, str(theirs), "--json"],
    )
    for call, out in zip(calls, (ours, theirs), strict=True):
        found = subprocess.run(call, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr
        told = json.loads(found.stdout)
        assert (told["ranks"], told["steps"], told["finished"]) == (2, 2, True)
        assert (out / "model.safetensors").is_file()
    assert losses(ours) == losses(theirs)


def settings(*overrides: str) -> TrainingSettings:
    return load_training("tiny", overrides)


def test_many_weights_lie_in_parts_and_adapters_never(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Ranks(0, 2)
    assert not model.is_sharded(settings(), two)
    assert model.is_sharded(settings("sft.shard=full"), two)
    assert not model.is_sharded(settings("sft.shard=full"), Ranks())
    named = with_model(settings(), str(base))
    known = model.parameter_count(named)
    assert known == sum(item.numel() for item in load_file(base / "model.safetensors").values())
    monkeypatch.setattr(model, "MANY_WEIGHTS", known)
    assert model.is_sharded(named, two)
    adapter = with_model(settings("sft.method=lora"), str(base))
    assert not model.is_sharded(adapter, two)
    none = with_model(settings("sft.shard=none"), str(base))
    assert not model.is_sharded(none, two)
    with pytest.raises(TrainingError, match=r"sft\.method 'lora'"):
        model.is_sharded(settings("sft.method=lora", "sft.shard=full"), two)


def test_weights_are_read_once_where_they_lie_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "FSDP_CPU_RAM_EFFICIENT_LOADING"
    monkeypatch.delenv(name, raising=False)
    with model.sharded_loading(False):
        assert name not in os.environ
    with model.sharded_loading(True):
        assert os.environ[name] == "true"
    assert name not in os.environ


def test_alone_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with process_group() as ranks:
        assert (ranks, current_ranks()) == (Ranks(), Ranks())
        assert ranks.first
        assert ranks.given(lambda: 3) == ranks.after_first(lambda: 3) == ranks.most(3) == 3
        ranks.wait()
        assert not torch.distributed.is_initialized()
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")
    assert current_ranks() == Ranks(3, 4)
    assert not current_ranks().first
