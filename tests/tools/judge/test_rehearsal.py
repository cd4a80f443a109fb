"""What might end a GPU's process is tried on the CPU: seldom, fast, and while others may time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from agentkernel.domain.problem import ShapeSet, TensorSpec
from agentkernel.tools.judge.cases.plan import Case
from agentkernel.tools.judge.cases.shapes import CaseShape
from agentkernel.tools.judge.reference import oracle_inputs
from agentkernel.tools.judge.reference.kernels_differ import KernelsDiffer, varies
from agentkernel.tools.judge.reference.oracle_inputs import (
    OracleInputs,
    WideProducts,
    checks_values,
    counts_places,
    rehearse,
)
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import load_problem
from tests.tools.judge.sources import problem_of

if TYPE_CHECKING:
    from agentkernel.tools.problem.capture import Captured


@pytest.fixture
def captured(tmp_path: Path) -> Callable[..., Captured]:
    def of(expression: str, state: str = "") -> Captured:
        path = tmp_path / "problem.py"
        path.write_text(problem_of(expression, "torch.rand(2, 4, 16)", state=state))
        return capture(load_problem(str(path)))

    return of


@pytest.mark.parametrize(
    ("expression", "state", "checked"),
    [
        ("torch.relu(self.conv(x))", "self.conv = nn.Conv1d(4, 8, 3)", False),
        ("torch.softmax(x.double(), -1).float() @ x.mT", "", False),
        ("self.norm(x)", "self.norm = nn.LayerNorm(16)", False),
        ("nn.functional.binary_cross_entropy(x, x)", "", True),
        ("torch.bernoulli(x)", "", True),
        ("torch.multinomial(x[0], 2)", "", True),
    ],
)
def test_few_modules_check_their_values(
    captured: Callable[..., Captured], expression: str, state: str, checked: bool
) -> None:
    """NaN stops a GPU in these alone; all others were run on the CPU at every size, too."""
    assert checks_values(captured(expression, state)) is checked


@pytest.mark.parametrize(
    ("expression", "counted"),
    [
        ("torch.gather(x, -1, (x > 2).sum(-1, keepdim=True) - 1)", True),
        ("x[0, 0][(x * 15).long()]", True),
        ("torch.gather(x, -1, torch.bucketize(x, x[0, 0]))", True),
        ("torch.gather(x, -1, torch.searchsorted(x[0, 0].sort().values, x))", True),
        ("torch.gather(x, -1, (x * 15).long().clamp_min(0))", True),
        ("torch.gather(x, -1, torch.maximum((x * 15).long(), (x * 14).long()))", True),
        ("torch.gather(x, -1, (x * 15).long().amax(-1, keepdim=True))", True),
        ("torch.gather(x, -1, x.max(-1, keepdim=True).indices)", False),
        ("torch.gather(x, -1, x.topk(3).indices)", False),
        ("torch.gather(x, -1, x.argmax(-1, keepdim=True))", False),
        ("torch.gather(x, -1, torch.sort(x).indices)", False),
        ("x[..., torch.arange(3)]", False),
        ("(x > 0.5).sum(-1)", False),
    ],
)
def test_modules_that_count_together_where_they_look(
    captured: Callable[..., Captured], expression: str, counted: bool
) -> None:
    """Of large values, or none above a threshold, such an index is out of range: on a GPU that
    ends the process of the original."""
    assert counts_places(captured(expression)) is counted


def test_scores_past_fp32_are_asked_of_nobody(captured: Callable[..., Captured]) -> None:
    """A CPU's attention makes numbers of scores of 1e60 as they overflow, other kernels NaN: the
    next smaller values are asked instead."""
    graph = captured("nn.functional.scaled_dot_product_attention(x, x, x)")
    assert varies(graph)
    assert not varies(captured("torch.softmax(x @ x.mT, -1) @ x"))
    attention = torch.nn.functional.scaled_dot_product_attention
    for size, past in ((1e15, False), (1e25, True), (float("inf"), False)):
        x = torch.full((1, 2, 3, 8), size)
        with KernelsDiffer() as looked:
            attention(x, key=x, value=x)
        assert bool(looked.why) is past


def test_places_that_are_no_numbers_are_asked_of_no_cpu(captured: Callable[..., Captured]) -> None:
    """What a GPU takes for a place outside of the image is NaN on a CPU."""
    sampled = "nn.functional.grid_sample(x[:, None], x[:, :, None, :2], align_corners=True)"
    assert varies(captured(sampled))
    image = torch.full((1, 1, 3, 3), float("nan"))
    for size, differ in ((1e3, False), (1e30, True), (float("inf"), True), (float("nan"), True)):
        with KernelsDiffer() as looked:
            grid = torch.full((1, 2, 2, 2), size)
            nn.functional.grid_sample(image, grid=grid, align_corners=True)
        assert bool(looked.why) is differ


class Dtypes(TorchDispatchMode):  # type: ignore[misc,no-untyped-call]
    """Notes in which type products are computed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(  # type: ignore[no-untyped-def] # torch's own signature
        self, func, types, args=(), kwargs=None
    ):
        if func in oracle_inputs.PRODUCTS:
            self.seen.add(args[0].dtype)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv1d(4, 8, 3), (2, 4, 9)),
        (nn.Conv2d(4, 8, 3), (2, 4, 9, 9)),
        (nn.Linear(9, 5), (7, 9)),
    ],
    ids=["conv1d", "conv2d", "linear"],
)
def test_products_of_halves_are_in_fp32(
    module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    model, x = module.to(dtype), torch.randn(shape).to(dtype)
    with torch.no_grad(), Dtypes() as dtypes, WideProducts():  # type: ignore[no-untyped-call]
        found = model(x)
    assert dtypes.seen == {torch.float64 if dtype == torch.float64 else torch.float32}
    assert found.dtype == dtype
    assert torch.allclose(found, module.to(dtype)(x), rtol=2e-2, atol=2e-2)


class Lookup(nn.Module):
    """A product beside a table of four rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4, 8, dtype=torch.float16)
        self.linear = nn.Linear(8, 8, dtype=torch.float16)

    def forward(self, places: torch.Tensor) -> torch.Tensor:
        return self.linear(self.table(places))


def test_what_is_out_of_range_is_found_while_others_may_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run of fp16 convolutions on the CPU kept two neighbours from the GPU for minutes."""
    told: list[str] = []

    @contextlib.contextmanager
    def without_gpu() -> Iterator[None]:
        told.append("left")
        try:
            yield
        finally:
            told.append("back")

    monkeypatch.setattr(oracle_inputs.gpu_lock, "without_gpu", without_gpu)
    rehearse(Lookup(), [torch.tensor([0, 3])])
    with pytest.raises(IndexError):
        rehearse(Lookup(), [torch.tensor([0, 4])])
    assert told == ["left", "back"] * 2


@pytest.mark.parametrize(
    ("distribution", "origin", "edge", "state", "asked"),
    [
        ("nan", "odd", "", (False, False, False), False),
        ("nan", "odd", "", (False, True, False), True),
        ("inf", "odd", "", (False, True, False), True),
        ("normal", "odd", "", (False, True, False), False),
        ("normal", "odd", "", (True, False, False), True),
        ("nan", "declared", "", (True, True, False), False),
        ("normal", "declared", "indices past the end", (False, False, False), True),
        ("large", "declared", "", (True, False, True), True),
        ("normal", "declared", "", (True, False, True), False),
    ],
)
def test_only_what_may_end_the_process_is_rehearsed(
    distribution: str, origin: str, edge: str, state: tuple[bool, bool, bool], asked: bool
) -> None:
    """`state`: whether the module looks up elements, whether it checks its values, and whether it
    counts together where it looks."""
    inputs = OracleInputs.__new__(OracleInputs)
    inputs._looks_up, inputs._checks_values, inputs._counts_places = state
    inputs._settings = JudgeSettings(device="cuda")
    given = ShapeSet(inputs=(TensorSpec(name="x", dtype="float32", shape=(4, 4)),))
    case = Case(CaseShape(given, origin, 0), distribution, 1, edge=edge)  # type: ignore[arg-type]
    assert inputs._may_overrun(case) is asked


@pytest.mark.parametrize(("cpus", "count"), [(1, 1), (2, 1), (16, 8), (128, 8)])
def test_a_rehearsal_takes_half_of_the_lanes_cpus(
    monkeypatch: pytest.MonkeyPatch, cpus: int, count: int
) -> None:
    monkeypatch.setattr(oracle_inputs, "lane_cpus", lambda: cpus)
    seen: list[int] = []

    class Counts(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(torch.get_num_threads())
            return x

    before = torch.get_num_threads()
    rehearse(Counts(), [torch.ones(2)])
    assert (seen, torch.get_num_threads()) == ([count], before)
