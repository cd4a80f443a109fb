"""The judge accepts what is right and refuses what is wrong, at the gate that should."""

import math

import pytest
import torch

from agentkernel.domain.verdict import LoadFailed
from agentkernel.tools.judge.known_kernels import kernels_of, open_knowing
from agentkernel.tools.judge.settings import JudgeSettings
from tests.tools.judge.sources import problem_of

DTYPES = ("float32", pytest.param("float16", marks=pytest.mark.slow), "bfloat16")


@pytest.mark.quick(1)
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_honest_norm_is_accepted(judged, sources, dtype):
    verdict = judged(
        sources.NORM_PROBLEM.replace("DTYPE", dtype), sources.NORM.replace("DTYPE", dtype)
    )
    assert verdict.accepted, verdict.failure
    assert verdict.interpreted
    assert (verdict.gate, verdict.launches) == ("accepted", ("norm_kernel",))
    assert len({case.seed for case in verdict.cases}) >= 5
    assert {case.distribution for case in verdict.cases} >= {"normal", "uniform", "large", "tiny"}
    assert len({case.shapes for case in verdict.cases}) >= 4
    assert verdict.sandbox in ("bubblewrap", "namespaces")
    assert math.isfinite(verdict.worst_error)


@pytest.mark.quick(1)
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_honest_sum_is_accepted(judged, sources, dtype):
    verdict = judged(sources.ADD_PROBLEM.replace("DTYPE", dtype), sources.ADD)
    assert verdict.accepted, verdict.failure


def test_honest_softmax_is_accepted_with_every_optional_case(judged, sources):
    verdict = judged(sources.SOFTMAX_PROBLEM, sources.SOFTMAX, budget_s=20.0)
    assert verdict.accepted, verdict.failure
    assert {case.distribution for case in verdict.cases} >= {"zeros", "own"}


@pytest.mark.slow
def test_an_honest_gemm_is_accepted(judged, sources):
    verdict = judged(sources.GEMM_PROBLEM, sources.GEMM)
    assert verdict.accepted, verdict.failure


# (base, what to replace, with what, expected gate, a word of the failure)
WRONG = {
    "strides are taken for granted": ("NORM", "x = x.contiguous()", "pass", "correctness",
        "stepped inputs"),
    "mask leaves the last column": ("NORM", "mask = cols < n", "mask = cols < n - 1",
        "correctness", ""),
    "rows past the tile": ("GEMM", "triton.cdiv(m, 32), ", "max(1, m // 32), ", "correctness", ""),
    "dot in tf32": ("GEMM", '"tf32x3"', '"tf32"', "correctness", ""),
    "dot without precision": ("GEMM", ', input_precision="tf32x3"', "", "compile",
        "input_precision"),
    "fp16 inside": ("NORM", ".to(tl.float32)\n    mean", ".to(tl.float16)\n    mean",
        "correctness", ""),
    "store out of bounds": ("ADD", "2 * y, mask=mask)", "2 * y, mask=i < n + 1)", "run", "outside"),
    "store far out of bounds": ("ADD", "tl.store(out_ptr + i,",
        "tl.store(out_ptr + i + 1099511627776,", "run", "outside"),
    "load out of bounds": ("ADD", "tl.load(y_ptr + i, mask=mask)",
        "tl.load(y_ptr + i + 1, mask=mask)", "correctness", ""),
    "wrong dtype": ("ADD", "torch.empty_like(x)", "torch.empty_like(x, dtype=torch.float64)",
        "meta", "float64"),
    "wrong stride": ("NORM", "return y", "z = y.t().contiguous().t()\n        return z", "meta",
        "stride"),
    "wrong shape": ("ADD", "return out", "return out[None]", "meta", "[1,"),
    "a tuple": ("ADD", "return out", "return (out, out)", "meta", ""),
    "input modified": ("ADD", "        return out", "        x.zero_()\n        return out",
        "inputs", "x"),
    "parameter modified": ("NORM", "        return y",
        "        self.ln.bias.zero_()\n        return y", "inputs", "ln.bias"),
    "constant output": ("ADD", "x + 2 * y, mask", "x * 0.0, mask", "correctness", ""),
    # What fresh memory holds is drawn: not every time NaN.
    "writes nothing": ("ADD", "mask = i < n", "mask = i < 0", "correctness", "pattern='all'"),
    "hang": ("ADD", "        return out",
        "        while True:\n            n += 1\n        return out", "run", "timeout"),
    "weights baked": ("NORM", "        n = x.shape[-1]",
        "        n = x.shape[-1]\n        ones = torch.ones_like(self.ln.weight)", "correctness",
        ""),
    "raises": ("ADD", "        n = x.numel()", "        n = x.nothing()", "run", "nothing"),
    "does not import": ("ADD", "class ModelNew", "1 // 0\nclass ModelNew", "load", "division"),
    "other parameter names": ("NORM", "self.ln", "self.norm", "load", "missing"),
    "other initial values": ("GEMM", "        self.linear = nn.Linear(k, n)\n\n",
        "        torch.manual_seed(1)\n        self.linear = nn.Linear(k, n)\n\n", "load",
        "initial values"),
    "remembers the first call": ("ADD", "        return out",
        "        self.kept = [*getattr_free(self), out]\n        return self.kept[0]", "run",
        "lies in the storage of an earlier call"),
}  # fmt: skip
EXTRA = {
    "weights baked": lambda text: text.replace("x, self.ln.weight,", "x, ones,"),
    "remembers the first call": lambda text: text.replace(
        "class ModelNew(nn.Module):\n",
        "def getattr_free(model):\n    return model.kept\n\n\nclass ModelNew(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.kept = []\n\n",
    ),
}
PROBLEMS = {"NORM": "NORM_PROBLEM", "ADD": "ADD_PROBLEM", "GEMM": "GEMM_PROBLEM"}


