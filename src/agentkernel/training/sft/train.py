"""Supervised fine-tuning of a model on rows, resumable after a kill at any moment.

The model is judged on held-out modules on its way and at the end, and its record is written
beside its weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkernel.runtime.machine import installed_versions
from agentkernel.training import checkpoints, folder
from agentkernel.training.curve import LossPoint, add_point, draw_curve
from agentkernel.training.data.conversations import questions_of, target_of
from agentkernel.training.data.rows import fingerprint, held_out_hash, held_out_problems
from agentkernel.training.distributed import Ranks, process_group
from agentkernel.training.evaluate.evaluation import (
    LocalWriter,
    PassAt,
    run_evaluation,
    sampling_of,
    spread_over,
)
from agentkernel.training.folder import (
    Record,
    device_name,
    in_bf16,
    precision_of,
    silenced_libraries,
)
from agentkernel.training.judged_problems import Verification
from agentkernel.training.model import (
    BaseWeights,
    already_done_message,
    check_method,
    check_packages,
    drop_checkpoints,
    gathered_model,
    interrupted_message,
    is_sharded,
    is_time_spent,
    is_time_spent_at,
    load_base,
    ranks_note,
    readable_folder,
    resume_checkpoint,
    rows_a_step,
    save_trained,
    sharded_loading,
)
from agentkernel.training.settings import Say, Show, TrainingSettings
from agentkernel.training.sft.examples import (
    Examples,
    SftRows,
    examples_of,
    make_examples,
    read_sft_rows,
    tokenizer_of,
)
from agentkernel.training.sft.setup import (
    make_trainer,
    planned_steps,
    read_back,
    register_attention,
    without_cudnn_attention,
)
from agentkernel.training.worker_pool import STRICT, SubmissionJudge

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from agentkernel.training.sft.trainer import CheckpointJudge, TrainingCallback


@dataclass(frozen=True)
class HeldOutJudging:
    """How the held-out modules are judged while and after a model is trained."""

    target: str | None = None
    samples: int = 4
    times: int = 1
    """How often: the last time at the end, the others in between."""
    verification: Verification = STRICT
    jobs: int | None = None


def with_target(
    judging: HeldOutJudging | None,
    data: Path,
    settings: TrainingSettings,
    say: Say,
) -> HeldOutJudging | None:
    """The same with the GPU that the rows of `data` ask for, where none is given; another one is
    said. Raises UnknownTarget."""
    if not settings.sft.evaluate_problems:
        return judging
    judging = judging or HeldOutJudging()
    return replace(judging, target=target_of(data, judging.target, say))


def checkpoint_judge(
    data: Path,
    settings: TrainingSettings,
    judging: HeldOutJudging | None,
    show: Show,
    readable_in: Callable[[Path], AbstractContextManager[Path]],
) -> CheckpointJudge | None:
    """Judges a checkpoint as the finished model is judged; None where nobody wants it."""
    from agentkernel.training.sft.trainer import CheckpointJudge

    if judging is None or judging.times < 2 or settings.sft.method != "full":
        return None

    def judge(place: Path, step: int) -> LossPoint | None:
        with readable_in(place) as found:
            passed = judge_model(str(found), data, settings, judging, show)
        return None if passed is None else evaluation_point(step, 0.0, passed, None)

    return CheckpointJudge(judge, judging.times)


def judge_model(
    model: str, data: Path, settings: TrainingSettings, judging: HeldOutJudging, show: Show
) -> PassAt | None:
    """What the model is worth on some held-out modules, spread over all of them; None where there
    are none, or none are asked for."""
    held_out_hash(data)  # raises where it is not that of the card
    problems = held_out_problems(data)
    most = settings.sft.evaluate_problems
    if not problems or not most:
        return None
    chosen = spread_over(problems, most)
    return run_evaluation(
        LocalWriter(model, sampling_of(settings.sampling), seed=settings.sft.seed),
        questions_of("write", data, chosen, judging.target, judging.verification.policy),
        judging.samples,
        SubmissionJudge(judging.verification, judging.jobs),
        show=show,
    )


def evaluation_point(step: int, epoch: float, passed: PassAt, record: Record | None) -> LossPoint:
    """The curve's point for what was judged; tokens and seconds are those of the `record`."""
    first = passed.pass_at.get(1)
    return LossPoint(
        step=step,
        epoch=epoch,
        tokens=record.tokens if record else 0,
        seconds=record.seconds if record else 0.0,
        pass_at_1=first.value if first else None,
        hack_rate=passed.hack_rate.value,
        problems=passed.problems,
    )


