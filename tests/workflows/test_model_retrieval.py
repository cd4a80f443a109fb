"""What was learned reaches a model, which then needs fewer drafts."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from tests.workflows.model_story import FAST, THREE, TWO, Place, all_of, said, seen

# isort: split
from tests.agents.models.chat_server import Answer

STEPS = dict(pairwise((THREE, TWO, FAST)))
START = "## Start from this kernel"
DROP_IN = "# Its drop-in:\n"


@dataclass
class Reader:
    """Gives the kernel to start from where it is shown one; else begins with three launches, and
    takes one away from the best file that it is shown."""

    shown: list[bool] = field(default_factory=list)

    def __call__(self, request: dict[str, object]) -> Answer:
        text = all_of(request)
        example = text.partition(START)[2].partition(DROP_IN)[2].partition("```")[0]
        self.shown.append(bool(example))
        best = seen(request).best
        if best is not None:
            return said(STEPS.get(best, best))
        return said(example or THREE)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    return made


@pytest.mark.slow
def test_a_model_that_is_shown_what_won_begins_with_it(place: Place) -> None:
    """Three drafts alone, fewer with what they taught; three again without the knowledge base."""
    goal = ("--speedup", "2.5")
    alone, taught, untold = Reader(), Reader(), Reader()
    first = place.optimize(alone, *goal)
    second = place.optimize(taught, *goal)
    third = place.optimize(untold, *goal, "-c", "knowledge.limit=0")
    assert [item.handed_over() for item in (first, second, third)] == [FAST] * 3
    assert first.sources() == third.sources() == [THREE, TWO, FAST]
    assert second.sources()[0] == FAST
    assert len(second.sources()) < len(first.sources())
    assert (alone.shown[0], taught.shown[0], any(untold.shown)) == (False, True, False)
    print(f"drafts: {len(first.sources())} alone, {len(second.sources())} with experience")
