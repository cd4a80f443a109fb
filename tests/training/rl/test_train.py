"""A model learns what is rewarded, wherever it is killed; needs the extra `train`."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from agentkernel.agents.conversation import completion
from agentkernel.agents.models.local import prompt_ids
from agentkernel.agents.models.local_presets import parse_local
from agentkernel.agents.models.local_weights import load_weights
from agentkernel.domain.errors import RunBusy, TrainingError
from agentkernel.domain.verdict import PolicyViolation
from agentkernel.runtime.machine import installed_versions
from agentkernel.training import checkpoints, folder
from agentkernel.training.curve import FILE, PICTURE, RlPoint, read_points
from agentkernel.training.data.rows import fingerprint, training_problems
from agentkernel.training.folder import RECORD, exclusive
from agentkernel.training.judged_problems import Verification
from agentkernel.training.rl import train, trainer
from agentkernel.training.rl.judge_pool import (
    JudgePool,
    LocalBackend,
    ProblemAnswer,
)
from agentkernel.training.rl.judge_worker import JudgedTurn, TurnSettings
from agentkernel.training.rl.rollouts import TurnSample
from agentkernel.training.rl.train import RlRecord, RlResult, train_rl
from agentkernel.training.rl.trainer import micro_batches
from agentkernel.training.settings import TrainingSettings, load_training, with_model
from tests.training.rl.stand_in import (
    GOOD,
    LikesLetters,
    make_modules,
    make_policy,
    settings,
    verdict,
)
from tests.training.training_rows import kernel, problem

pytestmark = pytest.mark.skipif(find_spec("trl") is None, reason="the extra 'train' is not here")
ROOT = Path(__file__).parents[3]
PROCESS = """
import sys, time
from pathlib import Path
from agentkernel.training.rl.train import train_rl
from agentkernel.training.settings import with_model
from tests.training.rl.stand_in import LikesLetters, settings

def show(done, total, words):
    print(f"step {done} {words}", flush=True)
    time.sleep(0.1)

data, model, out = sys.argv[1:]
chosen = with_model(settings(), model)
train_rl(Path(data), chosen, Path(out), environment=LikesLetters(), say=print, show=show)
"""
TORCH_ALONE = "from torch import nn\n\n\nclass ModelNew(nn.Module):\n    pass\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_modules(tmp_path_factory.mktemp("rl") / "data")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_policy(tmp_path_factory.mktemp("rl") / "model")


def practise(data: Path, policy: Path, out: Path, **changes: object) -> RlResult:
    chosen = settings(**changes)
    return train_rl(data, with_model(chosen, str(policy)), out, environment=LikesLetters())


@pytest.fixture(scope="module")
def whole(data: Path, policy: Path, tmp_path_factory: pytest.TempPathFactory) -> RlResult:
    """A training that nobody disturbed."""
    return practise(data, policy, tmp_path_factory.mktemp("rl") / "whole")


def chance(folder: Path, data: Path) -> float:
    """How likely it is that the model's first token has a letter."""
    import torch

    weights = load_weights(parse_local(str(folder)))
    task = training_problems(data, ("Apache-2.0",))[0].task
    tokens = torch.tensor([prompt_ids(weights.tokenizer, [task], chat_template=True)])
    with torch.no_grad():
        logits = weights.model(tokens).logits[0, -1]  # type: ignore[operator]
    good = [
        token
        for token in range(len(weights.tokenizer))
        if set(weights.tokenizer.decode([token], skip_special_tokens=True)) & GOOD
    ]
    return float(logits.softmax(0)[good].sum())


@pytest.mark.slow
def test_what_is_rewarded_becomes_likelier(policy: Path, data: Path, tmp_path: Path) -> None:
    done = practise(data, policy, tmp_path / "out", steps=18, rollouts=6)
    before, after = chance(policy, data), chance(done.out, data)
    assert before < 0.7
    assert after > before + 0.2
    record = done.record
    assert record.begin is not None
    assert record.end is not None
    points = read_points(done.out, RlPoint)
    # Of two right turns the second is paid where it is faster: 1.2 is about the most a turn.
    assert points[-1].reward > points[0].reward + 0.2
    assert points[-1].first > points[0].first
    assert points[0].entropy is not None


