"""How does a model get better on the judge, so that a kill at any moment costs only a few steps?"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkernel.agents.models.local_presets import LocalPreset, parse_local
from agentkernel.runtime.versions import installed_versions
from agentkernel.training import checkpoints, folder
from agentkernel.training.data.rl_problems import RlProblem, chosen_at, training_problems
from agentkernel.training.data.rows import fingerprint
from agentkernel.training.device import device_name, in_bf16, precision_of
from agentkernel.training.ending import (
    already_done_message,
    drop_checkpoints,
    interrupted_message,
    is_time_spent,
    is_time_spent_at,
    save_trained,
)
from agentkernel.training.evaluate.evaluate import Show
from agentkernel.training.loading import (
    MANY_WEIGHTS,
    BaseWeights,
    check_packages,
    load_base,
    load_tokenizer,
    lora_of,
)
from agentkernel.training.quiet import silenced_libraries
from agentkernel.training.rl.reward import JudgedTurn
from agentkernel.training.rl.rl_curve import draw_rl_curve, drop_rl_points_after, read_rl_points
from agentkernel.training.rl.rl_identity import check_held_back, model_hash, rl_run_identity
from agentkernel.training.rl.rl_practice import (
    RlJudging,
    make_judges,
    speed_source_note,
    turn_settings,
)
from agentkernel.training.rl.rl_record import (
    RlRecord,
    means,
    read_rl_record,
    rl_title,
    write_rl_record,
)
from agentkernel.training.rl.rollouts import roll_out, samples_of, turn_statistics
from agentkernel.training.rl.sampler import ModelWriter, TokenSampling
from agentkernel.training.rl.turn_pool import JudgePool, ProblemAnswer, RlEnvironment
from agentkernel.training.rl.turn_work import TurnSettings
from agentkernel.training.sft.attention import without_cudnn_attention
from agentkernel.training.sft.sft_building import read_state
from agentkernel.training.training import TrainingSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from agentkernel.training.rl.rl_trainer import RlCallback, TrainingRound

Say = Callable[[str], None]
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
    model: str,
    rl_judging: RlJudging | None = None,
    environment: RlEnvironment | None = None,
    say: Say = lambda line: None,
    show: Show = lambda done, total, words: None,
) -> RlResult:
    """Let the weights that `model` names practise on the training modules in `data` by TRL's
    GRPOTrainer, and leave in `out` what `--coder local:OUT` loads. `environment` takes the judge's
    place.

    The same call goes on from the last whole checkpoint after a kill, and does nothing more where
    all is done or the time is used up. Raises TrainingError where a module is held out or `out`
    holds another training, SettingError, RunBusy, MissingDependency, ModelUnavailable,
    SandboxUnavailable, OutputError.
    """
    asked = turn_settings(rl_judging or RlJudging())
    preset = parse_local(model)
    settings = _with_model(settings, preset, model)
    check_packages(settings.sft)
    data_hash, weights_hash = fingerprint(data), model_hash(preset)
    check_held_back(preset, data_hash, settings)
    with folder.exclusive(out):
        folder.claim(out, rl_run_identity(settings, asked, data_hash, weights_hash))
        record = read_rl_record(out)
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
        record = record.model_copy(
            update={
                "model": model,
                "model_sha256": weights_hash,
                "data": str(data),
                "data_sha256": data_hash,
            }
        )
        write_rl_record(out, record)
        draw_rl_curve(out, rl_title(record))
        if record.finished:
            drop_checkpoints(out)
    return RlResult(out, record, resumed)


def _used_up(before: RlRecord, settings: TrainingSettings) -> bool:
    return is_time_spent(before, before.settings.rl.most_minutes, settings.rl.most_minutes)


def _with_model(settings: TrainingSettings, preset: LocalPreset, model: str) -> TrainingSettings:
    """An adapter is trained further; weights without one as the settings' fine-tuning did."""
    method = settings.sft.method
    if preset.adapter is not None and method == "full":
        method = "lora"
    sft = settings.sft.model_copy(update={"method": method, "bf16": settings.rl.bf16})
    return settings.model_copy(update={"model": model, "new": None, "sft": sft})


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
        from agentkernel.training.rl.rl_trainer import RlCallback
        from agentkernel.training.sft.watch import stop_on_signal

        rl, begin_s = self.settings.rl, time.monotonic()
        tokenizer = load_tokenizer(self.settings.model or "")
        base = load_base(self.settings, tokenizer, "sdpa")
        self.say(f"{base.parameters:,} weights on {device_name()}")
        places = checkpoints.make_checkpoint_folder(self.out)
        last, whole = checkpoints.resume_point(places, self.say)
        drop_rl_points_after(self.out, whole.step if whole else 0)
        trainer = self._trainer(base, tokenizer, places)
        with stop_on_signal() as stop:
            watch = RlCallback(self.out, whole, stop, rl.most_minutes, self.show, begin_s=begin_s)
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

        from agentkernel.training.rl.rl_trainer import TurnTrainer, arguments

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
        from agentkernel.training.rl.rl_trainer import TrainingRound

        rl = self.settings.rl
        drawing = TokenSampling(rl.temperature, rl.top_p, rl.most_tokens)

        def play(trainer: Any, step: int) -> TrainingRound:
            begun_s, environment = time.monotonic(), _Timed(self.environment)
            writer = ModelWriter(
                trainer.accelerator.unwrap_model(trainer.model),
                tokenizer,
                drawing,
                ends=trainer.eos_token_ids,
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
        points = read_rl_points(self.out)
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


__all__ = ["RlJudging", "RlRecord", "RlResult", "train_rl", "turn_settings"]
