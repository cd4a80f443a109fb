"""How much work did regions save that stand for several submodules?"""

from __future__ import annotations

from agentkernel.domain.base import Frozen
from agentkernel.domain.night import NightlyRun
from agentkernel.nightly.page.wording import count, percent


class MergedRegions(Frozen):
    """`submodules` that the `regions` stand for. `within` and `across` are those of them that need
    no kernel of their own: another submodule of the same model has it, or another model."""

    regions: int
    submodules: int
    within: int
    across: int

    @property
    def words(self) -> str:
        """One sentence; "" where there are no regions."""
        if not self.regions:
            return ""
        text = f"{count(self.regions, 'region')} {'stands' if self.regions == 1 else 'stand'} for "
        text += count(self.submodules, "submodule")
        saved = self.within + self.across
        if not saved:
            return f"{text}; none is shared."
        return (
            f"{text}: {percent(saved / self.submodules)} of them need no kernel of their own, "
            f"{percent(self.within / self.submodules)} shared within a model, "
            f"{percent(self.across / self.submodules)} across models."
        )


def merged_regions(night: NightlyRun) -> MergedRegions:
    """Of the regions that the night worked on or meant to."""
    models = [len({use.model for use in row.uses}) for row in night.regions]
    submodules = sum(len(row.uses) for row in night.regions)
    return MergedRegions(
        regions=len(night.regions),
        submodules=submodules,
        within=submodules - sum(models),
        across=sum(models) - len(night.regions),
    )
