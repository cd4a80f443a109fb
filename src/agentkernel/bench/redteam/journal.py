"""What did an earlier call find, that was ended before all were judged?"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from agentkernel.bench.redteam.corpus import CorpusEntry
from agentkernel.bench.redteam.finding import CorpusFinding
from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.certificate import Versions
from agentkernel.storage.atomic import append_line


class JournalLine(Frozen):
    """One finding; `key` names the candidate's text and all that judged it."""

    key: str
    found: CorpusFinding


class Journal:
    """A file of JSON lines, one a finding, on the disk as soon as it is known. What another judge,
    device or version found, or of another text, stays in the file and counts for nothing."""

    def __init__(self, path: Path, judge_sha256: str, device: str, versions: Versions) -> None:
        self._path = path
        self._who = f"{judge_sha256}\n{device}\n{versions.model_dump_json()}"
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