SLOW = {
    "hang",
    "rows past the tile",
    "wrong shape",
    "a tuple",
    "parameter modified",
    "weights baked",
    "raises",
    "store far out of bounds",
    "other parameter names",
    "remembers the first call",
    "constant output",
}


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in WRONG]
)
def test_a_wrong_candidate_stops_at_its_gate(judged, sources, name):
    base, old, new, gate, word = WRONG[name]
    source = getattr(sources, base)
    assert old in source
    source = EXTRA.get(name, str)(source.replace(old, new))
    problem = getattr(sources, PROBLEMS[base])
    verdict = judged(problem, source, time_limit_s=8.0)
    assert not verdict.accepted
    assert verdict.gate == gate, verdict.failure
    assert word in str(verdict.failure)


def test_a_race_between_programs_shows_in_another_order(judged, sources):
    source = sources.ADD.replace(
        "i = tl.program_id(0) * BLOCK", "i = tl.program_id(0) * (BLOCK // 2)"
    )
    source = source.replace("triton.cdiv(n, 128),)", "triton.cdiv(n, 64),)").replace(
        "x + 2 * y, mask=mask",
        "x + 2 * y + (tl.arange(0, BLOCK) >= 64), mask=mask & (i < (tl.num_programs(0) * 64))",
    )
    verdict = judged(sources.ADD_PROBLEM, source)
    assert (verdict.gate, verdict.failure.pattern) == ("correctness", "order")


@pytest.mark.slow
def test_looser_classes_admit_tf32_only_when_asked(judged, sources):
    source = sources.GEMM.replace('"tf32x3"', '"tf32"')
    assert judged(sources.GEMM_PROBLEM, source, precision="tf32").accepted


@pytest.mark.slow
def test_infinite_memory_ends_as_a_memory_failure(judged, sources):
    source = sources.ADD.replace(
        "        return out",
        "        held = []\n        while True:\n            held.append(torch.ones(1 << 26))\n",
    )
    verdict = judged(sources.ADD_PROBLEM, source, memory_bytes=3 << 29)
    assert (verdict.gate, verdict.failure.reason) == ("run", "memory")


def test_printed_json_is_no_reply(judged, sources):
    forged = '{"ok": true, "value": {"tree": "*", "outputs": [], "launches": ["add_kernel"]}}'
    source = sources.ADD.replace("x + 2 * y, mask", "x * 0.0, mask").replace(
        "        return out", f"        print({forged!r}, flush=True)\n        return out"
    )
    verdict = judged(sources.ADD_PROBLEM, source)
    assert verdict.gate == "correctness"


def test_every_declared_shape_set_is_judged(judged, sources):
    problem = sources.ADD_PROBLEM + (
        "\ndef get_input_sets():\n"
        "    return [[torch.randn(n), torch.randn(n)] for n in (1000, 5000)]\n"
    )
    source = sources.ADD.replace("mask = i < n", "mask = i < min(n, 1024)")
    verdict = judged(problem, source)
    assert verdict.gate == "correctness"
    assert "5000" in verdict.failure.case


