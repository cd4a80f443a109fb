"""How do an eighth and a ninth set fare, written by two people who saw no reader?

The ninth has ten requests of each of ten kinds of people. As they were first asked, 79 and 60 of
100 were understood and 4 and 9 misread; with families that were written without sight of them, the
figures below, which are blind ones. Most of the rest is asked back with the right reading as the
only one. To take that reading where the ranking gives it 0.97 or more reads 86 and 73, and also
does what a statement or a "don't" names (66 tests of this folder): it is asked back.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter

from tests.chat.language import test_intents_sixth
from tests.chat.language.test_intents_fifth import CONTEXT, Row

ROWS = TypeAdapter(tuple[Row, ...])


@pytest.mark.parametrize(("number", "understood", "misread"), [(8, 82, 3), (9, 66, 12)])
def test_so_many_are_understood_of_sets_that_nothing_was_learned_from(
    monkeypatch: pytest.MonkeyPatch, number: int, understood: int, misread: int
) -> None:
    here = CONTEXT.evolve(candidates=(1, 2, 3, 4), current=4)
    monkeypatch.setattr(test_intents_sixth, "CONTEXT", here)
    path = Path(__file__).with_name(f"blind_{number}.yaml")
    rows = ROWS.validate_python(yaml.safe_load(path.read_text(encoding="utf-8")))
    found = [test_intents_sixth.is_read(row) for row in rows]
    assert len(found) == 100
    assert found.count(True) >= understood
    assert found.count(False) <= misread
