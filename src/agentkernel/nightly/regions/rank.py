"""On which regions is a night's budget spent, in which order, and how much on each?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from agentkernel.domain.region import Region, RegionUse
from agentkernel.nightly.regions.merge import by_score, with_uses
from agentkernel.nightly.regions.tree import ancestors

LEAST_SHARE = 0.005
"""Below this share of all time, no kernel is worth its search, in a zoo of up to `FEW_MODELS`; in
a larger one each model has less of the time, and a region that matters to it too."""
FEW_MODELS = 10
MOST_OPS_AT_ONCE = 12
"""A region of more device ops is left to its parts, where it has any. Of 23 regions that a night
over twelve transformers worked on with an H200, none of more than eleven ops beat torch.compile
(docs/nightly.md); a whole layer takes three times as long to search as its parts."""
LEAST_SECONDS = 20.0
"""What one draft and its judgement need."""
MOST_OF_THE_REST = 1 / 3
"""No region takes more of what is left of the budget."""
NOTHING_DONE: Mapping[str, bool] = MappingProxyType({})


class WaitingRegions(NamedTuple):
    """The regions that wait beside one: how many, and the sum of their scores."""

    others: int
    score: float


def least_share(models: int) -> float:
    """The floor on a region's share of all time in a zoo of so many models."""
    return LEAST_SHARE * min(1.0, FEW_MODELS / max(models, 1))


def chosen_regions(
    regions: Sequence[Region],
    done: Mapping[str, bool] = NOTHING_DONE,
    least_share: float = LEAST_SHARE,
) -> tuple[Region, ...]:
    """Regions of which no submodule lies in another's, by falling score, each with the uses for
    which it is chosen.

    In each model's tree a region goes before its parts, unless it is too small or too large, has
    no headroom, or `done[signature]` is False: nothing was found for it, so its parts come in. What
    `done` says True of stays chosen: it is where the kernels go.
    """
    viable = {
        region.signature
        for region in regions
        if done.get(region.signature, is_viable(region, least_share))
    }
    at: dict[tuple[str, str], Region] = {}
    for region in by_score(regions)[::-1]:
        if region.signature in viable:
            at |= {(use.model, use.path): region for use in region.uses}
    chosen: list[Region] = []
    for region in regions:
        uses = [use for use in region.uses if _is_chosen(region, use, at)]
        if uses:
            chosen.append(restricted(region, uses))
    return by_score(chosen)


def order_of_work(
    regions: Sequence[Region],
    done: Mapping[str, bool] = NOTHING_DONE,
    least_share: float = LEAST_SHARE,
) -> tuple[Region, ...]:
    """What to work on next, the best first: the chosen regions that are not `done` yet.

    Where only some uses of a region are chosen (its others lie in a chosen one), its share is that
    of these, and it is left out where that is below `least_share`. `WorkOrder` keeps the same
    order from answer to answer.
    """
    chosen = chosen_regions(regions, done, least_share)
    return tuple(
        item for item in chosen if item.signature not in done and is_worth_it(item, least_share)
    )


def budget_of(region: Region, rest: WaitingRegions, seconds_left: float) -> float:
    """Seconds for `region`: its part of the scores of all that waits, `rest` being the others.

    At least what one draft needs, at most a third of what is left; 0 where not even one draft fits.
    """
    if seconds_left < LEAST_SECONDS:
        return 0.0
    total = region.score + rest.score
    part = region.score / total if total > 0 else 1 / (1 + rest.others)
    return max(LEAST_SECONDS, min(part, MOST_OF_THE_REST) * seconds_left)


def is_worth_it(region: Region, least_share: float = LEAST_SHARE) -> bool:
    """True where a search may pay."""
    return region.share >= least_share and region.score > 0


def is_viable(region: Region, least_share: float = LEAST_SHARE) -> bool:
    """True where a search may pay for the region in one piece."""
    in_one = region.device_ops <= MOST_OPS_AT_ONCE or not region.parts
    return in_one and is_worth_it(region, least_share)


def restricted(region: Region, uses: Sequence[RegionUse]) -> Region:
    """`region` with these of its uses alone."""
    if len(uses) == len(region.uses):
        return region
    if any(use.share for use in region.uses):
        return with_uses(region, uses)
    part = sum(use.calls for use in uses) / sum(use.calls for use in region.uses)
    shared = [use.model_copy(update={"share": region.share * part / len(uses)}) for use in uses]
    return with_uses(region, shared)


def _is_chosen(region: Region, use: RegionUse, at: Mapping[tuple[str, str], Region]) -> bool:
    """The best viable region at its path, and no viable one around it."""
    best = at.get((use.model, use.path))
    if best is None or best.signature != region.signature:
        return False
    return not any((use.model, path) in at for path in ancestors(use.path))
