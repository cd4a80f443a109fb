"""Which answers were written already, so that they can be judged later, or on another machine?

A GPU writes thousands of answers in seconds, and a CPU judges them for minutes. A file holds all
answers of one model to one set of questions; whoever has it needs neither weights nor GPU.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from agentkernel.agents.models.local_presets import parse_local
from agentkernel.agents.models.local_text import Sample
from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.exchange import Finish, Message
from agentkernel.errors import TrainingError, one_line
from agentkernel.tools.atomic import make_folder, write_atomic
from agentkernel.workflows.training.decoding import Wrote
from agentkernel.workflows.training.rl_identity import model_hash
from agentkernel.workflows.training.rows import fingerprint
from agentkernel.workflows.training.writer import Writer

Line = TypeVar("Line", bound=Frozen)


class Kept(Frozen):
    """The first line of a file: who answered what. `made_from` is the hash of weights and sampling,
    or of the rows that answers are copied from; `questions` that of all that was asked."""

    model: str
    made_from: str
    questions: str
    samples: int
    seed: int
    ranked: bool


class KeptAnswer(Frozen):
    """One answer; they stand question by question."""

    text: str
    finish: Finish
    tokens: int


class KeptWriter:
    """Answers as `model` does, whom `make` loads where it is needed, and keeps in `folder` what it
    says. What lies there for the same questions, samples and seed is not asked again.

    `made_from` says what the answers are made from; None where that is not on this machine: then
    the kept ones are taken at their word. Raises TrainingError where they are of something else.
    """

    def __init__(
        self, folder: Path, model: str, seed: int, made_from: str | None, make: Callable[[], Writer]
    ) -> None:
        self._folder, self._model, self._seed = folder, model, seed
        self._made_from, self._make = made_from, make
        self._ranked: bool | None = None

    @property
    def ranked(self) -> bool:
        """As the answers were made that were written or read last."""
        return self._make().ranked if self._ranked is None else self._ranked

    def has(self, conversations: Sequence[Sequence[Message]], samples: int) -> bool:
        """Whether nobody need be asked. Raises TrainingError."""
        return self._read(conversations, samples) is not None

    def write(
        self,
        conversations: Sequence[Sequence[Message]],
        samples: int,
        wrote: Wrote = lambda number, total: None,
    ) -> list[list[Sample]]:
        """The answers to each conversation, in order. Raises OutputError, TrainingError and what
        the writer raises."""
        kept = self._read(conversations, samples)
        if kept is not None:
            wrote(len(conversations) * samples, len(conversations) * samples)
            return kept
        writer = self._make()
        self._ranked = writer.ranked
        answers = writer.write(conversations, samples, wrote)
        head = Kept(
            model=self._model,
            made_from=self._made_from or "",
            questions=_hash_of(conversations),
            samples=samples,
            seed=self._seed,
            ranked=writer.ranked,
        )
        rows = [KeptAnswer(**item._asdict()) for several in answers for item in several]
        text = "".join(f"{item.model_dump_json()}\n" for item in (head, *rows))
        make_folder(self._folder)
        packed = gzip.compress(text.encode(), mtime=0)
        write_atomic(self._path(conversations, samples), packed)
        return answers

    def _path(self, conversations: Sequence[Sequence[Message]], samples: int) -> Path:
        asked = json.dumps([self._model, _hash_of(conversations), samples, self._seed])
        return self._folder / f"answers-{sha256_text(asked)[:16]}.jsonl.gz"

    def _read(
        self, conversations: Sequence[Sequence[Message]], samples: int
    ) -> list[list[Sample]] | None:
        path = self._path(conversations, samples)
        if not path.is_file():
            return None
        try:
            # Not splitlines: JSON leaves separators as U+2028 in a text as they are.
            lines = gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            raise _unreadable(path, one_line(error)) from error
        if len(lines) != 1 + len(conversations) * samples:
            raise _unreadable(path, f"it has {len(lines)} lines")
        head = _line(Kept, lines[0], path)
        if self._made_from is not None and head.made_from != self._made_from:
            raise TrainingError(
                f"{str(path)!r} holds answers of {head.model!r} as it was made from "
                f"{head.made_from[:12] or 'nothing known'}, and it is made from "
                f"{self._made_from[:12]} now. Expected the same weights, sampling and rows. Next: "
                "another --answers, or remove the file."
            )
        self._ranked = head.ranked
        rows = (_line(KeptAnswer, line, path) for line in lines[1:])
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


def made_from(model: str, data: Path) -> str | None:
    """What decides the answers of `local:PATH`, `untrained:PATH` or `nearest`, apart from questions
    and seed, as a hash; None where a model's folder is not on this machine. Raises SettingError."""
    kind, _, path = model.partition(":")
    if kind not in ("local", "untrained"):
        return fingerprint(data)
    preset = parse_local(f"local:{path}")
    names = [name for name in (preset.model, preset.adapter) if name is not None]
    if not all(Path(name).expanduser().is_dir() for name in names):
        return None
    return sha256_text(f"{model_hash(preset)} {preset.sampling()!r} {preset.chat_template}")


__all__ = ["Kept", "KeptWriter", "made_from"]
