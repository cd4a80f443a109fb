"""Reductions by their monoids: extrema and their places, truth values, products, in every form."""

from collections.abc import Callable

import pytest
import torch

from agentkernel.compiler.kernel_helpers import HELPERS
from agentkernel.compiler.monoid import MONOIDS
from tests.compiler.families import functional
from tests.compiler.forms import FORMS, written
from tests.compiler.sandboxed_drop_in import Sandboxed

FUNCTIONS: dict[str, Callable[[torch.Tensor], object]] = {
    "max": lambda x: tuple(x.max(-1)),
    "min_columns": lambda x: tuple(x.min(0)),
    "argmin_whole": lambda x: x.nan_to_num(0, 9, -9).int().argmin(-1),
    "truth": lambda x: ((x > 2).any(-1), (x > -9).all(-1)),
    "prod": lambda x: (x.nan_to_num(1, 2, 2) / 4).prod(-1),
}


def _special(rows: int, length: int) -> torch.Tensor:
    """Equal values, NaN, infinities, and rows of nothing else."""
    torch.manual_seed(0)
    x = torch.randint(-3, 3, (rows, length)).float()
    x[0, 5], x[0, 9] = float("nan"), float("nan")
    x[1], x[2], x[3, -1] = -float("inf"), float("inf"), float("nan")
    return x


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_form_gives_what_eager_gives(box: Sandboxed, name: str) -> None:
    x = _special(17, 129)
    module = functional(FUNCTIONS[name])
    wanted = module(x)
    listed = wanted if isinstance(wanted, tuple) else (wanted,)
    for form in FORMS:
        found = box.call(written(module, (x,), form), module, (x,))
        for ours, theirs in zip(found, listed, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0, equal_nan=True)


def test_places_are_shared_among_programs() -> None:
    """A long row of few: its chunks leave behind the extremum and its place."""
    text = written(functional(lambda x: x.argmax(-1)), (torch.randn(2, 4096),), "split")
    assert "argmax_place_partials" in text


def test_every_monoid_names_its_lanes_and_known_helpers() -> None:
    for monoid in MONOIDS.values():
        named = {lane.name: "x" for lane in monoid.lanes}
        assert all(result.format(**named) for result in monoid.results)
        assert monoid.sign or monoid.combine.startswith("tl.") or monoid.combine in HELPERS
        folds = [lane.fold.format(**named, axis=0, keep="", many=False) for lane in monoid.lanes]
        assert not any("{" in fold for fold in folds)
