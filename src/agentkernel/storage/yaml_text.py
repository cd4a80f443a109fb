"""YAML from outside, read within limits: whatever is wrong with a text is a YAMLError.

YAML's own reader raises ValueError for a date that is none and a number that is too long, and takes
40 seconds for a megabyte.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from agentkernel.storage.disk import read_regular

MOST_BYTES = 250_000
Loader = type[yaml.SafeLoader]


def read_yaml(path: Path, loader: Loader = yaml.SafeLoader) -> object:
    """The values in a file that the user typed. Raises OSError, UnicodeDecodeError, YAMLError."""
    return parse_yaml(_text(path), loader)


def parse_yaml(text: str, loader: Loader = yaml.SafeLoader) -> object:
    """The values of a text. Raises YAMLError."""
    _check_size(text)
    try:
        found: object = yaml.load(text, loader)
    except (ValueError, OverflowError, RecursionError, MemoryError, TypeError) as error:
        raise _refused(error) from None
    return found


def compose_yaml(path: Path) -> yaml.Node | None:
    """The nodes of a file that the user typed, none of which is looked at; None for an empty one.
    Raises OSError, UnicodeDecodeError, YAMLError."""
    text = _text(path)
    _check_size(text)
    try:
        found: yaml.Node | None = yaml.compose(text, yaml.SafeLoader)
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise _refused(error) from None
    return found


def _text(path: Path) -> str:
    return read_regular(path, MOST_BYTES, typed=True).decode()


def _check_size(text: str) -> None:
    if len(text) > MOST_BYTES:
        raise yaml.YAMLError(f"it has {len(text):,} characters, the most is {MOST_BYTES:,}")


def _refused(error: Exception) -> yaml.YAMLError:
    if isinstance(error, RecursionError | MemoryError):
        return yaml.YAMLError("it is nested too deeply")
    return yaml.YAMLError(str(error))


__all__ = ["compose_yaml", "parse_yaml", "read_yaml"]
