"""Which candidates does a red-team folder hold, and what is each of them expected to come to?"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import ProblemError, one_line
from agentkernel.domain.rules import Policy
from agentkernel.domain.verdict import GATES, Gate
from agentkernel.storage.source_text import parse_source

Kind = Literal["hostile", "honest"]
Needs = Literal["cpu", "gpu"]
KINDS: tuple[Kind, ...] = get_args(Kind)
HOSTILE_GATES = GATES[:-1]
WORDS: dict[str, tuple[str, ...]] = {
    "gate": HOSTILE_GATES,
    "needs": get_args(Needs),
    "static": ("only",),
    "policy": get_args(Policy),
}
"""Header entries with the values that each may have; `problem` names a file."""


class CorpusEntry(Frozen):
    """One candidate of the corpus. `gate` is None for an honest one, which is to be accepted."""

    name: str
    kind: Kind
    title: str
    path: str
    problem: str
    """The reference's path."""
    source: str
    gate: Gate | None = None
    needs: Needs = "cpu"
    static_only: bool = False
    """Only reading the source can see it: judged with the static policy on."""
    policy: Policy = "triton"

    @property
    def problem_name(self) -> str:
        """The reference's name in the corpus."""
        return Path(self.problem).stem

    @property
    def static(self) -> bool:
        """Whether the judge may read the source before it runs it."""
        return self.kind == "honest" or self.static_only


def read_corpus(folder: Path, only: Sequence[str] = ()) -> tuple[CorpusEntry, ...]:
    """Every candidate of `folder`, hostile ones first, by name; of those, the ones named in `only`.

    Raises ProblemError with one clear line for a folder that is no corpus, a bad header and a name
    that is not there.
    """
    if not any((folder / kind).is_dir() for kind in KINDS):
        raise ProblemError(
            f"{str(folder)!r} is no red-team corpus. Expected a folder with hostile/, honest/ and "
            "problems/. Next: run it where the sources are checked out, or name one with --corpus."
        )
    entries = tuple(
        read_entry(path, kind) for kind in KINDS for path in sorted((folder / kind).glob("*.py"))
    )
    return _selected(entries, only)


def read_entry(path: Path, kind: Kind) -> CorpusEntry:
    """One candidate's file; it is read, not executed. Raises ProblemError."""
    try:
        source = path.read_text(encoding="utf-8")
        text = ast.get_docstring(parse_source(source))
    except (OSError, ValueError, SyntaxError) as error:
        raise _bad(path, f"it cannot be read: {one_line(error)}") from error
    title, values = _header(path, text)
    _check(path, kind, values)
    problem = path.parent.parent / "problems" / f"{values['problem']}.py"
    if not problem.is_file():
        raise _bad(path, f"problem {values['problem']!r} is no file of {problem.parent.name}/")
    return CorpusEntry.model_validate(
        {
            "name": path.stem,
            "kind": kind,
            "title": title,
            "path": str(path),
            "problem": str(problem),
            "source": source,
            "gate": values.get("gate"),
            "needs": values["needs"],
            "static_only": "static" in values,
            "policy": values.get("policy", "triton"),
        }
    )


def acts_on(entry: CorpusEntry, device: Literal["cpu", "cuda"]) -> bool:
    """Whether the candidate can do here what it tries. Timing is judged on a GPU alone."""
    return device == "cuda" or (entry.needs == "cpu" and entry.gate != "timing")


def _header(path: Path, text: str | None) -> tuple[str, dict[str, str]]:
    """The first line, and the entries of the last paragraph."""
    title, _, rest = (text or "").partition("\n\n")
    lines = rest.strip().rpartition("\n\n")[2].splitlines()
    if not title or not lines:
        raise _bad(path, "it has no header: a docstring of a first line and 'problem: ...' below")
    values: dict[str, str] = {}
    for line in lines:
        key, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or key not in ("problem", *WORDS):
            raise _bad(path, f"{line.strip()!r} is none of {', '.join(('problem', *WORDS))}")
        if key in values:
            raise _bad(path, f"{key!r} stands there twice")
        if key in WORDS and value not in WORDS[key]:
            raise _bad(path, f"{key} is {value!r}, expected one of {', '.join(WORDS[key])}")
        values[key] = value
    return " ".join(title.split()), values


def _check(path: Path, kind: Kind, values: Mapping[str, str]) -> None:
    missing = [key for key in ("problem", "needs") if not values.get(key)]
    missing += ["gate"] if kind == "hostile" and "gate" not in values else []
    if missing:
        raise _bad(path, f"{missing[0]!r} is missing")
    if kind == "honest" and ("gate" in values or "static" in values):
        raise _bad(path, "an honest candidate has neither 'gate' nor 'static'")
    gate = values.get("gate")
    if kind == "hostile" and (gate == "policy") != ("static" in values):
        raise _bad(path, "gate 'policy' and 'static: only' go together")


def _selected(entries: tuple[CorpusEntry, ...], only: Sequence[str]) -> tuple[CorpusEntry, ...]:
    known = [entry.name for entry in entries]
    names = [name.removesuffix(".py").rpartition("/")[2] for name in only]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
            hint = f" The nearest is {near[0]!r}." if near else ""
            raise ProblemError(f"No candidate {name!r} in the corpus.{hint}")
    return tuple(entry for entry in entries if not names or entry.name in names)


def _bad(path: Path, what: str) -> ProblemError:
    return ProblemError(
        f"{path.parent.name}/{path.name}: {what}. See the corpus's README.md for the format."
    )
