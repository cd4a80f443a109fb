"""Optimisation of a list of problems, one after the other, resumable after a kill."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import Field, ValidationError

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.errors import AgentKernelError, ProblemError, expected_of, one_line
from agentkernel.domain.settings import Settings
from agentkernel.storage.configuration import read_yaml
from agentkernel.storage.files import make_folder, read_regular_text, write_atomic
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.problem.packages import is_dotted, module_file
from agentkernel.workflows.events import Event, OnEvent, RunStarted
from agentkernel.workflows.outcome import Result
from agentkernel.workflows.state import OptimizeRequest

SettingValue = str | int | float | bool | None
SettingsFor = Callable[[Mapping[str, object]], Settings]
EXPECTED = (
    "Expected 'models:' with a zoo's list of 'name:', 'model:' and 'inputs:', or 'problems:' with "
    "a list of files, or of 'file:' with 'inputs:' and 'target:'."
)


class Entry(Frozen):
    """One problem of the list; `settings` are dotted keys such as `goals.precision`."""

    file: str
    inputs: tuple[str, ...] = ()
    init: str = ""
    kwargs: str = ""
    target: str | None = None
    settings: dict[str, SettingValue] = Field(default_factory=dict)

    @property
    def flags(self) -> dict[str, object]:
        """Its settings with the target among them."""
        return {"target": self.target, **self.settings}


class BatchList(Frozen):
    """What a LIST.yaml says; `target` and `settings` hold for entries that name none themselves."""

    problems: tuple[Entry, ...] = Field(min_length=1)
    target: str | None = None
    settings: dict[str, SettingValue] = Field(default_factory=dict)


class Row(Frozen):
    """What became of one entry: a result, or the line that says why there is none."""

    key: str
    file: str
    run: str | None = None
    """The run's folder, known from its first event on."""
    result: Result | None = None
    error: str | None = None

    @property
    def done(self) -> bool:
        """True where nothing is left to do."""
        return self.error is not None or (self.result is not None and not self.result.interrupted)

    @property
    def status(self) -> str:
        """The result's status; "failed" for a broken problem, "unfinished" before the end."""
        if self.error is not None:
            return "failed"
        return self.result.status if self.done and self.result is not None else "unfinished"


class BatchState(Frozen):
    """The rows so far; `state.json` of the batch's folder."""

    rows: dict[str, Row] = Field(default_factory=dict)


@dataclass(frozen=True)
class Runner:
    """What starts one run, and what takes one up again from its folder."""

    start: Callable[[OptimizeRequest, OnEvent], Result]
    resume: Callable[[str, OnEvent], Result]


def read_list(path: Path) -> BatchList:
    """The problems of a YAML file, their paths relative to it. Raises ProblemError."""
    try:
        tree = read_yaml(path)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        line = (isinstance(error, OSError) and error.strerror) or one_line(error)
        raise ProblemError(f"Cannot read the list {str(path)!r}: {line}. {EXPECTED}") from error
    if isinstance(tree, list):
        tree = {"problems": tree}
    if isinstance(tree, dict) and isinstance(tree.get("problems"), list):
        items = [{"file": item} if isinstance(item, str) else item for item in tree["problems"]]
        tree = {**tree, "problems": items}
    if isinstance(tree, dict) and "problems" not in tree:
        raise ProblemError(f"{path.name} has neither 'models:' nor 'problems:'. {EXPECTED}")
    try:
        found = BatchList.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the list"
        raise ProblemError(
            f"{path.name}: {where}: {expected_of(first['msg'])}. {EXPECTED}"
        ) from error
    return _placed(found, path.parent)


def run_batch(
    batch: BatchList,
    settings_for: SettingsFor,
    folder: Path,
    runner: Runner,
    on_event: OnEvent,
    on_row: Callable[[Row], None],
) -> tuple[Row, ...]:
    """Run every entry that is not done yet; a broken one becomes a row. Stops at an interruption.

    `folder` keeps the rows, so that the same call goes on after a kill.
    """
    make_folder(folder)
    path = folder / "state.json"
    rows = dict(_read_state(path).rows)
    order = [(entry_key(item), item) for item in batch.problems]
    for key, entry in order:
        row = rows.get(key) or Row(key=key, file=entry.file)
        if not row.done:

            def note(changed: Row) -> None:
                rows[changed.key] = changed
                write_atomic(path, BatchState(rows=rows).model_dump_json(indent=1))

            row = _run_entry(row, entry, settings_for, runner, on_event, note)
            note(row)
        rows[key] = row
        on_row(row)
        if row.result is not None and row.result.interrupted:
            break
    return tuple(rows[key] for key, _ in order if key in rows)


def _run_entry(
    row: Row,
    entry: Entry,
    settings_for: SettingsFor,
    runner: Runner,
    on_event: OnEvent,
    note: Callable[[Row], None],
) -> Row:
    def watch(event: Event) -> None:
        if isinstance(event, RunStarted):
            note(row.evolve(run=event.folder))
        on_event(event)

    try:
        if row.run is not None and (Path(row.run) / "run.json").is_file():
            result = runner.resume(row.run, watch)
            return row.evolve(result=result)
        settings = settings_for(entry.flags)
        problem = load_problem(entry.file, entry.inputs, entry.init, entry.kwargs)
        request = OptimizeRequest(problem, settings, None, ("batch", entry.file))
        result = runner.start(request, watch)
        return row.evolve(result=result)
    except AgentKernelError as error:
        return row.evolve(error=str(error))
    except Exception as error:  # noqa: BLE001 - one problem's bug must not cost the others
        return row.evolve(error=f"{type(error).__name__}: {error}")


def entry_key(entry: Entry) -> str:
    """Identity of an entry: what it says, and the text of its file as it is now."""
    path = _file(entry.file.partition(":")[0])
    text = path.read_bytes() if path.is_file() else b""
    said = entry.model_dump_json(exclude=None if entry.kwargs else {"kwargs"})
    return sha256_text(said + hashlib.sha256(text).hexdigest())[:16]


def _file(place: str) -> Path:
    if not is_dotted(place):
        return Path(place)
    try:
        return module_file(place).path
    except ProblemError:  # loading it says so
        return Path(place)


def batch_exit_code(rows: tuple[Row, ...]) -> int:
    """130 interrupted, 1 where any failed, 3 where any kept a baseline, else 0."""
    if any(row.result is not None and row.result.interrupted for row in rows):
        return 130
    codes = {1 if row.result is None else row.result.exit_code for row in rows}
    return next((code for code in (1, 3) if code in codes), 0)


def _placed(batch: BatchList, folder: Path) -> BatchList:
    entries = tuple(
        item.evolve(
            file=_from(folder, item.file),
            target=item.target or batch.target,
            settings={**batch.settings, **item.settings},
        )
        for item in batch.problems
    )
    return batch.evolve(problems=entries)


def _from(folder: Path, file: str) -> str:
    place = file.partition(":")[0]
    dotted = is_dotted(place) and not (folder / place).is_file()
    return file if dotted else str(folder / file)


def _read_state(path: Path) -> BatchState:
    """The rows of an earlier call; none where the file is missing or damaged."""
    try:
        return BatchState.model_validate_json(read_regular_text(path))
    except (OSError, UnicodeDecodeError, ValidationError):
        return BatchState()
