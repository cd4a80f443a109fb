import os
import runpy
import threading
import time
from pathlib import Path

import pytest

from agentkernel.domain.profile import CompileReport
from agentkernel.domain.verdict import CompileFailed, LoadFailed, RunFailed
from agentkernel.tools.compile import candidate, compile_candidate, compile_many, worker
from agentkernel.tools.compile.candidate import (
    Family,
    assembly_of,
    by_weight,
    compile_families,
)
from agentkernel.tools.compile.worker import MOST_IN_C
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.sandbox.isolation import Limits
from agentkernel.tools.sandbox.worker import WorkerState
from agentkernel.tools.targets import load_targets

SOURCES = runpy.run_path(str(Path(__file__).parent / "sources.py"))
GOOD = SOURCES["LAYERNORM"]
WRONG = {
    "kernel": GOOD.replace("tl.rsqrt(", "tl.no_such_function("),
    "load": GOOD.replace("super()", "supper()"),
    "run": GOOD.replace("x.numel() // n", "x.no_such_attribute"),
    "exit": "import os\nos._exit(3)\n",
    "sleep": "import time\ntime.sleep(60)\n",
}


REPORT = CompileReport(target="h100-sxm", kernels=(), library_ops=()).model_dump_json()


@pytest.fixture
def problem(tmp_path):
    path = tmp_path / "layernorm.py"
    path.write_text(SOURCES["LAYERNORM_PROBLEM"])
    return load_problem(str(path))


def test_every_failure_is_a_value_and_the_next_source_still_compiles(problem):
    sources = [WRONG["kernel"], WRONG["load"], WRONG["run"], WRONG["exit"], GOOD]
    kernel, load, run, died, good = compile_many(problem, sources, load_targets()["h100-sxm"])
    assert isinstance(kernel, CompileFailed)
    assert "no_such_function" in kernel.log
    assert WRONG["kernel"].splitlines()[kernel.line - 1].strip().startswith("scale = ")
    assert isinstance(load, LoadFailed)
    assert "supper" in load.log
    assert isinstance(run, RunFailed)
    assert run.reason == "raised"
    assert "no_such_attribute" in run.log
    assert isinstance(died, RunFailed)
    assert died.reason == "died"
    assert isinstance(good, CompileReport)
    assert (good.target, good.kernels[0].grid) == ("h100-sxm", (4096, 1, 1))


def test_compiling_gives_way_to_what_times(problem):
    asks = "import os\nraise RuntimeError(f'nice {os.getpriority(os.PRIO_PROCESS, 0)}')\n"
    outcome = compile_candidate(problem, asks, load_targets()["h100-sxm"])
    assert isinstance(outcome, LoadFailed)
    assert "nice 10" in outcome.log


def test_a_source_that_hangs_is_stopped(problem):
    outcome = compile_candidate(problem, WRONG["sleep"], load_targets()["h100-sxm"], timeout_s=1.0)
    assert isinstance(outcome, RunFailed)
    assert outcome.reason == "timeout"


def test_what_was_compiled_once_needs_no_worker_again(problem, monkeypatch):
    target = load_targets()["h100-sxm"]
    first = compile_candidate(problem, GOOD, target)
    monkeypatch.setenv("PATH", "")
    started = time.monotonic()
    assert compile_candidate(problem, GOOD, target) == first
    assert time.monotonic() - started < 0.5


def test_what_a_search_compiled_needs_no_worker_for_its_report(problem, monkeypatch):
    target, text = load_targets()["h100-sxm"], f"{GOOD}\n# searched"
    family = [Family(problem, (text,))]
    bare = compile_candidate(problem, text, target)
    ((with_binaries,),) = compile_families(family, target, binaries=True)
    assert with_binaries.binaries, "a report without them is not enough for a search"
    monkeypatch.setattr(candidate, "open_worker", None)
    assert compile_candidate(problem, text, target) == with_binaries.outcome
    assert ((with_binaries,),) == compile_families(family, target, binaries=True)
    assert bare.kernels[0].registers == with_binaries.outcome.kernels[0].registers


