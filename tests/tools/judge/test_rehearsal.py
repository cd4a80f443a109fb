"""What might end a GPU's process is tried beforehand: seldom, fast, and while others may time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from agentkernel.domain.errors import ProblemError
from agentkernel.domain.problem import ShapeSet, TensorSpec
from agentkernel.tools.judge.cases.plan import Case
from agentkernel.tools.judge.cases.shapes import CaseShape
from agentkernel.tools.judge.reference import rehearsal
from agentkernel.tools.judge.reference.kernels_differ import KernelsDiffer, varies
from agentkernel.tools.judge.reference.oracle_inputs import OracleInputs
from agentkernel.tools.judge.reference.rehearsal import (
    CheckedIndices,
    Unchecked,
    WideProducts,
    check_given_indices,
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
        if func in rehearsal.PRODUCTS:
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

    monkeypatch.setattr(rehearsal.gpu_lock, "without_gpu", without_gpu)
    rehearse(Lookup(), [torch.tensor([0, 3])])
    with pytest.raises(IndexError):
        rehearse(Lookup(), [torch.tensor([0, 4])])
    assert told == ["left", "back"] * 2


TAKING: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "embedding": lambda x, i: nn.functional.embedding(i, x),
    "index": lambda x, i: x[i],
    "index behind": lambda x, i: x[:, i],
    "index of both": lambda x, i: x[i, i],
    "index by a mask too": lambda x, i: x[None].expand(3, -1, -1)[x.new_ones(3, 5).bool(), i[:1]],
    "index_put": lambda x, i: x.index_put((i,), x.new_zeros(())),
    "index_put_": lambda x, i: x.clone().index_put_((i,), x.new_zeros(())),
    "index_select": lambda x, i: x.index_select(1, i),
    "index_add": lambda x, i: x.index_add(-1, i, x.new_ones(5, len(i))),
    "index_copy": lambda x, i: x.index_copy(0, i, x.new_ones(len(i), 4)),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "gather": lambda x, i: x.gather(1, i[None]),
    "gather of no dimensions": lambda x, i: x.new_ones(()).gather(0, i[0]),
    "scatter": lambda x, i: x.scatter(1, i[None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[None], x.new_ones(1, len(i))),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], x, "amax"),
    "take": lambda x, i: x.take(i),
    "put": lambda x, i: x.put(i, x.new_ones(len(i))),
    "take_along_dim": lambda x, i: x.take_along_dim(i[None].expand(5, -1), 1),
    "nll_loss": lambda x, i: nn.functional.nll_loss(x[: len(i)], i, ignore_index=-3),
    "nll_loss of one": lambda x, i: nn.functional.nll_loss(x[0], i[0], ignore_index=2),
    "nll_loss2d": lambda x, i: nn.functional.nll_loss(x[:1, :, None, None], i[:1, None, None]),
    "cross_entropy": lambda x, i: nn.functional.cross_entropy(x[: len(i)], i),
}
"""Of x [5, 4] and between one and four indices."""


@pytest.mark.parametrize("name", TAKING)
@given(st.lists(st.integers(-22, 22) | st.integers(-5, 5), min_size=1, max_size=4))
@example([0])
@example([3, 1])
@example([4])
@example([-1])
@example([-3, 2])
@example([-5])
@example([20])
@settings(max_examples=40)
def test_an_index_out_of_range_is_seen_before_it_is_taken(name: str, places: list[int]) -> None:
    """Where a CPU's kernel raises: on a GPU the process would end."""
    take, x, given = TAKING[name], torch.randn(5, 4), torch.tensor(places)
    try:
        wanted = take(x, given)
    except (IndexError, RuntimeError):
        ours = pytest.raises(IndexError, match=r"index -?\d+ is out of bounds for \d+ elements")
        with ours, CheckedIndices():
            take(x, given)
        return
    with CheckedIndices():
        assert torch.equal(take(x, given).nan_to_num(), wanted.nan_to_num())


def out_of_range_is_seen(device: str) -> None:
    table = Lookup().to(device)
    rehearse(table, [torch.tensor([0, 3], device=device)], here=True)
    with pytest.raises(IndexError, match="index 4 is out of bounds for 4 elements"):
        rehearse(table, [torch.tensor([0, 4], device=device)], here=True)


def test_indices_are_looked_at_where_the_module_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of 8193 rows with 128256 columns was computed on the CPU for its targets' sake."""

    def never(*_: object) -> None:
        raise AssertionError("ran on the CPU")

    monkeypatch.setattr(rehearsal, "_rehearse_on_cpu", never)
    out_of_range_is_seen("cpu")


OWN = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 8)

    def forward(self, ids, x):
        return EXPRESSION

