"""The hours of a training from its operations and bytes."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from agentkernel.domain.errors import TrainingError
from agentkernel.tools.targets import load_targets
from agentkernel.training import cost
from agentkernel.training.cost import (
    Machine,
    flops_a_token,
    machine_of,
    rl_cost,
    sft_cost,
    tokens_per_s,
)
from agentkernel.training.model_shape import new_shape
from agentkernel.training.settings import Lora, RlSettings, SftSettings, load_training
from tests.training.model_shapes import LLAMA, TINY, made, sizes_of

H100 = Machine("h100", 1, memory_gib=80, peak_tflops=1000, dram_gb_per_s=1000)
RL = RlSettings(steps=10, problems=2, rollouts=4, turns=3, most_tokens=40)


def sft(method: Literal["full", "lora", "qlora"] = "full", epochs: float = 1) -> SftSettings:
    return SftSettings(method=method, lora=Lora(rank=1), epochs=epochs, window=64)


def test_operations_of_a_token_by_hand() -> None:
    attended = 12 * 2 * 4 * 8
    assert flops_a_token(TINY, sft(), 8) == 6 * 280 + attended
    assert flops_a_token(TINY, sft("lora"), 8) == 4 * 280 + attended
    # Of 8 B weights: 6, and 2 of what is computed again.
    each = flops_a_token(LLAMA, sft(), 1500) / LLAMA.parameters
    assert each == pytest.approx(7.8, abs=0.1)


def test_torch_counts_as_many_operations() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model = made("llama", "meta", **sizes_of(TINY), attn_implementation="eager")
    tokens = torch.zeros((1, 8), dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as counted:
        model(tokens).logits.sum().backward()
    assert counted.get_total_flops() == 8 * flops_a_token(TINY, sft(), 8)


def test_hours_are_operations_over_a_share_of_the_peak() -> None:
    found = sft_cost(LLAMA, SftSettings(epochs=3, window=2048), H100, 1000, 1500)
    assert found.tokens == 4_500_000
    flop = 4_500_000 * flops_a_token(LLAMA, sft(), 1500)
    assert found.eflop == pytest.approx(flop / 1e18)
    least, most = cost.PEAK_SHARES["large"]
    assert found.hours.low == pytest.approx(flop / (1e15 * most) / 3600)
    assert found.hours.high == pytest.approx(flop / (1e15 * least) / 3600)
    eight = sft_cost(LLAMA, SftSettings(epochs=3, window=2048), H100._replace(gpus=8), 1000, 1500)
    assert eight.hours.high == pytest.approx(found.hours.high / 8)
    assert (found.sharded, eight.sharded) == (False, True)


def test_steps_that_are_said_take_the_place_of_epochs() -> None:
    few = SftSettings(epochs=3, window=2048, batch=2, accumulate=4, most_steps=5)
    two = H100._replace(gpus=2)
    assert sft_cost(LLAMA, few, two, 1000, 1500).tokens == 5 * 2 * 4 * 2 * 2048
    alone = few.evolve(packing=False)
    assert sft_cost(LLAMA, alone, two, 1000, 1500).tokens == 5 * 2 * 4 * 2 * 1500


def test_a_model_lies_in_parts_where_the_settings_say_so() -> None:
    two = H100._replace(gpus=2)
    whole = SftSettings(window=2048, shard="none")
    assert not sft_cost(LLAMA, whole, two, 10, 1500).sharded
    parts = whole.evolve(shard="full")
    shared, alone = (sft_cost(TINY, item, two, 10, 60) for item in (parts, whole))
    assert (shared.sharded, alone.sharded) == (True, False)
    assert shared.memory.parts[0].gib == alone.memory.parts[0].gib / 2
    assert not sft_cost(TINY, parts, H100, 10, 60).sharded


def test_hours_of_a_small_model_are_those_that_were_measured() -> None:
    small = load_training("small")
    assert small.new is not None
    h200 = machine_of(load_targets()["h200"], 1)
    found = sft_cost(new_shape(small.new), SftSettings(), h200, 1000, 800)
    tokens_per_s = [800_000 / (3600 * item) for item in (found.hours.high, found.hours.low)]
    assert tokens_per_s == pytest.approx([0.57e6, 1.23e6], rel=0.03)


def test_tokens_a_second_at_best_are_bytes_and_at_worst_the_processors() -> None:
    found = tokens_per_s(LLAMA, sft(), RL, H100, 20, 20)
    cached = 8 * (20 + 10) * 131_072
    weights = LLAMA.matrix_weights + LLAMA.head_weights
    best_s = (2 * weights + cached) / (1e12 * cost.BANDWIDTH_SHARE)
    assert found.high == pytest.approx(8 / best_s)
    # 16.7 ms of reading; all wait for answers of 40 tokens, which are 20 on the average.
    assert best_s > 32 * 0.4e-3
    assert found.low == pytest.approx(8 / best_s / 2)
    fast = H100._replace(dram_gb_per_s=4000)
    found = tokens_per_s(LLAMA, sft(), RL, fast, 20, 20)
    assert found.low == pytest.approx(8 / (32 * 0.4e-3) / 2)


def test_practice_is_writing_learning_and_judging() -> None:
    found = rl_cost(LLAMA, sft("lora"), RL, H100._replace(judges=4, gpus=8), 40)
    assert found.answers == 10 * 2 * 4 * 3
    verdicts = 240 * cost.JUDGE_S / 4 / 3600
    assert found.judge_hours.low == pytest.approx(verdicts)
    assert found.judge_hours.high == pytest.approx(verdicts + 240 * cost.PROFILE_S / 3600)
    flop = 240 * 40 * flops_a_token(LLAMA, sft("lora"), 40)
    assert found.learn_hours.low == pytest.approx(flop / (1e15 * 0.5) / 3600)
    reading = 240 * 20 * 2 * (LLAMA.matrix_weights + LLAMA.head_weights) / (1e15 * 0.5)
    written = 240 * 20 / found.tokens_per_s.high
    assert found.write_hours.low == pytest.approx((reading + written) / 3600)
    parts = (found.write_hours, found.learn_hours, found.judge_hours)
    assert found.hours.high == pytest.approx(sum(item.high for item in parts))
    assert all(item.low < item.high for item in parts)


def test_rows_longer_than_the_window_are_an_error_of_one_line() -> None:
    with pytest.raises(TrainingError, match="65 tokens do not fit a window of 64") as caught:
        sft_cost(TINY, sft(), H100, 10, 65)
    assert "\n" not in str(caught.value)
    with pytest.raises(TrainingError, match="window of 64"):
        rl_cost(TINY, sft(), RL, H100, 65)


def test_a_machine_has_its_targets_figures() -> None:
    found = machine_of(load_targets()["h100-sxm"], 8)
    assert found == Machine("h100-sxm", 8, 80, 989.4, 3350, 16)
    old = load_targets()["h100-sxm"].evolve(peak_tflops={})
    with pytest.raises(TrainingError, match="no bf16 peak"):
        machine_of(old, 1)


def test_modules_that_are_tried_and_not_judged_cost_writing_alone() -> None:
    plain, more = (
        rl_cost(TINY, sft(), RL.evolve(oversample=often, turns=1), H100, 40) for often in (1, 3)
    )
    assert more.answers == plain.answers
    assert more.judge_hours == plain.judge_hours
    assert more.learn_hours == plain.learn_hours
    # Three times the answers, of which more are written at once.
    assert more.tokens_per_s.high > plain.tokens_per_s.high
    ratio = more.write_hours.low / plain.write_hours.low
    assert ratio == pytest.approx(3 * plain.tokens_per_s.high / more.tokens_per_s.high, rel=0.05)
