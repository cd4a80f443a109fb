"""Ranking of regions by share of time and headroom, over all models of a zoo.

Regions with one signature are merged over models. Of nested regions only one is worked on, but for
a whole model, which is worked on beside its parts; the order is kept up to date answer by answer,
and each region gets its part of the budget.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

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
    return region.evolve(uses=tuple(uses), share=share, score=share * region.headroom)


def headroom(bound_us: float, eager_us: float) -> float:
    """What part of a call's time a kernel at the bound would save, 0 to 1."""
    return max(0.0, 1.0 - bound_us / eager_us) if eager_us > 0 else 0.0


def _scaled(region: Region, factor: float) -> Region:
    uses = [use.evolve(share=use.share * factor) for use in region.uses]
    return with_uses(region, uses)


def _merged(regions: Sequence[Region]) -> Region:
    """One region for several of one signature; its time is the mean over all calls."""
    first = regions[0]
    calls = [sum(use.calls for use in item.uses) for item in regions]
    eager_us = sum(item.eager_us * count for item, count in zip(regions, calls, strict=True))
    eager_us /= sum(calls)
    bound_us = max(item.bound_us for item in regions)
    measured = all(item.basis == "measured" for item in regions)
    merged = first.evolve(
        basis="measured" if measured else "estimated",
        eager_us=eager_us,
        bound_us=bound_us,
        headroom=headroom(bound_us, eager_us),
        parts=tuple(dict.fromkeys(part for item in regions for part in item.parts)),
    )
    return with_uses(merged, [use for item in regions for use in item.uses])


def ancestors(path: str) -> Iterator[str]:
    """Submodules that `path` lies in, the nearest first; the model itself ("") is none of them."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def nearest(path: str, among: Collection[str]) -> str | None:
    """The nearest proper ancestor of `path` that is `among` these; None where there is none."""
    return next((item for item in ancestors(path) if item in among), None)


def heaviest(weights: Mapping[str, float]) -> float:
    """The largest sum of weights over submodules of which none lies in another."""
    inside: dict[str, float] = {}
    total = 0.0
    for path in sorted(filter(None, weights), key=lambda item: item.count("."), reverse=True):
        best = max(weights[path], inside.get(path, 0.0))
        parent = nearest(path, weights)
        if parent is None:
            total += best
        else:
            inside[parent] = inside.get(parent, 0.0) + best
    return total


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


INTERPRETED_BEGIN_S, INTERPRETED_OP_S, INTERPRETED_PRODUCT_S = 20.0, 1.5, 40.0
"""A draft for a norm of six operations takes 20 s on two cores without a GPU, for a transformer's
block with four products and attention more than 200 s: compiling its schedules, then some forty
calls in the interpreter, where each of a product's programs takes milliseconds."""
PRODUCTS = ("linear", "mm", "matmul", "conv", "attention", "einsum", "lstm", "gru")
BEGIN_S, OP_S = 30.0, 6.0
"""On a GPU: a whole layer takes three times as long to search as its parts (docs/nightly.md)."""


def draft_seconds(region: Region, interpreted: bool) -> float:
    """A guess at the wall seconds of one draft and its judgement, by the operations of `region`."""
    ops = region.device_ops or len(region.ops)
    if not interpreted:
        return BEGIN_S + OP_S * ops
    heavy = sum(any(word in name for word in PRODUCTS) for name in region.ops)
    products = ops * heavy / max(1, len(region.ops))
    light_s = INTERPRETED_OP_S * (ops - products)
    return INTERPRETED_BEGIN_S + light_s + INTERPRETED_PRODUCT_S * products


class WaitingRegions(NamedTuple):
    """The regions that wait beside one: how many, and the sum of their scores."""

    others: int
    score: float


def least_share(models: int) -> float:
    """The floor on a region's share of all time in a zoo of so many models."""
    return LEAST_SHARE * min(1.0, FEW_MODELS / max(models, 1))


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
    whole = any(not use.path for use in region.uses)
    in_one = whole or region.device_ops <= MOST_OPS_AT_ONCE or not region.parts
    return in_one and is_worth_it(region, least_share)


