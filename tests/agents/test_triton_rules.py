"""The broken rule in what Triton itself says, and the line in the candidate's source."""

from __future__ import annotations

import inspect

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompilationError
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

from agentkernel.agents.diagnosis import TABLE, broken_rule
from agentkernel.agents.evidence import blamed_line, excerpt

# ruff: noqa: F821

SIDE = 3


@triton.jit
def odd_range(x, n):
    tl.store(x + tl.arange(0, 100), 1.0)


@triton.jit
def run_time_range(x, n):
    tl.store(x + tl.arange(0, n), 1.0)


@triton.jit
def unlike_blocks(x, n):
    a = tl.load(x + tl.arange(0, 64))
    b = tl.load(x + tl.arange(0, 32))
    tl.store(x + tl.arange(0, 64), a + b)


@triton.jit
def unlike_mask(x, n):
    tl.store(x + tl.arange(0, 64), 1.0, mask=tl.arange(0, 32) < n)


@triton.jit
def small_dot(x, n):
    rows = tl.arange(0, 4)
    a = tl.load(x + rows[:, None] * 4 + rows[None, :])
    tl.store(x + rows[:, None] * 4 + rows[None, :], tl.dot(a, a))


@triton.jit
def crooked_dot(x, n):
    rows, columns = tl.arange(0, 16), tl.arange(0, 32)
    a = tl.load(x + rows[:, None] * 32 + columns[None, :])
    tl.store(x + rows[:, None] * 16 + rows[None, :], tl.dot(a, a))


@triton.jit
def mixed_dot(x, n):
    rows = tl.arange(0, 16)
    a = tl.load(x + rows[:, None] * 16 + rows[None, :])
    tl.store(x + rows[:, None] * 16 + rows[None, :], tl.dot(a, a.to(tl.float16)))


@triton.jit
def unknown_function(x, n):
    tl.store(x, tl.tanh(tl.load(x)))


@triton.jit
def unknown_name(x, n):
    tl.store(x, nobody(tl.load(x)))


@triton.jit
def not_a_pointer(x, n):
    tl.store(x, tl.load(n))


@triton.jit
def scalar_pointer(x, n):
    tl.store(x, tl.arange(0, 64))


@triton.jit
def block_condition(x, n):
    if tl.load(x + tl.arange(0, 64)) > 0:
        tl.store(x, 1.0)


@triton.jit
def changing_type(x, n):
    total = 0
    for i in range(n):
        total = total + tl.load(x + i + tl.arange(0, 64))
    tl.store(x + tl.arange(0, 64), total)


@triton.jit
def early_end(x, n):
    for i in range(n):
        if i > 3:
            break
    tl.store(x, 1.0)


@triton.jit
def indexed_block(x, n):
    a = tl.load(x + tl.arange(0, 64))
    tl.store(x, a[0])


@triton.jit
def plain_global(x, n):
    tl.store(x, SIDE)


@triton.jit
def integer_exp(x, n):
    tl.store(x, tl.exp(n))


@triton.jit
def huge_block(x, n):
    tl.store(x + tl.arange(0, 2097152), 1.0)


@triton.jit
def torch_argument(x, n):
    tl.store(x, tl.sum(tl.load(x + tl.arange(0, 64)), dim=0))


@triton.jit
def bad_reshape(x, n):
    a = tl.reshape(tl.load(x + tl.arange(0, 64)), (4, 8))
    tl.store(x + tl.arange(0, 64), a)


@triton.jit
def other_without_mask(x, n):
    tl.store(x, tl.load(x, other=0.0))


