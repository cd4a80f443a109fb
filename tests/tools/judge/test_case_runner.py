"""Single calls and calls after a change in place show what they are there to show."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
import torch

from agentkernel.tools.judge import case_runner
from agentkernel.tools.judge.case_runner import CaseRunner
from agentkernel.tools.judge.cases.plan import Case, FollowUp, NotApplicable, in_turns
from agentkernel.tools.judge.cases.shapes import CaseShape
from agentkernel.tools.judge.comparison.compare import CaseOutcome
from agentkernel.tools.judge.replies import compare_roles
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.judge.worker import storage
from agentkernel.tools.sandbox.protocol import JSON
from agentkernel.tools.sandbox.worker import WorkerState
from tests.tools.judge.sources import problem_of

HEAD = "import torch, triton\nimport triton.language as tl\nfrom torch import nn\n"


def plain(result):
    return problem_of(result, "torch.randn(24, 40)")


RELU, SCALE, ARGMAX, ROWS = map(plain, ("torch.relu(x)", "2 * x", "x.argmax(-1)", "x.amax(-1)"))
KERNEL = (
    HEAD
    + """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, VALUE, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y
"""
)
ROW_KERNEL = (
    HEAD
    + """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + cols, mask=cols < n, other=float("-inf"))
    tl.store(y_ptr + tl.program_id(0), VALUE)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], dtype=torch.DTYPE)
        kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=64)
        return y
"""
)
NAN_LAST = "tl.where(tl.max((x != x).to(tl.int32), axis=0) == 1, float('nan'), tl.max(x, axis=0))"
LEAST, MOST, AS_INTEGER = -(2**31), 2**31 - 1, "x.to(tl.int32)"
POSITIVE = f"tl.where({AS_INTEGER} == {MOST}, INF, 2 * x)"
WHOLE_PART = plain("x.to(torch.int32).float()")
"""Of this one eager makes integers of NaN itself, as the machine that it runs on does."""
SPECIALS = [
    (RELU, KERNEL, "tl.maximum(x, 0.0)", "nan", False),
    (RELU, KERNEL, "tl.where(x > 0, x, 0.0)", "nan", False),
    (RELU, KERNEL, "tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)", "nan", True),
    (RELU, KERNEL, "tl.where(x < 0, 0.0, x)", "nan", True),
    (SCALE, KERNEL, "tl.minimum(2 * x, 1e30)", "inf", False),
    (SCALE, KERNEL, "2 * x", "inf", True),
    (RELU, KERNEL, f"tl.where({AS_INTEGER} == {LEAST}, x, tl.maximum(x, 0.0))", "nan", False),
    (SCALE, KERNEL, f"tl.where({AS_INTEGER} == {LEAST}, -INF, {POSITIVE})", "inf", True),
    (WHOLE_PART, KERNEL, f"{AS_INTEGER}.to(tl.float32)", "nan", True),
    (SCALE, KERNEL, "tl.where(x == 0, 1e-30, 2 * x)", "zeros", False),
    (SCALE, KERNEL, "tl.where(tl.abs(x) < 1e-2, 0.0, 2 * x)", "sparse", False),
    (ROWS, ROW_KERNEL, "tl.max(x, axis=0)", "nan", False),
    (ROWS, ROW_KERNEL, NAN_LAST, "nan", True),
    (ARGMAX, ROW_KERNEL.replace("DTYPE", "int64"), "tl.argmax(x, axis=0)", "nan", False),
    (ARGMAX, ROW_KERNEL.replace("DTYPE", "int64"), "tl.argmax(x, axis=0)", "normal", True),
]


@pytest.mark.quick(4)
@pytest.mark.parametrize(("problem", "base", "value", "distribution", "right"), SPECIALS)
def test_a_distribution_shows_what_it_is_for(tried, problem, base, value, distribution, right):
    value = value.replace("INF", "float('inf')")
    outcome, _ = tried(problem, base.replace("VALUE", value), distribution=distribution)
    assert (outcome.failure is None) == right, outcome.failure
    assert right or outcome.failure.kind == "mismatch"


def test_a_kernel_that_gives_itself_a_name_is_refused(tried):
    """Whoever prints it may print escape sequences."""
    source = KERNEL.replace("VALUE", "2 * x")
    renamed = source.replace("return y", 'kernel.fn.__name__ = "a b"\n        return y')
    for text, right in ((source, True), (renamed, False)):
        outcome, _ = tried(SCALE, text, follow_ups=(FollowUp("again"),))
        assert (outcome.failure is None) == right
        assert right or outcome.failure.rule == "global-state"


WHOLE = (
    HEAD
    + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}
        self.last = None

    def forward(self, x):
        BODY
"""
)
BODIES = {
    "kept by pointer": "return self.kept.setdefault(x.data_ptr(), 2 * x).clone()",
    "kept by object": "return self.kept.setdefault(x, 2 * x).clone()",
    "kept by shape": "return self.kept.setdefault(x.shape, 2 * x).clone()",
    "kept by corner values": (
        "return self.kept.setdefault((float(x[0, 0]), float(x[-1, -1])), 2 * x).clone()"
    ),
    "kept by the sum": "return self.kept.setdefault(round(float(x.sum()), 3), 2 * x).clone()",
    "the last output": "self.last, old = 2 * x, self.last\n        "
    "return self.last if old is None else old.clone()",
    "an earlier output is changed": "old, self.last = self.last, 2 * x\n        "
    "if old is not None: old.zero_()\n        return self.last",
    "buffers in turn": "n = len(self.kept)\n        self.kept[n] = out = "
    "2 * x if n < 3 else self.kept[n % 3].copy_(2 * x)\n        return out",
    "honest": "return 2 * x",
}
ECHOES = tuple(FollowUp(change) for change in ("again", "one", "few", "swap", "values"))


