"""Which answers were written already, so that they can be judged later, or on another machine?

A GPU writes thousands of answers in seconds, and a CPU judges them for minutes. A file holds all
answers of one model to one set of questions; whoever has it needs neither weights nor GPU.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from agentkernel.agents.models.local_files import WANTED, local_model_folder
from agentkernel.agents.models.local_presets import PRESETS, parse_local
from agentkernel.agents.models.local_text import Sample
from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.errors import SettingError, TrainingError, one_line
from agentkernel.domain.exchange import Finish, Message
from agentkernel.storage.atomic import make_folder, write_atomic
from agentkernel.training.data.rows import fingerprint
from agentkernel.training.decoding import OnAnswer
from agentkernel.training.evaluate.untrained import new_model_settings
from agentkernel.training.evaluate.writer import Writer
from agentkernel.training.folder import BEGUN, RECORD, read_record

Line = TypeVar("Line", bound=Frozen)


class CachedAnswers(Frozen):
    """The first line of a file: who answered what, in how many seconds. `model_fingerprints` are
    the hashes of what decides the answers, by name (see the function); `questions` that of all that
    was asked.
    """

    model: str
    made_from: dict[str, str]
    questions: str
    samples: int
    seed: int
    ranked: bool
    seconds: float


class CachedAnswer(Frozen):
    """One answer; they stand question by question."""

    text: str
    finish: Finish
    tokens: int


class CachedWriter:
    """Answers as `model` does, whom `make` loads where it is needed, and keeps in `folder` what it
    says. What lies there for the same questions, samples and seed is not asked again.

    `model_fingerprints` says what of it decides the answers, as far as it is on this machine.
    Raises TrainingError where kept ones are of something else.
    """

    def __init__(
        self,
        folder: Path,
        model: str,
        seed: int,
        made_from: Mapping[str, str],
        make: Callable[[], Writer],
    ) -> None:
        self._folder, self._model, self._seed = folder, model, seed
        self._made_from, self._make = dict(made_from), make
        self._head: CachedAnswers | None = None

    @property
    def ranked(self) -> bool:
        """As the answers were made that were written or read last."""
        return self._make().ranked if self._head is None else self._head.ranked

    @property
    def seconds(self) -> float:
        """What it took to write the answers that were written or read last, whenever that was."""
        return 0.0 if self._head is None else self._head.seconds

    def has(self, conversations: Sequence[Sequence[Message]], samples: int) -> bool:
        """Whether nobody need be asked. Raises TrainingError."""
        return self._read(conversations, samples) is not None

    def write(
        self,
        conversations: Sequence[Sequence[Message]],
        samples: int,
        wrote: OnAnswer = lambda number, total: None,
    ) -> list[list[Sample]]:
        """The answers to each conversation, in order. Raises OutputError, TrainingError and what
        the writer raises."""
        kept = self._read(conversations, samples)
        if kept is not None:
            wrote(len(conversations) * samples, len(conversations) * samples)
            return kept
        make_folder(self._folder)  # before anybody is asked
        writer, begun_s = self._make(), time.monotonic()
        answers = writer.write(conversations, samples, wrote)
        self._head = self._head_of(
            conversations, samples, writer.ranked, time.monotonic() - begun_s
        )
        rows = [CachedAnswer(**item._asdict()) for several in answers for item in several]
        text = "".join(f"{item.model_dump_json()}\n" for item in (self._head, *rows))
        packed = gzip.compress(text.encode(), mtime=0)
        write_atomic(self._path(conversations, samples), packed)
        return answers

    def _head_of(
        self,
        conversations: Sequence[Sequence[Message]],
        samples: int,
        ranked: bool = False,
        seconds: float = 0.0,
    ) -> CachedAnswers:
        return CachedAnswers(
            model=self._model,
            made_from=self._made_from,
            questions=_hash_of(conversations),
            samples=samples,
            seed=self._seed,
            ranked=ranked,
            seconds=round(seconds, 3),
        )

    def _path(self, conversations: Sequence[Sequence[Message]], samples: int) -> Path:
        asked = json.dumps([self._model, _hash_of(conversations), samples, self._seed])
        return self._folder / f"answers-{sha256_text(asked)[:16]}.jsonl.gz"

    def _read(
        self, conversations: Sequence[Sequence[Message]], samples: int
    ) -> list[list[Sample]] | None:
        path = self._path(conversations, samples)
        try:
            # Not splitlines: JSON leaves separators as U+2028 in a text as they are.
            lines = gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")
        except FileNotFoundError:
            return None
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            raise _unreadable(path, one_line(error)) from error
        head, wanted = _line(CachedAnswers, lines[0], path), self._head_of(conversations, samples)
        for name in ("model", "questions", "samples", "seed"):
            if getattr(head, name) != getattr(wanted, name):
                raise _unreadable(path, f"its {name} is {getattr(head, name)}")
        if len(lines) != 1 + len(conversations) * samples:
            raise _unreadable(path, f"it has {len(lines)} lines")
        for name, now in self._made_from.items():
            then = head.made_from.get(name)
            if then != now:
                raise TrainingError(
                    f"{str(path)!r} holds answers of {self._model!r}, made when the hash of its "
                    f"{name} was {str(then)[:12]}; now it is {now[:12]}. Expected the same {name}. "
                    "Next: another --answers, or remove the file."
                )
        self._head = head
        rows = (_line(CachedAnswer, line, path) for line in lines[1:])
        found = [Sample(item.text, item.finish, item.tokens) for item in rows]
        return [found[begin : begin + samples] for begin in range(0, len(found), samples)]


def _line(kind: type[Line], line: str, path: Path) -> Line:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        raise _unreadable(path, one_line(error)) from error


def _unreadable(path: Path, why: str) -> TrainingError:
    return TrainingError(
        f"Cannot read answers from {str(path)!r}: {why}. Expected what 'train evaluate --answers' "
        "wrote. Next: remove the file; the answers are then asked for again."
    )


def _hash_of(conversations: Sequence[Sequence[Message]]) -> str:
    asked = [[(turn.role, turn.text) for turn in item] for item in conversations]
    return sha256_text(json.dumps(asked))


def model_fingerprints(model: str, data: Path) -> dict[str, str]:
    """Hashes of what decides the answers of `local:PATH`, `untrained:PATH` or `nearest`, apart from
    questions and seed: "model" and "adapter" (all files of each), "settings" (how it is asked), or
    "rows"; of new weights "settings" and "tokenizer". What is not on this machine is left out."""
    kind, _, path = model.partition(":")
    try:
        if kind == "untrained":
            return _of_new_weights(Path(path))
        if kind != "local":
            return {"rows": fingerprint(data)}
        preset = parse_local(model)
    except (TrainingError, SettingError):  # is said where somebody has to be asked
        return {}
    parts = {"model": preset.model, "adapter": preset.adapter}
    folders = {name: local_model_folder(part) for name, part in parts.items() if part is not None}
    found = {name: _hash_of_files(folder) for name, folder in folders.items() if folder is not None}
    if found or path in PRESETS or Path(path).is_file():
        found["settings"] = sha256_text(preset.model_dump_json(exclude=set(parts)))
    return found


def _of_new_weights(folder: Path) -> dict[str, str]:
    """The seed and the sizes of all new weights are settings."""
    new_model_settings(folder)
    record = read_record(folder)
    assert record is not None
    tokenizer = folder / "tokenizer.json"
    found = {"settings": sha256_text(record.settings.model_dump_json())}
    if tokenizer.is_file():
        found["tokenizer"] = sha256_text(tokenizer.read_text(encoding="utf-8"))
    return found


def _hash_of_files(folder: Path) -> str:
    """Of the names and contents of all files that a model is loaded from."""
    files = {item for pattern in WANTED for item in folder.glob(pattern)}
    digest = hashlib.sha256()
    for file in sorted(item for item in files if item.name not in (RECORD, BEGUN)):
        with file.open("rb") as content:
            digest.update(
                f"{file.name} {hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode()
            )
    return digest.hexdigest()


__all__ = ["CachedAnswers", "CachedWriter", "model_fingerprints"]
