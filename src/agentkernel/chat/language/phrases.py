"""Phrases of a sentence: joined values, the reach of a negation, questions and statements.

Examples of values: "50 ms", "candidate 3", "the second idea". A clause in the past or a report
("it is 2x faster") asks for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from agentkernel.chat.language.tagging import (
    Pattern,
    Tag,
    clean,
    entries,
    merged,
    negated,
    sentences,
    tag_tokens,
    text_of,
    tokenise,
    words_of,
)

SECONDS = {
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
    "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hrs": 3600.0, "hour": 3600.0, "hours": 3600.0,
}  # fmt: skip
MICROSECONDS = {
    "ns": 1e-3, "nanoseconds": 1e-3, "us": 1.0, "usec": 1.0, "microsecond": 1.0,
    "microseconds": 1.0, "ms": 1e3, "msec": 1e3, "millisecond": 1e3, "milliseconds": 1e3,
}  # fmt: skip
BYTES = {
    "bytes": 1, "b": 1,
    "kb": 2**10, "kib": 2**10, "kilobytes": 2**10,
    "mb": 2**20, "mib": 2**20, "meg": 2**20, "megs": 2**20, "megabytes": 2**20,
    "gb": 2**30, "gib": 2**30, "gig": 2**30, "gigs": 2**30, "gigabytes": 2**30, "g": 2**30,
    "gigabyte": 2**30, "megabyte": 2**20, "tb": 2**40,
}  # fmt: skip
"""GPUs' sizes count in powers of two, whichever way they are written."""
TIMES = words_of("x times fold × speedup speed-up")
MONEY = frozenset({"dollars", "dollar", "usd", "bucks", "buck"})
FACTORS = {"twice": 2.0, "double": 2.0, "doubled": 2.0, "triple": 3.0, "thrice": 3.0,
           "quadruple": 4.0, "twofold": 2.0, "threefold": 3.0, "doubling": 2.0}  # fmt: skip
HALVES = {"half": 0.5, "halve": 0.5, "halved": 0.5, "halving": 0.5, "third": 1 / 3,
          "quarter": 0.25}  # fmt: skip
BETWEEN = words_of("of to = is are number no # : at should be will was")
TRUNK = frozenset({"main", "master", "trunk"})
MOST_BETWEEN = 3
MEASURES = frozenset({"long", "wide", "deep", "high", "tall"})
"""Adjectives behind a size: "8192 long"."""
NOT_COUNTED = words_of("instead again look looks better best first only")
COUNTED = words_of("gpu gpus cards devices machines machine workers things jobs layers")
MORE = words_of("more further extra additional another of other")
MORE_ROUNDS = frozenset({"more rounds", "more attempts", "more tries", "more candidates"})
RANGE = frozenset({"to", "-", "through", "and", "until"})
MOST_NUMBER = 10**9
MOST_KEPT = 256
"""Texts whose tags are kept: the readers of one line look at the same parts of it many times."""


def tags_of(text: str, targets: tuple[str, ...]) -> list[Tag]:
    """The tags of a cleaned text, those that make one value joined."""
    return list(_tags_of(text, targets))


@lru_cache(MOST_KEPT)
def _tags_of(text: str, targets: tuple[str, ...]) -> tuple[Tag, ...]:
    return tuple(with_values(tag_tokens(tokenise(text), targets)))


@lru_cache(MOST_KEPT)
def marked_tags(text: str, targets: tuple[str, ...]) -> tuple[Tag, ...]:
    """The tags of a text as typed, sentence by sentence, with values joined and polarity marked."""
    found = sentences(tags_of(clean(text), targets))
    return tuple(tag for sentence in found for tag in with_polarity(sentence))


def forget_tags() -> None:
    """Read each text anew, as where a line is typed for the first time."""
    _tags_of.cache_clear()
    marked_tags.cache_clear()


