"""How many sentences of somebody who never saw the readers do they understand?

Of 103 requests 86 were when the set was first asked; 3 sentences were read otherwise than meant,
and none is since clauses that explain are set aside and what is not allowed is not forbidden again.
No sentence of it was learned from: the floor below must not sink.
"""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import TypeAdapter

from agentkernel.chat.language import understand
from agentkernel.chat.requests import Understood
from tests.chat.language.test_intents_paraphrases import CONTEXT, NAMES, Row, name_of, says_no

ROWS = TypeAdapter(tuple[Row, ...]).validate_python(
    yaml.safe_load(Path(__file__).with_name("paraphrases_third.yaml").read_text(encoding="utf-8"))
)
LEAST_UNDERSTOOD = 0.80
MOST_MISREAD = 0


def test_a_set_that_nothing_was_learned_from() -> None:
    """At least 80 in a hundred are understood; none is misread."""
    right, misread = 0, []
    for row in ROWS:
        found = understand(row.text, CONTEXT)
        if not isinstance(found, Understood) or (says_no(found) and not row.means):
            continue
        wanted = [NAMES.get(name, frozenset({name})) for name in row.means]
        names = [name_of(intent) for intent in found.intents]
        if len(names) == len(wanted) and all(map(frozenset.__contains__, wanted, names)):
            right += 1
        else:
            misread.append(row.text)
    asking = sum(bool(row.means) for row in ROWS)
    assert right >= LEAST_UNDERSTOOD * asking
    assert len(misread) <= MOST_MISREAD, misread
