"""TRL's SFT trainer for packed rows, and the callback of every training.

Four things differ from TRL. The collator says on the CPU which positions are learned: asking
the GPU for it, or for entropy and accuracy of each batch, waits for all of its work. Rows come
as arrays, not as lists of numbers. The learning rate ends with the steps or with the time,
whichever is first. Decoder layers may be compiled, for batches of one size. The callback writes
points of the curve and completes checkpoints, and ends the training after the step at hand on a
signal.
"""

from __future__ import annotations

import functools
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import pad
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerCallback
from trl import SFTTrainer

from agentkernel.domain.errors import TrainingError
from agentkernel.training import checkpoints
from agentkernel.training.curve import LossPoint, add_point
from agentkernel.training.distributed import Ranks
from agentkernel.training.folder import Ended
from agentkernel.training.settings import Show
from agentkernel.training.sft.examples import IGNORED

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from transformers import TrainerControl, TrainerState, TrainingArguments


LEARNED, TARGETS, READ = "learned", "targets", "read"
"""Of a packed batch: the positions [learned] that tell the next token, that token [learned], and
how many tokens there are (filling not counted)."""
SCALED = (
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "lm_head_multiplier",
    "output_multiplier",
)
"""What some models do to their logits, by its name in the configuration: TRL knows how."""
HEAD_COLUMNS = 32768
"""Rows of the last matrix that logits are computed of at a time, as TRL does."""
LEAST_WARMUP = 100
"""Steps: a warm-up that the time cuts short has as many, several times what AdamW's second moment
looks back on (20 at a decay of 0.95)."""
Batch = dict[str, Any]


@dataclass(frozen=True)
class PackedCollator:
    """Makes a batch by `collate`, and says of a packed one which positions are learned.

    `size`: tokens that each batch is filled up to with a document of its own that nobody learns
    from, and `window`: of at most so many; compiled layers then see one shape. None: left as it is.
    """

    collate: Callable[[Sequence[Batch]], Batch]
    size: int | None = None
    window: int = 0

    def __call__(self, rows: Sequence[Batch]) -> Batch:
        batch = self.collate(rows)
        if "cu_seq_lens_q" not in batch:
            return batch
        read = batch["input_ids"].shape[1]
        if self.size is not None and read <= self.size:
            batch = filled_batch(batch, self.size, self.window)
        following = batch["labels"][0, 1:]
        learned = (following != IGNORED).nonzero().flatten()
        return {**batch, LEARNED: learned, TARGETS: following[learned], READ: read}


def filled_batch(batch: Batch, size: int, window: int) -> Batch:
    """A packed batch of `size` tokens: [1, size] for [1, tokens], documents of at most `window`
    tokens at its end. The longest document counts as `window`, whatever it is."""
    read = batch["input_ids"].shape[1]
    begins = torch.arange(read, size, window, dtype=torch.int32)
    ends = torch.cat([batch["cu_seq_lens_q"][:-1], begins, torch.tensor([size], dtype=torch.int32)])
    documents = torch.arange(ends.numel() - 1, dtype=torch.int32)
    spread = torch.repeat_interleave(documents, ends.diff(), output_size=size)[None]
    room = (0, size - read)
    return {
        **batch,
        "input_ids": pad(batch["input_ids"], room),
        "labels": pad(batch["labels"], room, value=IGNORED),
        "position_ids": (torch.arange(size) - ends[:-1][spread[0]])[None],
        "cu_seq_lens_q": ends,
        "cu_seq_lens_k": ends,
        "max_length_q": window,
        "max_length_k": window,
        "seq_idx": spread,
    }


