"""The trainer's own loss, schedule, filling and compiled layers; needs the extra `train`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agentkernel.training.checkpoints import CheckpointRecord
from agentkernel.training.curve import LossPoint, read_points
from agentkernel.training.folder import silenced_libraries
from agentkernel.training.model_shape import make_new
from agentkernel.training.settings import NewModel, load_training
from agentkernel.training.sft import setup, train
from agentkernel.training.sft import trainer as watch
from agentkernel.training.sft.examples import IGNORED, Example, as_dataset, make_tokenizer
from agentkernel.training.sft.setup import register_attention
from agentkernel.training.sft.train import SftResult, train_sft
from tests.training.training_rows import make_data

pytestmark = pytest.mark.skipif(find_spec("trl") is None, reason="the extra 'train' is not here")
TOKENIZER = make_tokenizer(["x = 1\n"], 300)
NEW = NewModel(vocabulary=300, hidden=32, layers=3, heads=2, intermediate=32, window=64)
WINDOW = 64
Batch = dict[str, Any]


def some_items(count: int) -> list[Example]:
    """Documents of 4 to 30 tokens, of which the first third is only read."""
    draw = torch.Generator().manual_seed(count)
    lengths = torch.randint(4, 31, (count,), generator=draw).tolist()
    return [
        Example(torch.randint(5, 90, (length,), generator=draw).tolist(), max(1, length // 3))
        for length in lengths
    ]


def made(kind: Callable[..., Any], out: Path, *, adapter: bool = False, **changes: Any) -> Any:
    """A trainer of `kind` for a new tiny model: 3 steps of 2 batches of 2 packed rows each."""
    from peft import LoraConfig
    from trl import SFTConfig

    model = make_new(NEW, TOKENIZER, seed=0)
    model.set_attn_implementation(register_attention() if changes.get("packing", True) else "sdpa")
    values: dict[str, Any] = {
        "output_dir": str(out),
        "per_device_train_batch_size": 2,
        "per_device_eval_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "max_steps": 3,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "cosine",
        "max_length": WINDOW,
        "packing": True,
        "packing_strategy": "bfd",
        "bf16": False,
        "use_cpu": True,
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "logging_steps": 1,
        "report_to": "none",
        "disable_tqdm": True,
    }
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    with silenced_libraries():
        return kind(
            model=model,
            args=SFTConfig(**{**values, **changes}),
            train_dataset=as_dataset(some_items(40)),
            eval_dataset=as_dataset(some_items(6)),
            processing_class=TOKENIZER,
            peft_config=lora if adapter else None,
        )


def packed_trainer(**given: Any) -> Any:
    """The trainer, imported as late as where it is used."""
    from agentkernel.training.sft.trainer import PackedTrainer

    return PackedTrainer(**given)


def first_batch(trainer: Any) -> Batch:
    batch: Batch = next(iter(trainer.get_train_dataloader()))
    return batch


def as_batch(documents: Sequence[Sequence[int]]) -> Batch:
    """Documents of which all tokens are learned, put together as TRL does."""
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    tokens = [token for document in documents for token in document]
    row = {"input_ids": tokens, "labels": tokens, "seq_lengths": [len(item) for item in documents]}
    found: Batch = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)([row])
    return found


@pytest.mark.quick(1)
@pytest.mark.parametrize("adapter", [False, True])
def test_it_learns_what_trl_learns(tmp_path: Path, *, adapter: bool) -> None:
    from trl import SFTTrainer

    trainers = [made(kind, tmp_path, adapter=adapter) for kind in (packed_trainer, SFTTrainer)]
    assert trainers[0]._own_loss
    for trainer in trainers:
        with silenced_libraries():
            trainer.train()
            trainer.evaluate()
    ours, theirs = (trainer.state.log_history for trainer in trainers)
    assert len(ours) == len(theirs)
    for key in ("loss", "eval_loss", "grad_norm", "learning_rate"):
        found = [line[key] for line in ours if key in line]
        assert found
        expected = [line[key] for line in theirs if key in line]
        assert found == pytest.approx(expected, rel=1e-5)
    tokens = [[line["num_tokens"] for line in lines if "loss" in line] for lines in (ours, theirs)]
    assert tokens[0] == tokens[1]
    for own, other in zip(*(trainer.model.parameters() for trainer in trainers), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)


def test_gradients_of_a_packed_batch_are_those_of_all_logits(tmp_path: Path) -> None:
    trainer = made(packed_trainer, tmp_path)
    batch = first_batch(trainer)
    assert len(batch["cu_seq_lens_q"]) > 3
    torch.autograd.backward(
        trainer.compute_loss(trainer.model, dict(batch), num_items_in_batch=torch.tensor(100))
    )
    ours = [weight.grad.clone() for weight in trainer.model.parameters()]
    trainer.model.zero_grad()
    passed = ("input_ids", "position_ids", "cu_seq_lens_q", "max_length_q")
    logits = trainer.model(**{name: batch[name] for name in passed}).logits[0]
    lost = torch.nn.functional.cross_entropy(
        logits[:-1], batch["labels"][0, 1:], ignore_index=IGNORED, reduction="sum"
    )
    torch.autograd.backward(lost / 100)
    for found, weight in zip(ours, trainer.model.parameters(), strict=True):
        torch.testing.assert_close(found, weight.grad, rtol=1e-4, atol=1e-7)


def test_a_document_is_not_learned_from_its_neighbour() -> None:
    from agentkernel.training.sft.trainer import PackedCollator

    batch = PackedCollator(lambda rows: as_batch([[5, 6, 7], [8, 9], [10, 11, 12]]))([])
    assert batch["learned"].tolist() == [0, 1, 3, 5, 6]
    assert batch["targets"].tolist() == [6, 7, 9, 11, 12]
    assert batch["read"] == 8


def test_a_batch_that_is_not_packed_is_left_to_trl(tmp_path: Path) -> None:
    trainer = made(packed_trainer, tmp_path, packing=False, gradient_accumulation_steps=1)
    batch = first_batch(trainer)
    assert "learned" not in batch
    loss = trainer.compute_loss(trainer.model, dict(batch))
    assert math.isfinite(loss.item())
    assert trainer._metrics["train"]["entropy"]


@pytest.mark.parametrize("name", ["logit_scale", "final_logit_softcapping"])
def test_a_model_that_scales_its_logits_is_left_to_trl(name: str) -> None:
    from agentkernel.training.sft.trainer import has_plain_head

    model = make_new(NEW, TOKENIZER, seed=0)
    assert has_plain_head(model)
    setattr(model.config, name, 2.0)
    assert not has_plain_head(model)
    assert not has_plain_head(torch.nn.Linear(2, 2))


def test_filling_changes_neither_what_is_learned_nor_what_is_read() -> None:
    from agentkernel.training.sft.trainer import PackedCollator, patch_loss_forward

    documents = [[5, 6, 7], [8, 9], [10, 11, 12, 13]]
    whole, short = (
        PackedCollator(lambda rows: as_batch(documents), size=40, window=16)([]),
        (PackedCollator(lambda rows: as_batch(documents))([])),
    )
    assert whole["cu_seq_lens_q"].tolist() == [0, 3, 5, 9, 25, 40]
    assert whole["cu_seq_lens_q"].dtype is short["cu_seq_lens_q"].dtype
    assert whole["position_ids"][0].tolist() == [
        0, 1, 2, 0, 1, 0, 1, 2, 3, *range(16), *range(15)
    ]  # fmt: skip
    assert whole["seq_idx"][0].tolist() == [0] * 3 + [1] * 2 + [2] * 4 + [3] * 16 + [4] * 15
    assert (whole["max_length_q"], whole["read"]) == (16, 9)
    assert whole.keys() == short.keys()
    model = make_new(NEW, TOKENIZER, seed=0)
    model.set_attn_implementation(register_attention())
    patch_loss_forward(model)
    lost = []
    for batch in (whole, short):
        given = {key: value for key, value in batch.items() if key not in ("labels", "read")}
        lost.append(model(**given, use_cache=False))
    torch.testing.assert_close(lost[0], lost[1])


def test_compiled_layers_share_one_graph_for_any_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentkernel.training.sft.trainer import PackedCollator, compile_layers, patch_loss_forward

    def of_one_row(query: Any, key: Any, value: Any, ends: Any, longest: int, scaling: Any) -> Any:
        mixed = query + key + value + ends.sum() * 0
        return mixed[0].transpose(0, 1)

    # The kernel's place in the graph: on a CPU documents are taken one after the other.
    monkeypatch.setattr(setup, "_has_flash", lambda query: True)
    monkeypatch.setattr(setup, "_half", lambda query: torch.float32)
    monkeypatch.setattr(setup, "_varlen", of_one_row)
    graphs: list[Any] = []

    def counted(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    model = make_new(NEW, TOKENIZER, seed=0)
    model.set_attn_implementation(register_attention())
    names = list(model.state_dict())
    patch_loss_forward(model)
    torch._dynamo.reset()
    batches = [
        PackedCollator(as_batch, size=32, window=16)(items)  # type: ignore[arg-type]
        for items in ([[5, 6, 7]], [[5, 6], [7, 8], [9, 10]], [[5, 6]] * 7)
    ]

    def losses() -> list[torch.Tensor]:
        found = []
        for batch in batches:
            given = {key: value for key, value in batch.items() if key not in ("labels", "read")}
            for ends in (given["cu_seq_lens_q"], given["cu_seq_lens_k"]):
                torch._dynamo.maybe_mark_dynamic(ends, 0)
            found.append(model(**given, use_cache=False))
            found[-1].backward()
        return found

    before = losses()
    assert compile_layers(model, counted) == NEW.layers
    after = losses()
    torch.testing.assert_close(before, after)
    assert len(graphs) == 1
    assert list(model.state_dict()) == names


def test_without_a_limit_of_time_the_rate_is_transformers_cosine() -> None:
    from transformers import get_cosine_schedule_with_warmup

    from agentkernel.training.sft.trainer import rate_factor

    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    theirs = get_cosine_schedule_with_warmup(optimizer, 7, 50).lr_lambdas[0]
    for step in range(51):
        assert rate_factor(step, 7, 50, 0.0) == pytest.approx(theirs(step), abs=1e-12)
    assert rate_factor(0, 0, 50, 0.0) == 1.0


@pytest.mark.parametrize(
    ("step", "share", "factor"),
    [
        (0, 0.0, 0.0),
        # The time runs faster than the steps: the warm-up of 3,000 ends after 3 % of the time,
        (900, 0.03, 0.5 * (1 + math.cos(0.03 * math.pi))),
        # but not within fewer than a hundred steps.
        (50, 0.03, 0.25 * (1 + math.cos(0.03 * math.pi))),
        (9_000, 0.5, 0.5),
        (20_000, 1.0, 0.0),
        (20_000, 1.01, 0.0),
        # The steps run faster than the time.
        (51_500, 0.1, 0.5),
        (100_000, 0.2, 0.0),
    ],
)
def test_the_rate_ends_with_the_time_or_the_steps(step: int, share: float, factor: float) -> None:
    from agentkernel.training.sft.trainer import rate_factor

    assert rate_factor(step, 3_000, 100_000, share) == pytest.approx(factor, abs=1e-9)


@pytest.mark.slow
def test_a_training_of_a_minute_comes_to_its_rate_s_end_over_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentkernel.training.sft.trainer import rate_factor

    data = make_data(tmp_path / "data")
    limited = load_training(
        "tiny", ["sft.most_steps=1000", "sft.save_steps=5", "sft.most_minutes=1"]
    )
    clock = {"now": 0.0}
    # A clock that says 3 s a step, wherever it is read.
    for reader in (train, watch):
        monkeypatch.setattr(reader, "time", SimpleNamespace(monotonic=lambda: clock["now"]))

    class Killed(BaseException):
        pass

    def trained(kill_after: int) -> SftResult:
        def show(done: int, total: int | None, words: str) -> None:
            clock["now"] += 3.0
            if done == kill_after:
                raise Killed

        return train_sft(data, limited, tmp_path / "out", show=show)

    with pytest.raises(Killed):
        trained(12)
    clock["now"] = 1e6  # the machine was away
    done = trained(1000)
    assert (done.resumed_from, done.record.ended, done.record.steps) == (10, "minutes", 21)
    points = [
        point for point in read_points(done.out, LossPoint) if point.learning_rate is not None
    ]
    rates = {point.step: point.learning_rate or 0.0 for point in points}
    # The rate of a step is made at the end of the one before, ahead of the clock's next 3 s: it is
    # as if nobody had killed anything.
    shares = {step: 3 * max(step - 2, 0) / 60 for step in rates}
    assert rates == pytest.approx(
        {step: 3e-3 * rate_factor(step - 1, 30, 1000, share) for step, share in shares.items()}
    )
    assert list(rates)[-1] == 21
    assert rates[21] < 0.03 * max(rates.values())


def test_what_a_call_needs_before_its_first_step_lowers_no_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = {"now": 0.0}
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: clock["now"]))
    for spent_s, shares in ((0.0, (0.0, 0.5, 1.0)), (30.0, (0.5, 0.75, 1.0))):
        before = CheckpointRecord(step=10, files={}, seconds=spent_s) if spent_s else None
        clock["now"] = 100.0
        seen = watch.TrainingCallback(
            tmp_path, watch.TrainingClock(before, 1.0), watch.StopRequest(), lambda *given: None
        )
        clock["now"] += 20.0  # tokens, weights
        assert seen.rate_share == shares[0]
        state: Any = SimpleNamespace(global_step=0, max_steps=10)
        nothing: Any = None
        seen.on_train_begin(nothing, state, nothing)
        found = [seen.rate_share]
        left = 60.0 - spent_s - 20.0
        for _ in range(2):
            clock["now"] += left / 2
            found.append(seen.rate_share)
        assert found == pytest.approx(shares)
        assert seen._clock.share == pytest.approx(1.0)


@pytest.mark.gpu
def test_compiled_layers_lose_what_the_others_lose(tmp_path: Path) -> None:
    from agentkernel.training.sft.trainer import PackedTrainer

    losses = []
    for compiled in (False, True):
        trainer = made(
            lambda compiled=compiled, **given: PackedTrainer(compiled=compiled, **given),
            tmp_path,
            use_cpu=False,
            bf16=True,
        )
        with silenced_libraries():
            trainer.train()
            trainer.evaluate()
        lines = trainer.state.log_history
        losses.append([line.get("loss", line.get("eval_loss", 0.0)) for line in lines])
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)
