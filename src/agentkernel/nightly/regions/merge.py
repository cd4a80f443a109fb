"""Which regions do several models share, and what part of all their time does each take?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentkernel.domain.region import ModelCut, Region, RegionUse


def merge_cuts(cuts: Sequence[ModelCut], weights: Mapping[str, float]) -> tuple[Region, ...]:
    """The regions of all models, one for each signature, by falling score.

    `weights`: model name -> factor on its time in the total (1 where it is not named). Shares
    become those of the weighted time of all models.
    """
    times = {cut.model: weights.get(cut.model, 1.0) * cut.time_us for cut in cuts}
    total = sum(times.values())
    found: dict[str, list[Region]] = {}
    for cut in cuts:
        factor = times[cut.model] / total if total else 0.0
        for region in cut.regions:
            found.setdefault(region.signature, []).append(_scaled(region, factor))
    return by_score([_merged(regions) for regions in found.values()])


def by_score(regions: Sequence[Region]) -> tuple[Region, ...]:
    """Falling score; equal ones in the order of their signatures."""
    return tuple(sorted(regions, key=lambda item: (-item.score, item.signature)))


def with_uses(region: Region, uses: Sequence[RegionUse]) -> Region:
    """`region` with these uses alone, or these instead; share and score follow."""
    share = min(1.0, sum(use.share for use in uses))
    return region.model_copy(
        update={"uses": tuple(uses), "share": share, "score": share * region.headroom}
    )


def headroom(bound_us: float, eager_us: float) -> float:
    """What part of a call's time a kernel at the bound would save, 0 to 1."""
    return max(0.0, 1.0 - bound_us / eager_us) if eager_us > 0 else 0.0


def _scaled(region: Region, factor: float) -> Region:
    uses = [use.model_copy(update={"share": use.share * factor}) for use in region.uses]
    return with_uses(region, uses)


def _merged(regions: Sequence[Region]) -> Region:
    """One region for several of one signature; its time is the mean over all calls."""
    first = regions[0]
    calls = [sum(use.calls for use in item.uses) for item in regions]
    eager_us = sum(item.eager_us * count for item, count in zip(regions, calls, strict=True))
    eager_us /= sum(calls)
    bound_us = max(item.bound_us for item in regions)
    measured = all(item.basis == "measured" for item in regions)
    merged = first.model_copy(
        update={
            "basis": "measured" if measured else "estimated",
            "eager_us": eager_us,
            "bound_us": bound_us,
            "headroom": headroom(bound_us, eager_us),
            "parts": tuple(dict.fromkeys(part for item in regions for part in item.parts)),
        }
    )
    return with_uses(merged, [use for item in regions for use in item.uses])
