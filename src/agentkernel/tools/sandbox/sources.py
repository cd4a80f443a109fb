"""From which text are a candidate's kernels read?

Triton asks `inspect` for a kernel's lines, which come from a file or from linecache; the candidate
can write to both, and put back what was there. What was loaded is what is answered here.
"""

from __future__ import annotations

import inspect
import io
import types
from collections.abc import Callable
from typing import cast

_lines: dict[str, list[str]] = {}
_original = cast("Callable[[object], tuple[list[str], int]]", inspect.getsourcelines)


def install_source_lines() -> None:
    """From now on `inspect.getsourcelines` asks here first."""
    setattr(inspect, "getsourcelines", source_lines)  # noqa: B010 - its own type is narrower


def serve_source(path: str, source: str) -> None:
    """From now on `source` is what the functions of the file `path` were written as."""
    # Not splitlines, which ends lines at more than Python does.
    _lines[path] = io.StringIO(source, newline=None).readlines()


def source_lines(item: object) -> tuple[list[str], int]:
    """As `inspect.getsourcelines`: the lines, and the number of the first."""
    code = getattr(inspect.unwrap(item), "__code__", None) if callable(item) else None
    known = _lines.get(code.co_filename) if isinstance(code, types.CodeType) else None
    if known is None or not isinstance(code, types.CodeType):
        return _original(item)
    first = code.co_firstlineno
    return inspect.getblock(known[first - 1 :]), first
