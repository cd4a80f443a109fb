"""How is a model fine-tuned on rows, so that a kill at any moment costs only a few steps?"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from agentkernel.domain.exchange import Sampling
from agentkernel.domain.training import TrainingRow, TrainingSettings
from agentkernel.errors import TrainingError
from agentkernel.tools.versions import installed_versions
from agentkernel.workflows.pair_process import Verification
from agentkernel.workflows.training import checkpoints, folder
from agentkernel.workflows.training.attention import register
from agentkernel.workflows.training.configuration import with_model
from agentkernel.workflows.training.curve import (
    Point,
    add_point,
    draw,
    read_points,
)
from agentkernel.workflows.training.device import device_name, in_bf16, precision_of
from agentkernel.workflows.training.ending import drop_checkpoints, ended_words, save_trained
from agentkernel.workflows.training.evaluate import PassAt, Show, pass_at, spread_over
from agentkernel.workflows.training.examples import Examples, as_dataset, make_examples
from agentkernel.workflows.training.folder import Record
from agentkernel.workflows.training.judging import STRICT
from agentkernel.workflows.training.loading import (
    MANY_WEIGHTS,
    Base,
    check_method,
    check_packages,
    load_base,
    load_tokenizer,
    lora_of,
)
from agentkernel.workflows.training.quiet import quiet
from agentkernel.workflows.training.ranks import Ranks, joined
from agentkernel.workflows.training.rows import (
    LEARNED,
    admitted,
    fingerprint,
    held_out_problems,
    read_rows,
    with_replay,
)
from agentkernel.workflows.training.sharding import (
    admit_cpu,
    arguments_of,
    batch_of,
    folder_of_any,
    is_sharded,
    last_of,
    loading,
    set_precision,
    whole_model,
    words_of,
)
from agentkernel.workflows.training.tokens import make_tokenizer, texts_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase
    from trl import SFTConfig

    from agentkernel.workflows.training.watch import Stop, Watch

Say = Callable[[str], None]
HELD_OUT_ROWS = 256
"""Rows whose loss is looked at beside the training; their kernels are never learned."""
VOCABULARY_ROWS = 20_000
"""Rows that a tokenizer of one's own is made from: more do not change the most frequent pairs."""
BETA2 = 0.95
"""AdamW's second decay, as for GPT-3 (arXiv 2005.14165, appendix B)."""
PACKAGES = ("trl", "transformers", "peft", "accelerate", "datasets", "tokenizers")


@dataclass(frozen=True)
class SftDone:
    """What a call of `train_sft` came to."""

    out: Path
    record: Record
    resumed_from: int | None
    """The step of the checkpoint that it went on from."""

    @property
    def finished(self) -> bool:
        """True where no step is left."""
        return self.record.finished


@dataclass(frozen=True)
class Judging:
    """How the held-out modules are judged while and after a model is trained."""

    target: str | None = None
    samples: int = 4
    times: int = 1
    """How often: the last time at the end, the others in between."""
    verification: Verification = STRICT
    jobs: int | None = None


@dataclass(frozen=True)
class _Data:
    rows: tuple[TrainingRow, ...]
    replayed: int
    held_out: tuple[TrainingRow, ...]


