from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from agentkernel.domain.nightly import Form
from agentkernel.domain.region import Kernel
from agentkernel.swap.selection import FormTimes, best_form, select_faster, time_forms, times_of
from agentkernel.swap.swap import counts
from agentkernel.tools.profiler.rounds import Pace
from agentkernel.tools.speedup import summarise
from tests.swap.applied_kernels import block, block_kernel, example, mlp_kernel, norm_kernel

QUICK = Pace(seconds=0.2, min_rounds=4, max_rounds=6, block_ms=1.0, max_calls=5)
STEADY = (1.0, 1.002, 0.998, 1.001, 0.999, 1.0, 1.003, 0.997)


class Call:
    args = (example(),)
    kwargs: Mapping[str, object] = {}


class Source:
    def build(self, device: str = "cpu") -> object:
        return block().to(device)

    def make_call(self, device: str = "cpu", seed: int = 0) -> Call:
        return Call()


def times(noise: Sequence[float] = STEADY, **us: float) -> FormTimes:
    """Times around these many microseconds: eager, compiled, regions, both."""
    names: dict[str, Form] = {
        "eager": "eager",
        "compiled": "torch.compile",
        "regions": "regions",
        "whole": "one-region",
        "both": "regions+torch.compile",
    }
    turned = (*noise[1:], noise[0])
    medians = {
        names[key]: [
            value * (x if key == "eager" else y) for x, y in zip(noise, turned, strict=True)
        ]
        for key, value in us.items()
    }
    return FormTimes(
        timings={form: summarise(values) for form, values in medians.items()},
        failed={},
        ratios=times_of(medians),
        rounds=len(noise),
    )


WILD = (0.7, 1.4, 0.9, 1.3, 0.8, 1.2, 0.75, 1.35)


@pytest.mark.parametrize(
    ("us", "noise", "form"),
    [
        ({"eager": 100}, STEADY, "eager"),
        ({"eager": 100, "compiled": 80}, STEADY, "torch.compile"),
        ({"eager": 80, "compiled": 100}, STEADY, "eager"),
        ({"eager": 100, "compiled": 80, "regions": 70}, STEADY, "regions"),
        ({"eager": 100, "compiled": 80, "regions": 90}, STEADY, "torch.compile"),
        ({"eager": 100, "regions": 70}, STEADY, "regions"),
        ({"eager": 100, "compiled": 80, "regions": 70, "both": 60}, STEADY,
            "regions+torch.compile"),
        ({"eager": 100, "compiled": 80, "regions": 70, "both": 70}, STEADY, "regions"),
        ({"eager": 100, "compiled": 80, "regions": 90, "both": 60}, STEADY,
            "regions+torch.compile"),
        ({"eager": 100, "compiled": 80, "regions": 70, "whole": 60}, STEADY, "one-region"),
        ({"eager": 100, "compiled": 80, "regions": 70, "whole": 70}, STEADY, "regions"),
        ({"eager": 100, "compiled": 80, "both": 60, "whole": 60}, STEADY, "one-region"),
        ({"eager": 100, "compiled": 80, "whole": 90}, STEADY, "torch.compile"),
        ({"eager": 100, "compiled": 99, "regions": 98}, WILD, "torch.compile"),
        ({"compiled": 80}, STEADY, "torch.compile"),
    ],
)  # fmt: skip
def test_the_fastest_form_that_is_surely_not_slower(
    us: dict[str, float], noise: Sequence[float], form: Form
) -> None:
    assert best_form(times(noise, **us)) == form


def test_nothing_timed_is_eager() -> None:
    assert best_form(FormTimes(timings={}, failed={"eager": "raised"}, ratios={})) == "eager"


def test_forms_are_timed_in_pairs_on_the_processor() -> None:
    forms: tuple[Form, ...] = ("eager", "regions")
    found = time_forms(
        Source(),  # type: ignore[arg-type]
        {"norm": norm_kernel()},
        device="cpu",
        forms=forms,
        pace=QUICK,
    )
    assert set(found.timings) == set(forms)
    assert found.failed == {}
    assert found.rounds >= 2
    ratio, back = found.ratio("regions", "eager"), found.ratio("eager", "regions")
    assert ratio.value == pytest.approx(1 / back.value)
    assert found.ratio("regions", "torch.compile") is None
    assert FormTimes.model_validate_json(found.model_dump_json()) == found