@pytest.mark.parametrize("name", BODIES)
def test_calls_after_changes_in_place_show_what_is_kept(tried, name):
    outcome, runner = tried(SCALE, WHOLE.replace("BODY", BODIES[name]), follow_ups=ECHOES)
    assert (outcome.failure is None) == (name == "honest"), outcome.failure
    if name == "honest":
        assert len(outcome.results) == 1 + len(ECHOES)
        assert runner.repeatable is True


def test_only_swapped_rows_show_a_checksum(tried):
    source = WHOLE.replace("BODY", BODIES["kept by the sum"])
    outcome, _ = tried(SCALE, source, follow_ups=(FollowUp("swap"),))
    assert "two rows swapped" in outcome.failure.case
    outcome, _ = tried(SCALE, source, follow_ups=(FollowUp("again"),))
    assert outcome.failure is None


def test_the_same_call_with_other_bits_is_told_and_accepted(tried):
    body = "return 2 * x * (1 + 1e-7 * torch.rand(1, 40))"
    outcome, runner = tried(SCALE, WHOLE.replace("BODY", body), follow_ups=(FollowUp("again"),))
    assert outcome.failure is None
    assert runner.repeatable is False


def test_a_case_without_a_second_call_says_nothing_of_repeating(tried):
    _, runner = tried(SCALE, WHOLE.replace("BODY", "return 2 * x"))
    assert runner.repeatable is None


WEIGHTED = problem_of(
    "x * self.w + self.b",
    "torch.randn(24, 40)",
    state="self.w = nn.Parameter(torch.ones(40))\n"
    'self.register_buffer("b", torch.full((40,), 0.5))',
)
WEIGHTS = WHOLE.replace(
    "self.kept = {}",
    'self.w = nn.Parameter(torch.ones(40))\n        self.register_buffer("b", '
    "torch.full((40,), 0.5))\n        self.kept = {}",
)
PACKED = (
    "if self.last != VERSION:\n            self.last = VERSION\n"
    "            self.kept['w'] = self.w.clone()\n        return x * self.kept['w'] + self.b"
)


@pytest.mark.parametrize(
    ("body", "right"),
    [
        ("return x * self.w + self.b", True),
        (PACKED.replace("VERSION", "self.w._version"), True),
        (PACKED.replace("VERSION", "self.w.data_ptr()"), False),
        ("return x * self.w + 0.5", False),
        ("return self.kept.setdefault(tuple(x.flatten().tolist()), x * self.w + self.b)", False),
    ],
)
def test_weights_and_buffers_are_followed(tried, body, right):
    source = WEIGHTS.replace("BODY", body)
    outcome, _ = tried(WEIGHTED, source, follow_ups=(FollowUp("weights"),))
    assert (outcome.failure is None) == right, outcome.failure


