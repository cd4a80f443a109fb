"""What does the terminal need of a session?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    from agentkernel.domain.intent import Intent, IntentContext
    from agentkernel.domain.session import Changes, Tree
    from agentkernel.domain.settings import Settings
    from agentkernel.tools.problems import LoadedProblem
    from agentkernel.workflows.events import OnEvent
    from agentkernel.workflows.session.replies import Reply


class Question(Protocol):
    """What is to be approved: a pydantic value with the plan or the candidate."""

    def model_dump_json(self) -> str: ...


Approve: TypeAlias = "Callable[[Question], bool]"
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
        runs: Path,
        *,
        on_event: OnEvent,
        approve: Approve | None,
    ) -> SessionLike: ...

    def reopen(
        self,
        folder: Path,
        settings_for: SettingsFor,
        *,
        on_event: OnEvent,
        approve: Approve | None,
    ) -> SessionLike: ...
