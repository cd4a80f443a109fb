"""Which regions are to be worked on, kept up to date answer by answer in a zoo of any size?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentkernel.domain.region import Region, RegionUse
from agentkernel.nightly.regions.merge import by_score
from agentkernel.nightly.regions.rank import LEAST_SHARE, is_viable, is_worth_it, restricted
from agentkernel.nightly.regions.tree import ancestors


class _At(NamedTuple):
    """A submodule."""

    model: str
    path: str


class _Use(NamedTuple):
    """The `number`-th use of a region."""

    signature: str
    number: int


class WorkOrder:
    """What `order_of_work(regions, done)` gives, where each answer costs only what it changes.

    An answer takes time in the uses of its region and in the regions that come in for it, not in
    the size of the zoo.
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
