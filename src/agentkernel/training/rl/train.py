"""Reinforcement learning of a model on the judge, resumable after a kill at any moment.

`training.json` records the run. A run goes on in its folder only with the same settings, data,
weights and judging.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentkernel.agents.models.local_presets import LocalPreset, model_folder, parse_local
from agentkernel.domain.base import Frozen
from agentkernel.domain.certificate import Versions
from agentkernel.domain.errors import TrainingError
from agentkernel.runtime.machine import installed_versions
from agentkernel.training import checkpoints, folder
from agentkernel.training.curve import RlPoint, draw_curve, drop_points_after, read_points
from agentkernel.training.data.rows import RlProblem, chosen_at, fingerprint, training_problems
from agentkernel.training.decoding import TokenSampling
from agentkernel.training.folder import (
    Ended,
    Precision,
    device_name,
    in_bf16,
    precision_of,
    read_record,
    silenced_libraries,
    without_default_settings,
)
from agentkernel.training.model import (
    BaseWeights,
    already_done_message,
    check_packages,
    drop_checkpoints,
    interrupted_message,
    is_time_spent,
    is_time_spent_at,
    load_base,
    load_tokenizer,
    lora_of,
    save_trained,
)
from agentkernel.training.model_shape import MANY_WEIGHTS
from agentkernel.training.rl.judge_pool import (
    JudgePool,
    ProblemAnswer,
    RlEnvironment,
    RlJudging,
    make_judges,
    speed_source_note,
    turn_settings,
)
from agentkernel.training.rl.judge_worker import Basis, JudgedTurn, TurnSettings
from agentkernel.training.rl.rollouts import (
    ModelWriter,
    roll_out,
    samples_of,
    turn_statistics,
)
from agentkernel.training.settings import Say, Show, TrainingSettings
from agentkernel.training.sft.setup import read_state, without_cudnn_attention

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from agentkernel.training.rl.trainer import RlCallback, TrainingRound


FREE = ("most_minutes", "save_steps")
"""Settings that change nothing of what is learned: the same training may go on with others."""
WEIGHTS = ("*.safetensors", "config.json", "adapter_config.json", "tokenizer.json")
HEAD = 1 << 20


def model_hash(preset: LocalPreset) -> str:
    """Of the names, sizes and first megabytes of the files that the weights are made of."""
    found = hashlib.sha256()
    for name in (preset.model, preset.adapter):
        place = Path(model_folder(name)) if name is not None else None
        for path in _weight_files(place) if place is not None else ():
            found.update(f"{path.name}:{path.stat().st_size}\n".encode())
            with path.open("rb") as file:
                found.update(file.read(HEAD))
    return found.hexdigest()


def check_held_back(preset: LocalPreset, data_sha256: str, settings: TrainingSettings) -> None:
    """Raise TrainingError where the model was fine-tuned on this data and left another share of its
    modules to practice than is asked for."""
    found = read_record(Path(model_folder(preset.adapter or preset.model)))
    if found is None or found.data_sha256 != data_sha256:
        return
    left = found.settings.rl.spared
    if left != settings.rl.spared:
        raise TrainingError(
            f"rl.spared is {settings.rl.spared}, and the model's fine-tuning left {left} of the "
            f"modules to practice. Expected the same share. Next: -c rl.spared={left}"
        )


def _weight_files(place: Path) -> list[Path]:
    return sorted(path for pattern in WEIGHTS for path in place.glob(pattern))


def rl_run_identity(
    settings: TrainingSettings, asked: TurnSettings, data_sha256: str, model_sha256: str
) -> dict[str, str]:
    """All that decides what is learned, by name."""
    rl = settings.rl.model_dump(mode="json", exclude=set(FREE))
    named = without_default_settings({f"rl.{key}": json.dumps(value) for key, value in rl.items()})
    return {
        **named,
        "method": settings.sft.method,
        "licences": json.dumps(settings.data.licences),
        "model": model_sha256[:16],
        "data": data_sha256[:16],
        "judged on": asked.verification.device,
        "speed": asked.speed,
        "target": asked.target or "default",
    }


class Means(Frozen):
    """The means of a few steps; see RlPoint."""

    steps: int
    reward: float
    first: float
    correct: float
    hack_rate: float
    speedup: float | None


class RlRecord(Frozen):
    """training.json: how the weights beside it came about."""

    kind: Literal["rl"] = "rl"
    name: str
    ended: Ended
    settings: TrainingSettings
    model: str
    model_sha256: str
    data: str
    data_sha256: str
    parameters: int
    trained_parameters: int
    steps: int
    planned_steps: int
    problems: int
    turns: int
    answer_tokens: int
    begin: Means | None
    end: Means | None
    speed: Basis | Literal["none"]
    """Whether the rewards' speedups were measured or estimated: never both in one training."""
    judged_on: Literal["cpu", "cuda"]
    device: str
    precision: Precision
    seconds: float
    versions: Versions
    packages: dict[str, str]

    @property
    def finished(self) -> bool:
        """True where no step is left."""
        return self.ended == "steps"


