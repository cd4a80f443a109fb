"""What surrounds a call, or comes beside it, shows what it is there to show."""

from __future__ import annotations

import pytest

from agentkernel.tools.judge.case_runner import CaseRunner
from agentkernel.tools.judge.cases.plan import Case
from agentkernel.tools.judge.cases.shapes import CaseShape
from agentkernel.tools.judge.other_inputs import (
    judge_aliased_inputs,
    judge_other_methods,
    judge_serving_conditions,
    other_methods,
)
from agentkernel.tools.judge.settings import JudgeSettings

PROBLEM = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, {}):
        {}
def get_inputs():
    return [torch.randn(24, 40) for _ in range({})]
"""
DOUBLE = PROBLEM.format("x", "return 2 * x", 1)
CANDIDATE = """
import torch
from torch import nn
KEPT = []
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None
    def forward(self, {}):
        {}
"""


@pytest.fixture
def on_trial(prepared, worker):
    def start(problem, source):
        loaded, captured = prepared(problem)
        runner = CaseRunner(worker, loaded, captured, JudgeSettings(seed=0, policy="any"), [])
        assert runner.build(source) is None
        shape = CaseShape(loaded.problem.shape_sets[0], "declared", 0)
        return runner, Case(shape, "normal", 3)

    return start


BUSY = (
    "if self.last is not None: return 0 * x\n        self.last = x\n        y = 2 * x[:]\n"
    "        self.last = None\n        return y"
)


@pytest.mark.parametrize(("body", "right"), [(BUSY, False), ("return 2 * x[:]", True)])
def test_a_call_after_one_that_raised_is_asked(on_trial, body, right):
    runner, case = on_trial(DOUBLE, CANDIDATE.format("x", body))
    found = judge_serving_conditions(runner, case)
    assert (found.failure is None) == right, found
    assert right or "after calls that raised" in found.failure.case


@pytest.mark.parametrize(
    ("problem", "body", "right"),
    [
        (DOUBLE, "return torch.empty(x.shape).copy_(2 * x)", False),
        (DOUBLE, "return torch.empty_like(x).copy_(2 * x)", True),
        (
            PROBLEM.format("x", "return (2 * x).to(torch.get_default_dtype())", 1),
            "return (2 * x).float()",
            True,
        ),
    ],
)
def test_another_default_dtype_is_asked_where_the_original_does_not_look_at_it(
    on_trial, problem, body, right
):
    runner, case = on_trial(problem, CANDIDATE.format("x", body))
    found = judge_serving_conditions(runner, case)
    assert (found.failure is None) == right, found
    assert found.refused == 0


def test_who_refuses_another_default_dtype_is_asked_without_it(on_trial):
    body = "assert torch.get_default_dtype() == torch.float32\n        return VALUE"
    for value, right in (("2 * x", True), ("3 * x", False)):
        runner, case = on_trial(DOUBLE, CANDIDATE.format("x", body.replace("VALUE", value)))
        found = judge_serving_conditions(runner, case)
        assert (found.failure is None) == right
        assert found.refused == 0


ADDS = PROBLEM.format("a, b", "a.add_(b)\n        return a + b", 2)


@pytest.mark.parametrize(
    ("body", "right"),
    [
        ("y = a + 2 * b\n        a.add_(b)\n        return y", False),
        ("a.add_(b)\n        return a + b", True),
        ("if a is b: raise ValueError('one tensor')\n        y = a + 2 * b\n        a.add_(b)\n"
         "        return y", True),
    ],
)  # fmt: skip
def test_one_tensor_is_given_for_two_inputs(on_trial, body, right):
    runner, case = on_trial(ADDS, CANDIDATE.format("a, b", body))
    assert runner.run(case).failure is None
    failure = judge_aliased_inputs(runner, case)
    assert (failure is None) == right, failure


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("body", "right"),
    [
        ("KEPT.append(x)\n        return 2 * x", False),
        ("KEPT.append(x[1:])\n        return 2 * x", False),
        ("self.last = x\n        return 2 * x", True),
        ("KEPT[:] = [*KEPT, x][-8:]\n        return 2 * x", True),
    ],
)
def test_who_holds_every_input_is_refused(on_trial, body, right):
    runner, case = on_trial(DOUBLE, CANDIDATE.format("x", body))
    found = [runner.run(case).failure for _ in range(40)]
    failed = [failure for failure in found if failure is not None]
    assert (not failed) == right
    assert right or "held after nobody uses them" in failed[0].log


WITH_RESET = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(40))
    def reset(self):
        self.total.zero_()
    def scale(self, by):
        self.total.mul_(by)
    def told(self):
        return "nothing moves"
    def forward(self, x):
        return x + self.total
def get_inputs():
    return [torch.randn(24, 40)]
"""


@pytest.mark.parametrize(
    ("old", "new", "right"),
    [
        ("", "", True),
        ("self.total.zero_()", "pass", False),
        ("self.total.zero_()", "self.total.fill_(1.0)", False),
        ("def reset", "def another", True),
    ],
)
def test_other_methods_leave_the_state_that_the_originals_do(on_trial, old, new, right):
    """One that is not there raises."""
    source = WITH_RESET.replace("class Model", "class ModelNew").replace(old, new)
    runner, case = on_trial(WITH_RESET, source)
    assert other_methods(type(runner.oracle_inputs.base)) == ["reset", "told"]
    failure = judge_other_methods(runner, case)
    assert (failure is None) == right, failure
    assert right or "after reset(), total" in failure.case
