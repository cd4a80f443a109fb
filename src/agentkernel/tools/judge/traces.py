"""Which programs of one launch touched the same memory without order between them?

In the interpreter programs run one after the other, on a GPU side by side. So every stored element
carries the number of the store, and that the number of its program: a load of what another program
has stored to, before or after its own, is a race, unless an atomic of the one came after the store
and an atomic of the other, on the same address, before the load.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.uint64]
FLAGS = 8
"""An atomic on so many addresses may order programs; one on more does work."""


@dataclass
class StorageAccesses:
    """One storage of a launch. `last` has the number of the last store to each element, negative
    where another program had stored there before; None until a kernel stores to it."""

    start: int
    end: int
    size: int
    last: npt.NDArray[np.int32] | None = None


@dataclass
class LaunchAccesses:
    """The stores and atomics of the current launch. `races` are kept over launches."""

    races: list[str] = field(default_factory=list)
    storages: list[StorageAccesses] = field(default_factory=list)
    program: int = 0
    first: int = 1
    """The number that the first store of the program at hand has, or will have."""
    programs: list[int] = field(default_factory=lambda: [-1])
    """The program of each store, by its number; stores count from 1."""
    released: dict[int, dict[int, int]] = field(default_factory=dict)
    """For each address of an atomic: which stores, up to which number, of which programs are done
    for whoever meets them there."""
    acquired: dict[int, dict[int, int]] = field(default_factory=dict)
    """The same for each program that has met others."""

    def launch(self) -> None:
        """A launch begins."""
        self.storages, self.programs = [], [-1]
        self.released, self.acquired = {}, defaultdict(dict)
        self.begin(0)

    def begin(self, program: int) -> None:
        """The next program of the launch begins."""
        self.program, self.first = program, len(self.programs)

    def add(self, start: int, end: int, size: int) -> None:
        """A tensor of the launch, of elements of `size` bytes, lies between these addresses."""
        for item in self.storages:
            if item.start == start:
                item.size = min(item.size, size)
                return
        self.storages.append(StorageAccesses(start, end, size))

    def store(self, places: Places, size: int) -> int | None:
        """The program at hand stores elements of `size` bytes at `places`. Gives the address of
        their storage; None where they lie in none, or in several."""
        storage = self._at(places)
        if storage is None or size < storage.size:
            return None if storage is None else storage.start
        number = len(self.programs)
        self.programs.append(self.program)
        if storage.last is None:
            count = (storage.end - storage.start) // storage.size + 1
            storage.last = np.zeros(count, dtype=np.int32)
        at = self._elements(storage, places)
        over = self._unordered(storage.last[at])
        storage.last[at] = number
        if over is not None:
            storage.last[at[over]] = -number
        return storage.start

    def load(self, places: Places, where: Callable[[], str]) -> None:
        """The program at hand loads from `places`; `where` says in which line."""
        storage = self._at(places)
        if storage is None:
            return
        if places.size == 1 and int(places.flat[0]) in self.released:
            self._meet(int(places.flat[0]))
        if storage.last is None:
            return
        if self._unordered(storage.last[self._elements(storage, places)]) is not None:
            text = f"{where()}: loads what another program of the launch stores, without an atomic"
            if text not in self.races:
                self.races.append(text)

    def atomic(self, places: Places) -> None:
        """The program at hand comes after those that were here, and before those to come."""
        if places.size > FLAGS:
            return
        for place in places.flat:
            self._meet(int(place))
            mine = self.released.setdefault(int(place), {})
            mine.update(self.acquired[self.program])
            mine[self.program] = len(self.programs) - 1

    def storage_of(self, places: Places) -> int | None:
        """The address of the storage that all of `places` lie in."""
        storage = self._at(places)
        return None if storage is None else storage.start

    def _meet(self, place: int) -> None:
        known = self.acquired[self.program]
        for program, number in self.released.get(place, {}).items():
            known[program] = max(number, known.get(program, 0))

    def _unordered(self, stores: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_] | None:
        """Which of these stores, 0 for none, another program made and nothing orders before this
        moment; None where there is none."""
        # Programs run one after the other: what is older than the first store of this one is not
        # its own.
        older = (stores != 0) & (stores < self.first)
        if not older.any():
            return None
        known = self.acquired.get(self.program)
        if known:
            for number in np.unique(stores[older]).tolist():
                if 0 < number <= known.get(self.programs[number], 0):
                    older &= stores != number
        return older if older.any() else None

    def _at(self, places: Places) -> StorageAccesses | None:
        if places.size == 0:
            return None
        low, high = int(places.min()), int(places.max())
        return next((item for item in self.storages if item.start <= low and high < item.end), None)

    @staticmethod
    def _elements(storage: StorageAccesses, places: Places) -> npt.NDArray[np.int64]:
        return ((places - np.uint64(storage.start)) // np.uint64(storage.size)).astype(np.int64)