class PackedTrainer(SFTTrainer):  # type: ignore[misc]
    """SFTTrainer with a loss of its own for packed rows, equal to TRL's but for rounding, where the
    model has a plain last matrix; TRL's elsewhere.

    `time_share`: which share of the time that there is was used, 0 to 1; set before the training
    begins, it lets the learning rate end with the time.
    """

    train_dataset: Any
    eval_dataset: Any
    data_collator: Any
    lr_scheduler: LRScheduler | None

    def __init__(self, *, compiled: bool = False, **given: Any) -> None:
        super().__init__(**given)
        self._compiled = compiled
        self.time_share: Callable[[], float] | None = None
        self._read = 0
        # Lists of numbers take longer to become a batch than the GPU to learn from it.
        self.train_dataset = self.train_dataset.with_format("numpy")
        if self.eval_dataset is not None:
            self.eval_dataset = self.eval_dataset.with_format("numpy")
        window = int(self.args.max_length)
        size = int(self.args.per_device_train_batch_size) * window if compiled else None
        self.data_collator = PackedCollator(self.data_collator, size, window)
        if compiled:
            compile_layers(self.model)
        base = self.model.get_base_model() if hasattr(self.model, "peft_config") else self.model
        elsewhere = self.aux_loss_enabled or self.accelerator.parallelism_config is not None
        sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled
        self._own_loss = not elsewhere and not sharded and has_plain_head(base)
        if self._own_loss:
            patch_loss_forward(base)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """The mean over the tokens that are learned, as TRL's; without its entropy and accuracy."""
        ours = {name: inputs[name] for name in (LEARNED, TARGETS, READ) if name in inputs}
        given = {name: value for name, value in inputs.items() if name not in ours}
        if not self._own_loss or not ours or return_outputs:
            return super().compute_loss(model, given, return_outputs, num_items_in_batch)
        del given["labels"]
        if self._compiled:  # what is compiled fits any number of documents
            for ends in (given["cu_seq_lens_q"], given["cu_seq_lens_k"]):
                torch._dynamo.maybe_mark_dynamic(ends, 0)
        lost = model(**given, use_cache=False, learned=ours[LEARNED], targets=ours[TARGETS])
        count = ours[TARGETS].numel() if num_items_in_batch is None else num_items_in_batch
        loss = lost / torch.as_tensor(count).clamp(min=1)
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            # The count is that of all ranks, and gradients are averaged over them.
            loss = loss * self.accelerator.num_processes
        if self.model.training:
            self._read += ours[READ]
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds `num_tokens`, those of all ranks, once for each line rather than for each batch."""
        if self._own_loss and self.model.training:
            read = torch.tensor(self._read, device=self.accelerator.device)
            self._metrics["train"]["num_tokens"] = [int(self.accelerator.reduce(read, "sum"))]
        super().log(logs, start_time)

    def create_scheduler(
        self, num_training_steps: int, optimizer: Optimizer | None = None
    ) -> LRScheduler:
        """Cosine, over the steps or over the time that there is."""
        if self.lr_scheduler is None and self.time_share is not None:
            warmup = int(self.args.get_warmup_steps(num_training_steps))

            def factor(step: int) -> float:
                return rate_factor(step, warmup, num_training_steps, self._agreed_share())

            self.lr_scheduler = LambdaLR(optimizer or self.optimizer, factor)
            self._created_lr_scheduler = True
        made: LRScheduler = super().create_scheduler(num_training_steps, optimizer)
        return made

    def _agreed_share(self) -> float:
        """Share of the time by the first rank's clock: all ranks take one step."""
        assert self.time_share is not None
        if self.accelerator.num_processes == 1:
            return self.time_share()
        from accelerate.utils import broadcast_object_list  # type: ignore[import-untyped]

        return float(broadcast_object_list([self.time_share()])[0])


def rate_factor(step: int, warmup: int, steps: int, time_share: float) -> float:
    """Of the highest learning rate, after `step` steps: `warmup` steps up, then down by a cosine of
    the share that was used of the steps or of the time, whichever is larger; 0 at its end.

    The time hurries the warm-up as well, but to no fewer than LEAST_WARMUP steps. A `time_share` of
    0 gives transformers' own cosine.
    """
    hurried = min(time_share * steps / max(warmup, 1), step / LEAST_WARMUP)
    rise = min(1.0, max(step / max(warmup, 1), hurried)) if step < warmup else 1.0
    through = max((step - warmup) / max(steps - warmup, 1), time_share, 0.0)
    return rise * 0.5 * (1.0 + math.cos(math.pi * min(through, 1.0)))