def restricted(region: Region, uses: Sequence[RegionUse]) -> Region:
    """`region` with these of its uses alone."""
    if len(uses) == len(region.uses):
        return region
    if any(use.share for use in region.uses):
        return with_uses(region, uses)
    part = sum(use.calls for use in uses) / sum(use.calls for use in region.uses)
    shared = [use.evolve(share=region.share * part / len(uses)) for use in uses]
    return with_uses(region, shared)


class _At(NamedTuple):
    """A submodule."""

    model: str
    path: str


class _Use(NamedTuple):
    """The `number`-th use of a region."""

    signature: str
    number: int


class WorkOrder:
    """Regions of which no submodule lies in another's, by falling score, each with the uses for
    which it is chosen.

    In each model's tree a region goes before its parts, unless it is too small or too large, has
    no headroom, or nothing was found for it: then its parts come in. The model itself is chosen
    beside what lies in it. Where only some uses of a region are chosen (its others lie in a chosen
    one), its share is that of these, and it is left out where that is below `least_share`. An
    answer takes time in the uses of its region and in the regions that come in for it, not in the
    size of the zoo.
    """

    def __init__(self, regions: Sequence[Region], least_share: float = LEAST_SHARE) -> None:
        self._least_share = least_share
        self._viable = {
            region.signature: region
            for region in by_score(regions)
            if is_viable(region, least_share)
        }
        self._at: dict[_At, list[str]] = {}
        """The viable regions at a path, the best first."""
        for signature, region in self._viable.items():
            for place in _places(region):
                self._at.setdefault(place, []).append(signature)
        self._behind: dict[_At, list[_Use]] = {}
        """What may come in once a path has another region, or none."""
        self._chosen: dict[str, list[bool]] = {}
        for signature, region in self._viable.items():
            self._chosen[signature] = [self._is_chosen(signature, use) for use in region.uses]
            for index, use in enumerate(region.uses):
                if not self._chosen[signature][index]:
                    self._register(_Use(signature, index), use)
        self._done: set[str] = set()
        self._now: dict[str, Region] = {}
        for signature in self._viable:
            self._renew(signature)

    @property
    def regions(self) -> tuple[Region, ...]:
        """All that is not answered, the best first."""
        return by_score(tuple(self._now.values()))

    def answered(self, signature: str, found: bool) -> tuple[Region, ...]:
        """Take a region out; where nothing was found for it, the regions that come in for it, or
        that have more uses now, the best first."""
        self._now.pop(signature, None)
        self._done.add(signature)
        region = None if found else self._viable.pop(signature, None)
        if region is None:
            return ()
        changed: dict[str, None] = {}
        for place in _places(region):
            here = self._at[place]
            here.remove(signature)
            if not here:
                del self._at[place]
        for place in _places(region):
            for other in self._behind.get(place, ()):
                if self._comes_in(other):
                    changed[other.signature] = None
        return by_score([item for name in changed if (item := self._renew(name)) is not None])

    def _comes_in(self, other: _Use) -> bool:
        """True where this use was not chosen before."""
        region = self._viable.get(other.signature)
        chosen = self._chosen[other.signature]
        if region is None or chosen[other.number]:
            return False
        chosen[other.number] = self._is_chosen(other.signature, region.uses[other.number])
        return chosen[other.number]

    def _renew(self, signature: str) -> Region | None:
        """The region with its chosen uses; None where it is answered, or not worth it."""
        whole = self._viable[signature]
        pairs = zip(whole.uses, self._chosen[signature], strict=True)
        uses = [use for use, chosen in pairs if chosen]
        if signature in self._done or not uses:
            return None
        region = restricted(whole, uses)
        if not is_worth_it(region, self._least_share):
            return None
        self._now[signature] = region
        return region

    def _is_chosen(self, signature: str, use: RegionUse) -> bool:
        """The best viable region at its path, and no viable one around it."""
        here = self._at.get(_At(use.model, use.path))
        if here is None or here[0] != signature:
            return False
        return not any(_At(use.model, path) in self._at for path in ancestors(use.path))

    def _register(self, what: _Use, use: RegionUse) -> None:
        for path in (use.path, *ancestors(use.path)):
            place = _At(use.model, path)
            if place in self._at:
                self._behind.setdefault(place, []).append(what)


def _places(region: Region) -> tuple[_At, ...]:
    """Its submodules, each once."""
    return tuple(dict.fromkeys(_At(use.model, use.path) for use in region.uses))
