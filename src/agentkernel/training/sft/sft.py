"""How is a model fine-tuned on rows, so that a kill at any moment costs only a few steps?"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkernel.training import checkpoints, folder
from agentkernel.training.configuration import with_model
from agentkernel.training.curve import add_point, draw_curve
from agentkernel.training.data.rows import fingerprint
from agentkernel.training.device import device_name, in_bf16
from agentkernel.training.ending import (
    already_done_message,
    drop_checkpoints,
    interrupted_message,
    is_time_spent,
    is_time_spent_at,
    save_trained,
)
from agentkernel.training.evaluate.evaluate import Show
from agentkernel.training.folder import Record
from agentkernel.training.loading import BaseWeights, check_method, check_packages, load_base
from agentkernel.training.quiet import silenced_libraries
from agentkernel.training.ranks import Ranks, process_group
from agentkernel.training.sft.attention import register_attention, without_cudnn_attention
from agentkernel.training.sft.examples import make_examples
from agentkernel.training.sft.sft_building import make_trainer, planned_steps, read_back
from agentkernel.training.sft.sft_examples import examples_of, tokenizer_of
from agentkernel.training.sft.sft_judging import (
    HeldOutJudging,
    checkpoint_judge,
    evaluation_point,
    judge_model,
    with_target,
)
from agentkernel.training.sft.sft_record import record_of, sft_title
from agentkernel.training.sft.sft_rows import SftRows, read_sft_rows
from agentkernel.training.sharding import (
    gathered_model,
    is_sharded,
    ranks_note,
    readable_folder,
    resume_checkpoint,
    rows_a_step,
    sharded_loading,
)
from agentkernel.training.training import TrainingSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Say = Callable[[str], None]


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
    model: str | None = None,
    older: Path | None = None,
    judging: HeldOutJudging | None = None,
    say: Say = lambda line: None,
    show: Show = lambda done, total, words: None,
) -> SftResult:
    """Train on the rows in `data` by TRL's SFTTrainer and leave in `out` what `--coder local:OUT`
    loads. `model` takes the place of the settings' own; `older` holds the rows to repeat.

    The same call goes on from the last whole checkpoint after a kill, and does nothing more where
    all is done or the time is used up. Where several processes call it (see ranks.py), they train
    together, and the first one writes, judges, says and shows. Raises TrainingError for rows that
    may not be learned from and where `out` holds another training, RunBusy, MissingDependency,
    ModelUnavailable, OutputError, RankLost.
    """
    settings = with_model(settings, model)
    with process_group() as ranks:
        ranks.after_first(lambda: _check(settings))
        with ranks.held(folder.exclusive(out)):
            return _train(ranks, data, settings, out, older, judging, say, show)


def _check(settings: TrainingSettings) -> None:
    check_method(settings)
    check_packages(settings.sft)


def _train(
    ranks: Ranks,
    data: Path,
    settings: TrainingSettings,
    out: Path,
    older: Path | None,
    judging: HeldOutJudging | None,
    say: Say,
    show: Show,
) -> SftResult:
    """All of it, in each of the `ranks`."""
    if not ranks.first:
        say, show = (lambda line: None), (lambda done, total, words: None)
    begun = ranks.given(lambda: _begun(data, settings, out, older))
    judging = ranks.given(lambda: with_target(judging, data, settings, say))
    before = begun.record
    if before is None or not (before.finished or _used_up(before, settings)):
        rows = ranks.after_first(lambda: read_sft_rows(data, older, settings, say))
        with silenced_libraries():
            trained, resumed = _trained(ranks, data, rows, settings, out, judging, say, show)
        hashes = {"data_sha256": begun.data_hash, "older_sha256": begun.older_hash}
        trained = trained.model_copy(update=hashes)
    else:
        trained, resumed = before, before.steps
        say(already_done_message(before.steps, before.planned_steps))
    record = ranks.given(lambda: _ended(trained, data, settings, out, judging, show))
    return SftResult(out, record, resumed)


def _used_up(before: Record, settings: TrainingSettings) -> bool:
    return is_time_spent(before, before.settings.sft.most_minutes, settings.sft.most_minutes)


@dataclass(frozen=True)
class _Begun:
    data_hash: str
    older_hash: str | None
    record: Record | None


def _begun(data: Path, settings: TrainingSettings, out: Path, older: Path | None) -> _Begun:
    older_hash = fingerprint(older) if older is not None else None
    data_hash = fingerprint(data)
    folder.claim(out, folder.identity_of(settings, data_hash, older_hash))
    record = folder.read_record(out)
    if record is not None:
        folder.check_weights(out, record.ended)
    return _Begun(data_hash, older_hash, record)


def _ended(
    record: Record,
    data: Path,
    settings: TrainingSettings,
    out: Path,
    judging: HeldOutJudging | None,
    show: Show,
) -> Record:
    """The record of what was trained, written, with what the model is worth where its steps or its
    time are done."""
    folder.write_record(out, record)
    trained = record.ended != "signal"
    if trained and record.passed is None and settings.sft.evaluate_problems:
        passed = judge_model(str(out), data, settings, judging or HeldOutJudging(), show)
        if passed is not None:
            record = record.model_copy(update={"passed": passed})
            add_point(out, evaluation_point(record.steps, record.epochs, passed, record))
            folder.write_record(out, record)
    draw_curve(out, sft_title(record))
    if record.finished:
        drop_checkpoints(out)
    return record


def _trained(
    ranks: Ranks,
    data: Path,
    rows: SftRows,
    settings: TrainingSettings,
    out: Path,
    judging: HeldOutJudging | None,
    say: Say,
    show: Show,
) -> tuple[Record, int | None]:
    from agentkernel.training.sft.watch import stop_on_signal

    sft, begin_s = settings.sft, time.monotonic()
    tokenizer = ranks.after_first(lambda: tokenizer_of(settings, rows.learned, out, say))
    examples = ranks.after_first(lambda: examples_of(rows.learned, tokenizer, sft.window, say))
    held_out = make_examples(rows.held_out, tokenizer, sft.window)
    sharded = ranks.after_first(lambda: is_sharded(settings, ranks))
    with sharded_loading(sharded):
        attention = register_attention() if sft.packing else "sdpa"
        base = ranks.after_first(lambda: load_base(settings, tokenizer, attention))
    say(f"{base.parameters:,} weights on {device_name()}{ranks_note(settings, ranks, sharded)}")
    last, whole = ranks.given(lambda: resume_checkpoint(out, ranks, sharded, say))
    as_folder = readable_folder(out, base.model, tokenizer, settings, sharded)
    with stop_on_signal() as stop:
        trainer, watch = make_trainer(
            ranks,
            sharded,
            settings,
            base,
            tokenizer,
            examples,
            held_out,
            out,
            whole,
            stop,
            checkpoint_judge(data, settings, judging, show, as_folder),
            (judging or HeldOutJudging()).times,
            show,
            begin_s,
        )
        planned = planned_steps(trainer)
        if whole is not None:
            say(f"goes on from step {whole.step} of {planned}")
        late = is_time_spent_at(whole, sft.most_minutes)
        if last is not None and whole is not None and (whole.step >= planned or late):
            read_back(trainer, watch, last, out, sharded)
            watch.ended = "steps" if whole.step >= planned else "minutes"
        else:
            with without_cudnn_attention():
                trainer.train(resume_from_checkpoint=None if last is None else str(last))
    if watch.ended == "signal":
        say(interrupted_message(trainer.state.global_step, planned))
    elif ranks.first:
        _save(trainer, base, tokenizer, settings, out, sharded)
    record = record_of(settings, data, rows, examples, base, trainer, watch, planned)
    together = {"ranks": ranks.count, "sharded": sharded, "batch": rows_a_step(settings, ranks)}
    return record.model_copy(update=together), whole.step if whole else None


def _save(
    trainer: Any,
    base: BaseWeights,
    tokenizer: PreTrainedTokenizerBase,
    settings: TrainingSettings,
    out: Path,
    sharded: bool,
) -> None:
    model: Any
    if sharded:
        # The last step wrote it, in parts that no process needs to gather.
        last = checkpoints.last_complete(checkpoints.folder_of(out))
        assert last is not None
        model = gathered_model(last, base.model)
    else:
        model = trainer.accelerator.unwrap_model(trainer.model)
    save_trained(out, model, tokenizer, base, settings, bf16=in_bf16(settings.sft.bf16))


__all__ = ["HeldOutJudging", "SftResult", "train_sft"]
