"""The interpreter finds the accesses that a GPU lets pass, and holds nothing else against one."""

import pytest

from agentkernel.domain.verdict import ExecutionFailed, RunFailed
from agentkernel.tools.judge.bounds import NOT_LOOKED, find_out_of_bounds, interpreted
from agentkernel.tools.judge.cases.selection import plan_cases
from agentkernel.tools.judge.reference import oracle
from agentkernel.tools.judge.settings import JudgeSettings

STORE = "tl.store(out_ptr + i, x + 2 * y, mask=mask)"
LOAD = "x = tl.load(x_ptr + i, mask=mask)"
ON_A_CPU = """\
        if not x.is_cuda:
            return x + 2 * y
"""
MEDDLING = """
import sys
found = sys.modules.get("agentkernel.tools.judge.interpreter.hooks")
if found is not None:
    found._require_inside = lambda *given: None
"""


@pytest.fixture
def looked(prepared, sources):
    def look(source):
        problem = sources.ADD_PROBLEM
        loaded, captured = prepared(problem)
        settings = interpreted(JudgeSettings(seed=0, device="cuda"))
        notes = []
        plan = plan_cases(loaded, captured, settings)
        return find_out_of_bounds(loaded, captured, source, settings, plan, notes), notes

    return look


def changed(sources, old, new):
    assert old in sources.ADD
    return sources.ADD.replace(old, new)


def test_a_right_kernel_passes_without_a_note(looked, sources):
    assert looked(sources.ADD) == (None, [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (STORE, "tl.store(out_ptr + i, x + 2 * y)"),
        (LOAD, "x = tl.load(x_ptr + i)"),
    ],
    ids=["store", "load"],
)
def test_an_access_past_the_end_is_found(looked, sources, old, new):
    failure, _ = looked(changed(sources, old, new))
    assert isinstance(failure, RunFailed)
    assert failure.reason == "out_of_bounds"


def test_taking_the_check_away_is_found(looked, sources):
    failure, _ = looked(sources.ADD + MEDDLING)
    assert isinstance(failure, ExecutionFailed)
    assert failure.rule == "global-state"


def test_a_form_that_is_wrong_there_hides_no_access(looked, sources):
    past = changed(sources, LOAD, "x = tl.load(x_ptr + i)")
    failure, _ = looked(past.replace("        return out\n", "        return out.double()\n"))
    assert failure.reason == "out_of_bounds"


def test_one_that_only_large_sizes_show(looked, sources):
    failure, _ = looked(changed(sources, "mask = i < n", "mask = i < n + 64 * (n > 999)"))
    assert failure.reason == "out_of_bounds"


def test_nobody_asks_for_what_is_exact(looked, sources, monkeypatch):
    def never(*_):
        raise AssertionError("asked in fp64")

    monkeypatch.setattr(oracle, "_in_fp64", never)
    assert looked(sources.ADD) == (None, [])


BIAS_PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + self.b

def get_inputs():
    return [torch.randn(40, 50)]

def get_init_inputs():
    return []
"""
BIAS = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def add(x_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b = tl.load(b_ptr)
    inside = i < n
    x = tl.load(x_ptr + i, mask=inside | (b != 0.0))
    tl.store(out_ptr + i, x + b, mask=inside)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        add[(triton.cdiv(x.numel(), 128),)](x, self.b, out, x.numel(), BLOCK=128)
        return out
"""


def test_weights_are_not_those_of_the_constructor(prepared):
    """A load past the end that only a weight other than zero lets through."""
    loaded, captured = prepared(BIAS_PROBLEM)
    settings = interpreted(JudgeSettings(seed=0, device="cuda"))
    plan = plan_cases(loaded, captured, settings)
    failure = find_out_of_bounds(loaded, captured, BIAS, settings, plan, [])
    assert failure.reason == "out_of_bounds"


def test_wrong_values_are_not_its_business(looked, sources):
    failure, _ = looked(changed(sources, "x + 2 * y", "x + 3 * y"))
    assert failure is None


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("(self, x, y):\n", "(self, x, y):\n" + ON_A_CPU, "launches no kernel"),
        (
            "        x, y = x.contiguous()",
            "        x = x.cuda()\n        x, y = x.contiguous()",
            "run",
        ),
        ("class ModelNew", "import no_such_module\nclass ModelNew", "load"),
    ],
    ids=["nothing", "run", "load"],
)
def test_what_the_interpreter_cannot_do_is_noted(looked, sources, old, new, why):
    failure, notes = looked(changed(sources, old, new))
    assert failure is None
    assert notes[0].startswith(NOT_LOOKED)
    assert why in notes[0]


@pytest.mark.parametrize("seed", range(3))
def test_a_store_past_the_end_is_refused_and_not_left_undecided(judged, sources, seed):
    """The interpreter refuses it wherever a size is no multiple of the tile."""
    text = changed(sources, STORE, "tl.store(out_ptr + i, x + 2 * y)")
    verdict = judged(sources.ADD_PROBLEM, text, seed=seed)
    assert not verdict.accepted
    assert not verdict.undecided