def means(points: Sequence[RlPoint]) -> Means | None:
    """Over some steps; None where there are none."""
    if not points:
        return None
    speedups = [point.speedup for point in points if point.speedup is not None]
    names = ("reward", "first", "correct", "hack_rate")
    found = {name: sum(getattr(point, name) for point in points) / len(points) for name in names}
    speedup = sum(speedups) / len(speedups) if speedups else None
    return Means(steps=len(points), speedup=speedup, **found)


def rl_title(record: RlRecord) -> str:
    """What stands over the curve."""
    steps = f"{record.steps} of {record.planned_steps} steps"
    return f"{record.name}: {record.parameters:,} weights, {steps}, speedups {record.speed}"


PACKAGES = ("trl", "transformers", "peft", "accelerate", "tokenizers")
LAST = 10
"""Steps at either end that the record's means are taken over."""


@dataclass(frozen=True)
class RlResult:
    """What a call of `train_rl` came to."""

    out: Path
    record: RlRecord
    resumed_from: int | None
    """The step of the checkpoint that it went on from."""

    @property
    def finished(self) -> bool:
        """True where no step is left."""
        return self.record.finished


@dataclass
class _Timed:
    """An environment, and the seconds that it took."""

    environment: RlEnvironment
    seconds: float = field(default=0.0)

    def judge(self, answers: Sequence[ProblemAnswer]) -> list[JudgedTurn]:
        begun_s = time.monotonic()
        try:
            return self.environment.judge(answers)
        finally:
            self.seconds += time.monotonic() - begun_s


def train_rl(
    data: Path,
    settings: TrainingSettings,
    out: Path,
    *,
    rl_judging: RlJudging | None = None,
    environment: RlEnvironment | None = None,
    say: Say = lambda line: None,
    show: Show = lambda done, total, words: None,
) -> RlResult:
    """Let the weights that `settings.model` names practise on the training modules in `data` by
    TRL's GRPOTrainer, and leave in `out` what `--coder local:OUT` loads. `environment` takes the
    judge's place.

    The same call goes on from the last whole checkpoint after a kill, and does nothing more where
    all is done or the time is used up. Raises TrainingError where a module is held out or `out`
    holds another training, SettingError, RunBusy, MissingDependency, ModelUnavailable,
    SandboxUnavailable, OutputError.
    """
    asked = turn_settings(rl_judging or RlJudging())
    model = settings.model or ""
    preset = parse_local(model)
    settings = _as_fine_tuned(settings, preset)
    check_packages(settings.sft)
    data_hash, weights_hash = fingerprint(data), model_hash(preset)
    check_held_back(preset, data_hash, settings)
    with folder.exclusive(out):
        folder.claim(out, rl_run_identity(settings, asked, data_hash, weights_hash))
        record = folder.read_as(RlRecord, out)
        if record is not None:
            folder.check_weights(out, record.ended)
        if record is not None and (record.finished or _used_up(record, settings)):
            say(already_done_message(record.steps, record.planned_steps))
            return RlResult(out, record, record.steps)
        problems = training_problems(data, settings.data.licences, settings.rl.spared)
        say(f"{len(problems)} modules to practise on; speedups are {speed_source_note(asked)}")
        with ExitStack() as held:
            held.enter_context(silenced_libraries())
            place = environment or held.enter_context(JudgePool(make_judges(rl_judging, asked)))
            training = _Training(settings, preset, problems, place, asked, out, say, show)
            record, resumed = training.run()
        record = record.evolve(
            model=model,
            model_sha256=weights_hash,
            data=str(data),
            data_sha256=data_hash,
        )
        folder.write_record(out, record)
        draw_curve(out, rl_title(record), RlPoint)
        if record.finished:
            drop_checkpoints(out)
    return RlResult(out, record, resumed)


def _used_up(before: RlRecord, settings: TrainingSettings) -> bool:
    return is_time_spent(before, before.settings.rl.most_minutes, settings.rl.most_minutes)


def _as_fine_tuned(settings: TrainingSettings, preset: LocalPreset) -> TrainingSettings:
    """An adapter is trained further; weights without one as the settings' fine-tuning did."""
    method = settings.sft.method
    if preset.adapter is not None and method == "full":
        method = "lora"
    sft = settings.sft.evolve(method=method, bf16=settings.rl.bf16)
    return settings.evolve(new=None, sft=sft)


