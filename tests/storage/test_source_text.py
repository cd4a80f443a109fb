"""No text from outside ends Python's parser, or this process with it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agentkernel.cli.candidate import read_source as read_candidate
from agentkernel.domain.errors import ProblemError
from agentkernel.nightly.zoo.loader import _imports
from agentkernel.storage.source_text import (
    MOST_BYTES,
    MOST_DEPTH,
    MOST_LINES,
    compile_source,
    parse_expression,
    parse_source,
    read_literal,
    read_source,
    symbol_tables,
)
from agentkernel.tools.judge.gradients import declares_gradients
from agentkernel.tools.judge.policy.check import check_policy
from agentkernel.tools.judge.races import find_race
from agentkernel.tools.problem.inputs import parse_init, parse_input
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.profiler.session import kernel_names

PACKAGE = Path(__file__).parents[2] / "src" / "agentkernel"
PARSERS = re.compile(
    r"(?<![\w.])(?:ast\.parse|ast\.literal_eval|compile|eval(?=\((?!\)))|tokenize\.\w+|symtable\.symtable)\("
)
OWN = {
    "storage/source_text.py": "the one place",
    "compiler/drop_in/gradients.py": "text that this package wrote",
    "compiler/drop_in/source_slice.py": "parts of what parse_source has read",
    "compiler/drop_in/interface.py": "defaults that this package wrote",
    "compiler/lift/tidy.py": "TorchInductor's text",
    "compiler/lift/wrapper_steps.py": "TorchInductor's text",
    "compiler/lift/kernel_text.py": "TorchInductor's text",
    "compiler/lift/kernel_names.py": "TorchInductor's text",
    "knowledge/documents.py": "a node of what parse_source has read",
    "swap/traced.py": "text that this package wrote",
    "compiler/lift/inductor_codegen.py": "TorchInductor's text",
    "tools/problem/inputs.py": "nodes of what parse_expression has read",
    "chat/problem_sizes.py": "a node of what parse_source has read",
}
"""Files that call a parser themselves, and what they give it."""
NODES_ONLY = {"knowledge/documents.py", "tools/problem/inputs.py", "chat/problem_sizes.py"}
UNKIND = {
    "unary": "z = " + "-" * 200_000 + "1\n",
    "sum": "z = 1" + "+ 1" * 100_000 + "\n",
    "brackets": "z = " + "(" * 5_000 + ")" * 5_000 + "\n",
    "attributes": "z = z" + ".a" * 2_000 + "\n",
    "branches": "if z: pass\n" + "elif z: pass\n" * 300,
    "indents": "".join(" " * at + "if z:\n" for at in range(150)) + " " * 150 + "pass\n",
    "null": "z = 1\0\n",
    "surrogate": "z = '\ud800'\n",
    "digits": "z = " + "1" * 10_000 + "\n",
    "large": "z = '" + "x" * MOST_BYTES + "'\n",
    "lines": "\n" * MOST_LINES,
}


@pytest.mark.parametrize("source", UNKIND.values(), ids=UNKIND)
def test_what_ends_the_parser_is_a_syntax_error(source: str) -> None:
    with pytest.raises(SyntaxError) as raised:
        parse_source(source)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("source", UNKIND.values(), ids=UNKIND)
def test_it_is_a_verdict_of_the_policy(source: str) -> None:
    found = check_policy(source, "triton")
    assert found.rule == "syntax"


def test_what_the_tables_of_names_refuse_is_a_verdict_too() -> None:
    for source in ("nonlocal x\n", "from __future__ import braces\n", "def f(x, x): pass\n"):
        found = check_policy(source, "any")
        assert found.rule == "syntax"


@pytest.mark.parametrize("ask", [find_race, declares_gradients, kernel_names])
def test_it_says_nothing_to_who_reads_without_the_policy(ask: Callable[[str], object]) -> None:
    assert not any(ask(source) for source in UNKIND.values())


@pytest.mark.parametrize("source", UNKIND.values(), ids=UNKIND)
def test_a_problem_of_it_is_one_line(tmp_path: Path, source: str) -> None:
    path = tmp_path / "problem.py"
    path.write_bytes(source.encode(errors="surrogatepass"))
    with pytest.raises(ProblemError) as raised:
        load_problem(str(path))
    assert "\n" not in str(raised.value)
    assert "line None" not in str(raised.value)


def test_a_flag_of_it_is_one_line() -> None:
    deep = "-" * 200_000 + "1"
    with pytest.raises(ProblemError):
        parse_init(deep)
    with pytest.raises(ProblemError):
        parse_input(f"x={deep}")


def test_a_neighbour_of_it_imports_nothing() -> None:
    texts = [text.encode(errors="surrogatepass") for text in UNKIND.values()]
    assert not any(_imports(text) for text in texts)


def test_a_tree_that_is_read_can_be_walked() -> None:
    levels = MOST_DEPTH - 4
    tree = parse_source("z" + ".a" * levels)
    assert ast.unparse(tree) == "z" + ".a" * levels
    with pytest.raises(SyntaxError):
        parse_expression("z" + ".a" * MOST_DEPTH)


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    source = "\ufeffx = 1\n"
    assert ast.unparse(parse_source(source)) == "x = 1"
    assert compile_source(source, "file").co_names == ("x",)
    assert [table.get_name() for table in symbol_tables(source)] == ["top"]


def test_code_is_bound_too() -> None:
    with pytest.raises(SyntaxError):
        compile_source(UNKIND["large"], "text")
    with pytest.raises(SyntaxError):
        compile_source(UNKIND["unary"], "text")
    names: dict[str, object] = {}
    exec(compile_source("def f(x: Nobody): return 1\n", "text"), names)
    assert "f" in names


def test_no_more_of_a_file_is_read_than_tells_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkernel.storage.source_text.MOST_READ", 10)
    path = tmp_path / "file.py"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb")
    assert read_source(path, "utf-8-sig") == "a\nb"
    path.write_bytes(b"x" * 11)
    for read in (read_candidate, load_problem):
        with pytest.raises(ProblemError, match="more than 10 bytes") as raised:
            read(path if read is read_candidate else str(path))  # type: ignore[operator]
        assert "\n" not in str(raised.value)


def test_literals_are_read_and_bound() -> None:
    assert read_literal(" (1, 'a', -2.5)") == (1, "a", -2.5)
    for text in ("{[]: 1}", "f()", "inf"):
        with pytest.raises(ValueError, match=r"malformed|unhashable"):
            read_literal(text)
    with pytest.raises(SyntaxError):
        read_literal("-" * 100_000 + "1")


def test_nothing_else_parses_text_from_outside() -> None:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        calls = set(PARSERS.findall(path.read_text(encoding="utf-8")))
        if name in NODES_ONLY:
            calls.discard("ast.literal_eval(")
        if calls and (name not in OWN or name in NODES_ONLY):
            found[name] = calls
    assert found == {}
