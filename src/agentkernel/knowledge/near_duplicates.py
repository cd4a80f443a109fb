"""Has a source nearly the same text as one that was seen before, its names and comments aside?"""

from __future__ import annotations

import keyword
import re
import zlib
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from agentkernel.knowledge.op_names import FAMILIES

PERMUTATIONS = 128
BANDS = 16
"""Bands of 8 rows: two sources with a Jaccard similarity of 0.9 meet in a band with a chance of
0.9999, of 0.8 with 0.95, of 0.5 with 0.06 (1 - (1 - s^8)^16)."""
SHINGLE = 5
"""Tokens in a shingle."""
THRESHOLD = 0.9
"""Estimated Jaccard similarity of the shingle sets from which two sources are one."""
MOST_IN_BUCKET = 8
"""Rows compared from one bucket of a band: a bound on time where thousands look alike."""
MOST_CHARACTERS = 100_000
Signature = NDArray[np.uint32]

_ROWS = PERMUTATIONS // BANDS
_TOKEN = re.compile(
    r"#[^\n]*"
    r"|[rRbBuUfF]{0,2}(?:\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''"
    r"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|[A-Za-z_]\w*|\d[\w.]*|\n|\*\*|//|->|[<>=!]=|[^\s\w]",
    re.DOTALL,
)
_KEPT = frozenset(
    [
        *keyword.kwlist,
        *("self", "torch", "nn", "F", "forward", "dim", "keepdim", "size"),
        *("Module", "Sequential", "ModuleList", "Parameter"),
        *(
            word
            for ops in FAMILIES.values()
            for op, others in ops.items()
            for word in (op, *others.split())
        ),
    ]
)
_random = np.random.Generator(np.random.PCG64(20_240_607))
_MULTIPLIERS = _random.integers(0, 2**63, PERMUTATIONS, dtype=np.uint64) * np.uint64(2) + np.uint64(
    1
)
_OFFSETS = _random.integers(0, 2**63, PERMUTATIONS, dtype=np.uint64)
_STEPS = _random.integers(0, 2**63, SHINGLE, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
_ROW_STEPS = _random.integers(0, 2**63, _ROWS, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
_BAND_STEPS = _random.integers(0, 2**63, BANDS, dtype=np.uint64)


class NearDuplicates:
    """The sources seen so far, as MinHash signatures in banded buckets.

    It holds no state on disk: after a restart it is made again from the problems of the stored
    entries (`NearDuplicates.of`, under a millisecond each), so there is nothing to fall out of step
    with them. About 3 KB of memory for each source kept.
    """

    def __init__(self, threshold: float = THRESHOLD) -> None:
        self.threshold = threshold
        self._signatures = np.empty((1024, PERMUTATIONS), dtype=np.uint32)
        self._count = 0
        self._buckets: dict[int, int | tuple[int, ...]] = {}

    @classmethod
    def of(cls, sources: Iterable[str], threshold: float = THRESHOLD) -> NearDuplicates:
        """One that has seen `sources`."""
        seen = cls(threshold)
        for source in sources:
            seen.add(source)
        return seen

    def __len__(self) -> int:
        return self._count

    def add(self, source: str) -> bool:
        """Keep `source` unless one like it is kept already; whether it was kept."""
        signature = signature_of(source)
        keys = _band_keys(signature)
        if self._nearest(signature, keys) >= self.threshold:
            return False
        if self._count == len(self._signatures):
            self._signatures = np.concatenate([self._signatures, np.empty_like(self._signatures)])
        self._signatures[self._count] = signature
        for key in keys:
            held = self._buckets.get(key)
            if held is None:
                self._buckets[key] = self._count
            else:
                rows = held if isinstance(held, tuple) else (held,)
                if len(rows) < MOST_IN_BUCKET:
                    self._buckets[key] = (*rows, self._count)
        self._count += 1
        return True

    def _nearest(self, signature: Signature, keys: list[int]) -> float:
        """The highest estimated similarity among the sources that share a band; 0 for none."""
        rows: set[int] = set()
        for key in keys:
            held = self._buckets.get(key)
            if held is not None:
                rows.update(held if isinstance(held, tuple) else (held,))
        if not rows:
            return 0.0
        same = self._signatures[list(rows)] == signature
        return float(same.mean(axis=1).max())


def signature_of(source: str) -> Signature:
    """uint32[128]: for each hash function the least hash of the source's shingles.

    The share of equal places of two signatures estimates the Jaccard similarity of the sets.
    """
    hashes = np.fromiter(map(_token_hash, _tokens(source)), dtype=np.uint64)
    if len(hashes) < SHINGLE:
        hashes = np.concatenate([hashes, np.zeros(SHINGLE - len(hashes), dtype=np.uint64)])
    count = len(hashes) - SHINGLE + 1
    shingles = np.zeros(count, dtype=np.uint64)
    for place, step in enumerate(_STEPS):
        shingles += hashes[place : place + count] * step
    shingles = np.unique(shingles ^ (shingles >> np.uint64(31)))
    mixed = np.multiply.outer(_MULTIPLIERS, shingles) + _OFFSETS[:, None]
    least: Signature = (mixed >> np.uint64(32)).astype(np.uint32).min(axis=1)
    return least


def likeness(a: Signature, b: Signature) -> float:
    """Estimated Jaccard similarity, in [0, 1]."""
    return float((a == b).mean())


def _band_keys(signature: Signature) -> list[int]:
    """One integer of 63 bits a band: its rows' mixed sum, with the band's number mixed in."""
    rows = signature.reshape(BANDS, _ROWS).astype(np.uint64)
    sums = (rows * _ROW_STEPS).sum(axis=1, dtype=np.uint64) + _BAND_STEPS
    keys: list[int] = (sums >> np.uint64(1)).tolist()
    return keys


def _tokens(source: str) -> list[str]:
    """The source's tokens: ops, keywords, numbers and signs as they are, other names as `N`,
    strings as `S`; no comments, docstrings or line ends."""
    found: list[str] = []
    fresh = True
    for token in _TOKEN.findall(source[:MOST_CHARACTERS]):
        first = token[0]
        if first == "\n":
            fresh = True
            continue
        if first == "#":
            continue
        if first.isalpha() or first == "_":
            if token[-1] in "\"'":
                kind = "" if fresh else "S"
            else:
                kind = token if token in _KEPT else "N"
        elif first in "\"'":
            kind = "" if fresh else "S"
        else:
            kind = token
        if kind:
            found.append(kind)
        fresh = False
    return found


@lru_cache(maxsize=65_536)
def _token_hash(token: str) -> int:
    """64 bits, the same in every process."""
    content = token.encode(errors="replace")
    return (zlib.crc32(content) << 32 | zlib.crc32(content, 0x9E3779B9)) & 0xFFFF_FFFF_FFFF_FFFF