@pytest.mark.gpu
def test_a_gpu_learns_the_same(policy: Path, data: Path, tmp_path: Path) -> None:
    done = practise(data, policy, tmp_path / "out", steps=18, rollouts=6)
    assert "NVIDIA" in done.record.device
    assert chance(done.out, data) > chance(policy, data) + 0.2


@pytest.mark.slow
def test_a_cheat_becomes_rarer(policy: Path, data: Path, tmp_path: Path) -> None:
    class HatesLetters:
        """The judge's verdict on whatever has one is that it cheats."""

        def judge(self, answers: Sequence[ProblemAnswer]) -> list[JudgedTurn]:
            caught = PolicyViolation(rule="torch-compute", line=1, text="torch.add")
            return [
                JudgedTurn(
                    file="x",
                    verdict=verdict(caught, "policy") if set(item.text) & GOOD else verdict(),
                )
                for item in answers
            ]

    chosen = settings(steps=15, rollouts=12, turns=1)
    out = tmp_path / "out"
    train_rl(data, with_model(chosen, str(policy)), out, environment=HatesLetters())
    rates = [point.hack_rate for point in read_points(out, RlPoint)]
    assert sum(rates[:3]) / 3 > sum(rates[-3:]) / 3 + 0.2
    assert chance(out, data) < chance(policy, data) - 0.2


@pytest.mark.slow
def test_another_share_than_fine_tuning_spared_is_refused(tmp_path: Path) -> None:
    data = make_modules(tmp_path / "data", 12)
    model = make_policy(tmp_path / "model")
    tuned = load_training("tiny", ["rl.spared=0.5"])
    counts = dict.fromkeys(
        [
            "parameters",
            "trained_parameters",
            "steps",
            "planned_steps",
            "rows",
            "too_long",
            "replayed",
            "tokens",
            "tokens_a_pass",
            "epochs",
            "seconds",
        ],
        1,
    )
    record = folder.Record.model_validate(
        counts
        | {"name": "tiny", "ended": "steps", "settings": tuned, "data": str(data), "device": "CPU"}
        | {"data_sha256": fingerprint(data), "card_sha256": None, "older_sha256": None}
        | {"precision": "fp32", "versions": installed_versions(), "packages": {}}
    )
    folder.write_record(model, record)
    with pytest.raises(TrainingError, match=r"Next: -c rl\.spared=0\.5"):
        practise(data, model, tmp_path / "out", steps=1)
    assert practise(data, model, tmp_path / "out", steps=1, spared=0.5).record.problems < 12
    folder.write_record(model, record.evolve(data_sha256="1" * 64))
    assert practise(data, model, tmp_path / "other", steps=1).record.problems == 12


