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
    before_words,
    drop_checkpoints,
    ended_words,
    save_trained,
    used_up,
    used_up_at,
)
from agentkernel.training.evaluate.evaluate import Show
from agentkernel.training.loading import (
    MANY_WEIGHTS,
    Base,
    check_packages,
    load_base,
    load_tokenizer,
    lora_of,
)
from agentkernel.training.quiet import quiet
from agentkernel.training.rl.reward import JudgedTurn
from agentkernel.training.rl.rl_curve import cut_after, draw, read_points
from agentkernel.training.rl.rl_identity import check_spared, identity_of, model_hash
from agentkernel.training.rl.rl_practice import Practice, basis_words, judges_of, turn_settings
from agentkernel.training.rl.rl_record import RlRecord, means, read_record, title_of, write_record
from agentkernel.training.rl.rollouts import roll_out, samples_of, tally
from agentkernel.training.rl.sampler import Drawing, ModelWriter
from agentkernel.training.rl.turn_pool import Answered, Environment, JudgePool
from agentkernel.training.rl.turn_work import TurnSettings
from agentkernel.training.sft.attention import sound_backward
from agentkernel.training.sft.sft_building import read_state
from agentkernel.training.training import TrainingSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from agentkernel.training.rl.rl_trainer import RlWatch, Round

Say = Callable[[str], None]
PACKAGES = ("trl", "transformers", "peft", "accelerate", "tokenizers")
LAST = 10
"""Steps at either end that the record's means are taken over."""


@dataclass(frozen=True)
class RlDone:
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

    environment: Environment
    seconds: float = field(default=0.0)

    def judge(self, answers: Sequence[Answered]) -> list[JudgedTurn]:
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
    practice: Practice | None = None,
    environment: Environment | None = None,
    say: Say = lambda line: None,
    show: Show = lambda done, total, words: None,
) -> RlDone:
    """Let the weights that `model` names practise on the training modules in `data` by TRL's
    GRPOTrainer, and leave in `out` what `--coder local:OUT` loads. `environment` takes the judge's
    place.

    The same call goes on from the last whole checkpoint after a kill, and does nothing more where
    all is done or the time is used up. Raises TrainingError where a module is held out or `out`
    holds another training, SettingError, RunBusy, MissingDependency, ModelUnavailable,
    SandboxUnavailable, OutputError.
    """
    asked = turn_settings(practice or Practice())
    preset = parse_local(model)
    settings = _with_model(settings, preset, model)
    check_packages(settings.sft)
    data_hash, weights_hash = fingerprint(data), model_hash(preset)
    check_spared(preset, data_hash, settings)
    with folder.alone(out):
        folder.claim(out, identity_of(settings, asked, data_hash, weights_hash))
        record = read_record(out)
        if record is not None:
            folder.check_weights(out, record.ended)
        if record is not None and (record.finished or _used_up(record, settings)):
            say(before_words(record.steps, record.planned_steps))
            return RlDone(out, record, record.steps)
        problems = training_problems(data, settings.data.licences, settings.rl.spared)
        say(f"{len(problems)} modules to practise on; speedups are {basis_words(asked)}")
        with ExitStack() as held:
            held.enter_context(quiet())
            place = environment or held.enter_context(JudgePool(judges_of(practice, asked)))
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
        write_record(out, record)
        draw(out, title_of(record))
        if record.finished:
            drop_checkpoints(out)
    return RlDone(out, record, resumed)


def _used_up(before: RlRecord, settings: TrainingSettings) -> bool:
    return used_up(before, before.settings.rl.most_minutes, settings.rl.most_minutes)


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
    environment: Environment
    asked: TurnSettings
    out: Path
    say: Say
    show: Show

    def run(self) -> tuple[RlRecord, int | None]:
        """Train until all is done, the time is up or somebody asks to end."""
        from agentkernel.training.rl.rl_trainer import RlWatch
        from agentkernel.training.sft.watch import stopping

        rl, begin_s = self.settings.rl, time.monotonic()
        tokenizer = load_tokenizer(self.settings.model or "")
        base = load_base(self.settings, tokenizer, "sdpa")
        self.say(f"{base.parameters:,} weights on {device_name()}")
        places = checkpoints.prepare(self.out)
        last, whole = checkpoints.go_on_from(places, self.say)
        cut_after(self.out, whole.step if whole else 0)
        trainer = self._trainer(base, tokenizer, places)
        with stopping() as stop:
            watch = RlWatch(self.out, whole, stop, rl.most_minutes, self.show, begin_s=begin_s)
            trainer.add_callback(watch)
            if whole is not None:
                self.say(f"goes on from step {whole.step} of {rl.steps}")
            late = whole is not None and whole.step < rl.steps
            if last is not None and late and used_up_at(whole, rl.most_minutes):
                read_state(trainer, last)
                watch.ended = "minutes"
            else:
                # A pass is a step: where all are done, only the weights are read.
                with sound_backward():
                    trainer.train(resume_from_checkpoint=None if last is None else str(last))
        if watch.ended == "signal":
            self.say(ended_words(trainer.state.global_step, rl.steps))
        else:
            self._save(trainer, base, tokenizer)
        return self._record(base, trainer, watch), whole.step if whole else None

    def _trainer(self, base: Base, tokenizer: PreTrainedTokenizerBase, places: Path) -> Any:
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

    def _play(self, tokenizer: PreTrainedTokenizerBase, window: int) -> Callable[[Any, int], Round]:
        from agentkernel.training.rl.rl_trainer import Round

        rl = self.settings.rl
        drawing = Drawing(rl.temperature, rl.top_p, rl.most_tokens)

        def play(trainer: Any, step: int) -> Round:
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
            figures = tally(groups, samples, rl)._asdict()
            figures["hack_rate"] = figures.pop("hacks")
            known = {name: float(value) for name, value in figures.items() if value is not None}
            took_s = time.monotonic() - begun_s
            known |= {
                "tried": float(len(chosen)),
                "learned": float(sum(item.advantage != 0.0 for item in samples)),
                "judge_s": round(environment.seconds, 3),
                "write_s": round(took_s - environment.seconds, 3),
            }
            return Round(samples, known)

        return play

    def _save(self, trainer: Any, base: Base, tokenizer: PreTrainedTokenizerBase) -> None:
        model = trainer.accelerator.unwrap_model(trainer.model)
        bf16 = in_bf16(self.settings.rl.bf16)
        save_trained(self.out, model, tokenizer, base, self.settings, bf16=bf16)

    def _record(self, base: Base, trainer: Any, watch: RlWatch) -> RlRecord:
        points = read_points(self.out)
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


__all__ = ["Practice", "RlDone", "RlRecord", "train_rl", "turn_settings"]