def train_sft(
    data: Path,
    settings: TrainingSettings,
    out: Path,
    *,
    model: str | None = None,
    older: Path | None = None,
    judging: Judging | None = None,
    say: Say = lambda line: None,
    show: Show = lambda done, total, words: None,
) -> SftDone:
    """Train on the rows in `data` by TRL's SFTTrainer and leave in `out` what `--coder local:OUT`
    loads. `model` takes the place of the settings' own; `older` holds the rows to repeat.

    The same call goes on from the last whole checkpoint after a kill, and does nothing more where
    all is done. Where several processes call it (see ranks.py), they train together, and the first
    one writes, judges, says and shows. Raises TrainingError for rows that may not be learned from
    and where `out` holds another training, RunBusy, MissingDependency, ModelUnavailable,
    OutputError, RankLost.
    """
    settings = with_model(settings, model)
    with joined() as ranks:
        ranks.after_first(lambda: _check(settings))
        with ranks.held(folder.alone(out)):
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
    judging: Judging | None,
    say: Say,
    show: Show,
) -> SftDone:
    """All of it, in each of the `ranks`."""
    if not ranks.first:
        say, show = (lambda line: None), (lambda done, total, words: None)
    begun = ranks.given(lambda: _begun(data, settings, out, older))
    before = begun.record
    if before is None or not before.finished:
        rows = ranks.after_first(lambda: _rows(data, older, settings, say))
        with quiet():
            trained, resumed = _trained(ranks, data, rows, settings, out, judging, say, show)
        hashes = {"data_sha256": begun.data_hash, "older_sha256": begun.older_hash}
        trained = trained.model_copy(update=hashes)
    else:
        trained, resumed = before, before.steps
        say(f"all {before.steps} steps were done before")
    record = ranks.given(lambda: _ended(trained, data, settings, out, judging, show))
    return SftDone(out, record, resumed)


@dataclass(frozen=True)
class _Begun:
    data_hash: str
    older_hash: str | None
    record: Record | None


def _begun(data: Path, settings: TrainingSettings, out: Path, older: Path | None) -> _Begun:
    older_hash = fingerprint(older) if older is not None else None
    data_hash = fingerprint(data)
    folder.claim(out, folder.identity_of(settings, data_hash, older_hash))
    return _Begun(data_hash, older_hash, folder.read_record(out))


def _ended(
    record: Record,
    data: Path,
    settings: TrainingSettings,
    out: Path,
    judging: Judging | None,
    show: Show,
) -> Record:
    """The record of what was trained, written, with what the model is worth where it is done."""
    folder.write_record(out, record)
    if record.finished and record.passed is None and settings.sft.evaluate_problems:
        passed = _judged(str(out), data, settings, judging or Judging(), show)
        if passed is not None:
            record = record.model_copy(update={"passed": passed})
            add_point(out, _point_of(record.steps, record.epochs, passed, record))
            folder.write_record(out, record)
    draw(out, _title(record))
    if record.finished:
        drop_checkpoints(out)
    return record


def _rows(data: Path, older: Path | None, settings: TrainingSettings, say: Say) -> _Data:
    """All rows to learn from, each of them checked. Raises TrainingError."""
    licences, tasks = settings.data.licences, settings.sft.tasks
    fresh = tuple(admitted(read_rows(data, "train"), licences, tasks))
    if not fresh:
        raise TrainingError(
            f"{str(data)!r} has no row of the tasks {', '.join(tasks)}. Expected some. Next: other "
            "sft.tasks, or more data."
        )
    before = () if older is None else tuple(admitted(read_rows(older, "train"), licences, tasks))
    known = {row.id for row in fresh}
    before = tuple(row for row in before if row.id not in known)
    rows = with_replay(fresh, before, settings.sft.replay, settings.sft.seed)
    say(f"{len(fresh)} rows" + (f" and {len(rows) - len(fresh)} older ones" if older else ""))
    return _Data(rows, len(rows) - len(fresh), _held_out(data, settings))


def _held_out(data: Path, settings: TrainingSettings) -> tuple[TrainingRow, ...]:
    if not (data / "held-out.jsonl.gz").is_file():
        return ()
    found = (
        row
        for row in read_rows(data, "held-out")
        if row.label in LEARNED and row.task in settings.sft.tasks
    )
    return tuple(row for _, row in zip(range(HELD_OUT_ROWS), found, strict=False))


