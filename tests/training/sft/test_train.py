"""A model of a few thousand weights, from rows to `local:PATH`; needs the extra `train`."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
import yaml

from agentkernel.agents.models.local import LocalModel
from agentkernel.agents.models.local_presets import parse_local
from agentkernel.agents.models.local_weights import load_weights
from agentkernel.domain.errors import RunBusy, TrainingError
from agentkernel.domain.exchange import ModelRequest, Sampling
from agentkernel.training import checkpoints
from agentkernel.training.curve import PICTURE, LossPoint, read_points
from agentkernel.training.evaluate.answer_cache import base_model
from agentkernel.training.evaluate.evaluation import LocalWriter, PassAt, summarize
from agentkernel.training.folder import BEGUN, RECORD, exclusive, read_record
from agentkernel.training.settings import TrainingSettings, load_training, with_model
from agentkernel.training.sft import setup, train, trainer
from agentkernel.training.sft.examples import Example, as_dataset
from agentkernel.training.sft.setup import attend
from agentkernel.training.sft.train import SftResult, train_sft
from tests.training.tiny_models import make_model
from tests.training.training_rows import make_data, make_row, write_rows

pytestmark = pytest.mark.skipif(find_spec("trl") is None, reason="the extra 'train' is not here")
PROCESS = """
import sys, time
from pathlib import Path
from agentkernel.training.settings import load_training
from agentkernel.training.sft.train import train_sft

def show(done, total, words):
    print(f"step {done}", flush=True)
    time.sleep(0.1)

