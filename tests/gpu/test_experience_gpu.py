"""A second run of the like measures fewer candidates on a real GPU for as fast an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.storage.configuration import load_settings
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.run_store import open_run
from agentkernel.workflows.events import CandidateDrafted, Event
from agentkernel.workflows.optimize import run
from agentkernel.workflows.outcome import Result
from agentkernel.workflows.state import OptimizeRequest

pytestmark = pytest.mark.gpu

MODULES = {
    "softmax": "torch.softmax({name}, dim=-1)",
    "norm": "torch.nn.functional.layer_norm({name}, ({columns},))",
}
MODULE = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, {name}):
        return {body}


def get_inputs():
    return [torch.randn({rows}, {columns})]
"""
SLOWER = 1.05
"""What an answer from experience may take of the time of one that was searched in full."""


def optimise(
    folder: Path, body: str, name: str, shape: tuple[int, int], *, experience: bool
) -> tuple[Result, int, str | None]:
    """A run's result, how many candidates its first search measured (a run that is a hair short of
    its goal searches once more), and where the first came from."""
    folder.mkdir(exist_ok=True)
    rows, columns = shape
    filled = body.format(name=name, columns=columns)
    path = folder / f"{name}.py"
    path.write_text(MODULE.format(name=name, body=filled, rows=rows, columns=columns))
    empty = folder / "empty.yaml"
    empty.write_text("")
    own = (f"runs={folder / 'runs'}", f"knowledge.experience={str(experience).lower()}")
    chosen = load_settings(empty, (*own, "profile.max_autotune=false"))
    said: list[Event] = []
    result = run(OptimizeRequest(load_problem(str(path)), chosen), said.append)
    store = open_run(folder / "runs", result.run)
    try:
        drafts = store.records.drafts()[:1]
    finally:
        store.close()
    measured = sum(
        int(item.candidate is not None and item.candidate.searched_us is not None)
        + sum(trial.time_us is not None for trial in item.tried)
        for item in drafts
    )
    first = next((item for item in said if isinstance(item, CandidateDrafted)), None)
    return result, measured, first.origin if first else None


@pytest.mark.parametrize("name", MODULES)
def test_a_second_run_of_the_like_measures_fewer_and_is_as_fast(tmp_path: Path, name: str) -> None:
    body = MODULES[name]
    shape = (4096, 4096)
    _, first, nowhere = optimise(tmp_path / "a", body, "scores", (8192, 8192), experience=True)
    full, fully, _ = optimise(tmp_path / "b", body, "logits", shape, experience=False)
    known, few, origin = optimise(tmp_path / "c", body, "logits", shape, experience=True)
    print(
        f"{name}: measured {first} candidates in the first run; for the second module {fully} "
        f"without experience ({full.status}, {full.time_us} us) and {few} with it "
        f"({known.status}, {known.time_us} us), from {origin}"
    )
    assert nowhere is None
    assert origin.startswith("experience/")
    assert few < fully
    assert full.time_us is not None
    assert known.time_us is not None
    assert known.time_us <= SLOWER * full.time_us
