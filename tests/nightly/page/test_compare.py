"""Differences between nights are called, and noise is left alone."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.domain.nightly import ChangeKind, Comparison, ModelRow, NightlyRun
from agentkernel.domain.profile import Ratio
from agentkernel.nightly.page.comparison import (
    STILL,
    change_text,
    compare_nights,
    headline,
)
from agentkernel.nightly.page.figures import SINCE, time_ratio
from agentkernel.tools.speedup import paired_ratio, summarise
from tests.nightly.page.runs import (
    GPU,
    VERSIONS,
    estimated_model,
    history,
    model,
    night,
    region,
    timing,
    tonight,
    with_model,
    with_region,
)


def kinds(found: Comparison) -> list[ChangeKind]:
    return [item.kind for item in found.changes]


def slowed(found: NightlyRun, factor: float) -> NightlyRun:
    """Bert alone, `factor` times slower, eager and torch.compile with it."""
    return with_model(
        found,
        "bert-base",
        lambda row: row.evolve(
            timings={form: timing(item.median_us * factor) for form, item in row.timings.items()}
        ),
    )


@pytest.mark.parametrize("found", [night(), *history()])
def test_the_same_night_has_no_changes(found: NightlyRun) -> None:
    result = compare_nights(found, found)
    assert result.changes == ()
    assert result.exit_code == 0


def test_what_fails_is_told_every_night_until_it_is_mended() -> None:
    found = tonight()
    result = compare_nights(found, found)
    assert kinds(result) == ["withdrawn", "failed_to_verify", "model_failed"]
    assert compare_nights(None, found).changes == tuple(
        item.evolve(before="", after=item.after.removeprefix(STILL)) for item in result.changes
    )
    assert result.exit_code == 6
    assert kinds(compare_nights(found, night(24)))[:1] != ["withdrawn"]


@pytest.mark.parametrize(
    ("factor", "expected"),
    [(1.1, ["regression"]), (1.01, []), (1.0, []), (0.99, []), (0.9, ["gain"])],
)
def test_a_model_that_moved_is_called_beyond_two_percent(
    factor: float, expected: list[ChangeKind]
) -> None:
    result = compare_nights(night(), slowed(night(24), factor))
    assert kinds(result) == expected
    for change in result.changes:
        assert change.what == "bert-base"
        assert change.ratio is not None
        assert change.ratio.value == pytest.approx(1 / factor)
        assert change.ratio.low < change.ratio.value < change.ratio.high
    assert result.exit_code == (5 if expected == ["regression"] else 0)


def test_a_wide_interval_of_either_night_calls_nothing() -> None:
    wide = Ratio(value=1.31, low=1.0, high=1.7, low99=0.9, high99=1.9)

    def unsure(row: ModelRow) -> ModelRow:
        return row.evolve(vs_compile=wide)

    clear, vague = night(), with_model(night(), "bert-base", unsure)
    assert kinds(compare_nights(clear, slowed(clear, 1.1))) == ["regression"]
    assert kinds(compare_nights(vague, slowed(clear, 1.1))) == []
    assert kinds(compare_nights(clear, slowed(vague, 1.1))) == []
    unknown = wide.evolve(low=0.0, high=float("inf"), low99=None)
    never = with_model(clear, "bert-base", lambda row: row.evolve(vs_compile=unknown))
    assert kinds(compare_nights(clear, slowed(never, 5.0))) == []


def test_errors_of_both_nights_add_up_as_independent() -> None:
    found = time_ratio(100.0, 100.0, 0.03, 0.04)
    assert np.log(found.high) == pytest.approx(1.959964 * 0.05)
    assert found.high99 is not None
    assert np.log(found.high99) == pytest.approx(2.575829 * 0.05)
    assert found.low == pytest.approx(1 / found.high)


def test_back_to_a_baseline_is_a_regression_unless_it_is_as_fast() -> None:
    before = night()
    slower = model("unet-small", 12900.0, 1.55, 1.0, dtype="float32")
    fell = with_model(before, "unet-small", lambda row: slower)
    result = compare_nights(before, fell)
    assert kinds(result) == ["regression"]
    assert result.changes[0].before == "7.64 ms in regions+torch.compile"
    assert result.changes[0].after == "8.32 ms in torch.compile"
    as_fast = model("unet-small", 12900.0, 1.55 * 1.09, 1.0)
    same = with_model(before, "unet-small", lambda row: as_fast)
    assert kinds(compare_nights(before, same)) == []
    assert kinds(compare_nights(fell, before)) == ["gain"]


def test_a_fall_that_the_clock_cannot_call_counts_where_the_gain_was_sure() -> None:
    vague = Ratio(value=1.2, low=1.15, high=1.25, low99=1.13, high99=1.27)
    sure = with_model(night(), "unet-small", lambda row: row.evolve(vs_compile=vague))
    slower = model("unet-small", 12900.0, 1.03 * 1.55, 1.0)
    fell = with_model(night(), "unet-small", lambda row: slower)
    assert kinds(compare_nights(sure, fell)) == ["regression"]
    vaguer = vague.evolve(low99=0.99)
    unsure = with_model(sure, "unet-small", lambda row: row.evolve(vs_compile=vaguer))
    assert kinds(compare_nights(unsure, fell)) == []


@pytest.mark.parametrize(
    ("gain", "expected"), [(1.0, ["regression"]), (1.19, []), (1.2, []), (1.3, ["gain"])]
)
def test_estimates_are_compared_exactly_and_marked(gain: float, expected: list[ChangeKind]) -> None:
    one = night().evolve(gpu=None, regions=())
    before = one.evolve(models=(estimated_model("bert", 1000.0, 1.2),))
    after = one.evolve(models=(estimated_model("bert", 1000.0, gain),))
    result = compare_nights(before, after)
    assert kinds(result) == expected
    for change in result.changes:
        assert change.before.endswith("(estimated)")
        assert change.after.endswith("(estimated)")
        assert change.ratio is not None
        assert change.ratio.low == change.ratio.value == change.ratio.high


def test_times_of_another_gpu_or_basis_are_not_compared() -> None:
    before, after = night(), slowed(night(24), 1.5)
    assert kinds(compare_nights(before, after.evolve(gpu="NVIDIA H100"))) == ["version"]
    guessed = with_model(after, "bert-base", lambda row: estimated_model("bert-base", 9e6, 1.0))
    assert kinds(compare_nights(before, guessed)) == []


def test_versions_are_one_change_each() -> None:
    newer = VERSIONS.evolve(torch="2.14.0", driver=None)
    result = compare_nights(night(), night(24, versions=newer, gpu=None, zoo_sha256="6" * 64))
    told = {item.what: (item.before, item.after) for item in result.changes}
    assert told == {
        "torch": ("2.13.0", "2.14.0"),
        "driver": ("580.95.05", "none"),
        "gpu": (GPU, "none"),
        "zoo file": ("5" * 10, "6" * 10),
    }


def test_what_is_new_and_what_vanished() -> None:
    before = night()
    after = before.evolve(
        models=(*before.models[1:], model("mamba", 400.0, 1.2, 1.1)),
        regions=before.regions[1:],
    )
    told = [(item.kind, item.what.split()[0]) for item in compare_nights(before, after).changes]
    assert told == [
        ("new_model", "mamba"),
        ("vanished_model", "bert-base"),
        ("vanished_region", "mlp"),
    ]
    assert kinds(compare_nights(after, before)) == ["new_model", "vanished_model", "new_region"]


def test_kernels_that_do_not_verify() -> None:
    after = with_region(night(), 0, status="failed", reason="error 0.1", time_us=None)
    (change,) = compare_nights(night(), after).changes
    told = (change.kind, change.before, change.after)
    assert told == ("failed_to_verify", "reused", "error 0.1")
    assert change.what == f"mlp ({region(0).signature})"


@pytest.mark.parametrize(
    ("after", "sha256", "words"),
    [
        ("", None, "nothing in its place"),
        ("kept (slower)", None, "nothing in its place, the baseline is kept (slower)"),
        ("failed (killed)", None, "nothing in its place, failed (killed)"),
        ("new (1.2x (best))", "b" * 64, "in its place bbbbbbbbbb (1.2x (best))"),
        ("new (2x)", "a" * 64, "in its place the same kernel, drafted and judged again (2x)"),
    ],
)
def test_what_was_withdrawn_and_what_came_in_its_place(
    after: str, sha256: str | None, words: str
) -> None:
    reason = f"error 0.1{SINCE}{after}" if after else "error 0.1"
    more = {"status": "withdrawn", "reason": reason, "parent": "a" * 64, "sha256": sha256}
    (change,) = compare_nights(night(), with_region(night(), 0, **more)).changes
    told = f"kernel aaaaaaaaaa: error 0.1; {words}"
    assert (change.kind, change.before, change.after) == ("withdrawn", "", told)


def test_outputs_that_are_wrong_and_models_that_raise() -> None:
    wrong = with_model(night(), "bert-base", lambda row: row.evolve(verified=False))
    (change,) = compare_nights(night(), wrong).changes
    assert change.kind == "failed_to_verify"
    assert "error 2.1e-03, eager's own is 1.9e-03" in change.after
    raised = with_model(night(), "bert-base", lambda row: row.evolve(error="boom\nat line 3"))
    (change,) = compare_nights(night(), raised).changes
    assert (change.kind, change.after) == ("model_failed", "boom at line 3")
    assert compare_nights(night(), wrong).exit_code == 6
    assert compare_nights(night(), raised).exit_code == 1


def test_a_model_that_fails_as_before_has_not_changed() -> None:
    def failing(error: str) -> NightlyRun:
        return with_model(night(), "bert-base", lambda row: row.evolve(error=error))

    first = compare_nights(night(), failing("boom\nat line 3"))
    assert headline(first) == "1 model failed"
    again = compare_nights(failing("boom\nat line 3"), failing("boom\nat line 3"))
    (change,) = again.changes
    assert change_text(change) == "still failing: boom at line 3"
    assert (headline(again), again.exit_code) == ("1 model still failing", first.exit_code)
    (change,) = compare_nights(failing("boom"), failing("bang")).changes
    assert change_text(change) == "boom → bang"


def test_a_region_that_fails_as_before_has_not_changed() -> None:
    found = with_region(night(), 0, status="failed", reason="wrong values")
    (change,) = compare_nights(found, found).changes
    assert change_text(change) == "still failing: wrong values"


def test_regions_that_moved() -> None:
    before = night()
    time_us = region(0).time_us
    assert time_us is not None
    slow = with_region(before, 0, time_us=time_us * 1.2)
    assert kinds(compare_nights(before, slow)) == ["regression"]
    assert kinds(compare_nights(slow, before)) == ["gain"]
    vague = with_region(slow, 0, speedup_low=0.9)
    assert kinds(compare_nights(before, vague)) == []
    lost = with_region(before, 0, status="kept", time_us=None, sha256=None)
    assert kinds(compare_nights(before, lost)) == ["regression"]
    assert kinds(compare_nights(lost, before)) == ["gain"]
    late = with_region(before, 0, status="unreached", time_us=None, sha256=None)
    assert kinds(compare_nights(before, late)) == []


@st.composite
def nights(draw: st.DrawFn) -> NightlyRun:
    """Some of the models, each at some speed in some form."""
    rows = []
    for name in draw(st.lists(st.sampled_from(("a", "b", "c")), unique=True)):
        eager = draw(st.floats(100.0, 300.0))
        gain = draw(st.sampled_from((1.0, 1.005, 1.03, 1.2, 2.0)))
        if draw(st.booleans()):
            rows.append(model(name, eager, draw(st.sampled_from((0.9, 1.0, 1.4))), gain))
        else:
            rows.append(estimated_model(name, eager, gain))
    numbers = draw(st.lists(st.integers(0, 5), unique=True))
    factor = draw(st.floats(0.8, 1.2))
    regions = [region(number) for number in numbers]
    moved = [row.evolve(time_us=row.time_us * factor) if row.time_us else row for row in regions]
    return night(models=tuple(rows), regions=tuple(moved))


@settings(max_examples=60, deadline=None)
@given(nights(), nights())
def test_gain_one_way_is_regression_the_other(first: NightlyRun, second: NightlyRun) -> None:
    there, back = compare_nights(first, second), compare_nights(second, first)
    for one, other in (("regression", "gain"), ("gain", "regression")):
        found = {item.what: item.ratio for item in there.changes if item.kind == one}
        mirror = {item.what: item.ratio for item in back.changes if item.kind == other}
        assert found.keys() == mirror.keys()
        for what, ratio in found.items():
            assert (ratio is None) == (mirror[what] is None)
            if ratio is not None:
                assert ratio.value == pytest.approx(1 / mirror[what].value)  # type: ignore[union-attr]
    assert kinds(compare_nights(first, first)) == []


def drawn(seed: int) -> NightlyRun:
    """Bert as a noisy clock sees it: rounds with 2% of spread, a hiccup in ten."""
    draw = random.Random(seed)

    def samples(centre: float) -> list[float]:
        return [
            centre * draw.lognormvariate(0, 0.02) * (1.3 if draw.random() < 0.1 else 1.0)
            for _ in range(40)
        ]

    eager, compiled, best = samples(2000.0), samples(1500.0), samples(1200.0)
    row = model("bert-base", 2000.0, 1.3, 1.25).evolve(
        timings={
            "eager": summarise(eager),
            "torch.compile": summarise(compiled),
            "regions+torch.compile": summarise(best),
        },
        vs_eager=paired_ratio(eager, best, resamples=400),
        vs_compile=paired_ratio(compiled, best, resamples=400),
    )
    return night(models=(row,), regions=())


def test_noise_alone_is_rarely_called() -> None:
    called = sum(
        bool(compare_nights(drawn(2 * seed), drawn(2 * seed + 1)).changes) for seed in range(150)
    )
    assert called <= 1
