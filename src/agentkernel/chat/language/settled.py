"""Which of the requests that were read are left to do, and do they contradict each other?"""

from __future__ import annotations

from itertools import product

from agentkernel.chat.intent import Ambiguous, Intent, Run, Understood
from agentkernel.chat.language.parts import ANSWERS, SETTINGS, NoReading


def resolve_requests(found: list[Intent], shown: str) -> Understood | Ambiguous:
    """Without a "yes" before the request itself and without repetitions; contradictions asked."""
    if any(intent.name not in ANSWERS for intent in found):
        found = [intent for intent in found if intent.name not in ANSWERS]
    found = _collapsed(found)
    unique = [intent for at, intent in enumerate(found) if intent not in found[:at]]
    if not unique:
        raise NoReading("Nothing in it to do.")
    for one, other in product(unique, unique):
        if one.name == other.name and one != other and one.name in SETTINGS:
            return Ambiguous(text=shown, options=((one,), (other,)))
    return Understood(intents=tuple(unique))


def _collapsed(found: list[Intent]) -> list[Intent]:
    """ "keep 9, that's the winner" keeps one; "redo it with batch 64" runs again."""
    kept = [intent for intent in found if intent.name == "keep"]
    if len(kept) > 1:
        found = [i for i in found if i.name != "keep" or i.candidate != "current"]
    if any(intent.name in SETTINGS for intent in found):
        found = [Run() if intent.name == "redo" else intent for intent in found]
    return found
