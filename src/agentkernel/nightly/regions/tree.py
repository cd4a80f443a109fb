"""How do dotted module paths lie in one another?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping


def ancestors(path: str) -> Iterator[str]:
    """Paths that `path` lies in, the nearest first, the model itself ("") last."""
    while path:
        path = path.rpartition(".")[0]
        yield path


def nearest(path: str, among: Collection[str]) -> str | None:
    """The nearest proper ancestor of `path` that is `among` these; None where there is none."""
    return next((item for item in ancestors(path) if item in among), None)


def heaviest(weights: Mapping[str, float]) -> float:
    """The largest sum of weights over paths of which none lies in another."""
    inside: dict[str, float] = {}
    total = 0.0
    for path in sorted(weights, key=lambda item: item.count(".") + bool(item), reverse=True):
        best = max(weights[path], inside.get(path, 0.0))
        parent = nearest(path, weights)
        if parent is None:
            total += best
        else:
            inside[parent] = inside.get(parent, 0.0) + best
    return total
