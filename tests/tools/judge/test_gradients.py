"""Gradients of drop-ins are compared with the original's."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from agentkernel.agents.compiler_coder import family
from agentkernel.compiler.partitions import partitions
from agentkernel.domain.verdict import Mismatch, Verdict
from agentkernel.tools.judge import gradient_cases
from agentkernel.tools.judge.gradients import (
    SMALL,
    WIDE,
    _laid_out,
    _mismatch,
    _moved,
    _off,
    _rounds,
    _swallowed,
)
from agentkernel.tools.judge.reference.expected_gradients import expected_gradients
from agentkernel.tools.judge.reference.oracle import Answer
from agentkernel.tools.judge.reference.oracle_inputs import ReferenceCase
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.judge.worker.gradients import (
    BackwardPass,
    Round,
    change,
    gradients,
    record_forward,
    rolled,
)
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.targets import find_target
from tests.tools.judge.sources import problem_of

PROBLEM = problem_of(
    "torch.tanh(x * self.scale) + self.shift",
    "torch.randn(4, 24)",
    state="self.scale = nn.Parameter(torch.randn(24))\nself.shift = nn.Parameter(torch.randn(24))",
)
Judge = Callable[..., Verdict]


@pytest.fixture(scope="module")
def drop_in(tmp_path_factory: pytest.TempPathFactory) -> str:
    return drop_in_of(PROBLEM, tmp_path_factory.mktemp("problem"))


def drop_in_of(problem: str, folder: Path) -> str:
    path = folder / "small.py"
    path.write_text(problem)
    loaded = load_problem(str(path))
    choices = partitions(loaded, capture(loaded), "mixed")
    return family(choices, "default", lambda _: None, find_target("h100").target)[0].source.text


def test_the_gradients_of_a_drop_in_are_the_originals(
    judged: Judge, drop_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is held for one backward pass at a time."""
    held: list[str] = []

    @contextlib.contextmanager
    def on_device(settings: JudgeSettings) -> Iterator[None]:
        held.append("begun")
        yield
        held.append("ended")

    monkeypatch.setattr(gradient_cases, "on_device", on_device)
    verdict = judged(PROBLEM, drop_in)
    assert verdict.accepted, verdict.failure
    assert verdict.gradients is True
    assert held == ["begun", "ended"] * (len(held) // 2)
    assert len(held) // 2 > len(SMALL) + len(WIDE)


def test_a_call_that_raises_in_training_mode_misses_no_kernel(
    judged: Judge, tmp_path: Path
) -> None:
    """It was traced among the calls that are differentiated, each of which has to launch one."""
    problem = PROBLEM.replace("return torch.tanh", "return nn.functional.dropout(torch.tanh")
    problem = problem.replace("self.shift\n", "self.shift, 0.1, self.training)\n", 1)
    verdict = judged(problem, drop_in_of(problem, tmp_path), policy="triton")
    assert verdict.accepted, verdict.failure
    assert verdict.eval_only
    assert verdict.gradients is True


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return None, *(next(left)", "return None, *(2 * next(left)"),
        ("aten.tanh.default(", "aten.sin.default("),
    ],
)
def test_another_gradient_is_refused(judged: Judge, drop_in: str, old: str, new: str) -> None:
    assert old in drop_in
    verdict = judged(PROBLEM, drop_in.replace(old, new))
    assert verdict.gate == "correctness"
    assert isinstance(verdict.failure, Mismatch)
    assert "the gradient of " in verdict.failure.case


@pytest.mark.slow
def test_a_drop_in_may_refuse_to_record(judged: Judge, drop_in: str) -> None:
    old = "return Differentiable.apply(self, *tensors)"
    assert old in drop_in
    verdict = judged(PROBLEM, drop_in.replace(old, 'raise RuntimeError("no gradients")'))
    assert verdict.accepted, verdict.failure
    assert verdict.gradients is False
    assert any("gradients are refused" in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("form", "stride"),
    [("plain", (4, 1)), ("strided", (8, 2)), ("transposed", (1, 3)), ("expanded", (0, 0))],
)
def test_gradients_that_come_in_lie_in_memory_as_asked(form: str, stride: tuple[int, ...]) -> None:
    drawn = torch.randn(()) if form == "expanded" else torch.randn(3, 4)
    found = _laid_out(drawn, torch.Size((3, 4)), form)  # type: ignore[arg-type]
    assert found.stride() == stride
    assert torch.equal(found, drawn.expand(3, 4))


def test_of_a_linear_module_second_derivatives_alone_are_not_judged(
    judged: Judge, tmp_path: Path
) -> None:
    problem = problem_of(
        "(x + self.shift) * 3", "torch.randn(4, 24)",
        state="self.shift = nn.Parameter(torch.randn(24))",
    )  # fmt: skip
    verdict = judged(problem, drop_in_of(problem, tmp_path))
    assert verdict.gradients
    found = [note for note in verdict.notes if "none reaches" in note]
    assert found == ["second derivatives not judged: none reaches an input or a parameter"]


def test_a_second_derivative_is_of_the_first_ones() -> None:
    x = torch.tensor([1.0, 2.0])
    recorded = record_forward(lambda x: x**3, {}, [x])
    found = gradients(recorded, [recorded.result], [torch.ones(2)], twice=True)
    assert torch.allclose(found["input 0"], 2 * (3 * x**2) * (6 * x))


def test_a_graph_can_be_differentiated_again() -> None:
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.room = x.detach().clone()
            return x * x

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return ctx.room.mul_(2.0) * gradient

    x = torch.tensor([1.0, 2.0])
    recorded = record_forward(Once.apply, {}, [x])
    found = [
        gradients(recorded, [recorded.result], [torch.ones(2)], last=last)["input 0"].clone()
        for last in (False, True)
    ]
    assert torch.equal(found[0], 2 * x)
    assert torch.equal(found[1], 4 * x)


def test_what_was_changed_is_put_back_and_counts_as_written() -> None:
    x = torch.tensor([1.0, -2.0, 0.0], requires_grad=True)
    before = x._version
    put_back = change([x])
    assert not bool((x == torch.tensor([1.0, -2.0, 0.0])).any())
    put_back()
    assert x.tolist() == [1.0, -2.0, 0.0]
    assert x._version > before


def test_infinities_of_the_original_have_to_come_out() -> None:
    given = torch.tensor([math.inf, -math.inf, math.nan, 1.0]).repeat(8)
    assert _swallowed("", 0, given, given, given.double()) is None
    for value in (math.inf, math.nan):
        lost = torch.where(given.isnan() if math.isnan(value) else given == value, 0.0, given)
        assert _swallowed("", 0, lost, given, given.double()) is not None
    # What one side alone has no number for is nobody's fault.
    assert _swallowed("", 0, torch.ones(32), torch.ones(32), given.double()) is None


def test_rounding_has_no_side_and_a_factor_has() -> None:
    right = torch.randn(4096, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    eager = right.bfloat16()
    assert _mismatch("", 0, eager, eager, right) is None
    assert _mismatch("", 0, (right * (1 + 0.4 * 2**-8)).bfloat16(), eager, right) is None
    wrong = _mismatch("", 0, (1.014 * right).bfloat16(), eager, right)
    assert "on one side" in wrong.case
    few = right[:40]
    assert _mismatch("", 0, (1.014 * few).bfloat16(), few.bfloat16(), few) is None


def test_gradients_may_round_where_convolutions_may() -> None:
    right = torch.randn(4096, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    off = (right * (1 + 2**-11 * torch.randn(4096, dtype=torch.float64))).float()
    assert _mismatch("", 0, off, right.float(), right) is not None
    assert _mismatch("", 0, off, right.float(), right, rounding=2**-11) is None
    assert _mismatch("", 0, (1.01 * right).float(), right.float(), right, 2**-11) is not None


def test_a_derivative_is_what_differences_are() -> None:
    torch.manual_seed(3)
    model = torch.nn.Linear(16, 24)
    reference_case = ReferenceCase([torch.randn(8, 16), 2], model, cast(Answer, None))
    ends = [torch.randn(8, 24)]
    pairs = [_moved(reference_case, seed) for seed in range(3)]
    calls = [[[item.model(item.inputs[0]).detach()] for item in pair] for pair in pairs]
    recorded = record_forward(model, dict(model.named_parameters()), reference_case.inputs[:1])
    right = gradients(recorded, [recorded.result], ends)
    assert set(right) == {"input 0", "weight", "bias"}
    assert _off(right, pairs, calls, ends) < 0.02
    for name in ("input 0", "weight"):
        assert _off(right | {name: 0 * right[name]}, pairs, calls, ends) > 0.2


def test_rounds_are_given_other_sizes_and_outputs() -> None:
    leaves = [torch.zeros(8, 16), torch.zeros(4, dtype=torch.int64), torch.zeros(8, 3)]
    reference_case = cast(ReferenceCase, SimpleNamespace(answer=SimpleNamespace(leaves=leaves)))
    names: tuple[Round, ...] = ("plain", "small", "large", "infinite", "one", "rest", "changed")
    rounds = _rounds(reference_case, 5, BackwardPass(rounds=names))
    assert list(rounds) == list(names[:-1])
    for name, least, most in (("small", 1e-9, 1e-6), ("large", 1e7, 1e10), ("plain", 0.1, 10.0)):
        first, none, third = rounds[name]
        assert none is None
        assert all(least < float(item.abs().max()) < most for item in (first, third))
    assert {str(x) for x in rounds["infinite"][0][~rounds["infinite"][0].isfinite()].tolist()} == {
        "inf",
        "-inf",
        "nan",
    }
    one, rest = rounds["one"], rounds["rest"]
    assert [x is None for x in one] != [x is None for x in rest]
    assert sum(x is not None for x in (*one, *rest)) == 2
    reference_case.answer.leaves[2:] = []
    assert list(_rounds(reference_case, 5, BackwardPass(rounds=("one", "rest")))) == ["one"]


def test_what_is_not_wanted_requires_no_gradient_meanwhile() -> None:
    weight = torch.ones(2, requires_grad=True)
    alone = record_forward(lambda x: x * weight, {"weight": weight}, [torch.ones(2)], "parameters")
    assert list(alone.leaves) == ["weight"]
    inputs = record_forward(lambda x: x * weight, {"weight": weight}, [torch.ones(2)], "inputs")
    assert list(inputs.leaves) == ["input 0"]
    assert weight.requires_grad


def test_a_second_call_takes_the_same_values_elsewhere() -> None:
    (found,) = rolled([torch.tensor([[1.0, 2.0], [3.0, 4.0]])])
    assert torch.equal(found, torch.tensor([[4.0, 1.0], [2.0, 3.0]]))  # type: ignore[arg-type]


def test_nan_that_zeros_make_may_be_left_out_of_a_gradient() -> None:
    """Of diag(d) @ x, where one column of the given gradient has an infinity."""

    class Diagonal(torch.nn.Module):
        def forward(self, d: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return torch.diag(d) @ x

    torch.manual_seed(0)
    d, x, end = torch.randn(8), torch.randn(8, 6), torch.randn(8, 6)
    end[2, 3], end[4, 3] = math.inf, math.nan
    way = BackwardPass(rounds=("infinite",))
    reference_case = ReferenceCase([d, x], Diagonal(), cast(Answer, None))
    expected = expected_gradients(reference_case, {"infinite": [end]}, way, False)
    name, right = "input 1", d[:, None] * end
    eager, exact = expected.eager["infinite"][name], expected.exact["infinite"][name]
    assert not eager[:, 3].isfinite().any()
    assert exact[:, 3].isfinite().tolist() == [True, True, False, True, False, True, True, True]

    def refused(found: torch.Tensor) -> bool:
        return _swallowed("", 0, found, eager, exact, expected.finite[name]) is not None

    assert not refused(right)
    assert not refused(eager)
    assert refused(right.nan_to_num(0.0, 0.0, 0.0))
    beside = right.clone()
    beside[5, 3] += 0.5
    assert refused(beside)
    kept = expected_gradients(reference_case, {"infinite": [end]}, way, True)
    assert _swallowed("", 0, right, eager, kept.exact["infinite"][name]) is not None
