"""TRL's GRPO trainer, fed with turns that were sampled and judged here.

TRL has the log-probabilities, the clipped loss, accumulation, the optimizer, checkpoints and
logs. It gets turn-level samples with advantages of their own instead of its groups of single
answers: one optimizer step per round of rollouts. So the clipped ratio is 1 but for rounding,
and no reference model is asked (beta = 0).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import torch
from datasets import Dataset
from datasets.table import InMemoryTable
from torch.utils.data import DataLoader
from trl import GRPOConfig, GRPOTrainer

from agentkernel.domain.errors import TrainingError
from agentkernel.training.curve import RlPoint, add_point
from agentkernel.training.rl.rollouts import TurnSample
from agentkernel.training.settings import RlSettings
from agentkernel.training.sft.trainer import TrainingCallback

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import (
        PreTrainedModel,
        PreTrainedTokenizerBase,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )

MOST_LOST = 3
"""Steps in a row without a finite gradient, after which it is no accident of one batch."""
PREFIX = "rl/"
"""Figures of a step in the trainer's logs."""


class TrainingRound(NamedTuple):
    """What a step learns from, and its figures."""

    samples: Sequence[TurnSample]
    figures: dict[str, float]


Play = Callable[[Any, int], TrainingRound]
"""Plays the rollouts of a step (from 0) with the trainer's model."""


class TurnTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer whose batches come from `play`, called with itself and the step. `adapter` is put
    on the model first, and is then what learns."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        args: GRPOConfig,
        play: Play,
        adapter: PeftConfig | None = None,
    ) -> None:
        self._play = play
        self._left: list[dict[str, torch.Tensor]] = []
        self._accumulated = int(args.gradient_accumulation_steps)
        super().__init__(
            model=model,
            reward_funcs=_paid_elsewhere,
            args=args,
            train_dataset=_empty_rows(self._accumulated),
            processing_class=tokenizer,
            peft_config=adapter,
        )
        # A page about the model is ours to write: see training.json.
        self.create_model_card = lambda *names, **values: None

    def get_train_dataloader(self) -> DataLoader[Any]:
        """As many empty rows as a step has micro-batches, so that a pass is a step."""
        return DataLoader(self.train_dataset, batch_size=1, collate_fn=lambda rows: rows)

    def _prepare_inputs(self, generation_batch: object) -> dict[str, torch.Tensor]:
        """The next micro-batch of the step; the first one plays its rollouts."""
        if not self._left:
            played = self._play(self, int(self.state.global_step))
            for name, value in played.figures.items():
                self._metrics["train"][f"{PREFIX}{name}"].append(value)
            self._left = micro_batches(
                played.samples,
                self._accumulated,
                int(self.args.per_device_train_batch_size),
                int(self._tokenizer.pad_token_id),
            )
        batch = self._left.pop()
        return {name: value.to(self.accelerator.device) for name, value in batch.items()}


def _empty_rows(count: int) -> Dataset:
    """One a micro-batch: what is in it comes from `play`. A name for them spares the library from
    hashing them, and the code around it."""
    table = InMemoryTable(pa.table({"prompt": [""] * count}))
    return Dataset(table, fingerprint=f"empty-{count}")


def _paid_elsewhere(completions: Sequence[object], **others: object) -> list[float]:
    raise AssertionError("rewards come with the samples")


def micro_batches(
    samples: Sequence[TurnSample], count: int, rows: int, pad: int
) -> list[dict[str, torch.Tensor]]:
    """`count` batches of at most `rows` samples, prompts padded to the left and answers to the
    right with `pad`. Samples of about one length share a batch; those whose advantage is 0 are left
    out, as their gradient is 0. What is missing is filled with batches of one empty answer.

    `num_items_in_batch` holds the answers' tokens of all samples, so that the loss is the mean over
    them however they are cut up. Shapes [rows, tokens], advantages [rows].
    """
    learned = sorted(
        (item for item in samples if item.advantage != 0.0 and item.answer),
        key=lambda item: len(item.prompt) + len(item.answer),
    )
    total = torch.tensor(float(sum(len(item.answer) for item in samples)))
    batches = [
        _batch(learned[place : place + rows], pad, total) for place in range(0, len(learned), rows)
    ]
    assert len(batches) <= count
    empty = TurnSample((pad,), (), 0.0)
    return [_batch([empty], pad, total) for _ in range(count - len(batches))] + batches


