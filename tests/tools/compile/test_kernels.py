import ast

from triton.compiler.errors import CompilationError

from agentkernel.tools.compile.worker import explain

INNER = """def inner(x):
    return x.nothing
"""
OUTER = """def outer(x):
    y = 1
    return inner(x) + y
"""
CANDIDATE = f"import triton\n\n@triton.jit\n{INNER}\n@triton.jit\n{OUTER}"


def test_the_line_is_that_of_the_innermost_function():
    outer = CompilationError(OUTER, ast.parse(OUTER).body[0].body[1], None)
    inner = CompilationError(INNER, ast.parse(INNER).body[0].body[0], "no such attribute")
    outer.__cause__ = inner
    text, line = explain(outer, CANDIDATE, OUTER)
    assert CANDIDATE.splitlines()[line - 1] == "    return x.nothing"
    assert "no such attribute" in text


def test_a_failed_pass_points_at_the_kernel():
    text, line = explain(RuntimeError("PassManager::run failed"), CANDIDATE, OUTER)
    assert CANDIDATE.splitlines()[line - 1] == "def outer(x):"
    assert text == "RuntimeError: PassManager::run failed"


def test_a_kernel_from_elsewhere_has_no_line():
    assert explain(RuntimeError("x"), CANDIDATE, "def other(): pass")[1] is None
