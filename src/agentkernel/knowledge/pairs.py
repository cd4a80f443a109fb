"""Which files of a folder are problems, and what does a generated pair say of itself?"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import ProblemError
from agentkernel.domain.knowledge import Entry, Structure, Verified
from agentkernel.storage.source_text import parse_source

MARKS = (re.compile(r"\bModel\b"), re.compile(r"\bget_inputs\b"))
"""What every problem in the KernelBench convention names."""
ID_DIGITS = 12


@dataclass(frozen=True)
class ProblemFile:
    """A file in the KernelBench convention, not executed. `name` is its path below the folder."""

    path: Path
    name: str
    text: str

    @property
    def sha256(self) -> str:
        """Hash of its text: what is looked up before anything is generated for it."""
        return sha256_text(self.text)


def problem_files(folder: Path) -> tuple[ProblemFile, ...]:
    """The problems at any depth of `folder`, by path; of equal texts the first. Nothing is run.

    Files that name no `Model` and `get_inputs` are no problems; hidden folders are left out. Raises
    ProblemError where `folder` is none, or holds no problem.
    """
    if not folder.is_dir():
        raise ProblemError(
            f"No such folder: {str(folder)!r}. Expected one with problems in the KernelBench "
            "convention (Model, get_inputs, get_init_inputs). Next: check the path."
        )
    found: dict[str, ProblemFile] = {}
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        text = "" if _is_hidden(name) else _text(path)
        if all(mark.search(text) for mark in MARKS):
            found.setdefault(text, ProblemFile(path, name, text))
    if not found:
        raise ProblemError(
            f"No problem in {str(folder)!r}. Expected Python files with Model, get_inputs and "
            "get_init_inputs. Next: name the folder that holds them."
        )
    return tuple(found.values())


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "__")) for part in name.split("/"))


def _text(path: Path) -> str:
    """ "" for what is no text: it is no problem either."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def generated_entry(
    file: ProblemFile,
    answer: str,
    kernels: Sequence[str],
    *,
    variant: str,
    licence: str,
    verified: Verified,
    triton: str | None,
    structure: Structure | None,
) -> Entry:
    """The pair of `file` with the standalone Triton file `answer` that launches `kernels`.

    `variant` names the settings of TorchInductor that wrote it; `triton` the Triton version that it
    was verified with.
    """
    title = title_of(file)
    names = ", ".join(kernels)
    summary = f"Triton by TorchInductor ({variant}): {names}." if names else ""
    digest = sha256_text("\0".join((file.text, answer)))
    return Entry(
        id=f"generated/{digest[:ID_DIGITS]}",
        kind="pair",
        title=title,
        summary=summary,
        problem=file.text,
        answer=answer,
        passages=(f"{title}\n{summary}".strip(), file.text),
        source=file.name,
        licence=licence,
        verified=verified,
        structure=structure,
        triton=triton if verified != "no" else None,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def title_of(file: ProblemFile) -> str:
    """The first line of its docstring, or of its Model's, or its name in words."""
    words = Path(file.name).stem.replace("_", " ")
    try:
        tree = parse_source(file.text)
    except SyntaxError:
        return words
    models = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"]
    texts = [ast.get_docstring(tree), *(ast.get_docstring(model) for model in models)]
    lines = [text.strip().splitlines()[0] for text in texts if text and text.strip()]
    return lines[0] if lines else words