def _trained(
    ranks: Ranks,
    data: Path,
    rows: _Data,
    settings: TrainingSettings,
    out: Path,
    judging: Judging | None,
    say: Say,
    show: Show,
) -> tuple[Record, int | None]:
    from agentkernel.workflows.training.watch import stopping

    sft = settings.sft
    tokenizer = ranks.after_first(lambda: _tokenizer(settings, rows.rows, out, say))
    examples = ranks.after_first(lambda: _examples(rows.rows, tokenizer, sft.window, say))
    held_out = make_examples(rows.held_out, tokenizer, sft.window)
    sharded = ranks.after_first(lambda: is_sharded(settings, ranks))
    with loading(sharded):
        attention = register() if sft.packing else "sdpa"
        base = ranks.after_first(lambda: load_base(settings, tokenizer, attention))
    say(f"{base.parameters:,} weights on {device_name()}{words_of(settings, ranks, sharded)}")
    last, whole = ranks.given(lambda: last_of(out, ranks, sharded, say))
    as_folder = folder_of_any(out, base.model, tokenizer, settings, sharded)
    with stopping() as stop:
        trainer, watch = _trainer(
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
            _judge_of(data, settings, judging, show, as_folder),
            (judging or Judging()).times,
            show,
        )
        planned = _planned(trainer)
        if whole is not None:
            say(f"goes on from step {whole.step} of {planned}")
        if last is not None and whole is not None and whole.step >= planned:
            _read_back(trainer, watch, last, out, sharded)
        else:
            trainer.train(resume_from_checkpoint=None if last is None else str(last))
    if watch.ended == "signal":
        say(ended_words(trainer.state.global_step, planned))
    elif ranks.first:
        _save(trainer, base, tokenizer, settings, out, sharded)
    record = _record(settings, data, rows, examples, base, trainer, watch, planned)
    together = {"ranks": ranks.count, "sharded": sharded, "batch": batch_of(settings, ranks)}
    return record.model_copy(update=together), whole.step if whole else None


def _tokenizer(
    settings: TrainingSettings, rows: tuple[TrainingRow, ...], out: Path, say: Say
) -> PreTrainedTokenizerBase:
    """The named model's, or one that is made from the rows, once for each training."""
    if settings.model is not None:
        return load_tokenizer(settings.model)
    from transformers import AutoTokenizer

    assert settings.new is not None
    kept = out / folder.TOKENIZER
    if not kept.is_dir():
        step = -(-len(rows) // VOCABULARY_ROWS)
        made = make_tokenizer(texts_of(rows[::step]), settings.new.vocabulary, settings.new.window)
        say(f"a tokenizer of {len(made)} tokens, made from the rows")
        folder.save_tokenizer(out, made)
    found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(kept), local_files_only=True)
    return found


def _examples(
    rows: tuple[TrainingRow, ...], tokenizer: PreTrainedTokenizerBase, window: int, say: Say
) -> Examples:
    found = make_examples(rows, tokenizer, window)
    if not found.items:
        raise TrainingError(
            f"None of {len(rows)} rows fits a window of {window} tokens. Expected some. Next: a "
            "larger sft.window."
        )
    if found.too_long:
        say(f"{found.too_long} of {len(rows)} rows left out: more than {window} tokens")
    return found