@pytest.mark.slow
def test_a_gradient_that_is_no_number_changes_nothing(
    whole: RlResult, policy: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    def poisoned(samples: object, *others: object) -> list[dict[str, torch.Tensor]]:
        found = micro_batches(samples, *others)  # type: ignore[arg-type]
        played.append(len(found))
        if len(played) in bad:
            found[-1]["advantages"] *= torch.nan
        return found

    monkeypatch.setattr(trainer, "micro_batches", poisoned)
    played, bad = list[int](), {2, 4, 5}
    done = practise(data, policy, tmp_path / "out")
    weights = load_weights(parse_local(str(done.out))).model.parameters()  # type: ignore[operator]
    assert all(item.isfinite().all() for item in weights)
    norms = [item.gradient_norm for item in read_points(done.out, RlPoint)]
    assert [norm is not None and not math.isfinite(norm) for norm in norms] == [
        step in bad for step in range(1, 7)
    ]
    played, bad = list[int](), {2, 3, 4}
    with pytest.raises(TrainingError, match=r"gradients of 3 steps in a row .* up to step 4"):
        practise(data, policy, tmp_path / "lost")
    last = checkpoints.last_complete(checkpoints.folder_of(tmp_path / "lost"))
    assert last is not None


def test_the_folder_is_a_model_and_says_how_it_came_about(whole: RlResult) -> None:
    own = yaml.safe_load((whole.out / "agentkernel.yaml").read_text())
    assert (own["model"], own["prompt"]) == (".", "taught")
    assert parse_local(f"local:{whole.out}").prompt == "taught"
    record = folder.read_as(RlRecord, whole.out)
    assert record == whole.record
    assert record is not None
    assert (record.steps, record.planned_steps, record.ended) == (6, 6, "steps")
    assert (record.problems, record.speed, record.judged_on) == (3, "estimated", "cpu")
    points = read_points(whole.out, RlPoint)
    assert [item.step for item in points] == list(range(1, 7))
    assert record.turns == sum(item.turns for item in points) <= 6 * 2 * 3 * 2
    assert "<polyline" in (whole.out / PICTURE).read_text()
    assert not checkpoints.folder_of(whole.out).exists()


@pytest.mark.slow
def test_the_same_call_does_nothing_more_and_another_is_refused(
    whole: RlResult, data: Path, policy: Path
) -> None:
    again = practise(data, policy, whole.out)
    assert (again.record, again.resumed_from) == (whole.record, 6)
    with pytest.raises(TrainingError, match=r"rl\.hack was -1\.0, and is -2\.0"):
        practise(data, policy, whole.out, hack=-2.0)
    with pytest.raises(TrainingError, match="model was"):
        practise(data, whole.out, whole.out)
    with exclusive(whole.out), pytest.raises(RunBusy):
        practise(data, policy, whole.out)


@pytest.mark.slow
def test_killed_it_goes_on_and_ends_where_it_would_have(
    whole: RlResult, data: Path, policy: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    places = checkpoints.folder_of(out)
    _killed_at(5, data, policy, out)
    assert not (out / RECORD).exists()
    assert checkpoints.last_complete(places) == places / "checkpoint-4"
    # What a kill in the middle of saving or of a line leaves.
    half = places / "checkpoint-6"
    half.mkdir()
    (half / "optimizer.pt").write_bytes(b"half")
    with (out / FILE).open("a") as file:
        file.write('{"step": 6, "rew')
    done = practise(data, policy, out)
    assert done.resumed_from == 4
    ours, theirs = read_points(out, RlPoint), read_points(whole.out, RlPoint)
    timed = {"seconds", "write_s", "judge_s"}
    assert [item.model_dump(exclude=timed) for item in ours] == [
        item.model_dump(exclude=timed) for item in theirs
    ]
    first, second = (folder / "model.safetensors" for folder in (out, whole.out))
    assert first.read_bytes() == second.read_bytes()


def _killed_at(step: int, data: Path, policy: Path, out: Path) -> None:
    command = [sys.executable, "-c", PROCESS, str(data), str(policy), str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(f"step {step} reward"):
                process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


@pytest.mark.slow
def test_killed_before_the_record_it_only_writes_the_folder(
    whole: RlResult, data: Path, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*args: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(train._Training, "_save", killed)
        with pytest.raises(Killed):
            practise(data, policy, tmp_path)
    done = practise(data, policy, tmp_path)
    assert (done.resumed_from, done.finished) == (6, True)
    first, second = (folder / "model.safetensors" for folder in (tmp_path, whole.out))
    assert first.read_bytes() == second.read_bytes()


def test_the_time_is_up_and_the_same_call_goes_on(
    whole: RlResult, data: Path, policy: Path, tmp_path: Path
) -> None:
    done = practise(data, policy, tmp_path, most_minutes=1e-6)
    assert (done.record.ended, done.record.steps) == ("minutes", 1)
    weights = (tmp_path / "model.safetensors").read_bytes()
    again = practise(data, policy, tmp_path, most_minutes=1e-6)
    assert (again.record, again.resumed_from) == (done.record, 1)
    # A kill before the record: the checkpoint says that there is no time left.
    for name in ("training.json", "model.safetensors"):
        (tmp_path / name).unlink()
    written = practise(data, policy, tmp_path, most_minutes=1e-6)
    assert (written.record.ended, written.record.steps) == ("minutes", 1)
    assert (tmp_path / "model.safetensors").read_bytes() == weights
    done = practise(data, policy, tmp_path)
    assert (done.resumed_from, done.finished) == (1, True)
    first, second = (folder / "model.safetensors" for folder in (tmp_path, whole.out))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.slow
def test_how_samples_are_cut_into_batches_changes_nothing(
    data: Path, policy: Path, tmp_path: Path
) -> None:
    found = [
        read_points(practise(data, policy, tmp_path / str(rows), steps=1, batch=rows).out, RlPoint)[
            0
        ]
        for rows in (1, 5, 64)
    ]
    assert found[0].learned > 5
    norms = [point.gradient_norm for point in found]
    assert norms == pytest.approx([norms[0]] * 3, rel=1e-3)
    assert found[0].reward == found[2].reward


def test_samples_are_padded_on_their_own_sides_and_the_idle_left_out() -> None:
    from agentkernel.training.rl.trainer import micro_batches

    samples = [
        TurnSample((7, 8), (9,), 0.5),
        TurnSample((5,), (3, 4), -1.0),
        TurnSample((1, 1, 1), (2, 2), 0.0),
    ]
    empty, batch = micro_batches(samples, count=2, rows=4, pad=0)
    assert batch["prompt_ids"].tolist() == [[7, 8], [0, 5]]
    assert batch["prompt_mask"].tolist() == [[1, 1], [0, 1]]
    assert batch["completion_ids"].tolist() == [[9, 0], [3, 4]]
    assert batch["completion_mask"].tolist() == [[1, 0], [1, 1]]
    assert batch["advantages"].tolist() == [0.5, -1.0]
    assert int(batch["num_items_in_batch"]) == 5
    assert empty["completion_mask"].sum() == 0


@pytest.mark.slow
def test_an_adapter_is_trained_further(data: Path, policy: Path, tmp_path: Path) -> None:
    def lora(out: Path, model: Path, method: str) -> RlResult:
        base = settings(steps=2)
        sft = base.sft.evolve(method=method)
        chosen = base.evolve(sft=sft)
        return train_rl(data, with_model(chosen, str(model)), out, environment=LikesLetters())

    first = lora(tmp_path / "one", policy, "lora")
    assert first.record.trained_parameters < first.record.parameters
    own = yaml.safe_load((first.out / "agentkernel.yaml").read_text())
    assert own["adapter"] == "."
    second = lora(tmp_path / "two", first.out, "full")
    assert second.record.settings.sft.method == "lora"
    one, two = (item.out / "adapter_model.safetensors" for item in (first, second))
    assert one.read_bytes() != two.read_bytes()


def test_a_held_out_module_ends_it(policy: Path, tmp_path: Path) -> None:
    data = make_modules(tmp_path / "data")
    (data / "problems" / "held-out" / "m1.py").write_text(problem(1))
    with pytest.raises(TrainingError, match="is held out"):
        practise(data, policy, tmp_path / "out")


class Puts:
    """Puts files of a table in the place of a tiny model's nonsense, and asks the judge itself."""

    def __init__(self, pool: JudgePool) -> None:
        self.pool = pool

    def judge(self, answers: Sequence[ProblemAnswer]) -> list[JudgedTurn]:
        return self.pool.judge([item._replace(text=self._text(item)) for item in answers])

    def _text(self, item: ProblemAnswer) -> str:
        number = next(number for number in range(3) if problem(number) == item.problem)
        wrong = kernel(number + 1)
        files = (kernel(number), wrong, TORCH_ALONE)
        return completion("", files[len(item.text) % 3])


@pytest.mark.slow
def test_two_steps_on_the_judge_itself(data: Path, policy: Path, tmp_path: Path) -> None:
    asked = TurnSettings(
        verification=Verification(policy="triton", budget_s=0.0, seeds=1), target="h100"
    )
    chosen: TrainingSettings = settings(steps=2, rollouts=4)
    with JudgePool(LocalBackend(asked, jobs=2)) as pool:
        done = train_rl(data, with_model(chosen, str(policy)), tmp_path, environment=Puts(pool))
    points = read_points(done.out, RlPoint)
    assert done.finished
    assert all(point.undecided == 0.0 for point in points)
    assert sum(point.correct for point in points) > 0
    assert sum(point.hack_rate for point in points) > 0
    assert any(point.speedup is not None and point.speedup > 0 for point in points)
    assert any(point.own_share == 1.0 for point in points)