PACKAGES = ("trl", "transformers", "peft", "accelerate", "datasets", "tokenizers")


def sft_title(record: Record) -> str:
    """What stands over the curve."""
    steps = f"{record.steps} of {record.planned_steps} steps"
    return f"{record.name}: {record.parameters:,} weights, {steps}, {record.device}"


@dataclass(frozen=True)
class SftResult:
    """What a call of `train_sft` came to."""

    out: Path
    record: Record
    resumed_from: int | None
    """The step of the checkpoint that it went on from."""

    @property
    def finished(self) -> bool:
        """True where no step is left."""
        return self.record.finished


def train_sft(
    data: Path,
    settings: TrainingSettings,
    out: Path,
    *,
    older: Path | None = None,
    judging: HeldOutJudging | None = None,
    say: Say = lambda line: None,
    show: Show = lambda done, total, words: None,
) -> SftResult:
    """Train on the rows in `data` by TRL's SFTTrainer and leave in `out` what `--coder local:OUT`
    loads. `older` holds the rows to repeat.

    The same call goes on from the last whole checkpoint after a kill, and does nothing more where
    all is done or the time is used up. Where several processes call it (see ranks.py), they train
    together, and the first one writes, judges, says and shows. Raises TrainingError for rows that
    may not be learned from and where `out` holds another training, RunBusy, MissingDependency,
    ModelUnavailable, OutputError, RankLost.
    """
    with process_group() as ranks:
        ranks.after_first(lambda: _check(settings))
        if not ranks.first:
            say, show = (lambda line: None), (lambda done, total, words: None)
        training = _Training(ranks, data, settings, out, older, judging, say, show)
        with ranks.held(folder.exclusive(out)):
            return training.run()


def _check(settings: TrainingSettings) -> None:
    check_method(settings)
    check_packages(settings.sft)


def _used_up(before: Record, settings: TrainingSettings) -> bool:
    return is_time_spent(before, before.settings.sft.most_minutes, settings.sft.most_minutes)


@dataclass(frozen=True)
class _Begun:
    data_hash: str
    older_hash: str | None
    record: Record | None


