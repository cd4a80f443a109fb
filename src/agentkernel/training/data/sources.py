"""Sources of judged kernels, and the scratch database in which their rows are gathered.

Sources are pair files, KernelBook, the knowledge base, runs, and teacher reviews. Everything is
read and nothing executed. A kernel counts as judged where the verdict beside it is about that
very text; any other is labelled as not judged.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar, get_args

from pydantic import ValidationError

from agentkernel.agents.reviewer import Review, parse_review
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import OutputError, RunNotFound, SettingError, one_line
from agentkernel.domain.knowledge import Entry, Filters
from agentkernel.domain.profile import Profile
from agentkernel.domain.verdict import Verdict
from agentkernel.knowledge import kernelbook
from agentkernel.knowledge.code_structure import structure_of_code
from agentkernel.knowledge.pairs import SUFFIXES, rows_of, shards_of
from agentkernel.knowledge.store import open_knowledge_store
from agentkernel.knowledge.store_schema import FILE_NAME
from agentkernel.storage.files import explain_write_failure
from agentkernel.storage.records import read_records
from agentkernel.tools.run_store import Manifest, read_manifest
from agentkernel.training.data.conversations import module_facts, profile_facts
from agentkernel.training.settings import JudgedKernel, Label, Source, Task, TrainingRow
from agentkernel.training.worker_pool import is_undecided
from agentkernel.workflows.experience import NOT_STATED

SCHEMA = """
create table judged (
    problem text not null, kernel text not null, known integer not null, value blob not null,
    primary key (problem, kernel)) without rowid;
create table problems (sha256 text primary key, value blob not null) without rowid;
create table rows (
    id text primary key, task text not null, cell text not null, place text not null,
    value blob not null) without rowid;
