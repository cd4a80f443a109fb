"""The work is done by the candidate's own kernels, with the static policy switched off."""

from pathlib import Path

import pytest

from agentkernel.bench.redteam.corpus import read_corpus
from agentkernel.tools.judge.execution.proof import check_trace, parse_trace, trace_notes
from agentkernel.tools.judge.policy.families import GraphOperators, Work
from tests.tools.judge.sources import problem_of

CALL = "add_kernel[(triton.cdiv(n, 128),)](x, y, out, n, BLOCK=128)"
SECOND = """
@triton.jit
def second_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


class ModelNew"""
COPY = "second_kernel[(triton.cdiv(n, 128),)]"


def changed(source, *edits):
    for old, new in edits:
        assert old in source
        source = source.replace(old, new, 1)
    return source


RETURN = "        return out"
SUBCLASS = """
class Tensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


class ModelNew"""
# name: (rule, a word of the text, edits of ADD)
HOSTILE = {
    "no kernel": ("no-kernel", "no kernel", [(CALL, "out.copy_(x).add_(y, alpha=2)")]),
    "torch after a copy": (
        "torch-compute",
        "add_",
        [("class ModelNew", SECOND), (CALL, f"{COPY}(x, out, n, BLOCK=128)\n        out += 2 * y")],
    ),
    "torch, then a kernel that copies": ("torch-compute", "add",
        [("class ModelNew", SECOND), (CALL, f"{COPY}(x + 2 * y, out, n, BLOCK=128)")]),
    "numpy, then a kernel that copies": (
        "torch-compute",
        "numpy",
        [
            ("class ModelNew", SECOND),
            (
                CALL,
                "sum_ = torch.from_numpy(x.numpy() + 2 * y.numpy())\n"
                f"        {COPY}(sum_, out, n, BLOCK=128)",
            ),
        ],
    ),
    "numpy in the grid": (
        "torch-compute",
        "numpy",
        [
            ("class ModelNew", SECOND),
            (
                CALL,
                "sum_ = torch.empty_like(out)\n\n        def grid(meta):\n"
                "            sum_.numpy()[:] = x.numpy() + 2 * y.numpy()\n"
                "            return (triton.cdiv(n, 128),)\n\n"
                f"        {COPY.partition('[')[0]}[grid](sum_, out, n, BLOCK=128)",
            ),
        ],
    ),
    "frames behind a traceback": (
        "global-state",
        "frames",
        [
            (
                RETURN,
                "        try:\n            raise ValueError\n        except ValueError as error:\n"
                "            error.__traceback__.tb_frame\n" + RETURN,
            ),
        ],
    ),
    "memory by its address": (
        "side-work",
        "string_at",
        [
            ("import math", "import ctypes\nimport math"),
            (RETURN, "        ctypes.string_at(out.data_ptr(), 4)\n" + RETURN),
        ],
    ),
    "in a thread that is waited for": (
        "side-work",
        "thread",
        [
            ("import math", "import math\nimport threading"),
            (
                RETURN,
                "        t = threading.Thread(target=print)\n        t.start()\n        t.join()\n"
                + RETURN,
            ),
        ],
    ),
    "a thread that stays": (
        "side-work",
        "thread",
        [
            ("import math", "import math\nimport threading\nimport time"),
            (
                RETURN,
                "        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
                + RETURN,
            ),
        ],
    ),
    "a kernel that is thrown away": (
        "dead-kernel",
        "add_kernel",
        [
            ("import math", "import math\nimport numpy"),
            (
                CALL,
                f"{CALL}\n        held = torch.empty_like(x)\n"
                "        numpy.copyto(array_of(held), array_of(x) + 2 * array_of(y))\n"
                "        out = held",
            ),
            (
                "class ModelNew",
                "class Memory:\n    pass\n\n\ndef array_of(x):\n    found = Memory()\n"
                "    found.__array_interface__ = dict(data=(x.data_ptr(), False), typestr='<f4',\n"
                "        shape=(x.numel(),), version=3)\n    return numpy.asarray(found)\n\n\n"
                "class ModelNew",
            ),
        ],
    ),
    "a second kernel for show": (
        "dead-kernel",
        "second_kernel",
        [
            ("class ModelNew", SECOND),
            (CALL, f"{COPY}(x, torch.empty_like(x), n, BLOCK=128)\n        {CALL}"),
        ],
    ),
    "a lazy subclass": ("deferred", "subclass",
        [("class ModelNew", SUBCLASS), (RETURN, "        return out.as_subclass(Tensor)")]),
    "a flag": ("global-state", "allow_tf32",
        [(RETURN, "        torch.backends.cuda.matmul.allow_tf32 = True\n" + RETURN)]),
    "flushed denormals": ("global-state", "denormals",
        [(RETURN, "        torch.set_flush_denormal(True)\n" + RETURN)]),
    "a clock": ("global-state", "time.perf_counter",
        [("import math", "import math\nimport time\n\ntime.perf_counter = lambda: 0.0")]),
    "a comparison": ("global-state", "torch.allclose",
        [("class ModelNew", "torch.allclose = lambda *a, **k: True\n\n\nclass ModelNew")]),
    "a method of tensors": ("global-state", "torch.Tensor.allclose",
        [("class ModelNew", "torch.Tensor.allclose = lambda *a: True\n\n\nclass ModelNew")]),
    "random numbers": ("global-state", "random", [(RETURN, "        torch.rand(3)\n" + RETURN)]),
    "the operators' log switched off": ("global-state", "log of operators",
        [(RETURN, "        torch.autograd._disable_profiler()\n" + RETURN)]),
    "a look at the frames": (
        "global-state",
        "frames",
        [
            ("import math", "import math\nimport inspect"),
            (RETURN, "        inspect.stack()\n" + RETURN),
        ],
    ),
}  # fmt: skip