def has_plain_head(model: nn.Module) -> bool:
    """Whether logits are the last hidden states times `lm_head`, and TRL's kernel for their
    log-probabilities is here."""
    config = getattr(model, "config", None)
    plain = type(getattr(model, "lm_head", None)) is nn.Linear
    whole = isinstance(getattr(model, "model", None), nn.Module)
    scaled = any(getattr(config, name, None) is not None for name in SCALED)
    return plain and whole and not scaled and find_spec("trl.kernels") is not None


def patch_loss_forward(model: Any) -> None:
    """Have `model(..., learned=positions, targets=tokens)` give the sum of -log p of the tokens, in
    fp32; it stays what it is otherwise. Within its forward, so that whatever is put around that
    (autocast, several ranks) is around this too."""
    from trl.kernels import ChunkedLogProbFunction

    given = model.forward

    @functools.wraps(type(model).forward)
    def forward(
        self: Any,
        *args: Any,
        learned: torch.Tensor | None = None,
        targets: torch.Tensor | None = None,
        **others: Any,
    ) -> Any:
        if learned is None:
            return given(*args, **others)
        others.pop("labels", None)
        hidden = self.model(*args, **others).last_hidden_state[0].index_select(0, learned)
        head = self.lm_head
        found = ChunkedLogProbFunction.apply(
            hidden, head.weight, head.bias, targets, 1.0, HEAD_COLUMNS, None, 1.0, ()
        )
        return -found[0].sum()

    model.forward = MethodType(forward, model)


def compile_layers(model: nn.Module, backend: str | Callable[..., Any] = "inductor") -> int:
    """Compile the decoder layers where they stand, so that weights keep their names; layers of one
    kind share what is compiled. Gives how many there are; none where the model does not say which
    modules they are."""
    kinds = set(getattr(model, "_no_split_modules", None) or ())
    layers = [item for item in model.modules() if type(item).__name__ in kinds]
    for layer in layers:
        layer.compile(backend=backend)
    return len(layers)


MOST_POINTS = 400
"""Points of the loss in one training: a line each is written to the disk at once."""


class CheckpointJudge(NamedTuple):
    """Judges the model in a checkpoint, given its step: `times` times in all, the end included."""

    judge: Callable[[Path, int], LossPoint | None]
    times: int


@dataclass(frozen=True)
class TrainingClock:
    """The time that a training takes, of `most_minutes` at most. `before` is the checkpoint of an
    earlier call that it goes on from; `begin_s`: of time.monotonic(), when this call began."""

    before: checkpoints.CheckpointRecord | None
    most_minutes: float | None
    begin_s: float = field(default_factory=lambda: time.monotonic())

    @property
    def before_s(self) -> float:
        """Spent by the calls before this one."""
        return self.before.seconds if self.before else 0.0

    @property
    def seconds(self) -> float:
        """Spent so far, the calls before this one included."""
        return self.before_s + time.monotonic() - self.begin_s

    @property
    def most_s(self) -> float | None:
        """All that there is; None where nobody limits it."""
        return None if self.most_minutes is None else 60 * self.most_minutes

    @property
    def share(self) -> float:
        """Which share of the time was used: 1 at its end, 0 where nobody limits it."""
        return 0.0 if self.most_s is None else self.seconds / self.most_s


