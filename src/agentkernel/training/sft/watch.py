"""What happens beside the steps of a training: points of the curve, whole checkpoints, its end?"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from agentkernel.domain.errors import TrainingError
from agentkernel.training import checkpoints
from agentkernel.training.curve import LossPoint, add_point
from agentkernel.training.evaluate.evaluate import Show
from agentkernel.training.folder import Ended
from agentkernel.training.ranks import Ranks

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments

MOST_POINTS = 400
"""Points of the loss in one training: a line each is written to the disk at once."""
Judge = Callable[[Path, int], LossPoint | None]
"""Judges the model in a checkpoint, given its step."""


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
        begun: checkpoints.CheckpointRecord | None,
        stop: StopRequest,
        most_minutes: float | None,
        show: Show,
        judge: Judge | None = None,
        judge_times: int = 0,
        ranks: Ranks | None = None,
        *,
        sharded: bool = False,
        begin_s: float | None = None,
    ) -> None:
        """`judge_times`: how often the model is judged in all, the end included. `begin_s`: of
        time.monotonic(), when this call's time began; None: now."""
        self._ranks, self._sharded = ranks or Ranks(), sharded
        self._out, self._stop, self._show = out, stop, show
        self._judge, self._judge_times = judge, judge_times
        self._before = begun
        self._begin = time.monotonic() if begin_s is None else begin_s
        self._most_s = None if most_minutes is None else 60 * most_minutes
        self._tokens_here = 0
        self._judged: int | None = None
        self._first_s: float | None = None
        self.ended: Ended = "steps"
        self.loss: float | None = None
        self.held_out_loss: float | None = None

    @property
    def tokens(self) -> int:
        """Trained on so far, the calls before this one included."""
        return (self._before.tokens if self._before else 0) + self._tokens_here

    @property
    def seconds(self) -> float:
        """Spent so far, the calls before this one included."""
        before = self._before.seconds if self._before else 0.0
        return before + time.monotonic() - self._begin

    @property
    def time_share(self) -> float:
        """Which share of the time was used: 1 at its end, 0 where nobody limits it."""
        return 0.0 if self._most_s is None else self.seconds / self._most_s

    @property
    def rate_share(self) -> float:
        """How far the time has brought the learning rate to its end: 1 at the end, 0 where nobody
        limits it. What a call needs before its first step (tokens, weights) is time as any other,
        but lowers no rate: a model that had half of its time taken so would never learn at the full
        one."""
        if self._most_s is None:
            return 0.0
        before = (self._before.seconds if self._before else 0.0) / self._most_s
        begun = self._first_s
        if begun is None:
            return before
        return before + (1.0 - before) * (self.seconds - begun) / max(self._most_s - begun, 1e-9)

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
        late = self.time_share >= 1.0
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
            folder, self.tokens, self.seconds, self._ranks.count, sharded=self._sharded
        )
        checkpoints.drop_older(folder.parent)
        before_last = state.global_step < state.max_steps and self.ended == "steps"
        due = self._times_due(state, self.time_share)
        if self._judge is not None and before_last and due > (self._judged or 0):
            self._judged = due
            point = self._judge(folder, state.global_step)
            if point is not None:
                here = {"tokens": self.tokens, "seconds": round(self.seconds, 2)}
                add_point(self._out, point.model_copy(update=here))

    def _times_due(self, state: TrainerState, time_share: float) -> int:
        """How often it should have been judged by now, of the steps or of the time, whichever is
        further on."""
        done = max(state.global_step / max(state.max_steps, 1), time_share)
        return math.floor(min(done, 1.0) * self._judge_times)


def _require_numbers(logs: dict[str, float], step: int) -> None:
    """Raise TrainingError where the loss or its gradient is none, in all ranks alike: before a
    checkpoint of such weights takes the place of a good one."""
    for name, title in (("loss", "loss"), ("grad_norm", "gradient")):
        if name in logs and not math.isfinite(logs[name]):
            raise TrainingError(
                f"The {title} at step {step} is {logs[name]}. Expected a number. Next: a lower "
                "sft.learning_rate, in another --out."
            )


__all__ = ["MOST_POINTS", "Judge", "StopRequest", "TrainingCallback", "stop_on_signal"]