def get_inputs():
    return [torch.randint(LOW, LOW + 10, (4, 6)), torch.rand(4, 100)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    "expression",
    [
        "self.table(ids)",
        "self.table((ids * 2 - ids).clamp(min=0))",
        "x.gather(1, ids)",
        "x[:, ids[0]]",
        "x[torch.arange(4)[:, None], ids]",
        "self.table(torch.where(ids > 3, ids, 0)) + x.mean()",
    ],
)
def test_a_module_that_has_no_element_for_its_own_indices_is_refused(
    tmp_path: Path, expression: str
) -> None:
    """Its graph says nothing of values: a drop-in of it was certified."""
    path = tmp_path / "problem.py"
    for low in (5, 150):
        path.write_text(OWN.replace("EXPRESSION", expression).replace("LOW", str(low)))
        loaded = load_problem(str(path))
        refused = pytest.raises(ProblemError, match=r"own inputs: index 15\d is out of")
        with refused if low == 150 else contextlib.nullcontext():
            check_given_indices(loaded, capture(loaded))


@pytest.mark.gpu
def test_a_gpus_process_does_not_end_by_an_index() -> None:
    out_of_range_is_seen("cuda")
    assert torch.zeros(2, device="cuda").sum().item() == 0


ELSEWHERE: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "embedding_bag": lambda x, i: nn.functional.embedding_bag(i[None], x),
    "bincount": lambda x, i: i.bincount(),
    "masked_scatter": lambda x, i: x.masked_scatter(x > 0, x[i]),
    "multi_margin": lambda x, i: nn.functional.multi_margin_loss(x[:2], i),
    "multilabel_margin": lambda x, i: nn.functional.multilabel_margin_loss(x[:1, :2], i[None]),
    "max_unpool": lambda x, i: nn.functional.max_unpool1d(x[:1, :2], i[None], 2),
    "repeat_interleave": lambda x, i: x[:2].repeat_interleave(i, 0),
    "one_hot": lambda x, i: nn.functional.one_hot(i),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_operators_that_nobody_looks_into_go_to_the_cpu(name: str) -> None:
    """An operator that takes integers and does not only compute with them, whatever its name."""
    x, given = torch.randn(5, 4), torch.tensor([0, 1])
    mode = torch.inference_mode() if name == "one_hot" else torch.no_grad()
    with mode, pytest.raises(Unchecked), CheckedIndices():
        ELSEWHERE[name](x, given)


def test_numbers_of_integers_are_no_indices() -> None:
    x, given = torch.randn(5, 4), torch.tensor([[3, 1], [0, 2]])
    with torch.no_grad(), CheckedIndices():
        found = (given * 2 + 1).clamp(max=4).float().sum() + given.cumsum(0).max() + given.T.numel()
        found += torch.cat([given, given.flip(0)]).sort().values.sum() + (given == 1).any()
        found += torch.where(given > 0, given, -given).amax() + x.topk(2).indices.sum()
        found += (
            torch.bucketize(x, x[0].sort().values).sum()
            + given.clone().masked_fill_(given > 1, 0).sum()
        )
    assert found.ndim == 0


def test_what_a_module_hides_is_not_taken_for_looked_at() -> None:
    """Nor what TorchScript makes of an exception within it."""

    class Hides(nn.Module):
        def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
            try:
                return nn.functional.embedding_bag(places[None], x)
            except Exception:  # noqa: BLE001 - as a user's module may
                return x

    @torch.jit.script
    def scripted(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding_bag(places.unsqueeze(0), x)

    class Scripts(nn.Module):
        def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
            return scripted(x, places)

    given = [torch.randn(5, 4), torch.tensor([0, 1])]
    for module in (Hides(), Scripts()):
        assert not rehearsal._rehearsed_here(module, given, training=False)


def test_a_rehearsal_leaves_everything_as_it_was() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x.add_(1 + self.training)

    module, x = Writes(), torch.zeros(3)
    rehearse(module, [x], here=True)
    assert (float(module.count), x.tolist(), module.training) == (0.0, [0.0] * 3, True)


class Draws(nn.Module):
    """Random numbers, and what asserts that its input is between 0 and 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.binary_cross_entropy(x, torch.rand_like(x))


def test_what_else_stops_a_gpu_is_tried_on_the_cpu() -> None:
    """The numbers that the call draws afterwards are those that it would have drawn."""
    x = torch.rand(3)
    with pytest.raises(Unchecked), CheckedIndices():
        Draws()(x)
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.manual_seed(1)
    assert not rehearsal._rehearsed_here(Draws(), [x], training=False)
    assert torch.equal(torch.rand(3), wanted)
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        rehearse(Draws(), [x + 2], here=True)


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
    monkeypatch.setattr(rehearsal, "lane_cpus", lambda: cpus)
    seen: list[int] = []

    class Counts(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(torch.get_num_threads())
            return x

    before = torch.get_num_threads()
    rehearse(Counts(), [torch.ones(2)])
    assert (seen, torch.get_num_threads()) == ([count], before)