class StopRequest:
    """Whether somebody asked the training to end."""

    asked = False


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """SIGINT and SIGTERM ask to end after the step at hand; a second one ends at once. Outside the
    main thread signals stay as they are."""
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class TrainingCallback(TrainerCallback):
    """Hears of each step from the trainer."""

    def __init__(
        self,
        out: Path,
        clock: TrainingClock,
        stop: StopRequest,
        show: Show,
        judge: CheckpointJudge | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self._ranks, self._judge = ranks or Ranks(), judge
        self._out, self._stop, self._show = out, stop, show
        self._clock = clock
        self._tokens_here = 0
        self._judged: int | None = None
        self._first_s: float | None = None
        self.ended: Ended = "steps"
        self.loss: float | None = None
        self.held_out_loss: float | None = None

    @property
    def tokens(self) -> int:
        """Trained on so far, the calls before this one included."""
        before = self._clock.before
        return (before.tokens if before else 0) + self._tokens_here

    @property
    def seconds(self) -> float:
        """Spent so far, the calls before this one included."""
        return self._clock.seconds

    @property
    def rate_share(self) -> float:
        """How far the time has brought the learning rate to its end: 1 at the end, 0 where nobody
        limits it. What a call needs before its first step (tokens, weights) is time as any other,
        but lowers no rate: a model that had half of its time taken so would never learn at the full
        one."""
        most_s, begun = self._clock.most_s, self._first_s
        if most_s is None:
            return 0.0
        before = self._clock.before_s / most_s
        if begun is None:
            return before
        return before + (1.0 - before) * (self.seconds - begun) / max(most_s - begun, 1e-9)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **others: Any,
    ) -> None:
        self._judged = self._times_due(state, self.rate_share)
        self._first_s = self.seconds

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **others: Any,
    ) -> TrainerControl:
        last = state.global_step >= state.max_steps
        late = self._clock.share >= 1.0
        # All ranks end after the same step, whichever of them was asked first.
        asked = self._ranks.most(2 if self._stop.asked else int(late))
        if not last and asked:
            self.ended = "signal" if asked == 2 else "minutes"
            control.should_save = control.should_training_stop = True
            control.should_evaluate = False
        if control.should_save:
            # A point at each checkpoint: then one that goes on from there draws the same curve.
            control.should_log = True
        loss = "" if self.loss is None else f"loss {self.loss:.3f}"
        self._show(state.global_step, state.max_steps, loss)
        return control

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **others: Any,
    ) -> None:
        if not logs:
            return
        _require_numbers(logs, state.global_step)
        if not state.is_world_process_zero:
            return
        self._tokens_here = int(logs.get("num_tokens", self._tokens_here))
        here = {
            "step": state.global_step,
            "epoch": round(state.epoch or 0.0, 4),
            "tokens": self.tokens,
            "seconds": round(self.seconds, 2),
        }
        if "loss" in logs:
            self.loss = logs["loss"]
            point = {
                "loss": logs["loss"],
                "learning_rate": logs.get("learning_rate"),
                "gradient_norm": logs.get("grad_norm"),
            }
            add_point(self._out, LossPoint.model_validate({**here, **point}))
        if "eval_loss" in logs:
            self.held_out_loss = logs["eval_loss"]
            add_point(
                self._out, LossPoint.model_validate({**here, "held_out_loss": logs["eval_loss"]})
            )

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **others: Any,
    ) -> None:
        # Each rank has written its own part of it.
        self._ranks.wait()
        if state.is_world_process_zero:
            self._sealed(args, state)
        self._ranks.wait()

    def _sealed(self, args: TrainingArguments, state: TrainerState) -> None:
        folder = Path(args.output_dir or ".") / f"{checkpoints.PREFIX}{state.global_step}"
        checkpoints.mark_complete(
            folder, self.tokens, self.seconds, self._ranks.count, sharded=self._ranks.sharded
        )
        checkpoints.drop_older(folder.parent)
        before_last = state.global_step < state.max_steps and self.ended == "steps"
        due = self._times_due(state, self._clock.share)
        if self._judge is not None and before_last and due > (self._judged or 0):
            self._judged = due
            point = self._judge.judge(folder, state.global_step)
            if point is not None:
                here = point.evolve(tokens=self.tokens, seconds=round(self.seconds, 2))
                add_point(self._out, here)

    def _times_due(self, state: TrainerState, time_share: float) -> int:
        """How often it should have been judged by now, of the steps or of the time, whichever is
        further on."""
        done = max(state.global_step / max(state.max_steps, 1), time_share)
        return math.floor(min(done, 1.0) * (self._judge.times if self._judge else 0))


def _require_numbers(logs: dict[str, float], step: int) -> None:
    """Raise TrainingError where the loss or its gradient is none, in all ranks alike: before a
    checkpoint of such weights takes the place of a good one."""
    for name, title in (("loss", "loss"), ("grad_norm", "gradient")):
        if name in logs and not math.isfinite(logs[name]):
            raise TrainingError(
                f"The {title} at step {step} is {logs[name]}. Expected a number. Next: a lower "
                "sft.learning_rate, in another --out."
            )