def with_values(tags: list[Tag]) -> list[Tag]:
    """The same tags, those that make one value joined."""
    found = _nouns(_quantities(tags))
    return [_counting(found, at) for at in range(len(found))]


def _counting(tags: list[Tag], at: int) -> Tag:
    """A bare number that counts something which no request has ("4 GPUs") names no candidate, nor
    does the unit of "tokens per second"."""
    tag = tags[at]
    behind = tags[at + 1] if at + 1 < len(tags) else None
    unit = tag.text == "second" and at and tags[at - 1].text == "per"
    if unit or (tag.text == "one" and at and _describes(tags[at - 1])):
        return Tag(frozenset({"FILLER"}), tag.text, tag.start, tag.end)
    if behind is None or not tag.has("NUM") or tag.text == "one":
        return tag
    word = behind.text.replace("-", "").isalpha() and behind.text not in NOT_COUNTED
    if (word and not behind.concepts) or behind.text in COUNTED:
        return merged([tag], "QUANTITY", tag.value)
    return tag


def _describes(tag: Tag) -> bool:
    """True for what makes a pronoun of "one": "that one", "a leaner one"."""
    bare = tag.text in ("of", "to", "and", "or", "from", "with", "than", "number", "by", "at")
    return not bare and (
        not tag.concepts or tag.has("FILLER", "THIS", "OTHER", "REDUCE", "SPEED", "SPENT")
    )


def _quantities(tags: list[Tag]) -> list[Tag]:
    found: list[Tag] = []
    at = 0
    while at < len(tags):
        tag, used = _quantity(tags, at)
        found.append(tag)
        at += used
    return found


def _quantity(tags: list[Tag], at: int) -> tuple[Tag, int]:
    """A number with the unit behind it, or the tag that stands here."""
    tag, after = tags[at], _texts(tags, at + 1, 3)
    if tag.text in FACTORS:
        return merged([tag], "TIMES", FACTORS[tag.text]), 1
    if tag.text in ("half", "quarter") and "hour" in after[:3]:
        used = after.index("hour") + 2
        return merged(tags[at : at + used], "DURATION", 3600 * HALVES[tag.text]), used
    if tag.text in HALVES and not tag.has("ORD"):
        return Tag(tag.concepts | {"HALF"}, tag.text, tag.start, tag.end, HALVES[tag.text]), 1
    if tag.text in ("a", "an") and after[0] in ("minute", "hour"):
        seconds = SECONDS[after[0]]
        if _texts(tags, at + 2, 3) == ["and", "a", "half"]:
            return merged(tags[at : at + 5], "DURATION", 1.5 * seconds), 5
        return merged(tags[at : at + 2], "DURATION", seconds), 2
    if not tag.has("NUM") or not isinstance(tag.value, float):
        return tag, 1
    number, unit = tag.value, after[0]
    skip = 1
    if unit in MORE or unit == "-":
        unit, skip = after[1], 2
    here = tags[at : at + skip + 1]
    for concept, scale in (("DURATION", SECONDS), ("RUNTIME", MICROSECONDS), ("BYTES", BYTES)):
        if unit in scale:
            return merged(here, concept, number * scale[unit]), skip + 1
    if unit in TIMES and not (unit == "times" and skip == 2):
        return merged(here, "TIMES", number), skip + 1
    if unit in ("%", "percent"):
        return merged(here, "PERCENT", number), skip + 1
    if unit in MONEY:
        return merged(here, "MONEY", number), skip + 1
    return tag, 1


def _nouns(tags: list[Tag]) -> list[Tag]:
    found: list[Tag] = []
    at = 0
    while at < len(tags):
        tag, used = _numbered(tags, at) or _named(tags, at) or (tags[at], 1)
        found.append(tag)
        at += used
    return found


