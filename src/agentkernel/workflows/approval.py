"""What somebody is asked to approve before a run goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import SettingError
from agentkernel.domain.plan import Hypothesis, Plan
from agentkernel.domain.settings import Settings


class PendingApproval(Frozen):
    """A plan before anything of it is drafted, or a candidate before it is judged.

    `hypothesis` is the first of the plan, or the one that the candidate tries.
    """

    kind: Literal["plan", "candidate"]
    round: int
    hypothesis: Hypothesis
    plan: Plan | None = None
    candidate: Candidate | None = None

    @property
    def source(self) -> str:
        """The candidate's text, not trusted by anybody yet; "" for a plan."""
        return self.candidate.source if self.candidate is not None else ""


Asked = PendingApproval
"""Its name in the checkpoints of runs that waited for a yes before it had this one."""
Approve: TypeAlias = Callable[[PendingApproval], bool]
"""True to go on. The run waits for it, and the wait costs nothing of its time."""


def check_approval(settings: Settings, approve: Approve | None) -> None:
    """Nothing, unless the settings want approval and nobody can be asked. Raises SettingError."""
    if settings.approve == "never" or approve is not None:
        return
    raise SettingError(
        f"Setting 'approve' is {settings.approve!r}, but nobody can be asked here. Expected "
        "'never' in a batch, a bench, a pipe or with --json. Next: use a terminal, or never."
    )
