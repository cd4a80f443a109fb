"""Assembly of a folder of training data from judged kernels."""

from __future__ import annotations

import gzip
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agentkernel.agents.reviewer import Review
from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import SettingError, TrainingError
from agentkernel.domain.plain_text import plain
from agentkernel.knowledge.pairs import MARKS
from agentkernel.runtime.machine import installed_versions
from agentkernel.storage.files import (
    explain_write_failure,
    hold_file_lock,
    make_folder,
    make_own_folder,
    open_new,
    write_atomic,
)
from agentkernel.training.data.card import (
    CARD,
    MOST_REASONS,
    NOT_JUDGED,
    PAGE,
    Card,
    HeldOut,
    Input,
    NearDuplicates,
    RowCounter,
    SplitModule,
    card_page,
    code_structure,
    hold_out,
    kernel_family,
    quotas,
    read_card,
    rows_of_tasks,
    unfilled,
    unreadable,
)
from agentkernel.training.data.conversations import (
    DraftedConversation,
    conversations,
    training_row,
    unjudged_row,
)
from agentkernel.training.data.rows import (
    FILES,
    HELD_OUT,
    RIGHT,
    held_out_hash,
    held_out_problems,
    module_objection,
    permitted_licence,
    row_objection,
)
from agentkernel.training.data.rows import fingerprint as rows_hash
from agentkernel.training.data.sources import (
    Origin,
    ScratchRows,
    UnreadableRow,
    fingerprint,
    read_origin,
    read_reviews,
)
from agentkernel.training.settings import DataSettings, JudgedKernel, Show, Split, Task, TrainingRow

SCRATCH = "gathered.sqlite"
EVERY = 100
BUSY_S = 5.0
KIN = "of a held-out module's structure"
NEAR = "nearly the text of a held-out module"
PLACE = re.compile(r":? *\(?line \d+ column \d+( \(char \d+\))?\)?")


def make_data(
    origins: Sequence[Origin],
    settings: DataSettings,
    out: Path,
    *,
    command: str = "",
    show: Show = lambda done, total, words: None,
) -> Card:
    """Write `out`: rows of the three tasks, held-out modules, and the card that says what is in it.

    The folder appears whole or not at all: after a kill at any moment the same call begins again
    and comes to the same bytes. A folder that is finished is left as it is where it was made of the
    same `origins` and `settings`. `command` is for the card. Rows wait on disk: memory holds one
    module's kernels, and a few words of every module.

    Raises TrainingError where `out` holds something else or nothing can be learned from the
    origins, SettingError for an origin that cannot be read, OutputError.
    """
    _check(settings)
    hashes = [fingerprint(item) for item in origins]
    known = _finished(out, settings, hashes)
    if known is not None:
        return known
    make_folder(out.parent)
    stage = out.parent / f".{out.name}.making"
    with _alone(out):
        known = _finished(out, settings, hashes)  # by whoever held it before
        if known is not None:
            return known
        with explain_write_failure(stage):
            shutil.rmtree(stage, ignore_errors=True)
            make_own_folder(stage)
            (stage / HELD_OUT).mkdir(parents=True)
        try:
            card = _DatasetBuild(origins, hashes, settings, stage, show, command).make()
        except BaseException:
            shutil.rmtree(stage, ignore_errors=True)
            raise
        with explain_write_failure(out):
            stage.rename(out)  # over an empty folder too
    return card


def _check(settings: DataSettings) -> None:
    shares = settings.shares
    if not sum(shares.values()) > 0 or min(shares.values()) < 0:
        raise SettingError(
            f"data.shares is {shares}. Expected shares of 0 or more, one of them above 0. Next: "
            "-c 'data.shares={write: 0.4, optimise: 0.3, repair: 0.3}'"
        )