create index rows_by_cell on rows (task, cell, place);
"""

Line = TypeVar("Line", bound=Frozen)
WORD: dict[Label, int] = {"not-judged": 0, "refused": 2}
"""How much a label counts against another on the same text: a kernel that was refused once is not
learned, whoever accepted it another time."""


class Cell(NamedTuple):
    """Rows of one task, family, bound and target."""

    task: Task
    cell: str
    rows: int


class ScratchRows:
    """A scratch database, made anew each time: nothing in it has to outlive a kill."""

    def __init__(self, path: Path) -> None:
        """Begin an empty one at `path`, where no file is. Raises OutputError."""
        self._path = path
        with explain_write_failure(path):
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.executescript("pragma journal_mode=off; pragma synchronous=off;" + SCHEMA)
            self._db.execute("begin")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def add(self, row: JudgedKernel) -> bool:
        """Keep a kernel for its problem; of equal texts the one that the judge refused, then one
        that it accepted, then the first. True where there was none yet."""
        problem, kernel, known = row.problem_sha256, row.sha256, WORD.get(row.label, 1)
        bare = row.evolve(problem="")
        with explain_write_failure(self._path):
            old = self._db.execute(
                "select known from judged where problem=? and kernel=?", (problem, kernel)
            ).fetchone()
            if old is None or known > int(old[0]):
                self._db.execute(
                    "insert or replace into judged values (?,?,?,?)",
                    (problem, kernel, known, _packed(bare.model_dump_json())),
                )
                self._db.execute(
                    "insert or ignore into problems values (?,?)", (problem, _packed(row.problem))
                )
        return old is None

    def problem(self, sha256: str) -> str:
        """The text of a problem."""
        row = self._db.execute("select value from problems where sha256=?", (sha256,)).fetchone()
        return _unpacked(row[0])

    def kernel(self, problem: str, kernel: str) -> JudgedKernel:
        """The kernel of that hash for the problem of that hash."""
        row = self._db.execute(
            "select value from judged where problem=? and kernel=?", (problem, kernel)
        ).fetchone()
        bare = JudgedKernel.model_validate_json(_unpacked(row[0]))
        return bare.evolve(problem=self.problem(problem))

    def problems(self) -> Iterator[tuple[str, str, tuple[JudgedKernel, ...]]]:
        """Hash, text and kernels of each problem, by hash."""
        names = self._db.execute("select sha256 from problems order by sha256").fetchall()
        for (name,) in names:
            text = self.problem(name)
            found = self._db.execute(
                "select value from judged where problem=? order by kernel", (name,)
            )
            rows = tuple(JudgedKernel.model_validate_json(_unpacked(item[0])) for item in found)
            yield name, text, tuple(row.evolve(problem=text) for row in rows)

    def put(self, row: TrainingRow, cell: str, place: str) -> bool:
        """Keep a conversation that may be taken, under the order in which its cell is taken; False
        where the very same is there."""
        with explain_write_failure(self._path):
            cursor = self._db.execute(
                "insert or ignore into rows values (?,?,?,?,?)",
                (row.id, row.task, cell, place, _packed(row.model_dump_json())),
            )
        return cursor.rowcount > 0

    def cells(self) -> tuple[Cell, ...]:
        """How many rows there are of what."""
        found = self._db.execute(
            "select task, cell, count(*) from rows group by task, cell order by task, cell"
        )
        return tuple(Cell(task, cell, int(count)) for task, cell, count in found.fetchall())

    def keep(self, task: Task, cell: str, most: int) -> None:
        """Leave the rows of a cell past the first `most` out."""
        with explain_write_failure(self._path):
            self._db.execute(
                "delete from rows where id in (select id from rows where task=? and cell=? "
                "order by place, id limit -1 offset ?)",
                (task, cell, most),
            )

    def taken(self) -> Iterator[TrainingRow]:
        """What is left, by hash: tasks and modules are mixed, the same each time."""
        for (value,) in self._db.execute("select value from rows order by id"):
            yield TrainingRow.model_validate_json(_unpacked(value))


def _packed(text: str) -> bytes:
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 1)


def _unpacked(value: bytes) -> str:
    return zlib.decompress(value).decode("utf-8", "surrogatepass")


Kind = Literal["pairs", "kernelbook", "knowledge", "runs", "reviews"]
"""Files of `JudgedKernel`; published pairs; a knowledge base; a folder of runs; a teacher's
reviews."""
KINDS: tuple[Kind, ...] = get_args(Kind)
GENERATED = "generated/"
"""How the ids of the knowledge base's own pairs begin."""
PAIR_KEYS = {"problem", "kernel", "label"}
REVIEW_KEY = "kernel_sha256"
CHUNK = 1 << 20


@dataclass(frozen=True)
class Origin:
    """One place that rows come from. `licence`: of rows that name none."""

    kind: Kind
    path: Path
    licence: str = ""


class UnreadableRow(NamedTuple):
    """A row that is none, and why, on one line."""

    reason: str


class TeacherReview(Frozen):
    """A line of a file of reviews: what a chat model said of the kernel of that hash.

    Either `text`, the answer as it came (ANALYSIS, OPTIMIZATIONS, ESTIMATED_SPEEDUP), or the
    sections apart.
    """

    kernel_sha256: str
    by: str = ""
    text: str = ""
    analysis: str = ""
    optimizations: tuple[str, ...] = ()
    estimated_speedup: float | None = None

    @property
    def review(self) -> Review:
        """The review in its sections."""
        if self.text:
            return parse_review(self.text).evolve(by=self.by)
        return Review(
            analysis=self.analysis,
            optimizations=self.optimizations,
            estimated_speedup=self.estimated_speedup,
            by=self.by,
        )


def origin_of(name: str, licence: str = "") -> Origin:
    """What lies at `name`, seen from the files themselves; `KIND:PATH` says it.

    Raises SettingError where nothing is there, or nothing that rows could come from.
    """
    kind, _, rest = name.partition(":")
    said: Kind | None = next((item for item in KINDS if item == kind and rest), None)
    path = Path(rest if said else name)
    if not path.exists():
        raise SettingError(
            f"Nothing at {str(path)!r}. Expected a file of pairs, KernelBook's shards, a knowledge "
            "base, a folder of runs or a file of reviews. Next: check the path."
        )
    found = said or _seen(path)
    if found is None:
        raise SettingError(
            f"Cannot tell what {str(path)!r} is. Expected pairs (of 'agentkernel train pairs'), "
            f"KernelBook's shards ({', '.join(SUFFIXES[:2])}), a knowledge base, run folders or "
            f"reviews. Next: say it: {KINDS[0]}:{path}, of {', '.join(KINDS)}."
        )
    return Origin(found, path, licence)


