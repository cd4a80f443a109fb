"""The red-team corpus: its candidates, the expected gate of each, and the findings so far."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from pydantic import ValidationError

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.certificate import Versions
from agentkernel.domain.errors import ProblemError, one_line
from agentkernel.domain.profile import ProfileFailed
from agentkernel.domain.verdict import GATES, Failure, Gate, LoadFailed, Policy, RunFailed, Verdict
from agentkernel.storage.files import append_line
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
BASE = re.compile(r"^base: *(\w+)\n", re.M)
END_OF_HEADER = '"""\n'
ELIDED = "-..."


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
        read_entry(path, kind)
        for kind in KINDS
        for path in sorted((folder / kind).glob("*"))
        if path.suffix in (".py", ".patch")
    )
    names: set[tuple[Kind, str]] = set()
    for entry in entries:
        if (entry.kind, entry.name) in names:
            raise _bad(Path(entry.path), "another file of this kind has its name")
        names.add((entry.kind, entry.name))
    return _selected(entries, only)


def read_entry(path: Path, kind: Kind) -> CorpusEntry:
    """One candidate's file; it is read, not executed. Raises ProblemError."""
    try:
        source = path.read_text(encoding="utf-8")
        if path.suffix == ".patch":
            source = _patched(path, source)
        text = ast.get_docstring(parse_source(source, walked=False))
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


def _patched(path: Path, patch: str) -> str:
    """The whole text of a candidate that is a header, with the name of its base, and edits."""
    header, end, edits = patch.partition(f"\n{END_OF_HEADER}")
    header += "\n"
    named = BASE.search(header)
    base = path.parent.parent / "bases" / f"{named[1] if named else ''}.py"
    if not end or not base.is_file():
        raise _bad(path, "its header names no file of bases/: 'base: ...'")
    lines = base.read_text(encoding="utf-8").split("\n")
    body = _edited(path, lines, edits.removesuffix("\n").split("\n") if edits else [])
    return BASE.sub("", header, count=1) + END_OF_HEADER + "\n" + "\n".join(body)


def _edited(path: Path, base: list[str], edits: Sequence[str]) -> list[str]:
    """`+` adds a line; ` ` and `-` go on to the next such line of the base, and keep or drop it.

    What lies before it is kept too, or dropped after `-...`.
    """
    body: list[str] = []
    at, kept = 0, True
    for edit in edits:
        mark, line = edit[:1], edit[1:]
        if mark == "+":
            body.append(line)
        elif edit == ELIDED:
            kept = False
        elif mark in (" ", "-") and line in base[at:]:
            found = base.index(line, at)
            body += base[at:found] if kept else []
            body += [line] if mark == " " else []
            at, kept = found + 1, True
        else:
            raise _bad(path, f"{edit!r} adds no line and names none that follows in its base")
    return body + (base[at:] if kept else [""])


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
    names = [Path(name).stem for name in only]
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


NOT_THE_CANDIDATES = ("eager", "gpu")
"""Sides of a failed profile that say nothing about the candidate."""
CROWDED = ("memory", "timeout", "died")
"""What a candidate may fail of because others run beside it."""
NAMING = ("rule", "reason", "pattern", "tool", "name", "text", "expected", "found")
"""Entries of a failure that say what is wrong, in the order in which they read well."""
UNDECIDED = "No case could be judged"


class CorpusFinding(Frozen):
    """What became of one candidate. Times are wall seconds in the process that judged it."""

    name: str
    kind: str
    problem: str
    title: str
    expected: Gate
    gate: Gate | None
    """Where it was rejected, "accepted", or None where nothing was decided."""
    right: bool
    reason: str = ""
    crowded: bool = False
    """It failed of something that neighbours can cause: worth a second look without them."""
    alone: bool = False
    """It was judged while nothing else ran."""
    start_s: float = 0.0
    """Waiting for the sandboxed worker."""
    capture_s: float = 0.0
    cases_s: float = 0.0
    profile_s: float = 0.0

    @property
    def accepted(self) -> bool:
        """The judge found nothing against it."""
        return self.gate == "accepted"

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.start_s + self.capture_s + self.cases_s + self.profile_s