def _finished(out: Path, settings: DataSettings, hashes: Sequence[str]) -> Card | None:
    """The card of a folder that is there already. Raises TrainingError where it is another one."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    if not (out / CARD).is_file():
        raise TrainingError(
            f"{str(out)!r} is there, and is no training data. Expected a new folder, or one that "
            "this command made. Next: choose another --out."
        )
    card = read_card(out)
    if card.settings != settings or [item.sha256 for item in card.inputs] != list(hashes):
        what = "settings" if card.settings != settings else "sources"
        raise TrainingError(
            f"{str(out)!r} was made of other {what}. Expected those of its card. Next: choose "
            "another --out, or remove the folder."
        )
    rows_hash(out)  # both raise where they are not those of the card
    held_out_hash(out)
    return card


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    path = out.parent / f".{out.name}.lock"
    busy = TrainingError(
        f"Another process makes {str(out)!r}. Expected to be the only one. Next: wait for it, or "
        "choose another --out."
    )
    with hold_file_lock(path, busy, BUSY_S):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@dataclass
class _DatasetBuild:
    """One folder in the making, in `stage`."""

    origins: Sequence[Origin]
    hashes: Sequence[str]
    settings: DataSettings
    stage: Path
    show: Show
    command: str
    left_out: Counter[str] = field(default_factory=Counter)
    drafted: Counter[Task] = field(default_factory=Counter)

    def make(self) -> Card:
        gathered = ScratchRows(self.stage / SCRATCH)
        try:
            inputs, reviews = self._gather(gathered)
            held = hold_out(
                list(self._modules(gathered)), self.settings.held_out, self.settings.seed
            )
            held_tally, told_tally = self._draft(gathered, held, reviews)
            self._cut(gathered)
            train_tally = RowCounter()
            with self._file(FILES["train"]) as write:
                for row in gathered.taken():
                    _assert_learnable(row, self.settings)
                    write(row)
                    train_tally.add(row)
        finally:
            gathered.close()
        (self.stage / SCRATCH).unlink()
        train = train_tally.part()
        if not train.rows:
            raise TrainingError(self._nothing(inputs))
        modules = len(held_out_problems(self.stage))
        card = Card(
            inputs=inputs,
            settings=self.settings,
            versions=installed_versions(),
            command=self.command,
            train_sha256=rows_hash(self.stage),
            held_out_sha256=held_out_hash(self.stage),
            train=train,
            held_out=held_tally.part(),
            not_judged=told_tally.part(),
            held_out_modules=modules,
            kin_modules=len(held.kin),
            drafted={task: self.drafted[task] for task in self.settings.shares},
            unfilled=unfilled(train, self.drafted, self.settings, modules),
            left_out=dict(sorted(self.left_out.items())),
        )
        write_atomic(self.stage / PAGE, plain(card_page(card)))
        write_atomic(self.stage / CARD, card.model_dump_json(indent=1) + "\n")
        return card

    def _gather(self, gathered: ScratchRows) -> tuple[tuple[Input, ...], dict[str, Review]]:
        """Take in what nothing speaks against, each kernel of a module once."""
        inputs: list[Input] = []
        reviews: dict[str, Review] = {}
        done = 0
        for origin, digest in zip(self.origins, self.hashes, strict=True):
            read, reasons = 0, Counter[str]()
            for row in read_reviews(origin) if origin.kind == "reviews" else ():
                if isinstance(row, UnreadableRow):
                    _count(reasons, row)
                    continue
                read += 1
                reviews.setdefault(row.kernel_sha256, row.review)
            for found in read_origin(origin):
                if isinstance(found, UnreadableRow):
                    _count(reasons, found)
                    continue
                read += 1
                self._take(gathered, found)
                done += 1
                if done % EVERY == 0:
                    self.show(done, None, "kernels read")
            path = str(origin.path)
            inputs.append(
                Input(
                    kind=origin.kind,
                    path=path,
                    sha256=digest,
                    read=read,
                    unread=reasons.total(),
                    reasons=dict(sorted(reasons.items())),
                )
            )
        return tuple(inputs), reviews

    def _take(self, gathered: ScratchRows, row: JudgedKernel) -> None:
        against = row_objection(row, self.settings.licences)
        if against is None and row.label != "not-judged":
            against = module_objection(row.problem)
        if against is not None:
            self.left_out[against] += 1
        elif not gathered.add(row):
            self.left_out["the same kernel for the same module"] += 1

    def _modules(self, gathered: ScratchRows) -> Iterator[SplitModule]:
        for name, text, rows in gathered.problems():
            structure = _structure(rows, text)
            keys = dict.fromkeys([*(row.structure for row in rows), code_structure(text)])
            fits = any(row.label in RIGHT for row in rows)
            fits = (
                fits and module_objection(text) is None and all(mark.search(text) for mark in MARKS)
            )
            cell = f"{kernel_family(structure)} {rows[0].bound or ''}"
            yield SplitModule(name, tuple(key for key in keys if key), cell, fits)

    def _draft(
        self, gathered: ScratchRows, held: HeldOut, reviews: dict[str, Review]
    ) -> tuple[RowCounter, RowCounter]:
        """All conversations that could be taken; those of held-out modules go to their file."""
        held_tally, told_tally = RowCounter(), RowCounter()
        like = NearDuplicates(gathered.problem(name) for name in sorted(held.modules))
        with self._file(FILES["held-out"]) as write_held, self._file(NOT_JUDGED) as write_told:
            for place, (name, text, rows) in enumerate(gathered.problems(), 1):
                if place % EVERY == 0:
                    self.show(place, None, "modules written about")
                if name in held.kin:
                    self.left_out[KIN] += len(rows)
                    continue
                split: Split = "held-out" if name in held.modules else "train"
                if split == "train" and like.near(text):
                    self.left_out[NEAR] += len(rows)
                    continue
                structure = _structure(rows, text)
                rows = tuple(row.evolve(structure=structure) for row in rows)
                if split == "held-out":
                    file = f"{kernel_family(structure)}_{name[:12]}.py"
                    write_atomic(self.stage / HELD_OUT / file, text)
                for drafted in conversations(rows, reviews):
                    row = self._row(drafted, split)
                    if row is None:
                        continue
                    if split == "held-out":
                        write_held(row)
                        held_tally.add(row)
                    else:
                        self._put(gathered, drafted, row)
                for told in (row for row in rows if row.label == "not-judged"):
                    row = self._row(unjudged_row(told), split)
                    if row is not None and split == "train":
                        write_told(row)
                        told_tally.add(row)
        return held_tally, told_tally

    def _row(self, drafted: DraftedConversation, split: Split) -> TrainingRow | None:
        if drafted.characters > self.settings.most_characters:
            self.left_out[f"longer than {self.settings.most_characters} characters"] += 1
            return None
        licence = permitted_licence(drafted.row.licence, self.settings.licences)
        assert licence is not None
        return training_row(drafted, split, licence)

    def _put(self, gathered: ScratchRows, drafted: DraftedConversation, row: TrainingRow) -> None:
        cell = f"{kernel_family(row.structure)} {row.bound or ''} {row.target or ''}"
        drawn = sha256_text(f"{self.settings.seed} {row.id}")
        if gathered.put(row, cell, f"{drafted.rank:06d} {drawn}"):
            self.drafted[row.task] += 1
        else:
            self.left_out["the very same conversation"] += 1

    def _cut(self, gathered: ScratchRows) -> None:
        """Keep the shares of the tasks, and within a task as much of each kind of module."""
        cells = gathered.cells()
        for task, wanted in rows_of_tasks(self.drafted, self.settings.shares).items():
            there = {item.cell: item.rows for item in cells if item.task == task}
            for cell, most in quotas(there, wanted).items():
                gathered.keep(task, cell, most)
            over = sum(there.values()) - wanted
            if over > 0:
                self.left_out[f"past the share of {task}"] += over

    @contextmanager
    def _file(self, name: str) -> Iterator[Callable[[TrainingRow], None]]:
        """JSON lines, gzip, the same bytes for the same rows."""
        path = self.stage / name
        with explain_write_failure(path), open_new(path) as raw:
            with gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as file:

                def write(row: TrainingRow) -> None:
                    file.write(row.model_dump_json().encode() + b"\n")

                yield write
            raw.flush()
            os.fsync(raw.fileno())

    def _nothing(self, inputs: Sequence[Input]) -> str:
        read = sum(item.read for item in inputs)
        common = self.left_out.most_common(3)
        why = "; ".join(f"{count} x {reason}" for reason, count in common)
        unread = sum(item.unread for item in inputs)
        bad = "; ".join(f"{count} x {reason}" for reason, count in unreadable(inputs)[:3])
        return (
            f"Nothing can be learned from {read} rows of {len(inputs)} sources"
            f"{f' ({why})' if why else ''}"
            f"{f', beside {unread} unreadable ({bad})' if unread else ''}. "
            "Expected kernels that the judge accepted, under one of the licences. Next: make some "
            "with 'agentkernel train pairs'."
        )


def _count(reasons: Counter[str], row: UnreadableRow) -> None:
    """Count why a row is none: without the place in its line, and of many reasons the first."""
    reason = PLACE.sub("", row.reason)
    known = reason in reasons or len(reasons) < MOST_REASONS
    reasons[reason if known else "other reasons"] += 1


def _structure(rows: Sequence[JudgedKernel], text: str) -> str:
    """Of a module: what was captured of it, else what its text says."""
    judged = (row.structure for row in rows if row.label != "not-judged")
    return next((item for item in judged if item), None) or code_structure(text)


def _assert_learnable(row: TrainingRow, settings: DataSettings) -> None:
    """Once more, of the very row that is written."""
    assert row.label in RIGHT
    assert row.split == "train"
    assert permitted_licence(row.licence, settings.licences) is not None