FAST = {
    "torch, then a kernel that copies",
    "a second kernel for show",
    "a lazy subclass",
    "a clock",
}


def names(table):
    return [pytest.param(n, marks=[] if n in FAST else [pytest.mark.slow]) for n in table]


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", names(HOSTILE))
def test_what_a_candidate_does_besides_its_kernels_is_refused(judged, sources, name):
    rule, word, edits = HOSTILE[name]
    source = changed(sources.ADD, *edits)
    verdict = judged(sources.ADD_PROBLEM, source, static=False, seeds=1)
    assert not verdict.accepted
    assert verdict.gate == "execution", verdict.failure
    assert verdict.failure.rule == rule, verdict.failure
    assert word in verdict.failure.text


HALF = """
@triton.jit
def half_kernel(y_ptr, twice_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(twice_ptr + i, 2 * tl.load(y_ptr + i, mask=i < n), mask=i < n)


class ModelNew"""
TUNED = """@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 256}, num_warps=8)], key=["n"]
)
@triton.jit
"""
HONEST = {
    "two kernels": [
        ("class ModelNew", HALF),
        ("x + 2 * y", "x + y"),
        (
            CALL,
            "twice = torch.empty_like(y)\n        half_kernel[(triton.cdiv(n, 64),)](y, twice, n, "
            "BLOCK=64)\n        " + CALL.replace("(x, y,", "(x, twice,"),
        ),
    ],
    "scratch that is kept": [
        ("class ModelNew(nn.Module):", HALF + "(nn.Module):\n    kept = None\n"),
        ("x + 2 * y", "x + y"),
        (
            CALL,
            "if self.kept is None or self.kept.shape != y.shape:\n"
            "            self.kept = torch.empty_like(y)\n"
            "        half_kernel[(triton.cdiv(n, 64),)](y, self.kept, n, BLOCK=64)\n        "
            + CALL.replace("(x, y,", "(x, self.kept,"),
        ),
    ],
    "tuned": [
        ("@triton.jit\n", TUNED),
        (CALL, 'add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)'),
    ],
    "the text of what launches, as anywhere": [
        (
            RETURN,
            "        assert 'hook' not in ''.join(map(repr, [add_kernel.run]))\n" + RETURN,
        ),
    ],
    "a named tuple, views and small sums": [
        (
            "class ModelNew",
            "import typing\n\n\nclass Sizes(typing.NamedTuple):\n    n: int\n\n\nclass ModelNew",
        ),
        (
            "        n = x.numel()",
            "        n = Sizes(x.numel()).n\n        x, y = x.view(-1, 1).t()[0], y.clone()\n"
            "        scale = torch.tensor([1.0, 2.0]).sum()",
        ),
    ],
}