def test_the_assembly_of_each_kernel_is_read_without_a_gpu(problem):
    found = assembly_of(problem, GOOD, load_targets()["h100-sxm"])
    (texts,) = found.values()
    assert ".target sm_90a" in texts["ptx"]
    assert "LDG" in texts["sass"]
    assert "MUFU.RSQ" in texts["sass"]
    wrong = assembly_of(problem, WRONG["load"], load_targets()["h100-sxm"])
    assert isinstance(wrong, LoadFailed)


def test_a_kernel_whose_name_is_no_name_gets_no_file(problem, monkeypatch):
    class Said:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def call(self, op, payload, timeout_s):
            texts = {"../../up": {"ptx": "x"}, "fine": {"ptx": "y", "../z": "w"}, "odd": 3}
            return {"report": REPORT, "assembly": texts}

    monkeypatch.setattr(candidate, "open_worker", lambda **_: Said())
    assert assembly_of(problem, GOOD, load_targets()["h100-sxm"]) == {"fine": {"ptx": "y"}}


def test_a_kernel_further_down_is_the_same_kernel(problem):
    """Else each source of a family, and each launch form of one, compiles all that follows a line
    more."""
    target = load_targets()["h100-sxm"]
    texts = (GOOD, f"# a line more\n{GOOD}", GOOD.replace("tl.rsqrt(", "1.0 / tl.sqrt("))
    (made,) = compile_families([Family(problem, texts)], target, binaries=True)
    first, further_down, other = ([x["hash"] for x in item.binaries] for item in made)
    assert first == further_down
    assert set(first).isdisjoint(other[:1])


def drop_in(kernels, *launched):
    """Kernels that are launched one after the other."""
    calls = "".join(f"        {name}[(1,)](x, out, BLOCK=64)\n" for name in launched)
    return f"""import torch
import triton
import triton.language as tl
from torch import nn
{kernels}

class ModelNew(nn.Module):
    def __init__(self, *sizes):
        super().__init__()

    def forward(self, x):
        out = torch.empty_like(x)
{calls}        return out
"""


HELPED = drop_in(
    """
BY = tl.constexpr(1)


@triton.jit
def narrowed(x, by: tl.constexpr = BY):
    return x * by


@triton.jit
def kind_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, narrowed(tl.load(x_ptr + at)))
""",
    "kind_kernel",
)
NAMED = drop_in(
    """
KIND = tl.float32


@triton.jit
def kind_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at).to(KIND).to(tl.float32))
""",
    "kind_kernel",
)
CAPTURED = """
def {name}():
    kind = tl.{kind}

    @triton.jit
    def kind_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(out_ptr + at, tl.load(x_ptr + at).to(kind).to(tl.float32))

    return kind_kernel


{name} = {name}()
"""
TWINS = drop_in(
    CAPTURED.format(name="wide", kind="float32") + CAPTURED.format(name="narrow", kind="int8"),
    "wide",
    "narrow",
)


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (NAMED, "KIND = tl.float32", "KIND = tl.int8"),
        (HELPED, "BY = tl.constexpr(1)", "BY = tl.constexpr(2)"),
    ],
    ids=["a dtype that it names", "a default of its helper"],
)
def test_a_kernel_of_the_same_text_that_means_something_else_is_another(problem, text, old, new):
    """Triton's key has neither: the line on which it stands keeps them apart."""
    target = load_targets()["h100-sxm"]
    texts = (text, f"# a line more\n{text}".replace(old, new))
    (made,) = compile_families([Family(problem, texts)], target, binaries=True)
    one, other = (item.binaries[0] for item in made)
    assert one["hash"] != other["hash"]
    assert one["kind_kernel.cubin"] != other["kind_kernel.cubin"]


def test_twins_that_capture_something_else_are_two_kernels(problem):
    target = load_targets()["h100-sxm"]
    ((made,),) = compile_families([Family(problem, (TWINS,))], target, binaries=True)
    kernels = {
        item["hash"]: item["kind_kernel.cubin"]
        for item in made.binaries
        if "kind_kernel.cubin" in item
    }
    assert len(set(kernels.values())) == 2


