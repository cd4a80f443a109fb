"""Python source from outside, read within limits.

Text that is no Python, too large or nested too deeply for the parser raises a SyntaxError of one
line, and no other exception. A parser takes several hundred bytes of memory for each character
of an adversarial text, and a tree that it can still build overflows whatever walks it by
recursion.
"""

from __future__ import annotations

import ast
import io
import re
import symtable
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from agentkernel.storage.files import read_regular

MOST_BYTES = 1_000_000
MOST_LINES = 50_000
MOST_READ = 32_000_000
"""Bytes of a file that are read to say that it is too large."""
MOST_DEPTH = 200
"""Levels of a syntax tree, of which `ast.unparse` takes three calls each."""
TOO_DEEP = "it is nested too deeply"
BYTE_ORDER_MARK = "\ufeff"
"""Python takes it at the start of a file, and of bytes, but not of text."""
CODING = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")  # PEP 263
UNALIKE = re.compile("[\0\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]|\r(?!\n)")
"""Ends of lines for `str.splitlines`, for files or for the parser, and not for all three."""


def read_source(path: Path, encoding: str = "utf-8") -> str:
    """The text of a file that the user typed, or that a shell hands over. Raises OSError,
    UnicodeDecodeError."""
    data = read_regular(path, MOST_READ, typed=True)
    return io.TextIOWrapper(io.BytesIO(data), encoding=encoding).read()


def parse_source(
    source: str | bytes, filename: str = "<unknown>", *, walked: bool = True
) -> ast.Module:
    """The syntax tree of a file's text; of any depth where whoever gets it walks it without
    recursion, or bounds that himself (`walked`). Raises SyntaxError."""
    check_size(source)
    try:
        tree = ast.parse(_unmarked(source), filename)
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise _refused(error) from None
    if walked:
        _check_depth(tree)
    return tree


def parse_expression(text: str) -> ast.expr:
    """The syntax tree of one expression. Raises SyntaxError."""
    check_size(text)
    try:
        tree = ast.parse(text, mode="eval").body
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise _refused(error) from None
    _check_depth(tree)
    return tree


def compile_source(source: str, filename: str) -> CodeType:
    """The code of a file's text; nothing of it is run. Raises SyntaxError."""
    check_size(source)
    try:
        # Annotations stay text, as this file has it: many name what nobody imported.
        return compile(_unmarked(source), filename, "exec")
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise _refused(error) from None


def read_literal(text: str) -> object:
    """The value of a Python literal. Raises SyntaxError, ValueError for what is no literal."""
    # As ast.literal_eval takes text: blanks before a literal are no indentation.
    tree = parse_expression(text.lstrip(" \t"))
    try:
        return ast.literal_eval(tree)
    except TypeError as error:  # a key or an element that has no hash
        raise ValueError(str(error)) from error


def check_size(source: str | bytes) -> None:
    """Raise SyntaxError for a text that no parser is given."""
    data = source if isinstance(source, bytes) else source.encode(errors="surrogatepass")
    if len(data) > MOST_BYTES:
        raise SyntaxError(f"it has {len(data):,} bytes, the most is {MOST_BYTES:,}")
    lines = data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n") + 1
    if lines > MOST_LINES:
        raise SyntaxError(f"it has {lines:,} lines, the most is {MOST_LINES:,}")


def check_one_reading(source: str) -> None:
    """Raise SyntaxError for a text that an import from a file, `inspect` and Python's parser could
    read as different programs: another encoding, and characters that end a line for some of them.
    """
    found = UNALIKE.search(source)
    if found is not None:
        line = source.count("\n", 0, found.start()) + 1
        text = (
            f"it holds the character {found[0]!r}, which not everybody takes for the end of a line"
        )
        raise SyntaxError(text, ("<unknown>", line, None, None))
    for number, text in enumerate(source.removeprefix(BYTE_ORDER_MARK).split("\n", 2)[:2], 1):
        named = CODING.match(text)
        if named is not None and named[1].lower().replace("_", "-") not in ("utf-8", "utf8"):
            said = f"its coding line says {named[1]!r}, expected UTF-8"
            raise SyntaxError(said, ("<unknown>", number, None, None))
        if text.strip() and not text.lstrip().startswith("#"):
            break  # only a comment or an empty line may stand before it


def symbol_tables(source: str) -> Iterator[symtable.SymbolTable]:
    """Python's tables of a file's names, one for each scope. Raises SyntaxError."""
    check_size(source)
    try:
        tables = [symtable.symtable(source.removeprefix(BYTE_ORDER_MARK), "<unknown>", "exec")]
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise _refused(error) from None
    while tables:
        tables += tables[0].get_children()
        yield tables.pop(0)


def _unmarked(source: str | bytes) -> str | bytes:
    return source.removeprefix(BYTE_ORDER_MARK) if isinstance(source, str) else source


def describe_syntax_error(error: SyntaxError) -> str:
    """`line 3: invalid syntax`, or only what is wrong where that has no line."""
    return f"line {error.lineno}: {error.msg}" if error.lineno else str(error.msg)


def _check_depth(tree: ast.AST) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(MOST_DEPTH):
        level = [below for node in level for below in ast.iter_child_nodes(node)]
        if not level:
            return
    line = min((getattr(node, "lineno", 0) for node in level), default=0)
    raise SyntaxError(TOO_DEEP, ("<unknown>", line or None, None, None))


def _refused(error: Exception) -> SyntaxError:
    if isinstance(error, RecursionError | MemoryError):
        return SyntaxError(TOO_DEEP)
    if isinstance(error, UnicodeError):
        return SyntaxError("it holds a lone surrogate, which no file in UTF-8 can")
    return SyntaxError(str(error))
