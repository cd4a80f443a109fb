"""Which region is next, and about which models is nothing open any more?"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable

from agentkernel.domain.region import Region
from agentkernel.nightly.regions.rank import WaitingRegions
from agentkernel.nightly.scheduler.question import RegionOrder


class RegionQueue:
    """The regions of an `order` as they wait, run and are decided.

    What `is_known` comes first, for it costs little; then the most promising. Each step takes time
    in the logarithm of what waits and in what an answer changes.
    """

    def __init__(self, order: RegionOrder, is_known: Callable[[Region], bool]) -> None:
        self._order = order
        self._is_known = is_known
        self._known: set[str] = set()
        self._queue: list[tuple[bool, float, str, int]] = []
        self._waiting: dict[str, tuple[int, Region]] = {}
        """With the number of its entry in the queue: an older one counts for nothing."""
        self._pushed = 0
        self._score = 0.0
        self._models: dict[str, frozenset[str]] = {}
        """The models of each undecided region: a later answer may choose other uses of it."""
        self._closed: set[str] = set()
        self._open: Counter[str] = Counter()
        """How many regions of each model are undecided."""
        for region in order.regions:
            self._take_in(region)

    @property
    def order(self) -> tuple[Region, ...]:
        """What is not answered, the most promising first."""
        return self._order.regions

    @property
    def rest(self) -> WaitingRegions:
        """What waits."""
        return WaitingRegions(len(self._waiting), max(0.0, self._score))

    def is_open(self, model: str) -> bool:
        """True where a region of the model is undecided."""
        return self._open[model] > 0

    def take(self) -> Region | None:
        """The next region, which does not wait any more; None where none waits."""
        while self._queue:
            _, _, signature, number = heapq.heappop(self._queue)
            waiting = self._waiting.get(signature)
            if waiting is not None and waiting[0] == number:
                return self._leave(signature)
        return None

    def again(self, region: Region) -> None:
        """It waits once more, after a known kernel that does not hold."""
        self._known.discard(region.signature)
        self._wait(region)

    def decided(self, signature: str, found: bool | None) -> None:
        """Nothing about it is open. `found` None: nobody looked, and nothing comes in for it."""
        self._closed.add(signature)
        self._open.subtract(self._models.pop(signature, ()))
        if signature in self._waiting:
            self._leave(signature)
        if found is not None:
            for region in self._order.answered(signature, found):
                self._take_in(region)

    def _take_in(self, region: Region) -> None:
        """It is new, or has other uses than before."""
        signature = region.signature
        if signature in self._closed:
            return
        is_new = signature not in self._models
        self._open.subtract(self._models.get(signature, ()))
        self._models[signature] = frozenset(use.model for use in region.uses)
        self._open.update(self._models[signature])
        if is_new and self._is_known(region):
            self._known.add(signature)
        if is_new or signature in self._waiting:
            self._wait(region)

    def _wait(self, region: Region) -> None:
        signature = region.signature
        if signature in self._waiting:
            self._leave(signature)
        self._pushed += 1
        self._waiting[signature] = (self._pushed, region)
        self._score += region.score
        entry = (signature not in self._known, -region.score, signature, self._pushed)
        heapq.heappush(self._queue, entry)

    def _leave(self, signature: str) -> Region:
        _, region = self._waiting.pop(signature)
        self._score -= region.score
        return region