def _numbered(tags: list[Tag], at: int) -> tuple[Tag, int] | None:
    """A number or an ordinal before its noun: "5 more rounds", "the third candidate"."""
    tag, rest = tags[at], tags[at + 1 : at + 3]
    while rest and rest[0].text in MORE and tag.has("NUM"):
        rest = rest[1:]
    if not rest:
        return None
    used = 1 + tags[at + 1 : at + 3].index(rest[0]) + 1
    here, noun = tags[at : at + used], rest[0]
    if tag.has("NUM") and _whole(tag):
        if noun.has("ROUNDWORD") or noun.text in MORE_ROUNDS:
            return merged(here, "ROUNDS", _whole(tag)), used
        if noun.has("STEPWORD"):
            return merged(here, "STEPS", _whole(tag)), used
    if tag.has("ORD"):
        if noun.text == "one":
            return merged(here, "ORD", tag.value), used
        for word, concept in (("LINEWORD", "LINE"), ("IDEAWORD", "IDEA"), ("CANDWORD", "CAND")):
            if noun.has(word):
                return merged(here, concept, tag.value), used
    if noun.has("IDEAWORD") and noun.text != "plan" and used == 2:
        if tag.text in ("next", "other", "another", "different", "alternative"):
            return merged(here, "IDEA", "next"), used
        if tag.text in ("last", "latest"):
            return merged(here, "IDEA", "last"), used
    return None


def _named(tags: list[Tag], at: int) -> tuple[Tag, int] | None:
    """A noun before its number: "candidate 3", "lines 4 to 9", "batch size of 64"."""
    tag = tags[at]
    behind = _texts(tags, at + 1, 1)[0]
    if (branch := _branch(tags, at)) is not None:
        return branch
    if tag.has("NUM") and behind == "by" and at + 2 < len(tags):
        width, height = _whole(tag), _whole(tags[at + 2])
        if width and height:
            return merged(tags[at : at + 3], "SHAPELIT", (width, height)), 3
    used = 1
    while used <= MOST_BETWEEN and at + used < len(tags) and tags[at + used].text in BETWEEN:
        used += 1
    number = tags[at + used] if at + used < len(tags) else None
    if number is not None and number.has("NUM") and tag.text in ("factor", "speedup", "speed-up"):
        return merged(tags[at : at + used + 1], "FACTOR", number.value), used + 1
    if number is None or not number.has("NUM", "KILO") or not (first := _whole(number)):
        return None
    if number.has("KILO") and not tag.has("SIZENAME"):
        return None
    here = tags[at : at + used + 1]
    if tag.has("LINEWORD"):
        last = tags[at + used + 1 : at + used + 3]
        if len(last) == 2 and last[0].text in RANGE and (end := _whole(last[1])):
            return merged([*here, *last], "LINE", (first, end)), used + 3
        return merged(here, "LINE", first), used + 1
    if tag.has("SIZENAME") and isinstance(tag.value, str):
        name = tag.value.replace(" ", "_").replace("-", "_")
        used += _texts(tags, at + used + 1, 1)[0] in MEASURES
        return merged(tags[at : at + used + 1], "SIZE", (name, str(first))), used + 1
    if tag.text == "branch":
        return merged(here, "BRANCHNO", first), used + 1
    if tags[at + 1].text in ("to", "at"):
        return None
    if tag.has("IDEAWORD"):
        return merged(here, "IDEA", first), used + 1
    if tag.has("CANDWORD"):
        return merged(here, "CAND", first), used + 1
    return None


def _branch(tags: list[Tag], at: int) -> tuple[Tag, int] | None:
    """A branch by its name: "the splitk branch", "branch called splitk", "onto main"."""
    tag, before = tags[at], tags[at - 1].text.split(" ")[-1] if at else ""
    behind = _texts(tags, at + 1, 2)
    name = tag.text not in entries() and tag.text[:1].isalpha() and not tag.has("NUM", "ORD")
    if (name or tag.text in TRUNK) and behind[0] == "branch":
        return merged(tags[at : at + 2], "BRANCHNAME", tag.text), 2
    if tag.text in TRUNK and before in ("to", "onto", "on") and not behind[0].isalpha():
        return merged([tag], "BRANCHNAME", tag.text), 1
    used = 2 if behind[0] in ("called", "named") else 1
    if tag.text != "branch" or at + used >= len(tags):
        return None
    named = tags[at + used]
    if (named.concepts and named.text not in TRUNK) or not named.text[:1].isalpha():
        return None
    return merged(tags[at : at + used + 1], "BRANCHNAME", named.text), used + 1


