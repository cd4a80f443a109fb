"""Do the words leave open what was read in them: a wish, a deliberation, a regret, a condition?"""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.chat.intent import Intent
from agentkernel.chat.language.grammar import read_only_requests
from agentkernel.chat.language.patterns import Pattern
from agentkernel.chat.language.polarity import is_question
from agentkernel.chat.language.tags import Tag
from agentkernel.chat.language.text import HARD_BREAKS, words_of
from agentkernel.chat.language.told import LEAD

HEDGE = Pattern(
    LEAD + r"(?:i (?:could|might|may|was going to|was about to|wish|would have|could have"
    r"|should have|had thought|thought about|regret|doubt)\b"
    r"|we (?:might|were going to|would have|should have|could have|wish|regret|doubt)\b"
    r"|you (?:would have|should have|could have|might have)\b"
    r"|(?:maybe|perhaps) i should\b|remind me to\b|forget that i\b"
    r"|(?:imagine|suppose|assume|assuming|pretend|say|let us say|let us assume|let us pretend) "
    r"(?:that )?(?:i|we|you|it)\b)"
)
"""Who might, wishes or imagines has not decided."""
ONLY_EXPLAINS = Pattern(
    r"^(?:because|so that|in order to|so (?:i|we|they|he|she) (?:can|could|will|might)\b)[^,:;.]*$"
)
"""A reason or a purpose, and nothing beside it."""
DELIBERATION = Pattern(
    LEAD + r"(?:do|does|did|must|need|ought|shall) (?:i|we|they|it) (?!know\b|see\b)"
    r"|" + LEAD + r"(?:is|was|would) (?:it|there|that) (?:worth|necessary|wise|smart|safe|sensible"
    r"|a good idea|better|make sense|any point|any need)\b"
)
"""Whether something should be done is asked: "do I need to save it"."""
MISTAKE = Pattern(
    r"\b(?:was|is|would be|were) (?:probably |clearly |just |perhaps )?"
    r"(?:a |an |my )?(?:\w+ )?(?:mistake|error|blunder|bad idea|bad move)\b|\bregret\b"
)
RULED_OUT = Pattern(LEAD + r"(?:instead of|rather than|in place of|as opposed to) \w+ing\b")
"""What is not wanted stands first, and no comma says where it ends."""
WRONG_TO = Pattern(r"\b(?:mistake|error|blunder|bad idea|bad move|wrong) to\b")
TAKES_BACK = words_of("undo reject return_to restart precision policy repair redo stop decline")
"""What one does about a mistake."""
POSTPONED = Pattern(
    r"\b(?:later|tomorrow|tonight|some ?day|eventually|at some point|next week|another time)\b"
)
ON_ALREADY = Pattern(
    LEAD + r"\S+ (?:is|are) (?:already |now |still |currently )*"
    r"(?:on|enabled|active|in use|in force|set|switched on|turned on)$"
)
"""What is so: "tf32 is on"."""
CONDITION = Pattern(r"\b(?:when|once|as soon as|after|until|till|if)\b")
RUN_LIMITS = frozenset({"stop_at", "budget"})
AT_ONCE = words_of("save export keep reject return_to undo redo fork restart switch_branch")
"""Requests that are done as they are read, which is too early where they wait for a goal."""
USES = Pattern(
    LEAD + r"(?:our|my|the|their|every\w+|most|some) (?:[^, ]+ ){0,3}"
    r"(?:runs?|uses?|trains?|serves?|trained|likes?|hates?|loves?)\b(?!.*(?:,| so | then ))"
)
FEELS = Pattern(LEAD + r"(?:i|we) (?:really |just )?(?:hate|dislike|fear|distrust|love)\b")
"""What others do, or somebody feels, allows nothing yet."""
ALLOWANCES = frozenset({"precision", "policy", "dtype"})
COMPARED = Pattern(
    r"^(?:\S+ ){1,3}(?:is|was|looks|seems) (?:much |far |way |a bit |slightly |even )?"
    r"(?:\w+er|better|worse|more \w+|less \w+) than\b"
)
SPOKEN = frozenset({"approve", "decline", "quit"})


def is_undecided(tags: Sequence[Tag], found: Sequence[Intent]) -> bool:
    """True where the requests that were read should be asked back before they are done. Those that
    only look are in doubt only where two candidates are compared by a statement."""
    changing: set[str] = {
        item.name
        for item in found
        if item.name not in read_only_requests() and item.name not in SPOKEN
    }
    if not changing:
        return any(_states_a_comparison(sentence) for sentence in _sentences(tags))
    text = _text(tags)
    return (
        any(_leaves_open(sentence, changing) for sentence in _sentences(tags))
        or (len(found) > 1 and bool(RULED_OUT.match(text)))
        or _waits_for_a_goal(text, changing)
        or _drops_an_act(tags, changing)
        or bool(WRONG_TO.search(text))
        or (bool(MISTAKE.search(text)) and not changing <= TAKES_BACK)
    )


def _leaves_open(sentence: Sequence[Tag], changing: set[str]) -> bool:
    text = _text(sentence)
    if any(each.match(text) for each in (HEDGE, DELIBERATION, FEELS)) or POSTPONED.search(text):
        return True
    if any(each.match(text.rstrip(" .!")) for each in (ON_ALREADY, ONLY_EXPLAINS)):
        return True
    return changing <= ALLOWANCES and bool(USES.match(text))


def _states_a_comparison(sentence: Sequence[Tag]) -> bool:
    asked = is_question(list(sentence)) or sentence[-1].text == "?"
    return bool(COMPARED.match(_text(sentence))) and not asked


def _waits_for_a_goal(text: str, changing: set[str]) -> bool:
    """True for "save it when you reach 2x": read as a goal and something that is done at once."""
    ends = bool(changing & RUN_LIMITS) and bool(changing & AT_ONCE)
    return ends and bool(CONDITION.search(text))


def _drops_an_act(tags: Sequence[Tag], changing: set[str]) -> bool:
    """True for "export it after 10 minutes" where only the time was read."""
    return changing <= RUN_LIMITS and any(
        tag.has("EXPORT", "UNDO", "REJECT", "FORK", "RESTART")
        and not tag.has("FILLER", "STOP", "UNTIL", "GOAL", "FORBID", "DROPIN")
        for tag in tags
    )


def _sentences(tags: Sequence[Tag]) -> list[list[Tag]]:
    found: list[list[Tag]] = [[]]
    for tag in tags:
        found[-1].append(tag)
        if tag.text in HARD_BREAKS:
            found.append([])
    return [each for each in found if each]


def _text(tags: Sequence[Tag]) -> str:
    return " ".join(tag.text for tag in tags)
