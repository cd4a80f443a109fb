"""Problems of a suite, the tasks made of them, and their result rows.

Rows are lines of JSON that outlive a kill. Every worker process reads this module, so it imports
nothing that works on a problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.certificate import Status, Versions
from agentkernel.domain.errors import ProblemError, SettingError, one_line
from agentkernel.domain.profile import Ratio
from agentkernel.domain.settings import Settings
from agentkernel.runtime.stages import StageTime
from agentkernel.storage.files import append_line, fit_file_name, read_regular_text

T = TypeVar("T")
SHARD = re.compile(r"^(\d+)/(\d+)$")


class SuiteProblem(Frozen):
    """One file of a suite. `name` is its path below the suite without `.py`; `level` the subfolder,
    or the suite's own name; `sha256` that of its text."""

    name: str
    level: str
    path: str
    sha256: str


class Shard(Frozen):
    """Part `index` (from 1) of `count` parts."""

    index: int = 1
    count: int = 1

    @property
    def suffix(self) -> str:
        """For file names: "" for the whole, else "-2of5"."""
        return "" if self.count == 1 else f"-{self.index}of{self.count}"


def parse_shard(text: str | None) -> Shard:
    """`2/5` -> the second of five parts. Raises SettingError."""
    if text is None:
        return Shard()
    match = SHARD.match(text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise SettingError(
            f"--shard {text!r} is no part of a whole. Expected i/n with 1 <= i <= n, e.g. '2/5'."
        )
    return Shard(index=int(match[1]), count=int(match[2]))


NEXT_LIST = "Next: correct it, or give --problems another one."


def read_suite(
    folder: Path, only: Sequence[str] = (), listed: Path | None = None
) -> tuple[SuiteProblem, ...]:
    """The problems of `folder`: its own files and those one folder below, in natural order.

    `listed` is a file with the names of some, a line each, whose order then holds; `only` keeps
    names that contain any of the words. Raises ProblemError.
    """
    if not folder.is_dir():
        raise ProblemError(
            f"No such suite: {str(folder)!r}. Expected a folder with problem files, or with one "
            "folder of them a level. Next: check the path."
        )
    files = sorted((*folder.glob("*.py"), *folder.glob("*/*.py")), key=_natural)
    found = tuple(_problem(path, folder) for path in files if _is_problem(path, folder))
    if not found:
        raise ProblemError(
            f"The suite {str(folder)!r} is empty. Expected files NAME.py or LEVEL/NAME.py with "
            "Model, get_inputs and get_init_inputs."
        )
    if listed is not None:
        found = _listed(found, folder, listed)
    kept = tuple(item for item in found if not only or any(word in item.name for word in only))
    if not kept:
        raise ProblemError(
            f"No problem of {str(folder)!r} has {' or '.join(map(repr, only))} in its name. "
            f"Expected a part of one of {len(found)} names, e.g. {found[0].name!r}."
        )
    return kept


def _listed(found: Sequence[SuiteProblem], folder: Path, listed: Path) -> tuple[SuiteProblem, ...]:
    """The problems that a list names; an empty line and one that begins with # name none."""
    try:
        lines = read_regular_text(listed, typed=True).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        plain = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise ProblemError(
            f"The list {str(listed)!r} cannot be read: {plain or error}. Expected a text file with "
            f"names of problems, a line each, e.g. {found[0].name!r}. {NEXT_LIST}"
        ) from error
    known = {item.name: item for item in found}
    words = (line.strip() for line in lines)
    names = dict.fromkeys(word for word in words if word and not word.startswith("#"))
    missing = [name for name in names if name not in known]
    if missing or not names:
        first = one_line(repr(missing[0]), 80) if missing else ""
        what = f"names {first}, which is not there" if missing else "names no problem"
        raise ProblemError(
            f"The list {str(listed)!r} {what}. Expected names of {len(found)} problems of "
            f"{str(folder)!r}, a line each, e.g. {found[0].name!r}. {NEXT_LIST}"
        )
    return tuple(known[name] for name in names)


def part(items: Sequence[T], shard: Shard) -> tuple[T, ...]:
    """Every n-th item, so that the parts are alike."""
    return tuple(items[shard.index - 1 :: shard.count])


def _is_problem(path: Path, folder: Path) -> bool:
    parts = path.relative_to(folder).parts
    return path.is_file() and not any(item.startswith(("_", ".")) for item in parts)


def _problem(path: Path, folder: Path) -> SuiteProblem:
    relative = path.relative_to(folder)
    return SuiteProblem(
        name=relative.with_suffix("").as_posix(),
        level=relative.parts[0] if len(relative.parts) > 1 else folder.resolve().name,
        path=str(path),
        sha256=sha256_text(path.read_bytes().decode("utf-8", "replace")),
    )


def _natural(path: Path) -> tuple[str, ...]:
    """Sort key under which 2_x comes before 10_x."""
    return tuple(re.sub(r"\d+", lambda match: match[0].zfill(12), item) for item in path.parts)


Baseline = Literal["eager", "torch.compile", "max-autotune"]
BASELINES: tuple[Baseline, ...] = ("eager", "torch.compile", "max-autotune")
NOT_RUN = "not run"
SWITCHED_OFF = f"{NOT_RUN}: switched off"


class Times(Frozen):
    """Measured microseconds of the baselines; None where one was not run or failed, and why."""

    eager_us: float | None = None
    compiled_us: float | None = None
    autotune_us: float | None = None
    autotune_note: str = NOT_RUN
    """Why there is no time of max-autotune, or where it is from; "" where this session took it."""
    autotune_derived: bool = False
    """It is the cache's, times eager's drift: nobody timed it in this session."""
    eager_drift: float | None = None
    """Eager's time now / its time when the cache got it; None where the cache had none."""
    compiled_drift: float | None = None

    def of(self, baseline: Baseline) -> float | None:
        """The time of one baseline."""
        known = (self.eager_us, self.compiled_us, self.autotune_us)
        return known[BASELINES.index(baseline)]


class Sample(Frozen):
    """One run of the coder on a problem; the figures are its best candidate's.

    `correct`: the judge accepted a candidate under the strict rule (or the one asked for);
    `declared_sizes`: what was handed over holds for these alone. `kernelbench_correct`: allclose
    at 1e-4 over 5 seeds, None where nobody asked. `kept`: the baseline that was handed back
    instead. Ratios are baseline / candidate, interleaved; with `autotune_derived` max-autotune's is
    eager's times what the cache says of the two. `own_share`: of a call's device time, what its own
    kernels take. `stages`: where the wall time went, waiting for other lanes included, which
    `seconds` leaves out. `hacks`: what the judge rejected as work that was not done, gate and rule.
    """

    seed: int
    status: Status
    reason: str
    run: str | None = None
    correct: bool = False
    interpreted: bool = True
    declared_sizes: bool = False
    kernelbench_correct: bool | None = None
    kept: Baseline | None = None
    time_us: float | None = None
    vs_eager: Ratio | None = None
    vs_compile: Ratio | None = None
    vs_autotune: Ratio | None = None
    autotune_derived: bool = False
    roofline_fraction: float | None = None
    energy_mj: float | None = None
    eager_energy_mj: float | None = None
    estimated_time_us: float | None = None
    estimated_eager_us: float | None = None
    candidate_sha256: str | None = None
    candidates: int = 0
    own_share: float | None = None
    seconds: float = 0.0
    stages: tuple[StageTime, ...] = ()
    hacks: tuple[str, ...] = ()

    def against(self, baseline: Baseline) -> Ratio | None:
        """The measured speedup over one baseline."""
        return (self.vs_eager, self.vs_compile, self.vs_autotune)[BASELINES.index(baseline)]


class Row(Frozen):
    """One problem. `key` names what was asked; `planned` samples, fewer where it broke (`error`).

    `gpu` is the one that measured, None where nothing was.
    """

    format: Literal[1] = 1
    key: str
    name: str
    level: str
    coder: str
    target: str
    planned: int
    gpu: str | None = None
    versions: Versions | None = None
    samples: tuple[Sample, ...] = ()
    times: Times = Times()
    error: str | None = None
    seconds: float = 0.0

    @property
    def status(self) -> str:
        """The best sample's status, "failed" where there is none."""
        best = self.best
        return "failed" if self.error is not None or best is None else best.status

    @property
    def best(self) -> Sample | None:
        """The correct sample with the highest measured speedup, else any correct one, else any."""
        return max(self.samples, key=_rank, default=None)


def _rank(sample: Sample) -> tuple[bool, float]:
    return sample.correct, sample.vs_eager.value if sample.vs_eager else 0.0


def rows_path(folder: Path, shard: Shard) -> Path:
    """Where a shard's rows go: `rows.jsonl` or `rows-2of5.jsonl`."""
    return folder / f"rows{shard.suffix}.jsonl"


def read_rows(path: Path) -> tuple[Row, ...]:
    """The complete rows of a file; a line that a kill cut off is left out."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return ()
    return tuple(row for line in lines if (row := _row(line)) is not None)


def _row(line: bytes) -> Row | None:
    try:
        return Row.model_validate_json(line)
    except (ValidationError, UnicodeDecodeError):
        return None


def append_row(path: Path, row: Row) -> None:
    """Add one line and flush it to disk; what a kill left of a line before it is cut away."""
    append_line(path, row.model_dump_json())


def gather(folder: Path) -> dict[str, Row]:
    """The rows of all shards in `folder` by key; the first of two with one key counts."""
    found: dict[str, Row] = {}
    for path in sorted(folder.glob("rows*.jsonl")):
        if path.is_dir():
            raise ProblemError(
                f"{str(path)!r} is a folder. Expected a file with the rows of a bench. Next: move "
                "it away, or name another folder."
            )
        for row in read_rows(path):
            found.setdefault(row.key, row)
    return found


def read_bench(path: Path) -> tuple[Row, ...]:
    """The rows of a bench's folder, or of one file. Raises ProblemError where there are none."""
    rows = tuple(gather(path).values()) if path.is_dir() else read_rows(path)
    if not rows:
        raise ProblemError(
            f"No rows in {str(path)!r}, and {unreadable_rows(path)} lines that are none. Expected "
            "a folder that 'agentkernel bench' wrote to, or a rows.jsonl of it."
        )
    return rows


def unreadable_rows(path: Path) -> int:
    """How many lines of a bench's folder, or of one file, are no row: damaged, of another version,
    or cut off."""
    files = path.glob("rows*.jsonl") if path.is_dir() else [path]
    lines = [line for file in files if file.is_file() for line in file.read_bytes().split(b"\n")]
    return sum(_row(line) is None for line in lines if line.strip())


def in_order(rows: Iterable[Row], keys: Sequence[str]) -> tuple[Row, ...]:
    """The rows of `keys`, in that order, as far as they are there."""
    known = {row.key: row for row in rows}
    return tuple(known[key] for key in keys if key in known)


class BenchOptions(Frozen):
    """What a bench asks of every problem. `settings.runs` is not part of it."""

    settings: Settings
    samples: int = 1

    @property
    def autotune_note(self) -> str:
        """Why there is no time of max-autotune where no run says so."""
        return NOT_RUN if self.settings.profile.max_autotune else SWITCHED_OFF


class BenchTask(Frozen):
    """One problem to bench; `out` is the bench's folder, `cache` that of known baselines. `alone`:
    tried once more with the device to itself, after memory ran out beside others."""

    problem: SuiteProblem
    asked: BenchOptions
    out: str
    cache: str
    alone: bool = False

    @property
    def key(self) -> str:
        """Identity of the row: the problem's name and text, and what is asked.

        A setting at its class's default is not part of it, so that one that is new in this version
        leaves known rows known.
        """
        settings = self.asked.settings.evolve(runs="")
        asked = self.asked.evolve(settings=settings)
        words = asked.model_dump_json(exclude_defaults=True)
        return sha256_text(f"{self.problem.name}\n{self.problem.sha256}\n{words}")[:16]

    def runs(self, index: int) -> Path:
        """The folder of the runs of sample `index`: one run, or what a kill left of it."""
        name = fit_file_name(self.problem.name.replace("/", "-"))
        label = f"{index}-alone" if self.alone else str(index)
        return Path(self.out) / "runs" / f"{name}-{self.key[:8]}" / label
