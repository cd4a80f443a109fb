"""How does a session open while its user already types?"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from agentkernel.chat.domain_session import Changes, SettingValue
from agentkernel.cli.chat.chat_idle import IdleLock
from agentkernel.domain.base import Frozen
from agentkernel.storage.atomic import write_atomic
from agentkernel.storage.disk import read_regular_text

if TYPE_CHECKING:
    from agentkernel.chat.outlook import EstimateCache
    from agentkernel.cli.chat.chat_protocol import Approve, SessionClass, SessionLike, SettingsFor
    from agentkernel.domain.settings import Settings
    from agentkernel.tools.problem.problems import LoadedProblem
    from agentkernel.workflows.events import OnEvent

FLAGS = "flags.json"
STORE = "session.sqlite"
SLOW = "torch"
PRELOADED_FIRST = (
    "agentkernel.chat.session_session",
    "agentkernel.cli.rendering.live",
    "agentkernel.tools.problem.capture",
    "agentkernel.tools.roofline.roofline",
    "agentkernel.workflows.optimize",
    "agentkernel.knowledge.base",
)
"""What answers and steps import, seconds' worth of it."""
PRELOADED_LAST = (
    "torch._dynamo",
    "torch.export._trace",
    "chromadb",
    "chromadb.api.client",
    "chromadb.api.rust",
    "tokenizers",
    "safetensors.numpy",
    "agentkernel.cli.rendering.replies",
    "agentkernel.cli.knowledge.knowledge_search",
)
"""What looking ahead and a search in the knowledge import; nobody needs them at once."""


class Flags(Frozen):
    """What the command line said: enough to make its settings again."""

    format: Literal[1] = 1
    given: Changes
    overrides: tuple[str, ...] = ()
    config: str | None = None

    def settings(self, changes: Changes) -> Settings:
        """The settings with `changes` (null: as if never set) over what was given. Raises
        SettingError or UnknownTarget."""
        from agentkernel.cli.models import with_checked_models
        from agentkernel.storage.settings import load_settings
        from agentkernel.tools.targets import find_target

        values = {**self.given, **changes}
        nulls = tuple(f"{key}=null" for key, value in changes.items() if value is None)
        config = None if self.config is None else Path(self.config)
        settings = load_settings(config, (*self.overrides, *nulls), values)
        find_target(settings.target)
        return with_checked_models(settings)


def read_flags(folder: Path) -> Flags | None:
    """The flags that the session in `folder` began with; None where they cannot be read."""
    from pydantic import ValidationError

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
    module = import_module("agentkernel.chat.session_session")
    return cast("SessionClass", module.Session)


class BackgroundLoad:
    """A problem that loads on another thread, with all that the first step needs. `load` None: a
    session that is opened again has its own.

    torch alone takes seconds: the prompt is there first. What `start` is given hears of an error
    at once. What looks ahead runs while `idle` is free; it is quiet, and where it fails the first
    request for it says why.
    """

    def __init__(self, load: Callable[[], LoadedProblem] | None = None) -> None:
        self.idle = IdleLock()
        self._load = load
        self._pool: ThreadPoolExecutor | None = None
        self._problem: Future[LoadedProblem] | None = None

    def start(
        self, on_failed: Callable[[BaseException], None], *ahead: Callable[[], object]
    ) -> None:
        """Begin on another thread; `ahead` comes last, one after the other."""

        def tell(problem: Future[LoadedProblem]) -> None:
            error = None if problem.cancelled() else problem.exception()
            if error is not None:
                on_failed(error)

        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="loading")
        self._pool.submit(import_module, SLOW)
        if self._load is not None:
            self._problem = self._pool.submit(self._load)
            self._problem.add_done_callback(tell)
        for name in (*PRELOADED_FIRST, *PRELOADED_LAST):
            self._pool.submit(import_module, name)
        for look in ahead:
            self._pool.submit(self._when_idle, look)

    def _when_idle(self, look: Callable[[], object]) -> None:
        with self.idle.work() as goes_on:
            if goes_on:
                look()

    @property
    def ready(self) -> bool:
        """True where nobody has to wait for another thread."""
        return self._problem is None or self._problem.done()

    def problem(self) -> LoadedProblem:
        """Wait for it, or load it here where no thread does. Raises what loading it raised."""
        if self._problem is not None:
            return self._problem.result()
        assert self._load is not None
        return self._load()

    def leave(self) -> None:
        """Begin nothing more, and wait for what is at work: a thread inside torch's import must
        not be cut off by the end of the process."""
        self.idle.leave()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


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
        Path(settings_for({}).runs),
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