def test_no_more_are_compiled_at_once_than_a_worker_may_have_processes(problem, monkeypatch):
    """Each has an assembler beside it, and some compile a module in C."""
    most = Limits().processes
    assert most > 2 + 2 * candidate.MOST_AT_ONCE + 2 * MOST_IN_C
    monkeypatch.setattr(candidate, "compiling_cpus", lambda: 4 * most)
    asked = []

    class Asked:
        def call(self, op, payload, timeout_s):
            asked.append(payload["at_once"])
            return {"answers": [None] * len(payload["sources"])}

    sources = [candidate._Source(0, GOOD)] * most
    assert candidate._ask(Asked(), sources, {"timeout_s": 1.0}) == [None] * most
    assert asked == [candidate.MOST_AT_ONCE]


def test_who_helps_takes_no_more_than_the_cores_that_are_free(monkeypatch, tmp_path):
    """Long sources at the end of a family: what is idle helps, and never more than that."""
    alive = []

    def children():
        own = Path("/proc/self/task") / str(threading.get_native_id()) / "children"
        return set(own.read_text().split())

    def slow(index, payload, state, writer):
        time.sleep(0.1 if payload["helps"] else 0.4 + index / 10)
        os.write(writer, b"{}")
        os._exit(0)

    def forked(*args, **named):
        alive.append(len(children() - others))
        return fork(*args, **named)

    others = children()
    fork = worker._fork
    monkeypatch.setattr(worker, "_work", slow)
    monkeypatch.setattr(worker, "_fork", forked)
    long = GOOD + "@triton.jit\n" * worker.MANY_KERNELS
    target = load_targets()["h100-sxm"]
    reply = worker.compile_family(
        {
            "target": target.model_dump_json(),
            "sources": [(0, long)] * 6,
            "calls": [{}],
            "seconds": 60.0,
            "at_once": 4,
            "timeout_s": 60.0,
        },
        WorkerState(tmp_path, "cpu", interpret=False),
    )
    assert reply["answers"] == [{}] * 6
    assert max(alive) < 4
    assert len(alive) > 6


@pytest.mark.parametrize(
    "reply",
    [
        {"x": 1},
        {"failed": "run"},
        {"report": "{}"},
        {"report": "5", "binaries": []},
        {"report": REPORT, "binaries": []},
        {"report": REPORT, "binaries": [], "instructions": 5},
        {"report": REPORT, "binaries": [], "instructions": [{"z": 1}]},
        [1, 2],
    ],
)
def test_a_reply_that_a_candidate_made_up_is_a_failure(reply):
    """The process that compiles runs the candidate, which may write the line itself."""
    assert isinstance(candidate._read(reply, "x").outcome, RunFailed)


def test_no_source_begins_after_the_deadline(problem):
    sources = [f"{GOOD}\n# {number}" for number in range(2)]
    assert compile_many(problem, sources, load_targets()["h100-sxm"], seconds=-1.0) == (None, None)


def test_kernels_that_sources_share_are_compiled_once(problem):
    target = load_targets()["h100-sxm"]
    sources = [f"{GOOD}\n# {number} shares its kernel" for number in range(2)]
    (first,), (second,) = (item.kernels for item in compile_many(problem, sources, target))
    quicker, slower = sorted((first.compile_s, second.compile_s))
    assert quicker < slower / 4


def test_another_core_begins_with_the_last_kernel(problem, monkeypatch):
    monkeypatch.setattr("agentkernel.tools.compile.candidate.compiling_cpus", lambda: 2)
    again = GOOD[GOOD.index("        rows[") : GOOD.index("        return")]
    text, names = GOOD, [f"rows_{number}" for number in range(5)]
    kernel = GOOD[GOOD.index("@triton.jit") : GOOD.index("class ModelNew")]
    for name in names:
        text = text.replace(
            "class ModelNew", kernel.replace("def rows", f"def {name}") + "class ModelNew", 1
        )
        text = text.replace(again, again + again.replace("rows[", f"{name}["), 1)
    report = compile_candidate(problem, text, load_targets()["h100-sxm"])
    assert isinstance(report, CompileReport)
    longest = max(item.compile_s for item in report.kernels)
    assert any(item.compile_s < longest / 4 for item in report.kernels)


def test_sources_begin_in_the_order_of_their_families_weights():
    order = by_weight([(4, 1.0), (4, 2.0), (1, 9.0)])
    assert order[:3] == [(0, 0), (1, 0), (2, 0)], "all first ones"
    assert order[3:] == [(1, 1), (0, 1), (1, 2), (1, 3), (0, 2), (0, 3)]
    assert by_weight([]) == []