def _whole(tag: Tag) -> int | None:
    """The tag's number if it counts something, else None."""
    if not isinstance(tag.value, int | float):
        return None
    return int(tag.value) if 1 <= tag.value <= MOST_NUMBER and tag.value % 1 == 0 else None


def _texts(tags: list[Tag], start: int, most: int) -> list[str]:
    texts = [tag.text for tag in tags[start : start + most]]
    return texts + [""] * (most - len(texts))


PRECISIONS = frozenset({"TF32", "BF16", "STRICT", "REDUCED", "FP32"})
SLOTS = PRECISIONS | {"TARGET", "CAND", "IDEA", "DTYPE", "LIBRARY", "ORD", "LOCAL"}
"""Concepts of which a sentence may name one and rule out another: "bf16, not tf32"."""
NOUNS = SLOTS | {"MEMORY", "ENERGY", "KERNEL", "DIFF", "TIMES", "SHAPE", "NUM", "ROUNDS"}
VERBS = words_of("USE RUN SHOW KEEP RETURN STOP TRY ALLOW UNDO FORK SAVE")
END_OF_REACH = words_of("but instead just only , ; :")
BOUND = Pattern(
    r"^(?:(?:ever|even|let|it|go|going|take|takes|taking|use|uses|using|spend|spends|spending|allocate|allocating|"
    r"need|run|running|bother|get|getting|be|grow|climb|cost|costs|needs|allocates|runs|exceeds|goes|want|to|for|you|exceed|exceeding|"
    r"this|that|memory|search|keep|peak|last|give|consume|have) )*"
    r"(?:more than|longer than|higher than|bigger than|larger than|greater than|further than|over|"
    r"above|past|beyond|exceed|exceeding)(?: (?:a|the|of|total|about|about a))*$"
)
"""Between a "not" and a value: it is the most that may be."""
LIMITED = ("DURATION", "BYTES", "MONEY", "ROUNDS", "RUNTIME")
MOST_BOUND = 9
GIVEN_UP = frozenset({"forget", "forget about", "never mind", "skip", "scrap", "ditch"})
QUESTION_STARTS = words_of(
    "is are was were does did has had should will would could can may might must am"
)
BEFORE_A_QUESTION = words_of("and so but then , ok okay hey please well now also hmm hi hello wait")


def with_polarity(tags: list[Tag]) -> list[Tag]:
    """The tags of one sentence, marked where they are negated or ruled out."""
    marked = _bounded([_no(tags, at) for at in range(len(tags))])
    if _is_cleft(marked):
        marked[0] = replace(marked[0], concepts=frozenset({"FILLER"}))
    for at, tag in enumerate(marked):
        if tag.has("NEG"):
            for place in _reach(marked, at):
                marked[place] = negated(marked[place])
        elif tag.has("INSTEADOF"):
            _rule_out_next(marked, at)
        elif _gives_up(marked, at):
            _rule_out_next(marked, at)
            marked[at] = replace(tag, concepts=frozenset({"INSTEADOF"}))
        elif _restricts(marked, at):
            marked[at] = replace(tag, concepts=frozenset({"FOREIGN"}))
        elif _leaves(marked, at):
            marked[at + 1] = negated(marked[at + 1])
            marked[at] = replace(tag, concepts=frozenset({"INSTEADOF"}))
    return marked


