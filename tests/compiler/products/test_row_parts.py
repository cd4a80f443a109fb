"""Products that are only summed along their rows: found, judged, and never stored."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from agentkernel.agents.compiler_coder import family
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.products.row_parts import RowPartsStep, row_parts_schedules
from agentkernel.compiler.products.schedules import (
    GemmFacts,
    GemmSchedule,
    gemm_schedules,
    sampled_gemm_schedules,
)
from agentkernel.compiler.providers import AnySchedule
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import LoadedProblem, load_problem, problem_from_module
from agentkernel.tools.targets import load_targets
from tests.compiler.forms import TILE, assert_accepted, small
from tests.compiler.sandboxed_drop_in import Sandboxed

ROOT = Path(__file__).parents[3]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
HALVES = TILE | {"BLOCK_N": 256, "PERSIST": 3}
FORMS: dict[str, GemmSchedule] = {
    "plain": TILE | {"BLOCK_N": 128},
    "halves": HALVES,
    "descriptors": HALVES | {"DESCRIPTORS": 2},
    "planes": TILE | {"BLOCK_N": 128, "PLANES": 1},
}


class Head(nn.Module):
    """A head and a loss over what it gives."""

    def __init__(
        self, loss: Loss, classes: int = 300, dtype: torch.dtype = torch.bfloat16,
        *, bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.head = nn.Linear(24, classes, bias=bias, dtype=dtype)
        self.loss = loss

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.loss(self.head(x), target)


class Read(nn.Module):
    """The logits are wanted as well."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(24, 300)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.head(x)
        return logits, F.cross_entropy(logits, y)


def mean(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x.float(), y)


def total(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x.float(), y, reduction="sum")


def each(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x.float(), -1)


def of_sequences(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x.float().flatten(0, 1), -1)


def of_batch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Free sizes of both inputs, of which only the products are known to agree."""
    return F.cross_entropy(x.float().view(-1, x.shape[-1]), y.view(-1), ignore_index=3)


def ignored(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x.float(), y, ignore_index=1)


def narrow(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, y)


def of_tokens(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A loss each, in the shape of the batch."""
    losses = F.cross_entropy(x.float().flatten(0, 1), y.flatten(), reduction="none")
    return losses.view(y.shape) * (y != 2)


def likelihoods(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.nll_loss(torch.log_softmax(x.float(), -1), y, reduction="none", ignore_index=3)


def weighted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    weight = torch.arange(x.shape[-1], device=x.device) / 64 + 0.5
    return F.cross_entropy(x, y, weight, reduction="none")


def capped(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A cap of the logits, and a penalty of their size."""
    x = 30.0 * torch.tanh(x.float() / 30.0)
    return F.cross_entropy(x, y) + 1e-2 * torch.logsumexp(x, -1).square().mean()


def summed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.silu(x).sum(-1) * y


CASES: dict[str, tuple[Loss, tuple[int, ...], torch.dtype, bool]] = {
    "mean": (mean, (37, 24), torch.bfloat16, False),
    "sum": (total, (37, 24), torch.bfloat16, True),
    "ignored": (ignored, (37, 24), torch.float16, False),
    "of a batch": (of_batch, (3, 17, 24), torch.bfloat16, False),
    "each row": (each, (3, 17, 24), torch.float16, False),
    "sequences": (of_sequences, (3, 17, 24), torch.bfloat16, True),
    "in half": (narrow, (37, 24), torch.float16, False),
    "fp32": (narrow, (37, 24), torch.float32, True),
    "of tokens": (of_tokens, (3, 17, 24), torch.bfloat16, False),
    "likelihoods": (likelihoods, (37, 24), torch.float16, True),
    "weighted": (weighted, (37, 24), torch.float32, False),
    "capped": (capped, (37, 24), torch.float32, False),
    "summed": (summed, (37, 24), torch.float32, False),
}


def problem_of(name: str, classes: int = 300) -> LoadedProblem:
    torch.manual_seed(0)
    loss, shape, dtype, bias = CASES[name]
    module = Head(loss, classes, dtype, bias=bias)
    return problem_from_module(
        module.eval(), (torch.randn(shape).to(dtype), torch.randint(0, classes, shape[:-1]))
    )


def row_parts_of(loaded: LoadedProblem) -> tuple[Compiled, list[RowPartsStep]]:
    for compiled in partitions(loaded, capture(loaded), "mixed"):
        steps = [x for x in compiled.partition.steps if isinstance(x, RowPartsStep)]
        if steps:
            return compiled, steps
    return compiled, []


def written(loaded: LoadedProblem, schedule: GemmSchedule) -> str:
    compiled, steps = row_parts_of(loaded)
    assert len(steps) == 1
    chosen: dict[object, AnySchedule] = small(compiled, "looped")
    return compiled.write(chosen | dict.fromkeys(steps, schedule)).text


JUDGED_FIRST = ("mean", "of a batch")
"""Of the cases those that `make test` judges: the others take ten to thirty seconds each."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[] if x in JUDGED_FIRST else [pytest.mark.slow]) for x in CASES],
)
def test_the_judge_accepts_rows_from_their_parts(name: str) -> None:
    loaded = problem_of(name)
    text = written(loaded, FORMS["plain"])
    assert "row_parts_kernel" in text
    assert_accepted(loaded, capture(loaded), text)


@pytest.mark.parametrize(
    ("form", "classes"),
    [
        ("descriptors", 300),
        *(
            pytest.param(form, classes, marks=pytest.mark.slow)
            for form, classes in (("halves", 300), ("halves", 384), ("descriptors", 384))
        ),
    ],
)
def test_each_form_leaves_whole_parts(form: str, classes: int) -> None:
    """384 classes: the second half of the last wide tile is no part at all."""
    loaded = problem_of("mean", classes)
    assert_accepted(loaded, capture(loaded), written(loaded, FORMS[form]))


def test_no_logits_are_stored() -> None:
    text = written(problem_of("mean", 4096), FORMS["plain"])
    made = [line for line in text.splitlines() if "torch.empty((" in line and "x.device" in line]
    assert made
    assert not any("4096" in line for line in made)
    assert sum("(32, x_dim0, 1)" in line for line in made) == 3


def smoothed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, y, label_smoothing=0.1)