@dataclass(frozen=True)
class _Training:
    """One call's training in each of the `ranks`, with all that it needs."""

    ranks: Ranks
    data: Path
    settings: TrainingSettings
    out: Path
    older: Path | None
    judging: HeldOutJudging | None
    say: Say
    show: Show

    def run(self) -> SftResult:
        """Train, unless all is done or the time is used up, and judge what came of it."""
        begun = self.ranks.given(self._begin)
        judging = self.ranks.given(
            lambda: with_target(self.judging, self.data, self.settings, self.say)
        )
        return replace(self, judging=judging)._go_on(begun)

    def _begin(self) -> _Begun:
        older_hash = fingerprint(self.older) if self.older is not None else None
        data_hash = fingerprint(self.data)
        folder.claim(self.out, folder.identity_of(self.settings, data_hash, older_hash))
        record = folder.read_record(self.out)
        if record is not None:
            folder.check_weights(self.out, record.ended)
        return _Begun(data_hash, older_hash, record)

    def _go_on(self, begun: _Begun) -> SftResult:
        before, ranks = begun.record, self.ranks
        if before is None or not (before.finished or _used_up(before, self.settings)):
            rows = ranks.after_first(
                lambda: read_sft_rows(self.data, self.older, self.settings, self.say)
            )
            with silenced_libraries():
                trained, resumed = self._train(rows)
            trained = trained.evolve(data_sha256=begun.data_hash, older_sha256=begun.older_hash)
        else:
            trained, resumed = before, before.steps
            self.say(already_done_message(before.steps, before.planned_steps))
        return SftResult(self.out, ranks.given(lambda: self._end(trained)), resumed)

    def _end(self, record: Record) -> Record:
        """The record of what was trained, written, with what the model is worth where its steps or
        its time are done."""
        folder.write_record(self.out, record)
        trained = record.ended != "signal"
        if trained and record.passed is None and self.settings.sft.evaluate_problems:
            judging = self.judging or HeldOutJudging()
            passed = judge_model(str(self.out), self.data, self.settings, judging, self.show)
            if passed is not None:
                record = record.evolve(passed=passed)
                point = evaluation_point(record.steps, record.epochs, passed, record)
                add_point(self.out, point)
                folder.write_record(self.out, record)
        draw_curve(self.out, sft_title(record), LossPoint)
        if record.finished:
            drop_checkpoints(self.out)
        return record

    def _train(self, rows: SftRows) -> tuple[Record, int | None]:
        from agentkernel.training.sft.trainer import (
            TrainingCallback,
            TrainingClock,
            stop_on_signal,
        )

        settings, out, say, sft = self.settings, self.out, self.say, self.settings.sft
        ranks, begin_s = self.ranks, time.monotonic()
        tokenizer = ranks.after_first(lambda: tokenizer_of(settings, rows.learned, out, say))
        examples = ranks.after_first(lambda: examples_of(rows.learned, tokenizer, sft.window, say))
        held_out = make_examples(rows.held_out, tokenizer, sft.window)
        ranks = replace(ranks, sharded=ranks.after_first(lambda: is_sharded(settings, self.ranks)))
        with sharded_loading(ranks.sharded):
            attention = register_attention() if sft.packing else "sdpa"
            base = ranks.after_first(lambda: load_base(settings, tokenizer, attention))
        say(f"{base.parameters:,} weights on {device_name()}{ranks_note(settings, ranks)}")
        last, whole = ranks.given(lambda: resume_checkpoint(out, ranks, say))
        as_folder = readable_folder(out, base.model, tokenizer, settings, ranks.sharded)
        judge = checkpoint_judge(self.data, settings, self.judging, self.show, as_folder)
        with stop_on_signal() as stop:
            trainer = make_trainer(
                settings, base, tokenizer, examples, held_out, out, sharded=ranks.sharded
            )
            clock = TrainingClock(whole, sft.most_minutes, begin_s)
            watch = TrainingCallback(out, clock, stop, self.show, judge, ranks)
            if sft.most_minutes is not None:
                trainer.time_share = lambda: watch.rate_share
            trainer.add_callback(watch)
            planned = planned_steps(trainer)
            if whole is not None:
                say(f"goes on from step {whole.step} of {planned}")
            late = is_time_spent_at(whole, sft.most_minutes)
            if last is not None and whole is not None and (whole.step >= planned or late):
                read_back(trainer, watch, last, out, ranks.sharded)
                watch.ended = "steps" if whole.step >= planned else "minutes"
            else:
                with without_cudnn_attention():
                    trainer.train(resume_from_checkpoint=None if last is None else str(last))
        if watch.ended == "signal":
            say(interrupted_message(trainer.state.global_step, planned))
        elif ranks.first:
            self._save(trainer, base, tokenizer, sharded=ranks.sharded)
        record = self._record(rows, examples, base, trainer, watch, planned).evolve(
            ranks=ranks.count, sharded=ranks.sharded, batch=rows_a_step(settings, ranks)
        )
        return record, whole.step if whole else None

    def _record(
        self,
        rows: SftRows,
        examples: Examples,
        base: BaseWeights,
        trainer: Any,
        watch: TrainingCallback,
        planned: int,
    ) -> Record:
        """What was trained until now; the hashes of the data are for the caller to add."""
        trained = (item.numel() for item in trainer.model.parameters() if item.requires_grad)
        return Record(
            name=self.settings.name,
            ended=watch.ended,
            settings=self.settings,
            data=str(self.data),
            data_sha256="",
            card_sha256=folder.card_hash(self.data),
            older_sha256=None,
            parameters=base.parameters,
            trained_parameters=sum(trained),
            steps=trainer.state.global_step,
            planned_steps=planned,
            epochs=round(trainer.state.epoch or 0.0, 4),
            rows=len(examples.items),
            too_long=examples.too_long,
            replayed=rows.replayed,
            tokens=watch.tokens,
            tokens_a_pass=examples.tokens,
            device=device_name(),
            precision=precision_of(self.settings.sft.bf16),
            seconds=round(watch.seconds, 2),
            loss=watch.loss,
            held_out_loss=watch.held_out_loss,
            versions=installed_versions(),
            packages={name: version(name) for name in PACKAGES},
        )

    def _save(
        self,
        trainer: Any,
        base: BaseWeights,
        tokenizer: PreTrainedTokenizerBase,
        *,
        sharded: bool,
    ) -> None:
        model: Any
        if sharded:
            # The last step wrote it, in parts that no process needs to gather.
            last = checkpoints.last_complete(checkpoints.folder_of(self.out))
            assert last is not None
            model = gathered_model(last, base.model)
        else:
            model = trainer.accelerator.unwrap_model(trainer.model)
        bf16 = in_bf16(self.settings.sft.bf16)
        save_trained(self.out, model, tokenizer, base, self.settings, bf16=bf16)