def _bounded(tags: list[Tag]) -> list[Tag]:
    """ "do not go over" before a value is "at most"."""
    found: list[Tag] = []
    at = 0
    while at < len(tags):
        value = _bound_value(tags, at) if tags[at].has("NEG") else None
        if value is None:
            found.append(tags[at])
            at += 1
        else:
            concept = "UNTIL" if tags[value].has("TIMES") else "ATMOST"
            found += [merged(tags[at:value], concept, None), tags[value]]
            at = value + 1
    return found


def _bound_value(tags: list[Tag], at: int) -> int | None:
    """The place of the value that the "not" at `at` makes a limit."""
    for place in range(at + 2, min(at + MOST_BOUND, len(tags))):
        if tags[place].has(*LIMITED, "TIMES"):
            between = text_of(tags[at + 1 : place])
            return place if BOUND.match(between) else None
    return None


def _is_cleft(tags: list[Tag]) -> bool:
    """ "what I deploy on is an L4": a statement."""
    texts = [tag.text for tag in tags]
    return (
        texts[0] == "what"
        and texts[1:2] in (["i"], ["we"], ["my"], ["our"])
        and not {"is", "are"}.isdisjoint(word for text in texts[2:] for word in text.split())
        and texts[-1] != "?"
    )


def _gives_up(tags: list[Tag], at: int) -> bool:
    """ "forget the h100" where another of its sort follows."""
    if tags[at].text not in GIVEN_UP:
        return False
    slots = [tag for tag in tags[at + 1 :] if tag.has(*PRECISIONS, "TARGET")]
    kinds = [tag.has("TARGET") for tag in slots[:2]]
    near = [tag for tag in tags[at + 1 : at + 4] if tag.has(*PRECISIONS, "TARGET")]
    return bool(near) and len(kinds) == 2 and kinds[0] == kinds[1]


def _restricts(tags: list[Tag], at: int) -> bool:
    """ "only for the first layer", "for the weights only": no setting has such a reach."""
    if tags[at].text != "only" or not any(tag.has(*PRECISIONS, "LIBRARY") for tag in tags[:at]):
        return False
    behind = tags[at + 1].text if at + 1 < len(tags) else ""
    if behind in ("for", "in", "on", "when", "if", "at", "with"):
        return True
    return any(tag.text == "for" for tag in tags[:at]) and not tags[at - 1].has(*SLOTS)


def _leaves(tags: list[Tag], at: int) -> bool:
    """ "from tf32" where a "to" follows."""
    return (
        tags[at].text == "from"
        and any(tag.text == "to" for tag in tags[at + 1 :])
        and tags[at + 1].has(*PRECISIONS, "TARGET", "DTYPE")
    )


def _no(tags: list[Tag], at: int) -> Tag:
    """ "no" before a noun is a "not"; by itself it is an answer."""
    text = tags[at].text
    if text != "no" and not (tags[at].has("NO") and text.split(" ")[-1] == "not"):
        return tags[at]
    last = at + 1 == len(tags) or tags[at + 1].has("MARK", "SEP")
    return replace(tags[at], concepts=frozenset({"NO" if last else "NEG"}))


def _reach(tags: list[Tag], at: int) -> list[int]:
    """Places that the "not" at `at` speaks of: up to a mark, a "but" or the next verb; where it
    ends a statement ("tf32 is not allowed"), what that statement is about."""
    found: list[int] = []
    noun = joined = False
    for place in range(at + 1, len(tags)):
        tag = tags[place]
        if tag.text in END_OF_REACH and not (tag.text in ("just", "only") and not found):
            break
        joined = joined or tag.text in ("and", "or", "then")
        if noun and not joined and tag.has(*VERBS) and not tag.has(*NOUNS, "FILLER"):
            break
        noun = noun or tag.has(*NOUNS)
        found.append(place)
    if all(tags[place].has("FILLER", "ALLOW", "THIS") for place in found):
        for place in range(at - 1, -1, -1):
            if tags[place].text in END_OF_REACH or tags[place].has("SEP"):
                break
            if tags[place].has(*NOUNS):
                found.append(place)
    return found