def _seen(path: Path) -> Kind | None:
    if path.is_dir():
        if (path / FILE_NAME).is_file():
            return "knowledge"
        if next(path.rglob("run.json"), None) is not None:
            return "runs"
    try:
        shards = shards_of(path)
    except SettingError:
        return None
    first = next(iter(shards.values()))
    if first.name.endswith(".parquet"):
        return "kernelbook"
    row = next((item for item in rows_of(first, 0) if not isinstance(item, str)), None)
    if row is None or row.keys() >= PAIR_KEYS:
        return "pairs"
    return "reviews" if REVIEW_KEY in row else "kernelbook"


def read_origin(origin: Origin) -> Iterator[JudgedKernel | UnreadableRow]:
    """Its rows, one at a time; of a file of reviews there are none (`read_reviews` has those)."""
    readers: Mapping[Kind, Callable[[Origin], Iterator[JudgedKernel | UnreadableRow]]] = {
        "pairs": _pairs,
        "kernelbook": _kernelbook,
        "knowledge": _knowledge,
        "runs": _runs,
        "reviews": lambda _: iter(()),
    }
    return readers[origin.kind](origin)


def read_reviews(origin: Origin) -> Iterator[TeacherReview | UnreadableRow]:
    """The lines of a file, or of all files of a folder, of reviews."""
    for shard in shards_of(origin.path).values():
        yield from _rows_as(TeacherReview, shard, "review")


def _rows_as(kind: type[Line], shard: Path, name: str) -> Iterator[Line | UnreadableRow]:
    for row in rows_of(shard, 0):
        if isinstance(row, str):
            yield UnreadableRow(row)
            continue
        try:
            # From JSON: there a list is a tuple's only spelling.
            yield kind.model_validate_json(json.dumps(row))
        except ValidationError as error:
            yield UnreadableRow(f"no {name}: {_first(error)}")


def fingerprint(origin: Origin) -> str:
    """SHA-256 of what is read: of the files, or of the rows where a database may be rewritten
    without a word of it changing."""
    digest = hashlib.sha256(f"{origin.kind}\0{origin.licence}\0".encode())
    if origin.kind in ("runs", "knowledge"):
        for row in read_origin(origin):
            text = row.model_dump_json() if isinstance(row, JudgedKernel) else row.reason
            digest.update(hashlib.sha256(text.encode()).digest())
        return digest.hexdigest()
    for name, shard in shards_of(origin.path).items():
        # A single file is the same one wherever it lies.
        digest.update(name.encode() + b"\0" if origin.path.is_dir() else b"")
        with shard.open("rb") as file:
            while block := file.read(CHUNK):
                digest.update(block)
    return digest.hexdigest()


# -- files of pairs --------------------------------------------------------------------------------


def _pairs(origin: Origin) -> Iterator[JudgedKernel | UnreadableRow]:
    for name, shard in shards_of(origin.path).items():
        if name.endswith(".missed.jsonl.gz"):
            continue  # what came to nothing, beside the rows
        yield from _rows_as(JudgedKernel, shard, "pair")


# -- other people's word ---------------------------------------------------------------------------


def _kernelbook(origin: Origin) -> Iterator[JudgedKernel | UnreadableRow]:
    for row in kernelbook.read_pairs(origin.path):
        if isinstance(row, kernelbook.BadRow):
            yield UnreadableRow(row.reason)
            continue
        licence = ", ".join(row.licences) or origin.licence or NOT_STATED
        try:
            yield _told(row.python_code, row.triton_code, "kernelbook", licence, row.entry_point)
        except ValidationError as error:  # half a character, as JSON can hold it
            yield UnreadableRow(_first(error))