@pytest.mark.parametrize(
    ("problem", "body", "right"),
    [
        (WEIGHTED, "return x * self.w + self.b", True),
        (WEIGHTED, "return x * self.w.nan_to_num() + self.b", False),
        (WEIGHTED.replace("x * self.w", "x + 0 * self.w"), "return x + self.b", True),
    ],
)
def test_a_weight_that_is_nan_shows_in_what_depends_on_it(tried, problem, body, right):
    """Zero times a weight is NaN in eager alone."""
    outcome, _ = tried(problem, WEIGHTS.replace("BODY", body), follow_ups=(FollowUp("nan"),))
    assert (outcome.failure is None) == right, outcome.failure
    assert right or "changed to NaN" in outcome.failure.case


CLASS_KEEPS = (
    "key = KEY\n        if key not in KEPT:\n            KEPT.clear()\n"
    "            KEPT[key] = self.w.clone()\n        return x * KEPT[key] + self.b"
)
SELF_KEEPS = CLASS_KEEPS.replace("KEPT", "self.kept")


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("body", "caught_by"),
    [
        (CLASS_KEEPS.replace("KEY", "self.w._version"), "a second module"),
        (CLASS_KEEPS.replace("KEY", "(self.w.data_ptr(), self.w._version)"), "at the address"),
        (SELF_KEEPS.replace("KEY", "self.w._version"), "other parameter objects"),
        ("return x * NEWEST[1 % len(NEWEST)].w + self.b", "seed 22"),
        (SELF_KEEPS.replace("KEY", "(id(self.w), self.w._version)"), None),
        (
            SELF_KEEPS.replace("KEY", "self.w._version").replace("self.w.clone()", "self.w"),
            "other parameter objects",
        ),
        ("return x * self.w + self.b", None),
    ],
)
def test_modules_take_turns(prepared, worker, body, caught_by):
    source = WEIGHTS.replace("BODY", body)
    source = source.replace("class ModelNew", "KEPT, NEWEST = {}, []\n\n\nclass ModelNew")
    source = source.replace("self.kept = {}", "self.kept = {}\n        NEWEST.append(self)")
    loaded, captured = prepared(WEIGHTED)
    runner = CaseRunner(worker, loaded, captured, JudgeSettings(seed=0, policy="any"), [])
    assert runner.build(source) is None
    assert runner.turns
    shape = CaseShape(loaded.problem.shape_sets[0], "declared", 0)
    plain = [Case(shape, "normal", seed) for seed in range(20, 27)]
    cases = in_turns(plain, lambda shape: True)
    assert [case.module for case in cases] == ["", "second", "", "rebuilt", "", "replaced", ""]
    failed = [case for case in cases if runner.run(case).failure is not None]
    assert bool(failed) == (caught_by is not None), [case.label for case in failed]
    assert caught_by is None or caught_by in failed[0].label


@pytest.mark.parametrize(
    ("body", "layout", "right"),
    [
        ("return 2 * x.as_strided(x.shape, x.stride(), 0)", "offset", False),
        ("return 2 * x.as_strided(x.shape, x.stride(), 0)", "contiguous", True),
        ("return 2 * x.as_strided(x.shape, (x.shape[1], 1))", "strided", False),
        ("return 2 * torch.empty(0).set_(x.untyped_storage())[:960].view(24, 40)", "expanded",
         False),
        ("return 2 * x", "offset", True), ("return 2 * x", "strided", True),
        ("return 2 * x", "expanded", True),
    ],
)  # fmt: skip
def test_layouts(tried, body, layout, right):
    outcome, _ = tried(SCALE, WHOLE.replace("BODY", body), layout=layout)
    assert (outcome.failure is None) == right, outcome.failure


def test_writes_beside_an_input_are_seen(tried):
    body = "torch.empty(0).set_(x.untyped_storage())[0] = 5.0\n        return 2 * x"
    outcome, _ = tried(SCALE, WHOLE.replace("BODY", body), layout="offset")
    assert outcome.failure.kind == "inputs"


@pytest.mark.parametrize(
    ("problem", "body", "right"),
    [
        (RELU, "return x", False),
        (RELU, "return x.clone()", True),
        (plain("x.view(-1)"), "return x.view(-1)", True),
        (plain("x.view(-1)"), "return x.reshape(-1).clone()", True),
        (plain("x.flatten().clone()"), "return x.view(-1)", False),
    ],
)
def test_an_output_in_an_inputs_memory_only_where_the_reference_has_it(tried, problem, body, right):
    outcome, _ = tried(problem, WHOLE.replace("BODY", body), distribution="constant")
    assert (outcome.failure is None) == right, outcome.failure
    assert right or "lies in the memory of input 0" in outcome.failure.found


