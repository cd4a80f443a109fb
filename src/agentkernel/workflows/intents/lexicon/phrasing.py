"""Which words shape a sentence (fillers, politeness, questions, negation) and name nothing?"""

from __future__ import annotations

PHRASING: dict[str, str] = {
    "FILLER": """
        a, an, the, of, to, my, our, your, their, its, me, us, we, i, you, they, some, any,
        bit, little, now, here, there, really, actually, just, simply, right, so, as, well,
        too, very, quite, rather, maybe, perhaps, much, many, be, been, being, am, will,
        shall, would, could, can, should, do, does, is, are, has, have, got, get, getting,
        up, over, down, turn, leave it at, away, once, ever, again, yet, still, already,
        far, let, please, kindly, thanks, thank you, cheers, hey, hi, hello, ok, okay,
        alright, hmm, um, uh, oh, then, also, man, mate, dude, buddy, module, model,
        network, layer, gpu, gpus, card, cards, device, hardware, machine, thing, things,
        stuff, way, ways, kind, sort, possible, possibly, everything, all, both, each,
        every, own, same, such, what's, going, come, go, goes, like, want, need, needs,
        wish, would like, looking, look, lets, sure, fine, next, instead, only, about, code,
        drop-in, pytorch, torch, it all, whole, entire, side, end, point, total, currently,
        today, quickly, exactly, basically, honestly, literally, kinda, pretty, else, real,
        good, full, overall, general, detail, details, moment, second thoughts, job, work,
        works, working, set, give, given, hand, bring, put, make, makes, making, made,
        sense, by, per, into, onto, them, these, those, am i, go ahead and, go and, time
        being, together, between, among, around, through, inside, within reason, result,
        results, output, forward, pass, session, tool, agent, kernel engineer, from now on,
        for now, at the moment, so far, up to now, until now, in general, as well, in a
        nutshell, briefly, in short, step by step, a bit, a little, a lot, a touch,
        slightly, somewhat, considerably, significantly, further, in detail, quick, as
        possible, if possible, if you can, if you could, when you can, at all, by the way,
        with me, for me, for us, to me, to us, on this, of this, at this, on it, of it, in
        it, for it, at it, with it, first of all, actual, straight, clear, clearly, bigger
        picture, wondering, curious, anyway, though, however, true, sorry, whatever, kind
        of, sort of, sir, team, folks, everyone, forth, taken, new, run's, yours, mine, more
        or less, this time, anymore, any more, any longer, oops, whoops, argh, damn, ah, oh
        no, never mind, yourself, themselves, itself, that said, sounds, seems, promising,
        interesting, looks, into two, in two""",
    "THIS": "this, that, it, this thing, that thing, this one, that one, the one",
    "PREP": "for, on, in, with, at, using, under, within, without exceeding",
    "POLITE": """
        can you, could you, would you, will you, can we, could we, shall we, should we
        maybe, how about, what about, what if we, what if you, why not, why do not we, why
        do we not, i want you to, i want to, i would like to, i would like you to, i would
        like, would it be possible to, is it possible to, is there a way to, is there any
        way to, any chance you could, any chance of, any chance we could, do you mind, would
        you mind, mind, feel free to, go ahead, i need you to, i need to, i need, let me,
        let us, you can, you could, you may, we can, we could, we should, you should, i
        think we should, i think you should, see if you can, see if you could, see if we
        can, try to, try and, do me a favour and, do me a favor and, be so kind as to,
        please go ahead and, time to, it is time to, i guess, i suppose, i would love to, i
        would love, are you able to, are we able to, we need to, we have to, you need to,
        you have to, we want to, we want, i want, you are allowed to, you are free to, it is
        ok to, it is okay to, it is fine to, i am ok with, i am okay with, i am fine with, i
        am happy with you, do you think you could, can you please, could you please, happy
        for you to, next time""",
    "MAY": "can i, could i, may i, might i, am i able to, is it ok if i, can i please",
    "WHAT": "what, which, who, whose, what sort of, what kind of, what is it that, anything",
    "WHERE": "where, whereabouts",
    "WHY": """
        why, how come, what makes, what is making, what made, reason, reasons, what causes,
        what is causing, cause, what is behind, for what reason, explanation for""",
    "HOW": "how, how much, how many, how long, how far, in what way",
    "WHATDOES": "what does, what do, how does, how do",
    "ADVICE": "should i, should we, will it, would it, would this, would that",
    "WHEN": "when",
    "AUX": """
        is it, is this, is that, is there, are there, are we, are you, does it, does this,
        does that, did you, did we, did it, do we, do you, did, was, were, had, have you,
        have we, has it, has this, have i, you are using, it is using, we are using, you are
        running, is using, are using, are we using, is it using, was it, was there, could
        it, can it, can this, is the, are the, does the, do the, was the, will this, is my,
        is our, does my, whether, see if, tell me if, check if, check whether, do you know,
        i wonder, i wonder if, wonder, have, do they, are they, are these""",
    "IF": """
        if, unless, when it, once it, in case, provided, assuming, suppose, while, before,
        as soon as, only when, only if, otherwise""",
    "OR": "or, nor",
    "PAST": """
        used, kept, went, ran, undid, saved, took, dropped, gave, stopped, wrote, sped,
        reverted, accepted, discarded, enabled, disabled, ignored, said, told, asked,
        thought""",
    "MUCH": "so much, that much, this much, as much, quite so much",
    "AGAINST": """
        against, from, to, and, vs, versus, between, with, than, relative to, compared to,
        compared with, over, or, since, in comparison with, in comparison to""",
    "OUT": "out, off",
    "ITIS": "it is, this is, that is, which is, we are, you are, it runs, they are",
    "NEG": "not, never, neither",
    "INSTEADOF": """
        instead of, rather than, in place of, as opposed to, except, anything but, other
        than, apart from, over and above, away from""",
    "BUT": "but, only, just",
    "SEP": """
        and, then, and then, and also, plus, after that, afterwards, next, followed by, as
        well as, and after that""",
}
"""Concept -> its words and phrases."""
