"""What is worked out while the first line is still being typed?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.domain.errors import KnowledgeError, OutputError, SettingError

if TYPE_CHECKING:
    from agentkernel.chat.outlook import EstimateCache
    from agentkernel.domain.settings import Settings
    from agentkernel.tools.problem.problems import LoadedProblem

WARM_UP_QUERY = "softmax"


@dataclass(frozen=True)
class Preparation:
    """The module's graph, figures and first plan, and the knowledge that a search opens."""

    estimates: EstimateCache
    problem: Callable[[], LoadedProblem]
    settings: Callable[[], Settings]
    tell: Callable[[str], None]
    """Hears what was mended in the knowledge."""

    def look(self) -> None:
        """Fill the outlook. Raises what /plan would say."""
        from agentkernel.chat.work import goals_of
        from agentkernel.tools.targets import find_target

        settings = self.settings()
        resolved = find_target(settings.target)
        problem, goals = self.problem(), goals_of(settings)
        self.estimates.figures(problem, resolved.target, goals.precision)
        self.estimates.first_plan(problem, resolved, goals, settings)

    def knowledge(self) -> None:
        """Ask the knowledge folder once and close it: libraries and files are then at hand. Nothing
        is begun where there is none, and nothing is kept open: others may have to mend it."""
        from agentkernel.domain.knowledge import Query
        from agentkernel.knowledge.base import open_base
        from agentkernel.knowledge.truth import folder_of
        from agentkernel.knowledge.truth_schema import FILE_NAME

        known = self.settings().knowledge
        try:
            folder: Path = folder_of(known.index)
            if (folder / FILE_NAME).is_file():
                with open_base(folder, known.embedder, say=self.tell) as base:
                    base.search(Query(text=WARM_UP_QUERY, words=WARM_UP_QUERY, limit=1))
        except (OutputError, KnowledgeError, SettingError):
            pass  # a search says what is wrong with it