@pytest.mark.parametrize("name", names(HONEST))
def test_odd_honest_candidates_pass(judged, sources, name):
    source = changed(sources.ADD, *HONEST[name])
    verdict = judged(sources.ADD_PROBLEM, source, static=False, seeds=1)
    assert verdict.accepted, verdict.failure


ALL_TRUE_PROBLEM = problem_of("((x < 1) | ~(x < 1)).all(dim=-1)", "torch.randn(6, 40)")
ALL_TRUE = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def all_true_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + i, mask=i < n, other=0.0)
    either = (x < 1) | ~(x < 1)
    tl.store(out_ptr + tl.program_id(0), tl.min(either.to(tl.int32), axis=0) != 0)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape[:-1], device=x.device, dtype=torch.bool)
        all_true_kernel[(out.numel(),)](x, out, x.shape[-1], BLOCK=64)
        return out
"""


TWICE = """@triton.jit
def twice_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, 2 * tl.load(x_ptr + i, mask=i < n), mask=i < n)


"""
KEEPS = f"{TWICE}{TWICE.replace('twice', 'again')}class ModelNew(nn.Module):\n    kept = None\n\n"
STORE = "    tl.store(out_ptr"


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("edits", "refused"),
    [
        pytest.param([], None, id="honest"),
        pytest.param([("torch.empty(", "torch.ones(")], "dead-kernel", id="written by torch"),
        pytest.param([(STORE, f"    if n < 0:\n    {STORE}")], "mismatch", id="never written"),
        pytest.param(
            [(STORE, f"    if tl.program_id(0) < 8:\n    {STORE}")], "mismatch", id="in part"
        ),
    ],
)
def test_what_is_true_everywhere_is_no_proof_against_a_kernel(judged, sources, edits, refused):
    """Torch fills unwritten truth values with True."""
    verdict = judged(ALL_TRUE_PROBLEM, changed(ALL_TRUE, *edits), static=False, seeds=1)
    assert verdict.accepted is (refused is None), verdict.failure
    assert any("output 0 is True everywhere" in note for note in verdict.notes)
    if refused:
        assert refused in (verdict.failure.kind, getattr(verdict.failure, "rule", None))


def test_truth_values_that_are_written_where_they_are_false_alone_are_not_right(judged, sources):
    problem = changed(ALL_TRUE_PROBLEM, ("((x < 1) | ~(x < 1))", "(x < 0)"))
    edits = [("(x < 1) | ~(x < 1)", "x < 0"), ("other=0.0", "other=-1.0")]
    edits += [(STORE, f"    if tl.min(either.to(tl.int32), axis=0) == 0:\n    {STORE}")]
    verdict = judged(problem, changed(ALL_TRUE, *edits), static=False, seeds=1)
    assert verdict.failure.kind == "mismatch"
    assert "unwritten memory is zero" in verdict.failure.case


def test_a_kernel_that_only_tells_whether_kernels_run_is_dead(judged, sources):
    problem = changed(ALL_TRUE_PROBLEM, ("((x < 1) | ~(x < 1)).all(dim=-1)", "x.clone()"))
    edits = [("return out", "return x.clone() if out[0].item() else x[:0]")]
    verdict = judged(problem, changed(ALL_TRUE, *edits), static=False, seeds=1)
    assert verdict.failure.rule == "dead-kernel"


@pytest.mark.slow
def test_scratch_that_is_kept_beside_a_truth_is_no_cheat(judged, sources):
    problem = changed(ALL_TRUE_PROBLEM, (".all(dim=-1)", ".all(dim=-1), x.view(6, 40) * 4"))
    grid = "_kernel[(triton.cdiv(x.numel(), 128),)]"
    edits = [
        ("class ModelNew(nn.Module):\n", KEEPS),
        (
            "return out",
            "if self.kept is None:\n            self.kept = torch.empty_like(x)\n"
            f"        twice{grid}(x, self.kept, x.numel(), BLOCK=128)\n"
            "        y = torch.empty_like(x)\n"
            f"        again{grid}(self.kept, y, x.numel(), BLOCK=128)\n        return out, y",
        ),
    ]
    verdict = judged(problem, changed(ALL_TRUE, *edits), static=False, seeds=1)
    assert verdict.accepted, verdict.failure


@pytest.mark.slow
def test_a_copy_of_scratch_that_is_kept_is_no_cheat(judged, sources):
    problem = changed(ALL_TRUE_PROBLEM, ("((x < 1) | ~(x < 1)).all(dim=-1)", "x.view(240) < 0"))
    edits = [
        ("(x < 1) | ~(x < 1)", "x < 0"),
        ("other=0.0", "other=-1.0"),
        ("class ModelNew(nn.Module):\n", "class ModelNew(nn.Module):\n    kept = None\n\n"),
        ("torch.empty(x.shape[:-1]", "self.kept if self.kept is not None else torch.empty(240"),
        ("(x, out, x.shape[-1]", "(x, out, 1"),
        ("return out", "self.kept = out\n        return out.clone()"),
    ]
    verdict = judged(problem, changed(ALL_TRUE, *edits), static=False, seeds=1)
    assert verdict.accepted, verdict.failure


def test_what_is_true_and_false_needs_no_note(judged, sources):
    edits = [("(x < 1) | ~(x < 1)", "x < 0")]
    problem = changed(ALL_TRUE_PROBLEM, *edits)
    verdict = judged(problem, changed(ALL_TRUE, *edits, ("other=0.0", "other=-1.0")), seeds=1)
    assert verdict.accepted, verdict.failure
    assert not any("everywhere" in note for note in verdict.notes)


def test_a_wrong_configuration_of_a_tuned_kernel_shows(judged, sources):
    """The one that would be timed best somewhere may be any of them."""
    source = changed(sources.ADD, *HONEST["tuned"])
    source = changed(source, ("mask = i < n", "mask = (i < n) & (BLOCK < 256)"))
    verdict = judged(sources.ADD_PROBLEM, source, static=False)
    assert verdict.gate == "correctness", verdict.failure


LIBRARY = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def bias_kernel(y_ptr, b_ptr, rows, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    y = tl.load(y_ptr + row * n + i, mask=i < n)
    b = tl.load(b_ptr + i, mask=i < n)
    tl.store(y_ptr + row * n + i, y + b, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)

    def forward(self, x):
        y = torch.mm(x, self.linear.weight.t())
        bias_kernel[(y.shape[0],)](y, self.linear.bias, y.shape[0], y.shape[1], BLOCK=512)
        return y
"""