def normalised(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def of_columns(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.sum(0)


def shifted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x[:-1], y[1:])


def of_shares(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Sums over what whole rows have to be known for."""
    return torch.log_softmax(x, -1).square().sum(-1)


@pytest.mark.parametrize("loss", [normalised, of_columns, shifted, of_shares])
def test_other_uses_store_the_product(loss: Loss) -> None:
    torch.manual_seed(0)
    module = Head(loss, dtype=torch.float32).eval()
    inputs = (torch.randn(37, 24), torch.randint(0, 300, (37,)))
    assert row_parts_of(problem_from_module(module, inputs))[1] == []


def test_what_is_returned_or_narrow_is_stored() -> None:
    inputs = (torch.randn(37, 24), torch.randint(0, 200, (37,)))
    for module in (Read(), Head(narrow, 200, torch.float32)):
        assert row_parts_of(problem_from_module(module.eval(), inputs))[1] == []


@pytest.mark.slow
def test_smoothed_targets_are_right_either_way() -> None:
    torch.manual_seed(0)
    module = Head(smoothed, dtype=torch.float32).eval()
    loaded = problem_from_module(module, (torch.randn(37, 24), torch.randint(0, 300, (37,))))
    compiled = partitions(loaded, capture(loaded), "mixed")[0]
    chosen = small(compiled, "looped")
    chosen |= {x: FORMS["plain"] for x in compiled.partition.steps if isinstance(x, RowPartsStep)}
    assert_accepted(loaded, capture(loaded), compiled.write(chosen).text)


@pytest.mark.parametrize("target", sorted(load_targets()))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_there_are_schedules_for_every_card(target: str, dtype: str) -> None:
    gpu = load_targets()[target]
    facts = GemmFacts(8192, 128256, 4096, dtype=dtype)
    found = row_parts_schedules(
        [*gemm_schedules(facts, gpu), *sampled_gemm_schedules(facts, gpu, 32)]
    )
    assert found
    for schedule in found:
        wide = schedule["BLOCK_N"] == 256 and "PERSIST" in schedule
        assert wide or schedule["BLOCK_N"] == 128
        assert schedule["SPLIT_K"] == 1


def test_planes_leave_parts_too(box: Sandboxed) -> None:
    loaded = problem_of("fp32")
    assert loaded.live is not None
    inputs = (torch.randn(37, 24), torch.randint(0, 300, (37,)))
    box.check(written(loaded, FORMS["planes"]), loaded.live, inputs)


@pytest.mark.parametrize("name", ["each row", "mean", "capped"])
def test_runs_have_the_same_bits_in_any_order(name: str, box: Sandboxed) -> None:
    loaded = problem_of(name)
    assert loaded.live is not None
    _, shape, dtype, _ = CASES[name]
    inputs = (torch.randn(shape).to(dtype), torch.randint(0, 300, shape[:-1]))
    source = written(loaded, FORMS["halves"])
    first, again = (box.call(source, loaded.live, inputs)[0] for _ in range(2))
    assert torch.equal(first, again)


@pytest.mark.parametrize("loss", [narrow, each])
def test_parts_of_infinite_logits_add_up_as_rows_do(loss: Loss, box: Sandboxed) -> None:
    """A part of nothing but -inf, a row of nothing else, +inf and NaN."""
    torch.manual_seed(0)
    module = Head(loss, 384, torch.float32, bias=True).eval()
    x, target = torch.randn(5, 24), torch.full((5,), 200)
    loaded = problem_from_module(module, (x, target))
    source = written(loaded, FORMS["plain"])
    inf = float("inf")
    for columns, value, others in (
        (slice(0, 128), -inf, 0.0), (slice(0, 128), -inf, -1e4), (slice(0, 384), -inf, 0.0),
        (slice(7, 8), inf, 0.0), (slice(7, 8), float("nan"), 0.0), (slice(0, 256), -1e30, 0.0),
        (slice(0, 384), 1e30, 0.0),
    ):  # fmt: skip
        with torch.no_grad():
            module.head.bias.fill_(others)
            module.head.bias[columns] = value
        found = box.call(source, module, (x, target))[0]
        with torch.no_grad():
            wanted = module(x, target)
        assert torch.allclose(found, wanted, rtol=1e-6, equal_nan=True), (columns, value)


def test_the_text_of_a_loss_without_logits() -> None:
    path = ROOT / "benchmarks" / "suite" / "level2" / "linear_cross_entropy.py"
    problem = load_problem(str(path))
    choices = partitions(problem, capture(problem), "mixed")
    text = family(choices, "default", lambda _: None, load_targets()["h200"])[0].source.text
    golden = ROOT / "tests" / "golden" / "kernels" / "linear_cross_entropy.py"
    if os.environ.get("AGENTKERNEL_RECORD"):
        golden.write_text(text)
    assert text == golden.read_text()
