"""What is one problem of a bench asked with, and under which name is its row known?

Every lane's process reads these: they import nothing that works on a problem.
"""

from __future__ import annotations

from pathlib import Path

from agentkernel.bench.rows import NOT_RUN, SWITCHED_OFF
from agentkernel.bench.suite import SuiteProblem
from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.settings import Settings
from agentkernel.storage.disk import fit_file_name


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
        settings = self.asked.settings.model_copy(update={"runs": ""})
        asked = self.asked.model_copy(update={"settings": settings})
        words = asked.model_dump_json(exclude_defaults=True)
        return sha256_text(f"{self.problem.name}\n{self.problem.sha256}\n{words}")[:16]

    def runs(self, index: int) -> Path:
        """The folder of the runs of sample `index`: one run, or what a kill left of it."""
        name = fit_file_name(self.problem.name.replace("/", "-"))
        label = f"{index}-alone" if self.alone else str(index)
        return Path(self.out) / "runs" / f"{name}-{self.key[:8]}" / label


__all__ = ["BenchOptions", "BenchTask"]