def _rule_out_next(tags: list[Tag], at: int) -> None:
    """The first slot behind "instead of" is what is not wanted."""
    for place in range(at + 1, len(tags)):
        if tags[place].has(*SLOTS):
            tags[place] = negated(tags[place])
            return


def is_question(tags: list[Tag]) -> bool:
    """True where the words, marks aside, are put as a question: "is tf32 allowed"."""
    for tag in tags:
        if tag.text in BEFORE_A_QUESTION:
            continue
        first = tag.text.split(" ")[0]
        return tag.has("WHAT", "WHERE", "WHY", "HOW", "WHEN", "AUX") or (
            first in QUESTION_STARTS and not tag.has("POLITE", "MAY")
        )
    return False


ASKING = ("SHOW", "TELL", "EXPLAIN", "POLITE", "MAY", "WHAT", "WHERE", "HOW")
DEMANDED = Pattern(r"\b(?:have|has|had|need|needs) to\b|\b(?:must|should)\b")
LEAD = r"^(?:(?:and|but|so|well|ok|hmm|also|then|,|-|:|maybe|perhaps|i think|i guess) )*"
PAST = Pattern(
    LEAD + r"(?:i|we|you|they|he|she|somebody|someone|nobody|everybody|everyone) "
    r"(?:(?:already|just|once|only|never|almost|nearly|also|even|all|both|have|has|had) )*"
    r"(?:[a-z]{2,}(?<!e)ed|used|kept|went|ran|undid|saved|took|dropped|gave|stopped|wrote|said|told"
    r"|thought|did|made|got|tried|chose|threw|put it|began|left|lost|found|came|had)\b"
)
"""What somebody did: "we used tf32", "I have already kept c3"."""
NO_PAST = words_of("need exceed proceed feed speed embed agreed changed wanted")
PAST_FACT = Pattern(
    LEAD + r"(?!what\b|which\b|how\b|why\b)(?:\S+ ){1,5}?"
    r"(?:was|were|used to be|(?:had|has|have) (?:been|passed))\b"
)
"""What held: "the goal was 2x"."""
INVENTORY = words_of("stop_at budget memory_limit precision dtype run shapes policy target")
"""Requests that are not made by what once held."""
HAS = Pattern(
    LEAD + r"(?:i|we|they|there|it|you|this)(?: only| now)? (?:have|has|had|are|were|is|was)\b"
)


def is_statement(tags: Sequence[Tag]) -> bool:
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
    return bool(DEMANDED.search(text_of(tags))) and not any(tag.has("VERIFY") for tag in tags)


def is_reported(tags: Sequence[Tag]) -> bool:
    """True for "it is 2x faster", "it uses cublas": what is, not what is to be."""
    words = [tag for tag in tags if not tag.has("MARK", "SEP")]
    first = words[0].text.split(" ")[0] if words else ""
    text = text_of(words).split()
    return (
        first in ("it", "this", "they", "he", "she")
        and not any(tag.has("UNTIL", "STOP", "ATLEAST", "ALLOW", "POLITE", "NEG") for tag in words)
        and not {"should", "must", "needs", "need", "has", "will", "may", "can"}.intersection(text)
    )


def is_past(tags: Sequence[Tag]) -> bool:
    """True for "I allowed tf32 earlier": what was done, not what is to be done."""
    found = PAST.match(text_of([tag for tag in tags if not tag.has("MARK")]))
    return found is not None and found[0].split()[-1] not in NO_PAST


def is_past_fact(tags: Sequence[Tag]) -> bool:
    """True for "the goal was 2x"."""
    return bool(PAST_FACT.match(text_of(tags)))


def is_inventory(tags: Sequence[Tag]) -> bool:
    """True for "we have 3 candidates": what there is."""
    return bool(HAS.match(text_of(tags)))