data, out, *overrides = sys.argv[1:]
train_sft(Path(data), load_training("tiny", overrides), Path(out), say=print, show=show)
"""
# Twelve optimizer steps and a checkpoint at every third.
STEPS = ("sft.most_steps=12", "sft.save_steps=3")


def settings(*overrides: str) -> TrainingSettings:
    return load_training("tiny", [*STEPS, *overrides])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("rows") / "data")


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> SftResult:
    """A training that nobody disturbed."""
    return train_sft(data, settings(), tmp_path_factory.mktemp("whole") / "out")


def losses(out: Path) -> list[tuple[int, float | None]]:
    return [
        (point.step, point.loss) for point in read_points(out, LossPoint) if point.loss is not None
    ]


def held_out(out: Path) -> list[tuple[int, float]]:
    points: tuple[LossPoint, ...] = read_points(out, LossPoint)
    return [(item.step, item.held_out_loss) for item in points if item.held_out_loss is not None]


def test_the_loss_falls_and_the_folder_says_how_it_came_about(whole: SftResult, data: Path) -> None:
    curve = losses(whole.out)
    assert [step for step, _ in curve] == list(range(1, 13))
    assert curve[-1][1] is not None
    assert curve[0][1] is not None
    assert curve[-1][1] < curve[0][1] - 0.1
    assert [step for step, _ in held_out(whole.out)] == [3, 6, 9, 12]
    record = read_record(whole.out)
    assert record is not None
    assert record == whole.record
    assert (record.steps, record.planned_steps, record.ended) == (12, 12, "steps")
    assert (record.rows, record.too_long, record.replayed) == (30, 0, 0)
    assert record.parameters == record.trained_parameters < 20_000
    assert record.tokens > record.tokens_a_pass
    assert record.device
    assert "<polyline" in (whole.out / PICTURE).read_text()
    assert not checkpoints.folder_of(whole.out).exists()


def test_it_is_loaded_as_a_coder_and_writes(whole: SftResult) -> None:
    own = yaml.safe_load((whole.out / "agentkernel.yaml").read_text())
    assert own == {
        "model": ".",
        "prompt": "taught",
        "temperature": 0.8,
        "top_p": 0.95,
        "max_tokens": 64,
    }
    model = LocalModel(f"local:{whole.out}")
    assert model.preset.prompt == "taught"
    # Drawn: what so small a model holds for likeliest is a mark, which is no text.
    asked = Sampling(temperature=1.0, max_tokens=20, seed=0)
    turns = make_row(3).messages
    reply = model.ask(ModelRequest(agent="coder", round=0, messages=turns, sampling=asked))
    assert reply.texts[0].strip()
    assert reply.usage.completion > 5


def test_the_weights_before_it_are_known(whole: SftResult, tmp_path: Path) -> None:
    before = base_model(whole.out)
    after = load_weights(parse_local(f"local:{whole.out}"))
    first, last = next(before.model.parameters()), next(after.model.parameters())
    assert first.shape == last.shape
    assert not torch.equal(first, last)
    answers = LocalWriter(before, Sampling(temperature=1.0, max_tokens=5)).write(
        [make_row(1).messages], 2
    )
    assert len(answers[0]) == 2
    with pytest.raises(TrainingError, match="holds no training"):
        base_model(tmp_path)


def test_the_same_call_does_nothing_more(
    whole: SftResult, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train._Training, "_train", None)
    said: list[str] = []
    again = train_sft(data, settings(), whole.out, say=said.append)
    assert again.record == whole.record
    assert again.resumed_from == 12
    assert said == ["all 12 steps were done before"]


@pytest.mark.slow
def test_killed_between_two_steps_it_ends_where_it_would_have(
    whole: SftResult, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    places = checkpoints.folder_of(out)
    _killed_after(8, data, out)
    assert not (out / RECORD).exists()
    assert checkpoints.last_complete(places) == places / "checkpoint-6"
    # What a kill in the middle of saving leaves: a folder without a marker.
    half = places / "checkpoint-9"
    half.mkdir(exist_ok=True)
    (half / "optimizer.pt").write_bytes(b"half")
    said: list[str] = []
    done = train_sft(data, settings(), out, say=said.append)
    assert done.resumed_from == 6
    assert "left out checkpoint-9: a kill left half of it" in said
    assert "goes on from step 6 of 12" in said
    assert [step for step, _ in losses(out)] == list(range(1, 13))
    for (_, ours), (_, theirs) in zip(losses(out), losses(whole.out), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6)
    assert [loss for _, loss in held_out(out)] == pytest.approx(
        [loss for _, loss in held_out(whole.out)], rel=1e-6
    )
    assert done.record.tokens == whole.record.tokens


def _killed_after(step: int, data: Path, out: Path) -> None:
    command = [sys.executable, "-c", PROCESS, str(data), str(out), *STEPS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == f"step {step}\n":
                process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


@pytest.mark.slow
def test_killed_before_the_record_it_only_writes_the_folder(
    whole: SftResult, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*args: object, **named: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(train._Training, "_save", killed)
        with pytest.raises(Killed):
            train_sft(data, settings(), tmp_path)
    done = train_sft(data, settings(), tmp_path)
    assert done.resumed_from == 12
    assert done.finished
    same = {"settings", "versions", "data", "seconds"}
    assert done.record.model_dump(exclude=same) == whole.record.model_dump(exclude=same)
    assert losses(tmp_path) == losses(whole.out)
    first, second = (out / "model.safetensors" for out in (tmp_path, whole.out))
    assert first.read_bytes() == second.read_bytes()


def test_a_signal_saves_and_ends_it_and_the_time_too(data: Path, tmp_path: Path) -> None:
    def show(done: int, total: int | None, words: str) -> None:
        if done == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    stopped = train_sft(data, settings(), tmp_path, show=show)
    assert (stopped.record.ended, stopped.record.steps) == ("signal", 5)
    assert signal.getsignal(signal.SIGTERM) == before
    assert not (tmp_path / "model.safetensors").exists()
    late = train_sft(data, settings("sft.most_minutes=1e-9"), tmp_path)
    # What was spent until the signal was more: no step is taken any more.
    assert (late.record.ended, late.record.steps, late.resumed_from) == ("minutes", 5, 5)
    assert (tmp_path / "model.safetensors").exists()
    assert not late.finished
    assert losses(tmp_path)[-1][1] == late.record.loss


@pytest.mark.slow
def test_what_the_time_ended_is_judged_left_alone_and_goes_on_with_more(
    whole: SftResult, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = summarize([], 1, (1,), "triton", "H100")
    calls: list[str] = []

    def judged(model: str, *rest: object) -> PassAt:
        calls.append(model)
        return passed

    monkeypatch.setattr(train, "judge_model", judged)
    limited = settings("sft.most_minutes=1e-9", "sft.evaluate_problems=2")
    done = train_sft(data, limited, tmp_path)
    assert (done.record.ended, done.record.steps, done.finished) == ("minutes", 1, False)
    assert done.record.passed == passed
    assert checkpoints.folder_of(tmp_path).exists()
    with monkeypatch.context() as patch:
        patch.setattr(train._Training, "_train", None)
        said: list[str] = []
        again = train_sft(data, limited, tmp_path, say=said.append)
    assert (again.record, again.resumed_from) == (done.record, 1)
    assert said == ["the time was up before, after step 1 of 12; more minutes go on"]
    # A kill before the record: the checkpoint says that there is no time left.
    (tmp_path / RECORD).unlink()
    written = train_sft(data, limited, tmp_path)
    assert (written.record.ended, written.record.steps) == ("minutes", 1)
    assert written.record.loss == done.record.loss
    more = train_sft(data, settings("sft.most_minutes=60", "sft.evaluate_problems=2"), tmp_path)
    assert (more.resumed_from, more.record.steps, more.finished) == (1, 12, True)
    assert calls == [str(tmp_path)] * 3
    assert not checkpoints.folder_of(tmp_path).exists()


def watched(times: int, most_minutes: float | None = None) -> list[int]:
    """The steps of twelve, with a checkpoint at every third, at which a model is judged."""
    from transformers import TrainerControl, TrainerState, TrainingArguments

    found: list[int] = []

    def judge(place: Path, step: int) -> None:
        found.append(step)

    with TemporaryDirectory() as name:
        watching = trainer.TrainingCallback(
            Path(name),
            trainer.TrainingClock(None, most_minutes, time.monotonic() - 50.0),
            trainer.StopRequest(),
            lambda done, total, words: None,
            trainer.CheckpointJudge(judge, times),
        )
        arguments = TrainingArguments(output_dir=name, report_to="none")
        state, control = TrainerState(max_steps=12), TrainerControl()
        watching.on_train_begin(arguments, state, control)
        for state.global_step in (3, 6, 9, 12):
            (Path(name) / f"checkpoint-{state.global_step}").mkdir()
            watching.on_save(arguments, state, control)
        assert watching.seconds > 50.0
    return found


@pytest.mark.parametrize("broken", ["loss", "grad_norm"])
def test_what_is_no_number_ends_it_before_a_checkpoint(broken: str, tmp_path: Path) -> None:
    from transformers import TrainerControl, TrainerState, TrainingArguments

    watching = trainer.TrainingCallback(
        tmp_path,
        trainer.TrainingClock(None, None),
        trainer.StopRequest(),
        lambda done, total, words: None,
    )
    arguments = TrainingArguments(output_dir=str(tmp_path), report_to="none")
    logs = {"loss": 1.0, "grad_norm": 0.5}
    for first in (True, False):  # all ranks end, not the one alone that writes
        state = TrainerState(global_step=7, is_world_process_zero=first)
        watching.on_log(arguments, state, TrainerControl(), logs)
        with pytest.raises(TrainingError, match="at step 7 is nan"):
            watching.on_log(arguments, state, TrainerControl(), logs | {broken: math.nan})


def test_judging_on_the_way_is_spread_over_steps_or_time() -> None:
    assert [watched(times) for times in (1, 2, 3, 4)] == [[], [6], [6, 9], [3, 6, 9]]
    # 50 of 75 seconds were over at once: two of three are due, and the last one is at the end.
    assert watched(3, most_minutes=75 / 60) == [3]


def test_packed_rows_are_told_apart_and_only_completions_are_learned(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents: list[int] = []

    def seen(*args: Any, **others: Any) -> Any:
        ends = others["cu_seq_lens_q"]
        assert others["max_length_q"] == int(ends.diff().max())
        documents.append(len(ends) - 1)
        return attend(*args, **others)

    monkeypatch.setattr(setup, "attend", seen)
    train_sft(data, load_training("tiny", ["sft.most_steps=1"]), tmp_path)
    assert max(documents) > 4
    items = [Example([5, 6, 7, 8], 2), Example([9, 10], 1)]
    assert as_dataset(items)[:] == {
        "input_ids": [[5, 6, 7, 8], [9, 10]],
        "labels": [[-100, -100, 7, 8], [-100, 10]],
    }


def test_an_adapter_is_trained_saved_and_loaded_on_its_model(data: Path, tmp_path: Path) -> None:
    base = make_model(tmp_path / "base", window=2048)
    few = [*STEPS[1:], "sft.most_steps=2", "sft.method=lora", "sft.lora.rank=2"]
    out = tmp_path / "out"
    done = train_sft(data, with_model(load_training("tiny", few), str(base)), out)
    assert done.record.trained_parameters < done.record.parameters / 5
    assert (out / "adapter_model.safetensors").is_file()
    assert not (out / "model.safetensors").exists()
    own = yaml.safe_load((out / "agentkernel.yaml").read_text())
    assert (own["model"], own["adapter"]) == (str(base), ".")
    model = LocalModel(f"local:{out}")
    asked = Sampling(temperature=0.0, max_tokens=5)
    turns = make_row(3).messages
    assert model.ask(ModelRequest(agent="coder", round=0, messages=turns, sampling=asked)).texts
    # An adapter that is there already is trained further, or put into all weights.
    further = train_sft(data, with_model(load_training("tiny", few), str(out)), tmp_path / "more")
    assert further.record.trained_parameters == done.record.trained_parameters
    full = [*STEPS[1:], "sft.most_steps=1", "sft.packing=false"]
    merged = train_sft(data, with_model(load_training("tiny", full), str(out)), tmp_path / "full")
    assert (merged.out / "model.safetensors").is_file()
    assert merged.record.trained_parameters == merged.record.parameters


def test_held_out_modules_are_judged_at_the_end(data: Path, tmp_path: Path) -> None:
    few = ["sft.most_steps=1", "sft.evaluate_problems=2"]
    done = train_sft(
        data, load_training("tiny", few), tmp_path, judging=train.HeldOutJudging("h100", 2)
    )
    passed = done.record.passed
    assert passed is not None
    assert (passed.problems, passed.samples, passed.pass_at[1].value) == (2, 2, 0.0)
    assert passed.no_file_rate.value == 1.0
    assert read_points(tmp_path, LossPoint)[-1].pass_at_1 == 0.0


def test_there_is_a_point_at_each_checkpoint(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "MOST_POINTS", 3)
    train_sft(data, settings(), tmp_path)
    assert [step for step, _ in losses(tmp_path)] == [3, 4, 6, 8, 9, 12]


def test_older_rows_are_repeated(data: Path, tmp_path: Path) -> None:
    older = write_rows(
        tmp_path / "older", [make_row(number, structure="older") for number in range(41, 101, 3)]
    )
    few = load_training("tiny", ["sft.most_steps=1", "sft.replay=0.25"])
    done = train_sft(data, few, tmp_path / "out", older=older)
    assert (done.record.replayed, done.record.rows) == (10, 40)
    with pytest.raises(TrainingError, match="older data was"):
        train_sft(data, few, tmp_path / "out")


@pytest.mark.parametrize("change", ["sft.learning_rate=1e-2", "sft.seed=3", "new.hidden=32"])
def test_another_training_is_not_gone_on_with(whole: SftResult, data: Path, change: str) -> None:
    with pytest.raises(TrainingError, match=change.partition("=")[0]) as caught:
        train_sft(data, settings(change), whole.out)
    assert "\n" not in str(caught.value)


def test_other_data_is_not_gone_on_with(whole: SftResult, tmp_path: Path) -> None:
    other = write_rows(tmp_path, [make_row(7)])
    with pytest.raises(TrainingError, match="data was"):
        train_sft(other, settings(), whole.out)


def test_a_folder_that_somebody_trains_in_is_left_alone(whole: SftResult, data: Path) -> None:
    with exclusive(whole.out), pytest.raises(RunBusy, match="Another process"):
        train_sft(data, settings(), whole.out)


@pytest.mark.parametrize("label", ["refused", "not-judged"])
def test_a_poisoned_row_never_reaches_a_step(tmp_path: Path, label: str) -> None:
    rows = [make_row(0), make_row(1, label=label), make_row(2)]
    poisoned = write_rows(tmp_path / "data", rows)
    with pytest.raises(TrainingError, match=rows[1].id[:12]):
        train_sft(poisoned, settings(), tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.safetensors"))
    assert not checkpoints.folder_of(tmp_path / "out").exists()


def test_no_row_that_fits_is_said(data: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="window of 16 tokens"):
        train_sft(data, settings("sft.window=16"), tmp_path)
    repairs = write_rows(tmp_path / "data", [make_row(0, task="repair")])
    with pytest.raises(TrainingError, match="no row of the tasks write"):
        train_sft(repairs, settings("sft.tasks=[write]"), tmp_path / "other")


def test_an_adapter_on_a_new_model_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"sft\.method=full"):
        train_sft(data, settings("sft.method=lora"), tmp_path)


def test_what_the_folder_belongs_to_can_be_read(whole: SftResult) -> None:
    begun = json.loads((whole.out / BEGUN).read_text())
    assert begun["sft.learning_rate"] == "0.003"
    assert "sft.most_minutes" not in begun
