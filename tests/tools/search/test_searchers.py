"""Both searchers get through a family with broken schedules (interpreter)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agentkernel.domain.problem import ShapeSet, TensorSpec
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.search import MeasuringSearcher, StaticSearcher, best_first
from agentkernel.tools.search.space import Form, Space
from agentkernel.tools.search.worker import Entry, ScheduleWorker
from agentkernel.tools.targets import load_targets

PROBLEM = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n))
    def forward(self, x):
        return torch.relu(x * self.w)
def get_inputs():
    return [torch.randn(3, 100)]
def get_init_inputs():
    return [100]
"""
GOOD = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def scale_relu(x, w, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    value = tl.load(x + row * n + cols, mask=mask) * tl.load(w + cols, mask=mask)
    tl.store(out + row * n + cols, tl.maximum(value, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n))

    def forward(self, x):
        out = torch.empty_like(x)
        scale_relu[(x.shape[0],)](x, self.w, out, x.shape[1], BLOCK=128)
        return out
"""
FAMILY = {
    "good": GOOD,
    "wide": GOOD.replace("BLOCK=128", "BLOCK=256"),
    "wider": GOOD.replace("BLOCK=128", "BLOCK=512"),
    "wrong": GOOD.replace("value, 0.0", "value, 0.7"),
    "raises": GOOD.replace("return out", "raise ValueError('no')"),
}
WIDER = TensorSpec(name="x", dtype="float32", shape=(7, 100))
DEADLY = GOOD.replace("out = torch", "import os; os._exit(3); out = torch")


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> LoadedProblem:
    path: Path = tmp_path_factory.mktemp("problem") / "toy.py"
    path.write_text(PROBLEM)
    return load_problem(str(path))


@pytest.mark.slow
def test_measuring_times_the_right_ones_and_names_what_is_wrong_with_the_others(
    problem: LoadedProblem,
) -> None:
    freed: list[str] = []
    searcher = MeasuringSearcher(
        seconds=60, device="cpu", make_room=lambda: freed.append("what the baselines hold")
    )
    found = searcher.rank(
        problem, list(FAMILY.values()), list(FAMILY), [{}] * 5, load_targets()["h100-sxm"]
    )
    assert len(freed) == 1
    by_label = {item.label: item for item in found}
    assert [item.label for item in found] == list(FAMILY)
    assert set(best_first(found)) == {0, 1, 2}
    assert all(by_label[name].time_us for name in ("good", "wide", "wider"))
    assert all(by_label[name].estimated_us for name in ("good", "wide", "wider"))
    assert "away from that of most" in (by_label["wrong"].pruned or "")
    assert (by_label["raises"].pruned, by_label["wrong"].time_us) == ("run: ValueError: no", None)


def test_the_forms_of_the_fastest_are_timed_beside_it(problem: LoadedProblem) -> None:
    asked: list[tuple[int, float]] = []

    def forms(place: int, time_us: float) -> list[Form]:
        asked.append((place, time_us))
        return [Form("again", GOOD + "\n"), Form("raises", FAMILY["raises"])]

    found = MeasuringSearcher(seconds=60, device="cpu").rank(
        problem, [GOOD], ["good"], [{"scale": {"BLOCK": 128}}], load_targets()["h100-sxm"], forms
    )
    assert [item.label for item in found] == ["good", "again", "raises"]
    ((place, time_us),) = asked
    assert place == 0
    assert time_us > 0
    assert found[1].time_us
    assert found[1].schedule == found[0].schedule
    assert "no" in (found[2].pruned or "")


@pytest.mark.slow
def test_parts_are_timed_each_on_its_own_inputs(problem: LoadedProblem) -> None:
    names = ("wide", "raises", "wider", "good")
    family = tuple(FAMILY[name] for name in names)
    other = problem.problem.evolve(shape_sets=(ShapeSet(inputs=(WIDER,)),), origin="class")
    spaces = [
        Space(problem, family, names, ({},) * 4, "scale a"),
        Space(replace(problem, problem=other), family[:1], names[:1], ({},), "scale b"),
    ]
    searcher = MeasuringSearcher(seconds=60, device="cpu")
    first, second = searcher.tune(spaces, load_targets()["h100-sxm"])
    assert [item.pruned is None for item in first] == [True, False, True, True]
    assert all(item.time_us and item.estimated_us for item in (*first, *second) if not item.pruned)
    assert {item.segment for item in first} == {"scale a"}
    assert [item.segment for item in second] == ["scale b"]


def test_a_schedule_that_kills_the_worker_costs_only_itself(problem: LoadedProblem) -> None:
    with ScheduleWorker(
        [problem], device="cpu", seed=0, flush_bytes=4096, allow_unsandboxed=False
    ) as bench:
        assert bench.warm([Entry(0, GOOD), Entry(1, DEADLY)]) is None
        assert "code 3" in bench.last_failure
        again = bench.warm([Entry(0, GOOD)])
        assert list(again.sketches) == [0]
        times = bench.time_block(0, 3, last_us=0.0, limit_us=float("inf"))
        assert times is not None
        assert len(times.us) == 3
        hopeless = bench.time_block(0, 3, last_us=0.0, limit_us=0.001)
        assert hopeless is not None
        assert len(hopeless.us) == 1


@pytest.mark.slow
def test_static_estimates_in_the_order_of_preference(problem: LoadedProblem) -> None:
    sources = [*FAMILY.values(), DEADLY]
    found = StaticSearcher().rank(
        problem, sources, [*FAMILY, "deadly"], [{}] * 6, load_targets()["h100-sxm"]
    )
    assert best_first(found) == (0, 1, 2, 3)
    assert all(item.time_us is None for item in found)
    assert "ended with exit code 3" in (found[5].pruned or "")