@pytest.mark.slow
def test_buffers_that_the_reference_changes_may_change(judged, sources):
    problem = problem_of(
        "self.calls.add_(1)\nx + 2 * y",
        "torch.randn(1000), torch.randn(1000)",
        takes="x, y",
        state='self.register_buffer("calls", torch.zeros(1))',
    )
    init = (
        "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        '        self.register_buffer("calls", torch.zeros(1))\n\n'
    )
    silent = sources.ADD.replace("class ModelNew(nn.Module):\n", init)
    assert judged(problem, silent).gate == "correctness"
    counting = silent.replace(
        "        return out", "        self.calls.add_(1)\n        return out"
    )
    assert judged(problem, counting, policy="any").accepted


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", ["NORM", "ADD", "SOFTMAX", "GEMM"])
def test_on_a_gpu_honest_candidates_are_accepted_and_wrong_ones_are_not(judged, sources, name):
    problem = getattr(sources, f"{name}_PROBLEM")
    source = getattr(sources, name)
    verdict = judged(problem, source, device="cuda")
    assert verdict.accepted, verdict.failure
    assert not verdict.interpreted
    assert len(set(verdict.launches)) == 1
    broken = source.replace("mask = i < n", "mask = i < n - 1").replace(
        "mask = cols < n", "mask = cols < n - 1"
    )
    broken = broken.replace('"tf32x3"', '"tf32"')
    assert judged(problem, broken, device="cuda").gate == "correctness"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_a_kernel_is_compiled_by_the_first_worker(judged, sources, monkeypatch):
    """The next ones, of KernelBench's rule and of other modules, add no form of the same call."""
    given = []

    def opened(settings, kernels):
        given.append(kernels)
        return open_knowing(settings, kernels)

    monkeypatch.setattr("agentkernel.tools.judge.judge.open_knowing", opened)
    verdict = judged(sources.ADD_PROBLEM, sources.ADD, device="cuda", kernelbench=True)
    assert verdict.accepted, verdict.failure
    assert verdict.kernelbench
    (known,) = given
    assert sum(any(name.endswith(".cubin") for name in item) for item in known) >= 2
    with open_knowing(JudgeSettings(device="cuda"), known) as worker:
        again = kernels_of(worker, JudgeSettings(device="cuda"))
    assert {item["hash"] for item in known} <= {item["hash"] for item in again}