KERNELS: list[tuple[JITFunction, str, str]] = [
    (odd_range, "power of two", "arange(0, 100)"),
    (run_time_range, "constexpr missing", "arange(0, n)"),
    (unlike_blocks, "block shapes", "a + b"),
    (unlike_mask, "block shapes", "mask="),
    (small_dot, "tl.dot size", "tl.dot"),
    (crooked_dot, "tl.dot shape", "tl.dot"),
    (mixed_dot, "tl.dot dtype", "tl.dot"),
    (unknown_function, "no such function", "tanh"),
    (unknown_name, "unknown name", "nobody"),
    (not_a_pointer, "pointer type", "tl.load(n)"),
    (scalar_pointer, "scalar pointer", "tl.store"),
    (block_condition, "block as condition", "if tl.load"),
    (changing_type, "types in a loop", "for i in"),
    (early_end, "unsupported Python", "break"),
    (indexed_block, "indexing a block", "a[0]"),
    (plain_global, "global variable", "SIDE"),
    (integer_exp, "dtype of an operation", "tl.exp"),
    (huge_block, "block size", "2097152"),
    (torch_argument, "arguments", "dim=0"),
    (bad_reshape, "reshape", "tl.reshape"),
    (other_without_mask, "load's mask", "other="),
]


@pytest.fixture(autouse=True)
def decided_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.9 warns where nobody says whether multiply and add may be one."""
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


@pytest.mark.parametrize(("kernel", "name", "text"), KERNELS, ids=[row[1] for row in KERNELS])
def test_the_compilers_own_words(kernel: JITFunction, name: str, text: str) -> None:
    source = ASTSource(kernel, {"x": "*fp32", "n": "i32"}, {})
    with pytest.raises(CompilationError) as caught:
        triton.compile(source, target=GPUTarget("cuda", 90, 32))
    rule = broken_rule(str(caught.value))
    assert rule.name == name
    candidate = f"import triton\n\n\n{inspect.getsource(kernel.fn)}\nafter = 1\n"
    line = blamed_line(candidate, f"Traceback ...\n{caught.value}", known=1)
    assert line is not None
    assert text in candidate.splitlines()[line - 1]


@pytest.mark.parametrize(
    ("log", "name"),
    [
        (str(OutOfResources(300000, 232448, "shared memory")), "shared memory"),
        (str(OutOfResources(2048, 1024, "threads")), "registers"),
        ("over the limit: shared memory, 300000 bytes needed, 232448 at most", "shared memory"),
        ("ptxas fatal : Register allocation failed with register count of 255", "back end"),
        ("PTXASError: PTXAS error: Internal Triton PTX codegen error", "back end"),
        ("RuntimeError: PassManager::run failed", "back end"),
    ],
)
def test_limits(log: str, name: str) -> None:
    found = broken_rule(log)
    assert found.name == name


def test_what_no_rule_is_about() -> None:
    assert broken_rule("ValueError: the sky is blue") is None


def test_every_rule_says_what_to_do() -> None:
    assert all(row.rule.endswith(".") and row.fix.endswith(".") for row in TABLE)
    assert len({row.name for row in TABLE}) == len(TABLE)


def test_lines_of_other_logs() -> None:
    trace = 'File "candidate.py", line 3, in forward\n  File "torch/x.py", line 90, in f\nE: x'
    assert blamed_line("a\nb\nc\n", trace) == 3
    assert blamed_line("a\nb\nc\n", "OutOfBounds: kernel k line 2: a load outside") == 2
    assert blamed_line("a\nb\nc\n", "no place", known=1) == 1
    assert blamed_line("a\nb\nc\n", "no place") is None


def test_quoted_lines_that_stand_twice_name_no_line() -> None:
    log = "at 1:0:\nx = 1\n^\nbad"
    assert blamed_line("x = 1\ny\nx = 1\n", log) is None
    assert blamed_line("x = 1\ny\n", log) == 1


def test_an_excerpt_marks_its_line() -> None:
    source = "\n".join(f"line {number}" for number in range(1, 21))
    found = excerpt(source, 10)
    assert ">   10 | line 10" in found.text.split("\n")
    assert found.text.count("\n") == 8
    assert excerpt(source, 21) is None
    assert excerpt(source, None) is None