NORM = problem_of(
    "self.drop(self.norm(x))",
    "torch.randn(24, 40)",
    state="self.norm = nn.BatchNorm1d(40)\nself.drop = nn.Dropout(RATE)",
)
NORM_NEW = NORM.split("def get_inputs")[0].replace("class Model(", "class ModelNew(")
DROPPED = "return self.drop(self.norm(x))"
MASK = """
        if not self.training: return self.norm(x)
        self.step = getattr(self, "step", 0) + 1
        kept = (({}) >= 0.4).reshape(24, 40)
        return self.norm(x) * kept / 0.6
"""
NORM_NEW = NORM_NEW.replace(
    "class ModelNew(",
    "PLACE, OWN = torch.arange(960), torch.Generator()\n"
    "TABLE = torch.rand(5, 960, generator=OWN)\n\n\nclass ModelNew(",
)
TRAINING = [
    ("0.0", "", "", "right"),
    ("0.0", "self.norm(x)", "self.norm.eval()(x)", "wrong"),
    ("0.0", "return self", "if self.training: raise ValueError('eval')\n        return self",
     "eval only"),
    ("0.0", "self.norm(x)", "torch.nn.functional.batch_norm(x, None, None, self.norm.weight,"
     " self.norm.bias, True) if self.training else self.norm(x)", "wrong"),
    ("0.0", DROPPED, "self.calls = getattr(self, 'calls', 0) + self.training\n"
     "        return self.norm(x) * (2 if self.training and self.calls > 1 else 1)", "wrong"),
    ("0.0", "self.norm(x)", "self.norm(x.clamp(-50, 50) if self.training else x)", "wrong"),
    ("0.4", "", "", "right"),
    ("0.4", "nn.Dropout(0.4)", "nn.Dropout(0.3)", "wrong"),
    ("0.4", "self.drop(self.norm(x))", "self.norm(x)", "wrong"),
    ("0.4", "return self", "torch.manual_seed(1)\n        return self", "wrong"),
    ("0.4", "self.drop(self.norm(x))", "0.6 * self.drop(self.norm(x))", "wrong"),
    # Draws that are right one by one, and not together.
    ("0.4", DROPPED, MASK.format("torch.rand(960).roll(1)[PLACE.sort().indices]"), "right"),
    ("0.4", DROPPED, MASK.format("((PLACE + self.step) % 5) / 5 + 0.1"), "wrong"),
    ("0.4", DROPPED, MASK.format("torch.rand(24).repeat_interleave(40)"), "wrong"),
    ("0.4", DROPPED, MASK.format("torch.rand(40).repeat(24)"), "wrong"),
    ("0.4", DROPPED, MASK.format("TABLE[self.step % 5]"), "wrong"),
    ("0.4", DROPPED, MASK.format("TABLE[0].roll(13 * self.step)"), "wrong"),
    ("0.4", DROPPED, MASK.format("(TABLE[0].flip(0) if self.step % 2 else TABLE[0]).roll(self.step)"
     ), "wrong"),
    ("0.4", DROPPED, MASK.format("torch.rand(960, generator=OWN)"), "wrong"),
    ("0.4", DROPPED, MASK.format("torch.rand(960, generator=OWN.manual_seed(self.step))"), "wrong"),
]  # fmt: skip


@pytest.mark.quick(6)
@pytest.mark.parametrize(("rate", "old", "new", "expected"), TRAINING)
def test_training_mode(tried, rate, old, new, expected):
    source = NORM_NEW.replace("RATE", rate)
    assert old in source
    found = tried(NORM.replace("RATE", rate), source.replace(old, new), training=True)
    assert found.eval_only == (expected == "eval only")
    assert (found.failure is None) == (expected != "wrong"), found


def test_a_module_that_is_the_same_in_training_is_tried_in_it_too(tried):
    refuses = "if self.training: raise ValueError('eval')\n        return 2 * x"
    found = tried(SCALE, WHOLE.replace("BODY", refuses), training=True)
    assert (found.eval_only, found.failure) == (True, None)
    cheats = "return x if self.training else 2 * x"
    assert tried(SCALE, WHOLE.replace("BODY", cheats), training=True).failure is not None


