"""Words that a shell completes: files and the classes in them, targets and runs.

A shell waits for each of them at a key press: nothing heavy is imported, and what cannot be read
completes to nothing.
"""

from __future__ import annotations

import ast
import glob
import os
from pathlib import Path

from agentkernel.storage.files import RUNS_FOLDER
from agentkernel.storage.source_text import parse_source, read_source

TARGETS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "configs", "targets")


def complete_reference(incomplete: str) -> list[str]:
    """Folders and Python files that begin with `incomplete`; after a colon the file's classes."""
    path, colon, beginning = incomplete.rpartition(":")
    if colon:
        return [f"{path}:{name}" for name in _classes(path) if name.startswith(beginning)]
    return complete_file(incomplete)


def complete_file(incomplete: str) -> list[str]:
    """Folders, with a slash at the end, and Python files that begin with `incomplete`."""
    found = sorted(glob.glob(f"{glob.escape(incomplete)}*"))
    folders = [f"{item}/" for item in found if os.path.isdir(item)]
    return [*(item for item in found if item.endswith(".py")), *folders]


def _classes(path: str) -> list[str]:
    """The classes at the top of a file, by its text alone."""
    try:
        tree = parse_source(read_source(Path(path)))
    except (OSError, SyntaxError, ValueError):
        return []
    return [item.name for item in tree.body if isinstance(item, ast.ClassDef)]


def complete_target(incomplete: str) -> list[str]:
    """Names of GPUs that kernels can be made for."""
    names = os.listdir(TARGETS)
    known = [name.removesuffix(".yaml") for name in names if name.endswith(".yaml")]
    return sorted(name for name in known if name.startswith(incomplete))


def complete_run(incomplete: str) -> list[str]:
    """Names of the runs and chats in the folder that is looked into by default, newest first."""
    try:
        with os.scandir(RUNS_FOLDER) as entries:
            names = [item.name for item in entries if item.is_dir()]
    except OSError:
        return []
    shown = [name for name in names if name.startswith(incomplete) and name[0] != "."]
    return [*(["last"] if "last".startswith(incomplete) else []), *sorted(shown, reverse=True)]
