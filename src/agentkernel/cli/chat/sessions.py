"""Sessions at the terminal: opening one, listing them, finding one by name.

`flags.json` in a session's folder keeps the command line that it began with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeAlias, cast

from pydantic import ValidationError

from agentkernel.chat.tree import Changes, SettingValue, Tree
from agentkernel.cli.configuration import require_here, with_checked_models
from agentkernel.cli.terminal import print_json, print_plain
from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import RunNotFound
from agentkernel.storage.configuration import load_settings
from agentkernel.storage.files import read_regular_text, write_atomic
from agentkernel.tools.run_store import read_manifest, run_folders, uses
from agentkernel.tools.targets import find_target

if TYPE_CHECKING:
    from agentkernel.chat.figures import EstimateCache
    from agentkernel.chat.replies import Reply
    from agentkernel.chat.requests import Intent, IntentContext
    from agentkernel.domain.candidate import Candidate
    from agentkernel.domain.plan import Hypothesis, Plan
    from agentkernel.domain.settings import Settings
    from agentkernel.tools.problem.loading import LoadedProblem
    from agentkernel.workflows.events import OnEvent


class ApprovalRequest(Protocol):
    """What is to be approved, a pydantic value: a plan before anything of it is drafted, or a
    candidate before it is judged."""

    @property
    def kind(self) -> Literal["plan", "candidate"]: ...

    @property
    def round(self) -> int: ...

    @property
    def hypothesis(self) -> Hypothesis: ...

    @property
    def plan(self) -> Plan | None: ...

    @property
    def candidate(self) -> Candidate | None: ...

    def model_dump_json(self, *, ensure_ascii: bool = False) -> str: ...


class TurnLike(Protocol):
    """A turn as it is kept."""

    @property
    def text(self) -> str: ...

    @property
    def replies(self) -> tuple[Reply, ...]: ...


Approve: TypeAlias = "Callable[[ApprovalRequest], bool]"
SettingsFor: TypeAlias = "Callable[[Changes], Settings]"


class SessionLike(Protocol):
    """An open session about one module; every method answers on the thread that calls it."""

    @property
    def id(self) -> str: ...

    @property
    def folder(self) -> Path: ...

    @property
    def tree(self) -> Tree: ...

    @property
    def context(self) -> IntentContext: ...

    def say(self, text: str) -> tuple[Reply, ...]: ...

    def do(self, intent: Intent, text: str = "") -> Reply: ...

    def offer(
        self, source: str, base: int | None, origin: Literal["edited", "pasted"]
    ) -> Reply: ...

    def set(self, changes: Changes, text: str) -> Reply: ...

    def transcript(self) -> Sequence[TurnLike]: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None: ...


class SessionClass(Protocol):
    """How a session is begun, or opened again. Both raise AgentKernelError."""

    def begin(
        self,
        problem: LoadedProblem,
        settings_for: SettingsFor,
        *,
        on_event: OnEvent,
        approve: Approve | None,
        estimates: EstimateCache | None,
    ) -> SessionLike: ...

    def reopen(
        self,
        folder: Path,
        settings_for: SettingsFor | None,
        *,
        on_event: OnEvent,
        approve: Approve | None,
        estimates: EstimateCache | None,
    ) -> SessionLike: ...


FLAGS = "flags.json"
STORE = "session.sqlite"


class Flags(Frozen):
    """What the command line said: enough to make its settings again."""

    format: Literal[1] = 1
    given: Changes
    overrides: tuple[str, ...] = ()
    config: str | None = None

    def settings(self, changes: Changes) -> Settings:
        """The settings with `changes` (null: as if never set) over what was given. Raises
        SettingError or UnknownTarget."""
        values = {**self.given, **changes}
        nulls = tuple(f"{key}=null" for key, value in changes.items() if value is None)
        config = None if self.config is None else Path(self.config)
        settings = load_settings(config, (*self.overrides, *nulls), values)
        require_here(settings, "chat")
        find_target(settings.target)
        return with_checked_models(settings)


def read_flags(folder: Path) -> Flags | None:
    """The flags that the session in `folder` began with; None where they cannot be read."""
    try:
        return Flags.model_validate_json(read_regular_text(folder / FLAGS))
    except (OSError, UnicodeDecodeError, ValidationError):
        return None


def plain_values(given: dict[str, object]) -> Changes:
    """Flags that were given, as they can be kept."""
    return {
        key: cast("SettingValue", value)
        for key, value in given.items()
        if isinstance(value, str | int | float | bool)
    }


def session_class() -> SessionClass:
    """The sessions of this package."""
    module = import_module("agentkernel.chat.session")
    return cast("SessionClass", module.Session)


@dataclass
class SessionOpening:
    """A session to be: begun for a `problem` at the first turn that needs it, or opened again from
    `folder` at once. `flags` None: with the settings that it was left with. `estimates`: what is
    known of the problem already."""

    flags: Flags | None
    on_event: OnEvent
    approve: Approve
    opened: Callable[[SessionLike], None]
    problem: Callable[[], LoadedProblem]
    folder: Path | None = None
    estimates: EstimateCache | None = None
    session: SessionLike | None = field(default=None, init=False)

    def open(self) -> SessionLike:
        """The session; it is opened by the thread that will use it."""
        if self.session is None:
            self.session = begin(self) if self.folder is None else reopen(self, self.folder)
            self.opened(self.session)
        return self.session

    def close(self) -> None:
        """Close the session where there is one."""
        if self.session is not None:
            self.session.__exit__(None, None, None)


def begin(opening: SessionOpening) -> SessionLike:
    """A new session; a session without a turn leaves no folder."""
    assert opening.flags is not None
    settings_for: SettingsFor = opening.flags.settings
    session = session_class().begin(
        opening.problem(),
        settings_for,
        on_event=opening.on_event,
        approve=opening.approve,
        estimates=opening.estimates,
    )
    write_atomic(session.folder / FLAGS, opening.flags.model_dump_json(indent=1) + "\n")
    return session.__enter__()


def reopen(opening: SessionOpening, folder: Path) -> SessionLike:
    """A session as it was left; a step that was cut off is finished first."""
    settings_for = None if opening.flags is None else opening.flags.settings
    session = session_class().reopen(
        folder,
        settings_for,
        on_event=opening.on_event,
        approve=opening.approve,
        estimates=opening.estimates,
    )
    return session.__enter__()


MOST_LISTED = 10


class Summary(Frozen):
    """A session in a list. `used`: when it was last written to, UTC."""

    id: str
    folder: str
    used: str


def sessions(runs: Path) -> tuple[Summary, ...]:
    """The sessions below `runs`, last used first; nothing of them is opened."""
    named = (path for path in runs.glob(f"*/{STORE}") if not path.parent.name.startswith("."))
    found = [path for path in named if path.is_file()]
    times = {path: last_written(path) for path in found}

    def used(path: Path) -> tuple[int, float]:
        return uses(path.parent).last, times[path]

    return tuple(
        Summary(
            id=path.parent.name,
            folder=str(path.parent),
            used=datetime.fromtimestamp(times[path], UTC).isoformat(" ", "seconds")[:19],
        )
        for path in sorted(found, key=used, reverse=True)
    )


def last_written(store: Path) -> float:
    """Of the store or its journal, in seconds since 1970."""
    files = (store, store.with_name(f"{store.name}-wal"))
    return max(path.stat().st_mtime for path in files if path.is_file())


def session_folder(runs: Path, name: str) -> Path | None:
    """The session that `name` means: a path, a name or the unique beginning of one; None where it
    is a run or nothing."""
    if (Path(name) / STORE).is_file():
        return Path(name)
    known = [Path(item.folder) for item in sessions(runs)]
    same = [path for path in known if path.name == name]
    begins = [path for path in known if path.name.startswith(name)]
    if same:
        return same[0]
    if len(begins) != 1 or not name:
        return None
    others = [path for path in runs.iterdir() if path.name.startswith(name)]
    return begins[0] if others == begins else None


def last_used(runs: Path) -> Path | None:
    """The session that "last" means: the one that was used after every run, or whose own step made
    the newest run; None where that is a run, or nothing is there."""

    found = sessions(runs)
    if not found:
        return None
    known = run_folders(runs)
    if not known:
        return Path(found[0].folder)
    newest = known[-1]
    own = [item for item in found if f"session={item.id}" in flags_of(newest)]
    if own:
        return Path(own[0].folder)
    session = Path(found[0].folder)
    noted = uses(session).last, uses(newest).last
    if all(noted):
        return session if noted[0] > noted[1] else None
    return session if last_written(session / STORE) > run_written(newest) else None


def flags_of(run: Path) -> tuple[str, ...]:
    """What a run was asked with; nothing where its manifest cannot be read."""
    try:
        return read_manifest(run).flags
    except RunNotFound:
        return ()


def run_written(run: Path) -> float:
    """When a run was last written to, in seconds since 1970."""
    store = run / "run.sqlite"
    return last_written(store) if store.is_file() else run.stat().st_mtime


def list_sessions(runs: Path, *, as_json: bool) -> None:
    """Print the last sessions, and how to go on with one or begin another."""
    found = sessions(runs)
    if as_json:
        print_json([item.model_dump(mode="json") for item in found])
        return
    for item in found[:MOST_LISTED]:
        print_plain(f"{item.used}  {item.id}")
    if found:
        print_plain("Go on with one:   agentkernel resume SESSION")
    else:
        print_plain(f"No sessions in {str(runs)!r} yet.")
    print_plain("Begin another:    agentkernel chat FILE --target h100")