@dataclass(frozen=True)
class _Training:
    """One call's training, with all that it needs."""

    settings: TrainingSettings
    preset: LocalPreset
    problems: tuple[RlProblem, ...]
    environment: RlEnvironment
    asked: TurnSettings
    out: Path
    say: Say
    show: Show

    def run(self) -> tuple[RlRecord, int | None]:
        """Train until all is done, the time is up or somebody asks to end."""
        from agentkernel.training.rl.trainer import RlCallback
        from agentkernel.training.sft.trainer import TrainingClock, stop_on_signal

        rl, begin_s = self.settings.rl, time.monotonic()
        tokenizer = load_tokenizer(self.settings.model or "")
        base = load_base(self.settings, tokenizer, "sdpa")
        self.say(f"{base.parameters:,} weights on {device_name()}")
        places = checkpoints.make_checkpoint_folder(self.out)
        last, whole = checkpoints.resume_point(places, self.say)
        drop_points_after(self.out, whole.step if whole else 0, RlPoint)
        trainer = self._trainer(base, tokenizer, places)
        with stop_on_signal() as stop:
            clock = TrainingClock(whole, rl.most_minutes, begin_s)
            watch = RlCallback(self.out, clock, stop, self.show)
            trainer.add_callback(watch)
            if whole is not None:
                self.say(f"goes on from step {whole.step} of {rl.steps}")
            late = whole is not None and whole.step < rl.steps
            if last is not None and late and is_time_spent_at(whole, rl.most_minutes):
                read_state(trainer, last)
                watch.ended = "minutes"
            else:
                # A pass is a step: where all are done, only the weights are read.
                with without_cudnn_attention():
                    trainer.train(resume_from_checkpoint=None if last is None else str(last))
        if watch.ended == "signal":
            self.say(interrupted_message(trainer.state.global_step, rl.steps))
        else:
            self._save(trainer, base, tokenizer)
        return self._record(base, trainer, watch), whole.step if whole else None

    def _trainer(self, base: BaseWeights, tokenizer: PreTrainedTokenizerBase, places: Path) -> Any:
        from transformers import PrinterCallback

        from agentkernel.training.rl.trainer import TurnTrainer, arguments

        window = int(base.model.config.get_text_config().max_position_embeddings)
        rl, large = self.settings.rl, base.parameters >= MANY_WEIGHTS
        chosen = arguments(rl, places, bf16=in_bf16(rl.bf16), large=large)
        play = self._play(tokenizer, window)
        adapter = None if base.has_adapter else lora_of(self.settings.sft)
        trainer = TurnTrainer(base.model, tokenizer, chosen, play, adapter)
        trainer.remove_callback(PrinterCallback)
        return trainer

    def _play(
        self, tokenizer: PreTrainedTokenizerBase, window: int
    ) -> Callable[[Any, int], TrainingRound]:
        from agentkernel.training.rl.trainer import TrainingRound

        rl = self.settings.rl

        def play(trainer: Any, step: int) -> TrainingRound:
            begun_s, environment = time.monotonic(), _Timed(self.environment)
            ends = frozenset(trainer.eos_token_ids)
            writer = ModelWriter(
                trainer.accelerator.unwrap_model(trainer.model),
                tokenizer,
                TokenSampling(rl.temperature, rl.top_p, rl.most_tokens, ends),
                window=window,
                autocast=trainer.accelerator.autocast,
                chat_template=self.preset.chat_template,
            )
            chosen = chosen_at(self.problems, step, rl.tried, rl.seed)
            if rl.oversample > 1:  # of few modules some would come twice
                chosen = tuple(dict.fromkeys(chosen))
            groups = roll_out(chosen, writer, environment, rl, rl.seed * 1_000_003 + step)
            samples = samples_of(groups, rl)
            figures = turn_statistics(groups, samples, rl)._asdict()
            figures["hack_rate"] = figures.pop("hacks")
            known = {name: float(value) for name, value in figures.items() if value is not None}
            took_s = time.monotonic() - begun_s
            known |= {
                "tried": float(len(chosen)),
                "learned": float(sum(item.advantage != 0.0 for item in samples)),
                "judge_s": round(environment.seconds, 3),
                "write_s": round(took_s - environment.seconds, 3),
            }
            return TrainingRound(samples, known)

        return play

    def _save(self, trainer: Any, base: BaseWeights, tokenizer: PreTrainedTokenizerBase) -> None:
        model = trainer.accelerator.unwrap_model(trainer.model)
        bf16 = in_bf16(self.settings.rl.bf16)
        save_trained(self.out, model, tokenizer, base, self.settings, bf16=bf16)

    def _record(self, base: BaseWeights, trainer: Any, watch: RlCallback) -> RlRecord:
        points = read_points(self.out, RlPoint)
        trained = (item.numel() for item in trainer.model.parameters() if item.requires_grad)
        return RlRecord(
            name=self.settings.name,
            ended=watch.ended,
            settings=self.settings,
            model="",
            model_sha256="",
            data="",
            data_sha256="",
            parameters=base.parameters,
            trained_parameters=sum(trained),
            steps=trainer.state.global_step,
            planned_steps=self.settings.rl.steps,
            problems=len(self.problems),
            turns=int(sum(point.turns for point in points)),
            answer_tokens=int(sum(point.answer_tokens for point in points)),
            begin=means(points[:LAST]),
            end=means(points[-LAST:]),
            speed=self.asked.speed,
            judged_on=self.asked.verification.device,
            device=device_name(),
            precision=precision_of(self.settings.rl.bf16),
            seconds=round(watch.seconds, 2),
            versions=installed_versions(),
            packages={name: version(name) for name in PACKAGES},
        )
