"""Cached answers of a model, and the baselines that need no training.

A GPU writes thousands of answers in seconds that a CPU judges for minutes. A file holds all
answers of one model to one set of questions, so that they can be judged later or elsewhere
without weights or GPU. The baselines are the weights before training, and a copy of the kernel
of the nearest training problem.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import re
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

import torch
from pydantic import ValidationError

from agentkernel.agents.models.local import Sample
from agentkernel.agents.models.local_presets import PRESETS, WANTED, local_model_folder, parse_local
from agentkernel.agents.models.local_weights import CausalModel, Weights, best_dtype
from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.errors import SettingError, TrainingError, one_line
from agentkernel.domain.exchange import Finish, Message
from agentkernel.storage.files import make_folder, sha256_of_file, write_atomic
from agentkernel.training.data.rows import FENCE, fingerprint, kernel_of
from agentkernel.training.decoding import OnAnswer
from agentkernel.training.evaluate.evaluation import Writer
from agentkernel.training.folder import BEGUN, RECORD, read_record
from agentkernel.training.model_shape import make_new
from agentkernel.training.settings import NewModel, TrainingRow


def new_model_settings(folder: Path) -> NewModel:
    """What the training in `folder` made new. Raises TrainingError where it made nothing."""
    record = read_record(folder)
    if record is None or record.settings.new is None:
        why = "holds no training" if record is None else f"began with {record.settings.model!r}"
        raise TrainingError(
            f"{str(folder)!r} {why}. Expected a model that was made new. Next: name such a folder, "
            "or ask the model that it began with."
        )
    return record.settings.new


def base_model(folder: Path) -> Weights:
    """The model that the training in `folder` began with, with its tokenizer: new weights of the
    same seed. Raises TrainingError where it did not begin with new ones."""
    from transformers import AutoTokenizer

    new, record = new_model_settings(folder), read_record(folder)
    assert record is not None
    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    model = make_new(new, tokenizer, record.settings.sft.seed).to(best_dtype(device))  # type: ignore[arg-type]
    model.train(False)
    ends = frozenset({int(tokenizer.eos_token_id)})
    return Weights(cast("CausalModel", model), tokenizer, device, ends, new.window)


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
        digest.update(f"{file.name} {sha256_of_file(file)}\n".encode())
    return digest.hexdigest()


TOKEN = re.compile(r"[A-Za-z_]\w*|\d+|[^\w\s]")


class NearestWriter:
    """Answers with the kernels of those "write" rows whose problems have most tokens in common with
    the question: the cosine of token sets, rare tokens counting more (inverse document frequency,
    Sparck Jones 1972)."""

    ranked = True

    def __init__(self, rows: Iterable[TrainingRow]) -> None:
        self._kernels: list[str] = []
        problems: list[frozenset[str]] = []
        for row in rows:
            kernel = kernel_of(row.completion)
            if row.task == "write" and kernel is not None:
                self._kernels.append(kernel)
                problems.append(tokens_of(row.messages[0].text))
        counts = Counter(token for found in problems for token in found)
        self._weight = {
            token: math.log(1 + len(problems) / count) for token, count in counts.items()
        }
        self._places: dict[str, list[int]] = defaultdict(list)
        self._lengths: list[float] = []
        for place, found in enumerate(problems):
            for token in found:
                self._places[token].append(place)
            self._lengths.append(self._length(found))

    def _length(self, tokens: Iterable[str]) -> float:
        return math.sqrt(math.fsum(self._weight.get(token, 0.0) ** 2 for token in tokens)) or 1.0

    def nearest(self, problem: str, count: int) -> list[str]:
        """At most `count` different kernels, the nearest problem's first."""
        asked = tokens_of(problem)
        scores: Counter[int] = Counter()
        for token in asked:
            for place in self._places.get(token, ()):
                scores[place] += self._weight[token] ** 2  # type: ignore[assignment]
        ranked = sorted(scores, key=lambda place: (-scores[place] / self._lengths[place], place))
        return list(dict.fromkeys(self._kernels[place] for place in ranked))[:count]

    def write(
        self,
        conversations: Sequence[Sequence[Message]],
        samples: int,
        wrote: OnAnswer = lambda number, total: None,
    ) -> list[list[Sample]]:
        """The `samples` nearest kernels as files; an empty answer where there are fewer."""
        found: list[list[Sample]] = []
        for messages in conversations:
            kernels = self.nearest(messages[0].text, samples)
            answers = [Sample(f"```python\n{kernel}```", "stop", 0) for kernel in kernels]
            found.append(answers + [Sample("", "stop", 0)] * (samples - len(answers)))
            wrote(len(found), len(conversations))
        return found


def tokens_of(text: str) -> frozenset[str]:
    """The different words, numbers and signs of the module in a question, or of bare text."""
    fenced = FENCE.search(text)
    return frozenset(TOKEN.findall(fenced[2] if fenced else text))
