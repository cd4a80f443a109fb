"""How often the profiler calls a difference where there is none, and misses one that is there."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest

from agentkernel.domain.profile import Ratio
from agentkernel.tools.profiler.rounds import Pace
from agentkernel.tools.speedup import classify, dependence, geometric_speedup, paired_ratio

RUNS = 300


@dataclass(frozen=True)
class Noise:
    """Of block medians, relative: independent a block; `slow` lasting from round to round on one
    side alone with correlation `rho`; a random walk `drift` that both share; outliers."""

    block: float
    slow: float = 0.0
    rho: float = 0.0
    drift: float = 0.0
    outliers: float = 0.0


NOISES = {
    "quiet": Noise(0.005),
    "drift-and-outliers": Noise(0.01, drift=0.01, outliers=0.05),
    "autocorrelated": Noise(0.005, slow=0.005, rho=0.5, drift=0.01, outliers=0.05),
    "loud-and-autocorrelated": Noise(0.005, slow=0.01, rho=0.8, drift=0.01, outliers=0.05),
    "very-loud": Noise(0.03, drift=0.02, outliers=0.1),
}


def simulated(ratio: float, noise: Noise, rounds: int, seed: int) -> Ratio:
    """A measurement of `rounds` rounds at a true `ratio`."""
    drawn = np.random.default_rng(seed)
    shared = np.cumsum(drawn.normal(0, noise.drift, rounds))
    slow = np.empty(rounds)
    state = drawn.normal(0, 1)
    for index in range(rounds):
        slow[index] = noise.slow * state
        state = noise.rho * state + math.sqrt(1 - noise.rho**2) * drawn.normal(0, 1)

    def blocks(base_us: float, own: float | np.ndarray) -> list[float]:
        times = base_us * np.exp(shared + own + drawn.normal(0, noise.block, rounds))
        hit = drawn.random(rounds) < noise.outliers
        return list(np.where(hit, times * (1 + drawn.exponential(0.3, rounds)), times))

    return paired_ratio(blocks(100.0 * ratio, 0.0), blocks(100.0, slow), resamples=600, seed=seed)


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("rounds", [6, Pace().min_rounds, 30])
def test_the_same_code_is_called_different_in_at_most_one_of_a_hundred(
    name: str, rounds: int
) -> None:
    found = [simulated(1.0, NOISES[name], rounds, seed).call for seed in range(RUNS)]
    assert sum(call in {"faster", "slower"} for call in found) <= RUNS // 100


def test_three_percent_slower_is_seen() -> None:
    found = [simulated(1 / 1.03, NOISES["quiet"], Pace().min_rounds, s).call for s in range(RUNS)]
    assert found.count("slower") >= 0.95 * RUNS
    found = [simulated(1.03, NOISES["quiet"], Pace().min_rounds, s).call for s in range(RUNS)]
    assert found.count("faster") >= 0.95 * RUNS


def test_the_intervals_cover_what_they_promise() -> None:
    for name in ("quiet", "drift-and-outliers", "autocorrelated"):
        found = [simulated(1.1, NOISES[name], Pace().min_rounds, seed) for seed in range(RUNS)]
        assert sum(item.low <= 1.1 <= item.high for item in found) >= 0.93 * RUNS
        wide = [(item.low99, item.high99) for item in found]
        assert sum((a or 0) <= 1.1 <= (b or 9) for a, b in wide) >= 0.975 * RUNS


def test_loud_measurements_say_that_they_are() -> None:
    found = [simulated(1.0, NOISES["very-loud"], 6, seed).call for seed in range(100)]
    assert found.count("too_noisy") >= 80


@pytest.mark.parametrize(
    ("interval", "interval99", "call"),
    [
        ((1.02, 1.04), (1.011, 1.05), "faster"),
        ((1.02, 1.04), (1.009, 1.05), "same"),
        ((0.96, 0.98), (0.95, 0.989), "slower"),
        ((0.96, 0.98), (0.95, 0.991), "same"),
        ((0.95, 1.05), (0.94, 1.06), "too_noisy"),
        ((1.8, 2.2), (1.7, 2.3), "faster"),
    ],
)
def test_a_call_rests_on_the_99_percent_interval(
    interval: tuple[float, float], interval99: tuple[float, float], call: str
) -> None:
    value = math.sqrt(interval[0] * interval[1])
    ratio = Ratio(
        value=value,
        low=interval[0],
        high=interval[1],
        low99=interval99[0],
        high99=interval99[1],
    )
    assert classify(ratio).call == call


def test_one_round_is_too_noisy_and_an_old_record_still_loads() -> None:
    assert paired_ratio([2.0], [1.0]).call == "too_noisy"
    old = Ratio.model_validate_json(json.dumps({"value": 1.2, "low": 1.1, "high": 1.3}))
    assert (old.call, old.low99, old.high99) == (None, None, None)
    made = paired_ratio([2.0, 2.1, 2.0], [1.0, 1.0, 1.1])
    assert Ratio.model_validate_json(made.model_dump_json()) == made


def test_rounds_that_resemble_their_neighbours_widen_the_interval() -> None:
    drawn = np.random.default_rng(0)
    alone = drawn.normal(0, 1, 400)
    assert dependence(alone) == pytest.approx(1.0, abs=0.1)
    assert dependence(np.cumsum(alone)) > 2.5
    assert dependence(np.zeros(9)) == 1.0


def test_wrong_candidates_count_as_named() -> None:
    assert geometric_speedup([2.0, 8.0], "as_zero") == pytest.approx(4.0)
    assert geometric_speedup([4.0, None], "as_baseline") == pytest.approx(2.0)
    assert geometric_speedup([4.0, None], "as_zero") == 0.0
    with pytest.raises(ValueError, match="mean of nothing"):
        geometric_speedup([], "as_zero")
    with pytest.raises(ValueError, match="not negative"):
        geometric_speedup([-1.0], "as_zero")
