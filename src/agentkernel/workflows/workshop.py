"""Which real agents and tools does a run on this machine get?"""

from __future__ import annotations

from agentkernel.domain.settings import Settings
from agentkernel.tools.targets import ResolvedTarget, find_target


class LocalWorkshop:
    """What this machine has: its GPU where there is one, else interpreter and cross-compiler."""

    def resolve(self, settings: Settings) -> ResolvedTarget:
        """The target in force. Raises UnknownTarget."""
        return find_target(settings.target)
