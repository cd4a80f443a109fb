"""Sums into one address without an atomic are seen, and honest kernels left alone."""

from pathlib import Path

import pytest

from agentkernel.bench.redteam.corpus import read_corpus
from agentkernel.tools.judge.races import find_race

KERNEL = """import triton
import triton.language as tl
@triton.jit
def k(x_ptr, out_ptr, lock_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    part = tl.program_id(1)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    s = tl.sum(tl.load(x_ptr + i + part, mask=i < n))
BODY
def f(x, out, n, m):
    k[GRID](x, out, out, n, BLOCK=4)
"""
PLUS = "tl.store(out_ptr, tl.load(out_ptr) + s)"
RACES = {
    "one address": PLUS,
    "through names": "old = tl.load(out_ptr)\nold += s\ntl.store(out_ptr, old)",
    "a block at one place": (
        "p = out_ptr + tl.arange(0, BLOCK)\nv = tl.load(p, mask=p != 0) + s\ntl.store(p, v)"
    ),
    "along one axis": "tl.store(out_ptr + pid, tl.load(out_ptr + pid) + s)",
    "in a loop": f"for step in range(0, n):\n    {PLUS}",
    "behind a size": f"if n > 4:\n    {PLUS}",
}
ORDERED = {
    "row of its own": "j = pid * n + part\ntl.store(out_ptr + j, tl.load(out_ptr + j) + s)",
    "an atomic": "tl.atomic_add(out_ptr, s)",
    "a lock": (
        f"while tl.atomic_cas(lock_ptr, 0, 1) == 1:\n    pass\n{PLUS}\ntl.atomic_xchg(lock_ptr, 0)"
    ),
    "one program": f"if pid + part == 0:\n    {PLUS}",
    "the others left": f"if (pid > 0) | (part > 0):\n    return\n{PLUS}",
    "a mask": "tl.store(out_ptr, tl.load(out_ptr) + s, mask=pid + part == 0)",
    "a place that was looked up": (
        "q = tl.load(x_ptr + n)\ntl.store(out_ptr + q, tl.load(out_ptr + q) + s)"
    ),
    "another tensor": "tl.store(out_ptr, tl.load(x_ptr) + 1)",
    "a place that a helper names": (
        "q = place(n)\ntl.store(out_ptr + q, tl.load(out_ptr + q) + s)"
    ),
}


def source(body, grid="(n, m)"):
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    return KERNEL.replace("BODY", lines).replace("GRID", grid)


@pytest.mark.parametrize("name", RACES)
def test_a_shared_sum_is_found_with_its_line(name):
    text = source(RACES[name])
    found = find_race(text)
    assert found.tool == "scan"
    assert "tl.store(" in text.splitlines()[found.line - 1]


@pytest.mark.parametrize("name", ORDERED)
def test_an_ordered_sum_is_left_alone(name):
    assert find_race(source(ORDERED[name])) is None


@pytest.mark.parametrize("grid", ["(1,)", "(1, 1)", "lambda meta: (1, 1)"])
def test_one_program_has_nobody_to_race_with(grid):
    assert find_race(source(PLUS, grid)) is None
    assert find_race(source(PLUS, "(n, 1)")) is not None


def test_no_known_honest_kernel_is_flagged():
    root = Path(__file__).parents[3]
    folders = ("src/agentkernel/knowledge/kernels", "tests/golden/kernels")
    texts = {
        path.name: path.read_text() for folder in folders for path in (root / folder).glob("*.py")
    }
    corpus = read_corpus(root / "tests" / "redteam")
    texts |= {entry.name: entry.source for entry in corpus if entry.kind == "honest"}
    assert len(texts) > 140
    assert {name: find_race(text) for name, text in texts.items()} == dict.fromkeys(texts)


@pytest.mark.slow
def test_the_judge_ends_at_the_gate_races(judged, sources):
    """One element at a time into one sum: in order in the interpreter, torn on a GPU. The programs'
    own loads and stores tell, before the kernel is read."""
    source = sources.ADD.replace(
        "    tl.store(out_ptr",
        "    tl.store(n_ptr, tl.load(n_ptr) + 1)\n    tl.store(out_ptr",
    )
    source = source.replace("out_ptr, n, BLOCK", "out_ptr, n_ptr, n, BLOCK").replace(
        "(x, y, out, n, BLOCK=128)", "(x, y, out, out.new_zeros(1), n, BLOCK=128)"
    )
    verdict = judged(sources.ADD_PROBLEM, source, static=False, seeds=1)
    assert verdict.gate == "races", verdict.failure
    assert verdict.failure.tool == "interpreter"
    assert find_race(source) is not None