NOTED = """SEEN = []


def noted(*args, **named):
    SEEN.append(1)
    return [1.0, 1.0, 1.0]


@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 256})], key=["n"], {asked}
)
@triton.jit
"""
TUNED_CALL = 'add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)'
SPOILT = "        if {told}:\n            out.zero_()\n" + RETURN
AS_ON_A_GPU = {
    "a stopwatch": [
        ("@triton.jit\n", NOTED.replace("{asked}", "do_bench=noted")),
        (CALL, TUNED_CALL),
        (RETURN, SPOILT.format(told="SEEN")),
    ],
    "a model of times": [
        (
            "@triton.jit\n",
            NOTED.replace("{asked}", 'prune_configs_by={"perf_model": noted, "top_k": 1}'),
        ),
        (CALL, TUNED_CALL),
        (RETURN, SPOILT.format(told="SEEN")),
    ],
    "what a launch gives": [
        (CALL, f"found = {CALL}"),
        (RETURN, SPOILT.format(told="found is not None")),
    ],
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", names(AS_ON_A_GPU))
def test_what_a_gpu_calls_and_gives_is_called_and_given(judged, sources, name):
    source = changed(sources.ADD, *AS_ON_A_GPU[name])
    verdict = judged(sources.ADD_PROBLEM, source, static=False, seeds=1)
    assert verdict.gate == "correctness", verdict.failure


@pytest.mark.slow
def test_a_library_product_is_reported_or_refused(judged, sources):
    mixed = judged(sources.GEMM_PROBLEM, LIBRARY, static=False, policy="mixed", seeds=1)
    assert mixed.accepted, mixed.failure
    assert any("library computes: mm" in note for note in mixed.notes)
    pure = judged(sources.GEMM_PROBLEM, LIBRARY, static=False, seeds=1)
    assert (pure.gate, pure.failure.rule) == ("execution", "torch-compute")


ORIGINAL = GraphOperators(
    library=frozenset({"product"}),
    calls={"sort": Work(1, 900), "mm": Work(1, 1800)},
    computes={"product": 1, "sort": 1},
)
SORTED = {"operators": ["sort (900 elements)"], "named": ["sort (900 elements)"]}
REFUSED = dict.fromkeys(("triton", "mixed"), "torch-compute")


def witnessed(**call):
    full = {"launches": [0], "operators": [], "library": [], "moved": [], "draws": False} | call
    return parse_trace({"kernels": [["k", 3]], "calls": [full], "violations": []})


@pytest.mark.parametrize(
    ("call", "refused"),
    [
        ({}, {}),
        ({"launches": []}, {"triton": "no-kernel"}),
        (
            {"operators": ["add (900 elements)"]},
            dict.fromkeys(("triton", "mixed"), "torch-compute"),
        ),
        ({"library": ["mm"]}, {"triton": "torch-compute"}),
        (
            {"library": ["mm", "_scaled_dot_product_flash_attention_for_cpu"]},
            dict.fromkeys(("triton", "mixed"), "torch-compute"),
        ),
        ({"moved": ["cast from a to b (9000 elements)"]}, {"triton": "torch-compute"}),
        (SORTED | {"called": {"sort": [1, 900]}}, {"triton": "torch-compute"}),
        (SORTED | {"called": {"sort": [2, 900]}}, REFUSED),
        (SORTED | {"called": {"sort": [1, 901]}}, REFUSED),
        (SORTED | {"called": {"cumsum": [1, 900]}}, REFUSED),
        (SORTED | {"named": [], "called": {"sort": [1, 900]}}, REFUSED),
        ({"parts": [["product"]]}, {}),
        ({"parts": [["product", "add"], ["sort"]]}, {"mixed": "library-alone"}),
    ],
)
def test_each_policy_refuses_its_own(call, refused):
    for policy in ("triton", "mixed", "any"):
        found = check_trace(witnessed(**call), policy, ["first"], [ORIGINAL])
        assert (found.rule if found else None) == refused.get(policy)
        assert found is None or found.case == "first"


def test_what_is_allowed_is_reported_once():
    assert trace_notes(witnessed(library=["mm", "mm"], operators=["add (9 elements)"])) == [
        "the library computes: mm",
        "torch computes: add",
    ]


def test_a_reply_that_makes_no_sense_is_no_evidence():
    seen = parse_trace({"kernels": 3, "calls": [7, {"launches": "x"}], "violations": [[1]]})
    assert check_trace(seen, "triton", [], ()).rule == "no-kernel"


def test_what_is_computed_after_the_call_is_no_answer(judged):
    """In state_dict(), which was once asked for before the outputs were copied."""
    corpus = Path(__file__).parents[2] / "redteam"
    problem = (corpus / "problems" / "softmax.py").read_text()
    (entry,) = read_corpus(corpus / "open", ["state_dict_override"])
    verdict = judged(problem, entry.source, static=False, seeds=1)
    assert verdict.gate == "correctness", verdict.failure