def test_outputs_that_will_be_asked_for_again_are_kept_at_any_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A drop-in of gigabytes was refused for outputs that the worker itself had let go."""
    monkeypatch.setattr(storage, "KEPT_BYTES", 16)
    state = cast("WorkerState", SimpleNamespace(memory={}))
    one, two = torch.arange(8.0), torch.arange(8.0) + 1
    storage.check_storage(state, set(), [one], keep=True)
    storage.check_storage(state, set(), [two], keep=True)
    assert state.memory["earlier"] == [[two]]
    storage.trim_kept(state)
    assert state.memory["earlier"] == []
    storage.check_storage(state, set(), [one], keep=False)
    assert state.memory["earlier"] == []


ROLES = {"a": (True, "a"), "b": (True, "a")}


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ({"a": [True, "a"], "b": [True, "a"]}, None),
        ({}, "missing ['a', 'b']"),
        ({"a": [True, "a"], "b": [True, "b"]}, "the same object as a"),
        ({"a": [False, "a"], "b": [True, "a"]}, "requires_grad is False"),
        ({"a": [True, "a"], "b": [True, "a"], "c": [True, "c"]}, "unexpected ['c']"),
        ({"a": [True, "a"], "b": "what"}, "requires_grad is None"),
    ],
)
def test_parameters_are_the_originals(theirs: dict[str, JSON], words: str | None) -> None:
    found = compare_roles(ROLES, theirs)
    assert (found is None) if words is None else (found is not None and words in found)


def test_a_case_that_is_asked_again_is_answered_once(prepared, worker, monkeypatch):
    loaded, captured = prepared(WEIGHTED)
    runner = CaseRunner(worker, loaded, captured, JudgeSettings(seed=0, policy="any"), [])
    assert runner.build(WEIGHTS.replace("BODY", "return x * self.w + self.b")) is None
    asked = []
    ask = runner.oracle_inputs.ask
    monkeypatch.setattr(runner.oracle_inputs, "ask", lambda case: asked.append(case) or ask(case))
    shape = CaseShape(loaded.problem.shape_sets[0], "declared", 0)
    one, other = Case(shape, "normal", 1), Case(shape, "normal", 2)
    with runner.remembering():
        outcomes = [runner.run(case) for case in (one, other, one, one, other)]
    assert asked == [one, other]
    assert all(outcome.failure is None for outcome in outcomes)
    assert outcomes[0].results == outcomes[2].results == outcomes[3].results
    runner.run(one)
    assert asked == [one, other, one]


def test_what_is_remembered_is_forgotten_where_memory_ends(prepared, worker, monkeypatch):
    loaded, captured = prepared(WEIGHTED)
    runner = CaseRunner(worker, loaded, captured, JudgeSettings(seed=0, policy="any"), [])
    assert runner.build(WEIGHTS.replace("BODY", "return x * self.w + self.b")) is None
    shape = CaseShape(loaded.problem.shape_sets[0], "declared", 0)
    one, other = Case(shape, "normal", 1), Case(shape, "normal", 2)
    ask, asked = runner.oracle_inputs.ask, []

    def short(case):
        """There is room for one answer alone."""
        asked.append(case)
        if runner._remembered:
            return NotApplicable("no memory", out_of_memory=True)
        return ask(case)

    monkeypatch.setattr(runner.oracle_inputs, "ask", short)
    with runner.remembering():
        outcomes = [runner.run(case) for case in (one, one, other, other)]
    assert all(isinstance(outcome, CaseOutcome) for outcome in outcomes)
    assert asked == [one, other, other]


@pytest.mark.parametrize(("most", "times"), [(1 << 20, 1), (100, 2)])
def test_an_answer_that_is_large_is_asked_again(prepared, worker, monkeypatch, most, times):
    """Of the weights too, which are kept as the call found and left them."""
    monkeypatch.setitem(case_runner.REMEMBERED_BYTES, "cpu", most)
    loaded, captured = prepared(WEIGHTED)
    runner = CaseRunner(worker, loaded, captured, JudgeSettings(seed=0, policy="any"), [])
    assert runner.build(WEIGHTS.replace("BODY", "return x * self.w + self.b")) is None
    ask, asked = runner.oracle_inputs.ask, []
    monkeypatch.setattr(runner.oracle_inputs, "ask", lambda case: asked.append(case) or ask(case))
    one = Case(CaseShape(loaded.problem.shape_sets[0], "declared", 0), "normal", 1)
    with runner.remembering():
        for _ in range(2):
            runner.run(one)
    assert len(asked) == times