def _trainer(
    ranks: Ranks,
    sharded: bool,
    settings: TrainingSettings,
    base: Base,
    tokenizer: PreTrainedTokenizerBase,
    examples: Examples,
    held_out: Examples,
    out: Path,
    whole: checkpoints.Whole | None,
    stop: Stop,
    judge: Any,
    times: int,
    show: Show,
) -> tuple[Any, Watch]:
    from transformers import PrinterCallback

    from agentkernel.workflows.training.sft_trainer import PackedTrainer
    from agentkernel.workflows.training.watch import MOST_POINTS, Watch

    sft = settings.sft
    arguments = _arguments(settings, base, out, evaluates=bool(held_out.items), sharded=sharded)
    trainer = PackedTrainer(
        compiled=sft.compile and torch.cuda.is_available(),
        model=base.model,
        args=arguments,
        train_dataset=as_dataset(examples.items),
        eval_dataset=as_dataset(held_out.items) if held_out.items else None,
        processing_class=tokenizer,
        peft_config=None if base.has_adapter else lora_of(sft),
    )
    planned = _planned(trainer)
    trainer.args.logging_steps = max(1, planned // MOST_POINTS)
    saves = max(1, planned // sft.save_steps)
    every = max(1, saves // max(times, 1)) * sft.save_steps if times > 1 else 0
    watch = Watch(out, whole, stop, sft.most_minutes, show, judge, every, ranks, sharded=sharded)
    if sft.most_minutes is not None:
        trainer.time_share = lambda: watch.time_share
    if sharded:
        set_precision(trainer)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(watch)
    # A page about the model is ours to write: see training.json.
    trainer.create_model_card = lambda *names, **values: None
    return trainer, watch


def _arguments(
    settings: TrainingSettings, base: Base, out: Path, *, evaluates: bool, sharded: bool
) -> SFTConfig:
    from trl import SFTConfig

    sft, on_gpu = settings.sft, torch.cuda.is_available()
    large = base.parameters >= MANY_WEIGHTS
    arguments = SFTConfig(
        output_dir=str(checkpoints.folder_of(out)),
        per_device_train_batch_size=sft.batch,
        per_device_eval_batch_size=sft.batch,
        gradient_accumulation_steps=sft.accumulate,
        num_train_epochs=sft.epochs,
        max_steps=sft.most_steps or -1,
        learning_rate=sft.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=sft.warmup_share,
        weight_decay=sft.weight_decay,
        adam_beta2=BETA2,
        max_grad_norm=1.0,
        optim="adamw_torch_fused" if on_gpu else "adamw_torch",
        seed=sft.seed,
        data_seed=sft.seed,
        max_length=sft.window,
        packing=sft.packing,
        packing_strategy="bfd",
        bf16=in_bf16(sft.bf16),
        fp16=False,
        tf32=True if on_gpu and torch.cuda.get_device_capability() >= (8, 0) else None,
        gradient_checkpointing=large,
        use_cpu=not on_gpu,
        dataloader_num_workers=2 if on_gpu else 0,
        dataloader_pin_memory=on_gpu,
        dataloader_persistent_workers=on_gpu,
        # Else each batch waits for all that the GPU has still to do.
        accelerator_config={"non_blocking": on_gpu},
        save_strategy="steps",
        save_steps=sft.save_steps,
        save_total_limit=None,
        eval_strategy="steps" if evaluates else "no",
        eval_steps=sft.save_steps if evaluates else None,
        logging_strategy="steps",
        logging_steps=1,
        # Looking for nan at each step waits for the GPU; the curve shows it as well.
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        **arguments_of(sharded),
    )
    if sharded:
        admit_cpu()
    if arguments.n_gpu > 1 and arguments.parallel_mode.value == "not_distributed":
        # Several GPUs are for --gpus: one process would cut packed rows apart among them.
        arguments._n_gpu = 1
    return arguments


def _planned(trainer: Any) -> int:
    """Optimizer steps in all."""
    if trainer.args.max_steps > 0:
        return int(trainer.args.max_steps)
    batches = len(trainer.get_train_dataloader())
    a_pass = max(-(-batches // int(trainer.args.gradient_accumulation_steps)), 1)
    return max(math.ceil(float(trainer.args.num_train_epochs) * a_pass), 1)


def _read_back(trainer: Any, watch: Watch, last: Path, out: Path, sharded: bool) -> None:
    """All steps are done, and only their result is not written: the trainer would add a step."""
    from transformers import TrainerState

    if not sharded:
        trainer._load_from_checkpoint(str(last))
    trainer.state = TrainerState.load_from_json(str(last / "trainer_state.json"))
    points = read_points(out)
    watch.loss = next((item.loss for item in reversed(points) if item.loss is not None), None)
    held_out = (item.held_out_loss for item in reversed(points))
    watch.held_out_loss = next((loss for loss in held_out if loss is not None), None)


def _save(
    trainer: Any,
    base: Base,
    tokenizer: PreTrainedTokenizerBase,
    settings: TrainingSettings,
    out: Path,
    sharded: bool,
) -> None:
    model: Any
    if sharded:
        # The last step wrote it, in parts that no process needs to gather.
        last = checkpoints.last_whole(checkpoints.folder_of(out))
        assert last is not None
        model = whole_model(last, base.model)
    else:
        model = trainer.accelerator.unwrap_model(trainer.model)
    save_trained(out, model, tokenizer, base, settings, bf16=in_bf16(settings.sft.bf16))


def _record(
    settings: TrainingSettings,
    data: Path,
    rows: _Data,
    examples: Examples,
    base: Base,
    trainer: Any,
    watch: Watch,
    planned: int,
) -> Record:
    return Record(
        name=settings.name,
        ended=watch.ended,
        settings=settings,
        data=str(data),
        data_sha256="",
        card_sha256=folder.card_hash(data),
        older_sha256=None,
        parameters=base.parameters,
        trained_parameters=sum(
            item.numel() for item in trainer.model.parameters() if item.requires_grad
        ),
        steps=trainer.state.global_step,
        planned_steps=planned,
        epochs=round(trainer.state.epoch or 0.0, 4),
        rows=len(examples.items),
        too_long=examples.too_long,
        replayed=rows.replayed,
        tokens=watch.tokens,
        tokens_a_pass=examples.tokens,
        device=device_name(),
        precision=precision_of(settings.sft.bf16),
        seconds=round(watch.seconds, 2),
        loss=watch.loss,
        held_out_loss=watch.held_out_loss,
        versions=installed_versions(),
        packages={name: version(name) for name in PACKAGES},
    )


def _judge_of(
    data: Path,
    settings: TrainingSettings,
    judging: Judging | None,
    show: Show,
    readable_in: Callable[[Path], AbstractContextManager[Path]],
) -> Callable[[Path, int], Point | None] | None:
    """Judges a checkpoint as the finished model is judged; None where nobody wants it."""
    if judging is None or judging.times < 2 or settings.sft.method != "full":
        return None

    def judge(place: Path, step: int) -> Point | None:
        with readable_in(place) as found:
            passed = _judged(str(found), data, settings, judging, show)
        return None if passed is None else _point_of(step, 0.0, passed, None)

    return judge


def _judged(
    model: str, data: Path, settings: TrainingSettings, judging: Judging, show: Show
) -> PassAt | None:
    """What the model is worth on some held-out modules, spread over all of them."""
    from agentkernel.workflows.training.writer import LocalWriter

    problems = held_out_problems(data)
    most = settings.sft.evaluate_problems
    if not problems or not most:
        return None
    chosen = spread_over(problems, most)
    asked = settings.sampling
    sampling = Sampling(
        temperature=asked.temperature, top_p=asked.top_p, max_tokens=asked.most_tokens
    )
    return pass_at(
        LocalWriter(model, sampling, seed=settings.sft.seed),
        chosen,
        judging.samples,
        target=judging.target,
        verification=judging.verification,
        jobs=judging.jobs,
        show=show,
    )


def _point_of(step: int, epoch: float, passed: PassAt, record: Record | None) -> Point:
    first = passed.pass_at.get(1)
    return Point(
        step=step,
        epoch=epoch,
        tokens=record.tokens if record else 0,
        seconds=record.seconds if record else 0.0,
        pass_at_1=first.value if first else None,
        hack_rate=passed.hack_rate.value,
        problems=passed.problems,
    )


def _title(record: Record) -> str:
    steps = f"{record.steps} of {record.planned_steps} steps"
    return f"{record.name}: {record.parameters:,} weights, {steps}, {record.device}"


__all__ = ["Judging", "SftDone", "train_sft"]
