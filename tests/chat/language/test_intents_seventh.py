"""How does a seventh set of everyday wishes fare, written by somebody who saw no reader?

As it stood, 79 of 100 were understood, 11 asked back, 3 not understood, and 7 misread: a
question of knowledge taken for one about a kernel (2), a limit of memory left out of a question
about a card, a request beside another left out or added (2), and two taken for what is never
done or for a fact. The reader before it understood 63 and misread 9. The figures below are those
after its failures were read and families were written of their kinds, so that they are a floor, and
no estimate. No sentence of it is among those that the weights were learned from.
"""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import TypeAdapter

from tests.chat.language.test_intents_fifth import Row
from tests.chat.language.test_intents_sixth import is_read

LEAST_UNDERSTOOD = 98
MOST_MISREAD = 1

ROWS = TypeAdapter(tuple[Row, ...]).validate_python(
    yaml.safe_load(Path(__file__).with_name("blind_7.yaml").read_text(encoding="utf-8"))
)


def test_so_many_are_understood_as_when_it_was_first_asked() -> None:
    found = [is_read(row) for row in ROWS]
    assert len(found) == 100
    assert found.count(True) >= LEAST_UNDERSTOOD
    assert found.count(False) <= MOST_MISREAD
