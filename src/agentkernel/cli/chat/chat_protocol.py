"""What does the terminal need of a session?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    from agentkernel.chat.domain_session import Changes, Tree
    from agentkernel.chat.intent import Intent, IntentContext
    from agentkernel.chat.outlook import EstimateCache
    from agentkernel.chat.replies import Reply
    from agentkernel.domain.candidate import Candidate
    from agentkernel.domain.plan import Hypothesis, Plan
    from agentkernel.domain.settings import Settings
    from agentkernel.tools.problem.problems import LoadedProblem
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
        runs: Path,
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
