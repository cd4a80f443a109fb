"""How is a statement of a kernel or of a forward printed in lines of at most 99 characters?"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

WIDTH = 96
OPENING, CLOSING = "([{", ")]}"


def function_text(function: ast.FunctionDef, docstring: str) -> str:
    """A whole function with its decorators."""
    head = [f"@{ast.unparse(item)}" for item in function.decorator_list]
    signature = f"def {function.name}({ast.unparse(function.args)}):"
    body = list(block_lines(function.body, "    "))
    return "\n".join([*head, *wrap_line(signature, ""), *_docstring(docstring), *body])


def _docstring(text: str) -> list[str]:
    return [f'    """{text}"""'] if text else []


def block_lines(body: Sequence[ast.stmt], indent: str) -> Iterator[str]:
    """Lines of a block, loops and branches included."""
    for statement in body:
        if isinstance(statement, ast.For):
            head = f"for {ast.unparse(statement.target)} in {ast.unparse(statement.iter)}:"
            yield from wrap_line(head, indent)
            yield from block_lines(statement.body, indent + "    ")
        elif isinstance(statement, ast.If):
            yield from _branches(statement, "if", indent)
        else:
            yield from wrap_line(ast.unparse(statement), indent)


def _branches(statement: ast.If, word: str, indent: str) -> Iterator[str]:
    yield from wrap_line(f"{word} {ast.unparse(statement.test)}:", indent)
    yield from block_lines(statement.body, indent + "    ")
    rest = [item for item in statement.orelse if not isinstance(item, ast.Pass)]
    if len(rest) == 1 and isinstance(rest[0], ast.If):
        yield from _branches(rest[0], "elif", indent)
    elif rest:
        yield f"{indent}else:"
        yield from block_lines(rest, indent + "    ")


def wrap_line(text: str, indent: str) -> list[str]:
    """`text` as one line where it fits; else broken after commas within its longest bracket, or,
    where there is none to break, at sums within parentheses of its own."""
    text = text if '"' in text else text.replace("'", '"')
    if len(indent) + len(text) <= WIDTH or "\n" in text:
        return [indent + line for line in text.splitlines()]
    start, end = _longest_bracket(text)
    pieces = _pieces(text[start + 1 : end], ", ") if end else []
    if pieces and (len(pieces) > 1 or len(pieces[0]) > WIDTH // 2):
        inner = _filled(pieces, indent + "    ")
        return [indent + text[: start + 1], *inner, indent + text[end:]]
    name, sign, value = text.partition(" = ")
    for operator in (" + ", " * ") if sign else ():
        parts = _pieces(value, operator)
        if len(parts) > 1:
            word = operator.lstrip()
            lines = [f"{indent}    {word if i else ''}{part}" for i, part in enumerate(parts)]
            return [f"{indent}{name} = (", *lines, f"{indent})"]
    return [indent + text]


def forward_lines(text: str) -> list[str]:
    """`wrap_line` for a line of a method's body, which is indented later."""
    indent = " " * 8
    return [line.removeprefix(indent) for line in wrap_line(text, indent)]


def _longest_bracket(text: str) -> tuple[int, int]:
    """The two ends of the longest bracket at depth 0; (0, 0) where there is none."""
    depth, start = 0, 0
    best = (0, 0)
    for place, sign in enumerate(text):
        if sign in OPENING:
            start = start if depth else place
            depth += 1
        elif sign in CLOSING:
            depth -= 1
            if depth == 0 and place - start > best[1] - best[0]:
                best = (start, place)
    return best


def _pieces(text: str, separator: str) -> list[str]:
    """`text` cut at the separators outside of brackets and quotes."""
    depth, quoted, last, found = 0, "", 0, []
    for place, sign in enumerate(text):
        if quoted:
            quoted = "" if sign == quoted else quoted
        elif sign in "'\"":
            quoted = sign
        elif sign in OPENING:
            depth += 1
        elif sign in CLOSING:
            depth -= 1
        elif depth == 0 and text.startswith(separator, place):
            found.append(text[last:place].strip())
            last = place + len(separator)
    return [*found, text[last:].strip()]


def _filled(pieces: Sequence[str], indent: str) -> list[str]:
    """As many pieces a line as fit, each with its comma; a single one without."""
    if len(pieces) == 1:
        return wrap_line(pieces[0], indent)
    lines: list[str] = []
    for piece in pieces:
        if len(indent) + len(piece) >= WIDTH:
            broken = wrap_line(piece, indent)
            lines += [*broken[:-1], f"{broken[-1]},"]
        elif lines and len(lines[-1]) + len(piece) + 2 <= WIDTH:
            lines[-1] += f" {piece},"
        else:
            lines.append(f"{indent}{piece},")
    return lines
