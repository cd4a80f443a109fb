"""Is a cached baseline found for the very same problem, GPU and versions alone, with its drift?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.bench.sample import (
    BaselineKey,
    baseline_key,
    cache_folder,
    cached_times,
    derived_ratio,
    keep_times,
    with_drift,
)
from agentkernel.bench.suite import Times
from agentkernel.domain.profile import Ratio
from agentkernel.runtime.machine import installed_versions

KEY = BaselineKey(problem_sha256="0" * 64, gpu="H200", torch="2.11", triton="3.6", driver="580")
TIMES = Times(eager_us=100.0, compiled_us=50.0)


def test_the_first_times_stay(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert cached_times(folder, KEY) is None
    keep_times(folder, KEY, TIMES.evolve(eager_drift=1.1))
    keep_times(folder, KEY, Times(eager_us=7.0))
    assert cached_times(folder, KEY) == TIMES


@pytest.mark.parametrize("field", ["problem_sha256", "gpu", "torch", "triton", "driver"])
def test_anything_else_is_another_key(tmp_path: Path, field: str) -> None:
    keep_times(tmp_path, KEY, TIMES)
    assert cached_times(tmp_path, KEY.evolve(**{field: "other"})) is None


def test_a_damaged_file_is_no_cache(tmp_path: Path) -> None:
    keep_times(tmp_path, KEY, TIMES)
    path = next(tmp_path.iterdir())
    path.write_text(path.read_text()[:40])
    assert cached_times(tmp_path, KEY) is None
    keep_times(tmp_path, KEY, TIMES)
    assert cached_times(tmp_path, KEY) == TIMES


def test_drift_is_now_over_then() -> None:
    now = with_drift(Times(eager_us=110.0, compiled_us=45.0), TIMES)
    assert (now.eager_drift, now.compiled_drift) == (pytest.approx(1.1), pytest.approx(0.9))
    assert with_drift(None, TIMES) == TIMES
    assert with_drift(TIMES, None) == TIMES
    assert with_drift(None, None) == Times()
    failed = with_drift(Times(eager_us=100.0), TIMES)
    assert (failed.compiled_us, failed.compiled_drift) == (50.0, None)


def test_a_first_time_of_max_autotune_joins_the_others(tmp_path: Path) -> None:
    keep_times(tmp_path, KEY, TIMES)
    keep_times(tmp_path, KEY, Times(eager_us=200.0, autotune_us=80.0, autotune_note=""))
    found = cached_times(tmp_path, KEY)
    assert found is not None
    assert (found.eager_us, found.autotune_us, found.autotune_note) == (100.0, 40.0, "")
    keep_times(tmp_path, KEY, Times(eager_us=200.0, autotune_us=10.0, autotune_note=""))
    assert cached_times(tmp_path, KEY) == found


def test_a_cached_time_of_max_autotune_goes_with_eager() -> None:
    cached = TIMES.evolve(autotune_us=40.0, autotune_note="")
    found = with_drift(Times(eager_us=110.0), cached)
    assert (found.autotune_us, found.autotune_derived) == (pytest.approx(44.0), True)
    own = with_drift(Times(eager_us=110.0, autotune_us=41.0), cached)
    assert (own.autotune_us, own.autotune_derived) == (41.0, False)
    alone = with_drift(None, cached)
    assert (alone.autotune_us, alone.autotune_derived) == (40.0, True)
    ratio = derived_ratio(Ratio(value=2.0, low=1.9, high=2.1), cached)
    assert ratio is not None
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.8, 0.76, 0.84))
    assert derived_ratio(ratio, TIMES) is None


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "agentkernel" / "bench"
    versions = installed_versions()
    assert baseline_key("0", "H200", versions).torch == versions.torch
