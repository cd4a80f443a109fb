"""Where in a model's answer is the file that it was asked for?"""

from __future__ import annotations

import ast
import re

FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n]*$", re.M)
THOUGHT = re.compile(r"<think>.*?(</think>|\Z)", re.S)
STARTS = ("import ", "from ", '"""', "#", "@", "class ", "def ")


def extract_module(answer: str, class_name: str = "ModelNew") -> str | None:
    """The last complete piece of Python in `answer` that defines `class_name`, else None.

    Takes fenced blocks first, an unclosed one included, then the bare text between the prose.
    """
    text = THOUGHT.sub("", answer.replace("\r\n", "\n"))
    for block in reversed(_fenced(text)):
        if _defines(block, class_name):
            return block.strip("\n") + "\n"
    bare = _bare(text, class_name)
    return None if bare is None else bare.strip("\n") + "\n"


def _fenced(text: str) -> list[str]:
    """What stands between fences, in order; the rest of the text after one that never closes."""
    blocks: list[str] = []
    fence, start = "", 0
    for match in FENCE.finditer(text):
        marker = match[1]
        if not fence:
            fence, start = marker, match.end() + 1
        elif marker[0] == fence[0] and len(marker) >= len(fence) and not match[2]:
            blocks.append(_dedent(text[start : match.start()]))
            fence = ""
    if fence:
        blocks.append(_dedent(text[start:]))
    return blocks


def _bare(text: str, class_name: str) -> str | None:
    """The longest run of lines that parses and defines the class, in an answer without fences."""
    if not re.search(rf"^class {class_name}\b", text, re.M):
        return None
    lines = [line for line in text.split("\n") if not FENCE.match(line)]
    heads = [index for index, line in enumerate(lines) if line.startswith(STARTS)]
    for head in heads:
        for end in range(len(lines), head, -1):
            block = "\n".join(lines[head:end])
            if _defines(block, class_name):
                return block
    return None


def _defines(block: str, class_name: str) -> bool:
    """True where `block` is valid Python with a top-level class of that name."""
    if f"class {class_name}" not in block:
        return False
    try:
        tree = ast.parse(block)
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.ClassDef) and node.name == class_name for node in tree.body)


def _dedent(block: str) -> str:
    """`block` moved to column 0 where a list item had indented it."""
    import textwrap

    return textwrap.dedent(block)


__all__ = ["extract_module"]