def expected_gate(entry: CorpusEntry) -> Gate:
    """The gate that a candidate has to reach and not to pass."""
    return entry.gate or "accepted"


def compare_with_expected(
    entry: CorpusEntry, verdict: Verdict, profile_failed: ProfileFailed | None = None
) -> CorpusFinding:
    """Compare the judge's finding, and the profiler's where it was asked, with what is expected."""
    gate: Gate | None = None if undecided(verdict) else verdict.gate
    reason = failure_line(verdict.failure)
    if verdict.accepted and profile_failed is not None:
        gate = None if profile_failed.side in NOT_THE_CANDIDATES else "timing"
        reason = f"{profile_failed.side}: {profile_failed.reason}"
    return undecided_finding(entry, reason).evolve(
        gate=gate,
        right=is_right(entry, gate),
        crowded=_crowded(verdict.failure),
        cases_s=verdict.seconds,
    )


def undecided_finding(entry: CorpusEntry, reason: str) -> CorpusFinding:
    """A candidate about which nothing could be decided."""
    return CorpusFinding(
        name=entry.name,
        kind=entry.kind,
        problem=entry.problem_name,
        title=entry.title,
        expected=expected_gate(entry),
        gate=None,
        right=False,
        reason=reason,
    )


def is_right(entry: CorpusEntry, gate: Gate | None) -> bool:
    """An honest one has to be accepted; a hostile one rejected at its gate or before it.

    Where the source was not to be read, a rejection by reading it proves nothing.
    """
    if gate is None:
        return False
    if entry.kind == "honest":
        return gate == "accepted"
    if gate == "policy" and not entry.static:
        return False
    return GATES.index(gate) <= GATES.index(expected_gate(entry))


def undecided(verdict: Verdict) -> bool:
    """True where the judge tried nothing. A hang is a finding: alone, it is the candidate's own."""
    failure = verdict.failure
    return isinstance(failure, LoadFailed | RunFailed) and failure.log.startswith(UNDECIDED)


def failure_line(failure: Failure | None) -> str:
    """A failure in one line of at most 160 characters."""
    if failure is None:
        return ""
    values = failure.model_dump(exclude={"kind"})
    log = str(values.pop("log", "")).strip().splitlines()
    words = [str(values.get(key)) for key in NAMING]
    words = [word for word in words if word not in ("None", "")] + log[-1:]
    return " ".join(": ".join(words).split())[:160] or failure.kind


def _crowded(failure: Failure | None) -> bool:
    if isinstance(failure, LoadFailed):
        return any(line.startswith(CROWDED) for line in failure.log.splitlines()[:2])
    return isinstance(failure, RunFailed) and failure.reason in CROWDED


class JudgedBy(Frozen):
    """What a corpus was judged by: with another judge, device or version a finding is another."""

    judge_sha256: str
    device: str
    versions: Versions


class JournalLine(Frozen):
    """One finding; `key` names the candidate's text and all that judged it."""

    key: str
    found: CorpusFinding


class Journal:
    """A file of JSON lines, one a finding, on the disk as soon as it is known. What another judge,
    device or version found, or of another text, stays in the file and counts for nothing."""

    def __init__(self, path: Path, by: JudgedBy) -> None:
        self._path = path
        self._who = f"{by.judge_sha256}\n{by.device}\n{by.versions.model_dump_json()}"
        self._known = {line.key: line.found for line in _lines(path)}

    def known(self, entry: CorpusEntry) -> CorpusFinding | None:
        """What was found of it, if it was judged."""
        return self._known.get(self._key(entry))

    def note(self, entry: CorpusEntry, found: CorpusFinding) -> None:
        """Write it down. Raises OutputError where the file cannot be written."""
        append_line(self._path, JournalLine(key=self._key(entry), found=found).model_dump_json())

    def _key(self, entry: CorpusEntry) -> str:
        reference = Path(entry.problem).read_text(encoding="utf-8")
        expected = entry.model_dump_json(exclude={"path", "problem", "title"})
        return sha256_text("\n".join((self._who, expected, reference)))


def _lines(path: Path) -> list[JournalLine]:
    """The whole lines of a file that may not be there."""
    found = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            found.append(JournalLine.model_validate_json(text))
        except ValidationError:
            continue  # a torn line, or another program's
    return found