def _knowledge(origin: Origin) -> Iterator[JudgedKernel | UnreadableRow]:
    """The pairs that `knowledge generate` made. That an entry says "verified" is no verdict."""
    with open_knowledge_store(origin.path) as truth:
        for entry in truth.select(Filters(kinds=("pair",))):
            if entry.id.startswith(GENERATED):
                yield _of_entry(entry, origin)


def _of_entry(entry: Entry, origin: Origin) -> JudgedKernel:
    licence = entry.licence or origin.licence or NOT_STATED
    return _told(entry.problem, entry.answer, "knowledge", licence, "")


def _told(
    problem: str, kernel: str, source: Source, licence: str, entry_point: str
) -> JudgedKernel:
    structure = structure_of_code(problem, entry_point or None)
    return JudgedKernel(
        problem=problem,
        kernel=kernel,
        coder=source,
        source=source,
        licence=licence,
        label="not-judged",
        structure=" ".join(structure.ops) if structure else "",
        facts={"class": entry_point} if entry_point else {},
    )


# -- earlier runs ----------------------------------------------------------------------------------


def _runs(origin: Origin) -> Iterator[JudgedKernel | UnreadableRow]:
    """The accepted and failed candidates of all runs below a folder, in the order of the names."""
    for path in sorted(origin.path.rglob("run.json")):
        try:
            manifest = read_manifest(path.parent)
        except RunNotFound as error:
            yield UnreadableRow(one_line(error))
            continue
        if not manifest.problem.source:
            yield UnreadableRow("a run on a live module: its text is not known")
        elif (path.parent / "run.sqlite").is_file():
            yield from _run(path.parent, manifest, origin)


def _run(
    folder: Path, manifest: Manifest, origin: Origin
) -> Iterator[JudgedKernel | UnreadableRow]:
    try:
        records = read_records(folder / "run.sqlite")
    except OutputError as error:
        yield UnreadableRow(f"run {folder.name}: {one_line(error)}")
        return
    with closing(records):
        yield from (
            UnreadableRow(f"run {folder.name}: {one_line(line)}") for line in records.losses()
        )
        candidates = records.candidates()
        verdicts = {
            item.candidate: item
            for item in records.verdicts()
            if item.problem == manifest.problem.sha256
        }
        profiles = {item.candidate: item for item in records.profiles()}
    structure = structure_of_code(manifest.problem.source, manifest.problem.class_name)
    ops = " ".join(structure.ops) if structure else ""
    for candidate in candidates:
        verdict = verdicts.get(candidate.sha256)
        if verdict is not None and not (verdict.failure and is_undecided(verdict.failure)):
            profile = profiles.get(candidate.sha256)
            yield _of_run(manifest, candidate, verdict, profile, origin, ops)


def _of_run(
    manifest: Manifest,
    candidate: Candidate,
    verdict: Verdict,
    profile: Profile | None,
    origin: Origin,
    structure: str,
) -> JudgedKernel:
    problem = manifest.problem
    label: Label = "interpreter" if verdict.interpreted else "gpu"
    facts = module_facts(problem)
    times: dict[str, object] = {}
    if profile is not None:
        facts |= profile_facts(profile)
        times["estimated_us"] = profile.estimate.time_us
    if profile is not None and profile.measurements:
        first = profile.measurements[0]
        times |= {
            "time_us": first.candidate.median_us,
            "eager_us": first.eager.median_us,
            "gpu": profile.measured_on,
        }
    return JudgedKernel.model_validate(
        {
            "problem": problem.source,
            "kernel": candidate.source,
            "coder": candidate.coder,
            "source": "runs",
            "licence": origin.licence or NOT_STATED,
            "label": label if verdict.accepted else "refused",
            "policy": verdict.policy,
            "strategy": candidate.strategy,
            "parent": candidate.parent,
            "verdict": verdict,
            "target": manifest.target,
            "structure": structure,
            "facts": facts,
            **times,
        }
    )


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)[0]
    return one_line(f"{'.'.join(map(str, found['loc']))}: {found['msg']}", 120)