ADDRESSED = problem_of(
    "table[places]", "torch.randn(300, 64), torch.randint(0, 300, (50,))", takes="table, places"
)
LOOKUP = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit(debug=True)
def look_up(table_ptr, places_ptr, out_ptr, rows, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    place = tl.load(places_ptr + row)
    place = tl.where(place < 0, place + rows, place)
    tl.device_assert((place >= 0) & (place < rows), "no such row")
    value = tl.load(table_ptr + place * n + cols, mask=cols < n)
    tl.store(out_ptr + row * n + cols, value, mask=cols < n)


class ModelNew(nn.Module):
    def forward(self, table, places):
        table, places = table.contiguous(), places.contiguous()
        rows, n = places.shape[0], table.shape[1]
        out = torch.empty((rows, n), device=table.device, dtype=table.dtype)
        look_up[(rows,)](
            table, places, out, table.shape[0], n,
            BLOCK=triton.next_power_of_2(n), sanitize_overflow=False,
        )
        return out
"""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_indices_past_a_smaller_table_do_not_end_the_process(judged, sources):
    verdict = judged(ADDRESSED, LOOKUP, device="cuda")
    assert verdict.accepted, verdict.failure
    after = judged(sources.NORM_PROBLEM, sources.NORM, device="cuda")
    assert after.accepted, after.failure


@pytest.mark.slow
def test_indices_stay_within_a_smaller_table(judged):
    verdict = judged(ADDRESSED, LOOKUP)
    assert verdict.accepted, verdict.failure
    assert len({case.shapes for case in verdict.cases}) >= 3


@pytest.mark.slow
def test_a_grid_of_the_declared_sizes_shows(judged, sources):
    problem = sources.ADD_PROBLEM.replace("1000", "1024")
    assert judged(problem, sources.ADD).accepted
    verdict = judged(problem, sources.ADD.replace("[(triton.cdiv(n, 128),)]", "[(8,)]"))
    assert verdict.gate == "correctness"
    assert "1025" in verdict.failure.case


def test_a_reused_output_is_refused(judged, sources):
    source = sources.ADD.replace(
        "class ModelNew(nn.Module):", "class ModelNew(nn.Module):\n    kept = None\n"
    ).replace(
        "out = torch.empty_like(x)",
        "same = self.kept is not None and self.kept.shape == x.shape\n"
        "        out = self.kept if same else torch.empty_like(x)\n"
        "        self.kept = out",
    )
    verdict = judged(sources.ADD_PROBLEM, source, policy="any")
    assert verdict.gate == "run", verdict.failure
    assert "storage of an earlier call" in verdict.failure.log


def test_a_candidate_that_writes_to_its_own_file_is_refused(judged, sources):
    source = sources.ADD + '\nopen(__file__, "a").write("#")\n'
    verdict = judged(sources.ADD_PROBLEM, source, static=False)
    assert verdict.gate == "execution"
    assert "its own file" in verdict.failure.text


LAYOUT_BY_DEVICE = problem_of(
    'y = x * 2\ny.t().contiguous().t() if x.device.type == "cpu" else y', "torch.randn(24, 36)"
)
TWICE = """
@triton.jit
def twice_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, 2 * tl.load(x_ptr + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        twice_kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
        return RETURNED
"""


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("returned", "gate"),
    [("out", "accepted"), ("torch.empty(len(out), 500)[:, : out.shape[1]].copy_(out)", "meta")],
)
def test_strides_may_be_those_of_the_meta_device(judged, sources, returned, gate):
    source = sources.HEAD + TWICE.replace("RETURNED", returned)
    assert judged(LAYOUT_BY_DEVICE, source).gate == gate


def test_line_ends_of_another_system_are_honest(judged, sources):
    source = sources.ADD.replace("\n", "\r\n")
    verdict = judged(sources.ADD_PROBLEM, source)
    assert verdict.accepted, verdict.failure


SWAPS = {
    "file": """
from pathlib import Path
def swap():
    path = Path(__file__)
    text = path.read_text()
    path.write_text(text.replace("x + 3 * y", "x + 2 * y"))
    linecache.checkcache(__file__)
    return lambda: path.write_text(text)
""",
    "linecache": """
def swap():
    lines = [line.replace("x + 3 * y", "x + 2 * y") for line in linecache.getlines(__file__)]
    linecache.cache[__file__] = (sum(map(len, lines)), None, lines, __file__)
    return lambda: linecache.cache.pop(__file__)
""",
}


@pytest.mark.parametrize("how", list(SWAPS))
def test_what_runs_is_what_was_handed_in(judged, sources, how):
    """The text says 3 * y, and is another while Triton reads it."""
    head = sources.ADD.partition("@triton.jit")[0]
    body = sources.ADD.removeprefix(head).replace("x + 2 * y", "x + 3 * y")
    body = body.replace(
        "        add_kernel[", "        back = swap()\n        add_kernel["
    ).replace("        return out", "        back()\n        return out")
    source = f"{head}import linecache\n{SWAPS[how]}\n\n{body}"
    verdict = judged(sources.ADD_PROBLEM, source, static=False)
    assert verdict.gate == "correctness", verdict.failure


@pytest.mark.parametrize(("held_mb", "passes"), [(300, True), (600, True), (1200, False)])
def test_a_hoard_is_weighed_against_every_form_of_call(held_mb, passes):
    from agentkernel.tools.judge.worker.storage import HoardedMemory, refuse_hoard

    if passes:
        refuse_hoard(held_mb << 20, 100 << 20)
    else:
        with pytest.raises(HoardedMemory, match="1200 MB"):
            refuse_hoard(held_mb << 20, 100 << 20)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "what", ["self.training", "x.requires_grad", "not self.ln.weight.requires_grad"]
)
def test_what_refuses_tensors_or_a_mode_is_asked_without(judged, sources, what):
    old = "    def forward(self, x):\n"
    refusing = f"        if {what}:\n            raise RuntimeError('not here')\n"
    assert old in sources.NORM
    verdict = judged(sources.NORM_PROBLEM, sources.NORM.replace(old, old + refusing))
    assert verdict.accepted, verdict.failure


def test_a_judgement_keeps_to_one_thread_and_gives_the_others_back(judged, sources, monkeypatch):
    """Threads of several processes that wait for one another took twenty times as long as one."""
    seen = []

    def refuse(*args):
        seen.append(torch.get_num_threads())
        return LoadFailed(log="a test")

    monkeypatch.setattr("agentkernel.tools.judge.judge.check_policy", refuse)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert judged(sources.NORM_PROBLEM, sources.NORM).gate == "load"
        assert (seen, torch.get_num_threads()) == ([1], 3)
    finally:
        torch.set_num_threads(before)
