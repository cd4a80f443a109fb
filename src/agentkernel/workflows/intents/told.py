"""Does a clause tell, wonder or suppose something instead of asking for it?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentkernel.domain.intent import Intent
from agentkernel.workflows.intents.polarity import is_question
from agentkernel.workflows.intents.tags import Tag
from agentkernel.workflows.intents.text import HARD_BREAKS, words_of

ASKING = ("SHOW", "TELL", "EXPLAIN", "POLITE", "MAY", "WHAT", "WHERE", "HOW")
DEMANDED = re.compile(r"\b(?:have|has|had|need|needs) to\b|\b(?:must|should)\b")
LEAD = r"^(?:(?:and|but|so|well|ok|hmm|also|then|,|-|:|maybe|perhaps|i think|i guess) )*"
PAST = re.compile(
    LEAD + r"(?:i|we|you|they|he|she|somebody|someone|nobody|everybody|everyone) "
    r"(?:(?:already|just|once|only|never|almost|nearly|also|even|all|both|have|has|had) )*"
    r"(?:[a-z]{2,}(?<!e)ed|used|kept|went|ran|undid|saved|took|dropped|gave|stopped|wrote|said|told"
    r"|thought|did|made|got|tried|chose|threw|put it|began|left|lost|found|came|had)\b"
)
"""What somebody did: "we used tf32", "I have already kept c3"."""
NO_PAST = words_of("need exceed proceed feed speed embed agreed changed wanted")
PAST_FACT = re.compile(
    LEAD + r"(?!what\b|which\b|how\b|why\b)(?:\S+ ){1,5}?"
    r"(?:was|were|used to be|(?:had|has|have) (?:been|passed))\b"
)
"""What held: "the goal was 2x"."""
HELD = words_of("stop_at budget memory_limit precision dtype run shapes policy target")
"""Requests that are not made by what once held."""
HAS = re.compile(
    LEAD + r"(?:i|we|they|there|it|you|this)(?: only| now)? (?:have|has|had|are|were|is|was)\b"
)
HEDGE = re.compile(
    LEAD + r"(?:i (?:could|might|may|was going to|was about to|wish|would have|could have"
    r"|should have|had thought|thought about|regret|doubt)\b"
    r"|we (?:might|were going to|would have|should have|could have|wish|regret|doubt)\b"
    r"|you (?:would have|should have|could have|might have)\b"
    r"|(?:maybe|perhaps) i should\b)"
)
"""Who might, or wishes, has not decided."""
DELIBERATION = re.compile(
    LEAD + r"(?:do|does|did|must|need|ought|shall) (?:i|we|they|it) (?!know\b|see\b)"
    r"|" + LEAD + r"(?:is|was|would) (?:it|there|that) (?:worth|necessary|wise|smart|safe|sensible"
    r"|a good idea|better|make sense|any point|any need)\b"
)
"""Whether something should be done is asked: "do I need to save it"."""
MISTAKE = re.compile(
    r"\b(?:was|is|would be|were) (?:probably |clearly |just |perhaps )?"
    r"(?:a |an |my )?(?:\w+ )?(?:mistake|error|blunder|bad idea|bad move)\b|\bregret\b"
)
RULED_OUT = re.compile(LEAD + r"(?:instead of|rather than|in place of|as opposed to) \w+ing\b")
"""What is not wanted stands first, and no comma says where it ends."""
TAKES_BACK = words_of("undo reject return_to restart precision policy repair redo stop decline")
"""What one does about a mistake."""
POSTPONED = re.compile(
    r"\b(?:later|tomorrow|tonight|some ?day|eventually|at some point|next week|another time)\b"
)
ON_ALREADY = re.compile(
    LEAD + r"\S+ (?:is|are) (?:already |now |still |currently )*"
    r"(?:on|enabled|active|in use|in force|set|switched on|turned on)$"
)
"""What is so: "tf32 is on"."""
CONDITION = re.compile(r"\b(?:when|once|as soon as|after|until|till|if)\b")
ENDS_OF_A_RUN = frozenset({"stop_at", "budget"})
AT_ONCE = words_of("save export keep reject return_to undo redo fork restart switch_branch")
"""Requests that are done as they are read, which is too early where they wait for a goal."""
USES = re.compile(
    LEAD + r"(?:our|my|the|their|every\w+|most|some) (?:[^, ]+ ){0,3}"
    r"(?:runs?|uses?|trains?|serves?|trained|likes?|hates?|loves?)\b(?!.*(?:,| so | then ))"
)
FEELS = re.compile(LEAD + r"(?:i|we) (?:really |just )?(?:hate|dislike|fear|distrust|love)\b")
"""What others do, or somebody feels, allows nothing yet."""
ALLOWANCES = frozenset({"precision", "policy", "dtype"})
COMPARED = re.compile(
    r"^(?:\S+ ){1,3}(?:is|was|looks|seems) (?:much |far |way |a bit |slightly |even )?"
    r"(?:\w+er|better|worse|more \w+|less \w+) than\b"
)
SPOKEN = ("approve", "decline", "quit")


def is_told(tags: Sequence[Tag]) -> bool:
    """True for "we pay for electricity": a statement of a person or a thing, with no word that
    asks."""
    words = [tag for tag in tags if not tag.has("MARK", "SEP") and tag.text not in ("so", "but")]
    return (
        bool(words)
        and words[0].text in ("i", "we", "they", "it", "he", "she")
        and not any(tag.has(*ASKING) for tag in words)
    )


def is_demanded(tags: Sequence[Tag]) -> bool:
    """True for "numerics have to match": what is to hold, not what is to be checked."""
    return bool(DEMANDED.search(_text(tags))) and not any(tag.has("VERIFY") for tag in tags)


def is_reported(tags: Sequence[Tag]) -> bool:
    """True for "it is 2x faster", "it uses cublas": what is, not what is to be."""
    words = [tag for tag in tags if not tag.has("MARK", "SEP")]
    first = words[0].text.split(" ")[0] if words else ""
    text = _text(words).split()
    return (
        first in ("it", "this", "they", "he", "she")
        and not any(tag.has("UNTIL", "STOP", "ATLEAST", "ALLOW", "POLITE", "NEG") for tag in words)
        and not {"should", "must", "needs", "need", "has", "will", "may", "can"}.intersection(text)
    )


def is_past(tags: Sequence[Tag]) -> bool:
    """True for "I allowed tf32 earlier": what was done, not what is to be done."""
    found = PAST.match(_text([tag for tag in tags if not tag.has("MARK")]))
    return found is not None and found[0].split()[-1] not in NO_PAST


def is_past_fact(tags: Sequence[Tag]) -> bool:
    """True for "the goal was 2x"."""
    return bool(PAST_FACT.match(_text(tags)))


def is_inventory(tags: Sequence[Tag]) -> bool:
    """True for "we have 3 candidates": what there is."""
    return bool(HAS.match(_text(tags)))


def unsettled(tags: Sequence[Tag], found: Sequence[Intent], looks: frozenset[str]) -> bool:
    """True where the words ask for nothing yet, whatever was read in them: a wish, a deliberation,
    a mistake that is regretted, a comparison that is stated. `looks`: names of requests that
    change nothing."""
    changing = [item.name for item in found if item.name not in looks and item.name not in SPOKEN]
    for sentence in _sentences(tags):
        text = _text(sentence)
        if changing and any(each.match(text) for each in (HEDGE, DELIBERATION, FEELS)):
            return True
        plain = text.rstrip(" .!")
        if changing and (POSTPONED.search(text) or ON_ALREADY.match(plain)):
            return True
        if ALLOWANCES.issuperset(changing) and changing and USES.match(text):
            return True
        if len(found) > 1 and RULED_OUT.match(text):
            return True
        if COMPARED.match(text) and not (is_question(sentence) or sentence[-1].text == "?"):
            return not changing
    names = set(changing)
    if names & ENDS_OF_A_RUN and names & AT_ONCE and CONDITION.search(_text(tags)):
        return True
    wrong = MISTAKE.search(_text(tags))
    return bool(wrong) and any(name not in TAKES_BACK for name in changing)


def _sentences(tags: Sequence[Tag]) -> list[list[Tag]]:
    found: list[list[Tag]] = [[]]
    for tag in tags:
        found[-1].append(tag)
        if tag.text in HARD_BREAKS:
            found.append([])
    return [each for each in found if each]


def _text(tags: Sequence[Tag]) -> str:
    return " ".join(tag.text for tag in tags)
