"""What is drafted and judged for a module, on the judge itself?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.training.data.generator import GeneratedProblem
from agentkernel.training.data.pair_worker import PairSettings, ProblemResult, work_on
from agentkernel.training.settings import HALVED

TEXT = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return {}


def get_inputs():
    return [torch.rand(4, 16), torch.rand(4, 16)]


def get_init_inputs():
    return []
"""


def worked(folder: Path, computed: str, **settings: object) -> ProblemResult:
    problem = GeneratedProblem(text=TEXT.format(computed), name="module")
    chosen = PairSettings.model_validate({"target": "h100", "broken": 0, **settings})
    return work_on(problem, chosen, folder)


@pytest.mark.slow
def test_where_times_are_taken_a_kernel_cut_in_two_is_the_slow_one(tmp_path: Path) -> None:
    found = worked(tmp_path, "torch.relu(torch.tanh(x) * y) + 1.0", estimate=True)
    fast, slow = found.rows
    assert (fast.strategy, slow.strategy, slow.change) == ("fused", HALVED, "cut in two")
    assert slow.parent == fast.sha256
    assert fast.label == slow.label == "interpreter"
    assert fast.verdict is not None
    assert slow.verdict is not None
    assert (len(fast.verdict.launches), len(slow.verdict.launches)) == (1, 2)
    assert fast.estimated_us is not None
    assert slow.estimated_us is not None
    assert slow.estimated_us > 1.5 * fast.estimated_us
    assert fast.facts["graph"].splitlines()[0] == "tanh = tanh(x) [4, 16]"


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("computed", "estimate"), [("torch.relu(torch.tanh(x) * y) + 1.0", False), ("x * y", True)]
)
def test_else_another_one_has_other_tiles(tmp_path: Path, computed: str, estimate: bool) -> None:
    found = worked(tmp_path, computed, estimate=estimate)
    assert [row.strategy for row in found.rows] == ["fused", "fused"]
    assert found.rows[1].change.startswith("other tiles: ")