def _batch(samples: Sequence[TurnSample], pad: int, total: torch.Tensor) -> dict[str, torch.Tensor]:
    longest = max(len(item.prompt) for item in samples)
    most = max(1, *(len(item.answer) for item in samples))
    lead = [longest - len(item.prompt) for item in samples]
    rest = [most - len(item.answer) for item in samples]
    prompts = [[pad] * gap + [*item.prompt] for gap, item in zip(lead, samples, strict=True)]
    answers = [[*item.answer] + [pad] * gap for gap, item in zip(rest, samples, strict=True)]
    return {
        "prompt_ids": torch.tensor(prompts),
        "prompt_mask": torch.tensor([[0] * gap + [1] * (longest - gap) for gap in lead]),
        "completion_ids": torch.tensor(answers),
        "completion_mask": torch.tensor([[1] * (most - gap) + [0] * gap for gap in rest]),
        "advantages": torch.tensor([item.advantage for item in samples]),
        "num_items_in_batch": total,
    }


def arguments(settings: RlSettings, checkpoints: Path, *, bf16: bool, large: bool) -> GRPOConfig:
    """What TRL is told. `large` computes activations twice rather than keep them."""
    on_gpu = torch.cuda.is_available()
    turns = settings.problems * settings.rollouts * settings.turns
    accumulated = -(-turns // settings.batch)
    found = GRPOConfig(
        output_dir=str(checkpoints),
        per_device_train_batch_size=settings.batch,
        gradient_accumulation_steps=accumulated,
        num_generations=settings.batch * accumulated,
        max_completion_length=settings.most_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        beta=0.0,
        epsilon=settings.clip,
        epsilon_high=settings.clip_high,
        # The mean over the tokens of all answers of a step: a long answer counts as much a token
        # as a short one (arXiv 2503.14476, section 3.3).
        loss_type="dapo",
        scale_rewards="none",
        max_steps=settings.steps,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant",
        warmup_steps=0,
        weight_decay=0.0,
        max_grad_norm=1.0,
        optim="adamw_torch_fused" if on_gpu else "adamw_torch",
        seed=settings.seed,
        data_seed=settings.seed,
        bf16=bf16,
        fp16=False,
        tf32=True if on_gpu and torch.cuda.get_device_capability() >= (8, 0) else None,
        gradient_checkpointing=large,
        use_cpu=not on_gpu,
        dataloader_pin_memory=False,
        ignore_data_skip=True,
        save_strategy="steps",
        save_steps=settings.save_steps,
        save_total_limit=None,
        eval_strategy="no",
        logging_strategy="steps",
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
    )
    if found.n_gpu > 1 and found.parallel_mode.value == "not_distributed":
        # One process samples and learns on one GPU; the others are the judge's.
        found._n_gpu = 1
    return found


def _entropy(logs: dict[str, float], args: TrainingArguments, learned: int) -> float | None:
    """The mean over the micro-batches that hold something: TRL counts an empty one as 0."""
    filled = -(-learned // int(args.per_device_train_batch_size))
    if "entropy" not in logs or not filled:
        return None
    return logs["entropy"] * int(args.gradient_accumulation_steps) / filled


class RlCallback(TrainingCallback):
    """Writes a point of the curve for each step, and shows it; else as `TrainingCallback`. A step
    whose gradient is not finite changes nothing: one nan would make all weights nan."""

    _lost = 0

    def on_pre_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: torch.nn.Module | None = None,
        **others: Any,
    ) -> None:
        assert model is not None
        gradients = [item.grad for item in model.parameters() if item.grad is not None]
        if bool(torch.nn.utils.get_total_norm(gradients).isfinite()):
            self._lost = 0
            return
        self._lost += 1
        if self._lost == MOST_LOST:
            raise TrainingError(
                f"The gradients of {MOST_LOST} steps in a row are not finite, up to step "
                f"{state.global_step + 1}. Expected numbers. Next: a lower rl.learning_rate, in "
                "another --out."
            )
        for item in model.parameters():
            item.grad = None

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **others: Any,
    ) -> None:
        figures = {
            name.removeprefix(PREFIX): value
            for name, value in (logs or {}).items()
            if name.startswith(PREFIX)
        }
        if logs is None or not figures:
            return
        self._tokens_here += int(figures["answer_tokens"])
        point = RlPoint.model_validate(
            {
                **figures,
                "step": state.global_step,
                "seconds": round(self.seconds, 2),
                "loss": logs.get("loss"),
                "gradient_norm": logs.get("grad_norm"),
                "entropy": _entropy(logs, args, int(figures.get("learned", 0))),
            }
        )
        add_point(self._out, point)
        words = (
            f"reward {point.reward:.3f}, right {point.correct:.0%}, cheats {point.hack_rate:.1%}"
        )
        self._show(state.global_step, state.max_steps, words)
