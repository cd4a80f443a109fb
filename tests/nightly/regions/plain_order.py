"""The order of work made anew after each answer: what WorkOrder keeps up to date."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agentkernel.domain.region import Region, RegionUse
from agentkernel.nightly.regions.ranking import (
    LEAST_SHARE,
    ancestors,
    by_score,
    is_viable,
    is_worth_it,
    restricted,
)


def chosen_regions(
    regions: Sequence[Region],
    done: Mapping[str, bool] = MappingProxyType({}),
    least_share: float = LEAST_SHARE,
) -> tuple[Region, ...]:
    """Regions of which no submodule lies in another's, by falling score, each with the uses for
    which it is chosen.

    In each model's tree a region goes before its parts, unless it is too small or too large, has
    no headroom, or `done[signature]` is False: nothing was found for it, so its parts come in. What
    `done` says True of stays chosen: it is where the kernels go. The model itself is chosen beside
    what lies in it.
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
    done: Mapping[str, bool] = MappingProxyType({}),
    least_share: float = LEAST_SHARE,
) -> tuple[Region, ...]:
    """What to work on next, the best first: the chosen regions that are not `done` yet.

    Where only some uses of a region are chosen (its others lie in a chosen one), its share is that
    of these, and it is left out where that is below `least_share`.
    """
    chosen = chosen_regions(regions, done, least_share)
    return tuple(
        item for item in chosen if item.signature not in done and is_worth_it(item, least_share)
    )


def _is_chosen(region: Region, use: RegionUse, at: Mapping[tuple[str, str], Region]) -> bool:
    """The best viable region at its path, and no viable one around it."""
    best = at.get((use.model, use.path))
    if best is None or best.signature != region.signature:
        return False
    return not any((use.model, path) in at for path in ancestors(use.path))