def test_the_whole_is_timed_beside_its_regions_and_not_with_them_in() -> None:
    class Watched(Source):
        def __init__(self) -> None:
            self.models: list[object] = []

        def build(self, device: str = "cpu") -> object:
            self.models.append(super().build(device))
            return self.models[-1]

    kernels = {"norm": norm_kernel(), "": block_kernel()}
    forms: tuple[Form, ...] = ("eager", "regions", "one-region")
    source = Watched()
    found = time_forms(source, kernels, device="cpu", forms=forms, pace=QUICK)  # type: ignore[arg-type]
    assert (set(found.timings), found.failed) == (set(forms), {})
    in_models = [list(counts(model)) for model in source.models]  # type: ignore[arg-type]
    assert in_models == [[], ["norm"], [""]]


def test_forms_without_kernels_or_that_raise_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def fails(_: object) -> object:
        def call(*_: object) -> object:
            raise RuntimeError("no compiler\nat all")

        return call

    monkeypatch.setattr(torch, "compile", fails)
    found = time_forms(Source(), {}, device="cpu", pace=QUICK)  # type: ignore[arg-type]
    assert set(found.timings) == {"eager"}
    assert found.failed == {
        "torch.compile": "RuntimeError: no compiler at all",
        "regions": "no kernel to put in",
        "regions+torch.compile": "no kernel to put in",
    }


@pytest.mark.slow
def test_all_four_forms_on_the_processor() -> None:
    found = time_forms(
        Source(),  # type: ignore[arg-type]
        {"norm": norm_kernel(), "mlp": mlp_kernel()},
        device="cpu",
        pace=QUICK,
    )
    assert len(found.timings) == 4, found.failed


NORMS = norm_kernel(speedup=1.5)
MLP = mlp_kernel(speedup=1.1, signature="fedcba9876543210")
ALL: dict[str, Kernel] = {"norm": NORMS, "mlp": MLP, "last": NORMS}


def test_all_stay_where_the_whole_gains() -> None:
    found = select_faster(ALL, lambda _: times(eager=100, compiled=90, regions=60))
    assert (found.form, found.dropped, found.tries) == ("regions", (), 0)
    assert dict(found.kernels) == ALL


def test_the_group_that_costs_is_left_out() -> None:
    asked: list[set[str]] = []

    def timed(kernels: Mapping[str, Kernel]) -> FormTimes:
        asked.append(set(kernels))
        return times(eager=100, compiled=90, regions=95 if "mlp" in kernels else 70)

    found = select_faster(ALL, timed)
    assert asked == [{"norm", "mlp", "last"}, {"norm", "last"}]
    assert (found.form, set(found.kernels)) == ("regions", {"norm", "last"})
    assert found.dropped == (MLP.key.signature,)


def test_where_none_helps_none_stays() -> None:
    found = select_faster(ALL, lambda _: times(eager=100, compiled=50, regions=80))
    assert (found.form, dict(found.kernels)) == ("torch.compile", {})
    assert found.dropped == tuple(sorted({NORMS.key.signature, MLP.key.signature}))


def test_tries_are_counted() -> None:
    many = {f"layer{i}": norm_kernel(speedup=1.0 + i, signature=f"{i:016x}") for i in range(20)}
    asked: list[int] = []

    def timed(kernels: Mapping[str, Kernel]) -> FormTimes:
        asked.append(len(kernels))
        return times(eager=100, compiled=50, regions=100)

    assert select_faster(many, timed, most_tries=3).tries == 3
    assert len(asked) == 4
    assert asked == [20, 10, 19, 19], "the stronger half, then all but the weakest"


def test_the_half_that_gains_is_found_and_halved() -> None:
    many = {f"layer{i}": norm_kernel(speedup=1.0 + i, signature=f"{i:016x}") for i in range(8)}
    asked: list[set[str]] = []

    def timed(kernels: Mapping[str, Kernel]) -> FormTimes:
        asked.append(set(kernels))
        return times(eager=100, compiled=50, regions=40 + 5 * len(kernels))

    found = select_faster(many, timed)
    assert [len(paths) for paths in asked] == [8, 4, 2, 1]
    assert (found.form, set(found.kernels), found.tries) == ("regions", {"layer7"}, 3)
    assert len(found.dropped) == 7
