"""Which words ask about the session itself, or answer it?"""

from __future__ import annotations

TALK: dict[str, str] = {
    "DOCS": """
        docs, documentation, manual, the docs, reference, triton docs, triton documentation,
        docs for, api docs, handbook, knowledge base, manuals, reference docs, doc""",
    "SEARCH": """
        search, look up, lookup, look for, find, search for, consult, check, ask, query,
        google, what do, what does, grep, dig up, look in, look, read up on, read, find out,
        browse, look it up, see, say""",
    "HELP": """
        help, help me, commands, what can you do, what can i say, what can i do, what can
        i ask, usage, how do i use this, how do i use you, how does this work here,
        instructions, what are my options, what do you understand, what are you able to
        do, h, what can i type, which commands, what can i ask you, what can i tell you,
        what commands, how do i use this tool, capabilities, features do you have, what
        are you capable of, guide, i am lost, i am stuck, what commands are there, which
        commands are there, what are the commands, list the commands, list of commands,
        what can you do for me, i need help, some help, available commands, what else can
        you do, what else can i say, what is possible here, what are my choices, things
        can i ask, things can i say, what should i type, what should i say, menu, how to
        use this, what requests""",
    "STATUS": """
        status, progress, state, how are we doing, how is it going, how are things, where
        are we, where do we stand, where are things, current state, how far are we, how
        far along, how far have you got, how far did you get, state of play, what is up,
        best so far, doing so far, stand, standing, situation, update, current best, how
        is it coming along, how are you doing, how fast, how fast is it, how quick, how
        much faster, speedup so far, current speedup, what speedup, still running, any
        progress, any luck, finished, going on, news, how is it looking, where we are,
        done yet, time is left, budget is left, rounds are left, rounds left, time left,
        budget left, made it faster, is it faster, best result so far, best time so far,
        how did it go, how did that go, how does it look, how fast are we, are you done,
        are we done, is it done, what are you doing, what are you up to, what are you
        working on, any news, coming along, any better, is it any faster, speedup, at the
        moment doing, what is happening, faster yet, how is the run going, how is the
        search going, where things stand, best speedup so far, have we got, what have we
        got, eta, how is it doing, doing well, how are things going, going well, where we
        stand, how far are you, how far did we get, anything new, what is the latest, how
        is progress, making progress""",
    "SETTINGS": """
        settings, configuration, config, options set, parameters, current settings, what is
        allowed, preferences, setup, which settings, configured, currently set, active""",
    "RESTART": """
        restart, start over, start again, begin again, start from scratch, from scratch,
        clean slate, start afresh, undo everything, undo all, reset, reset everything, from
        the beginning, from the start, wipe, wipe everything, start fresh, begin anew, all
        over again, start anew, throw everything away, back to square one, square one,
        discard everything, undo it all, revert everything, scrap everything, scrap it all,
        forget everything, back to the beginning, back to the start, wipe the slate clean,
        begin afresh, fresh start, undo all changes, revert all changes, undo all of it,
        reset the session, start all over, roll everything back, roll back everything, wind
        everything back, discard all changes, clear everything, tabula rasa, delete
        everything, back to where we started, back to the very beginning""",
    "YES": """
        yes, y, yep, yeah, yup, sure, ok, okay, go ahead, approve, approved, agreed, agree,
        confirm, confirmed, do it, please do, sounds good, looks good, fine by me, of
        course, absolutely, definitely, correct, affirmative, lgtm, i agree, that is right,
        that is fine, yes please, fine, permission granted, you have my permission, works
        for me, right, alright, all right, very well, by all means, be my guest, thumbs up,
        i approve, aye, good, go for it, green light, you may proceed, you may, sure thing,
        certainly, granted, looks fine, exactly, sounds fine, sounds great, make it so, no
        objection, no objections, perfect, looks right, looks great""",
    "GOAHEAD": """
        go ahead, proceed, go, go on, go for it, you may proceed, green light, carry on,
        continue""",
    "NO": """
        nope, nah, never mind, decline, denied, deny, disagree, do not do it, do not do
        that, i disagree, rather not, negative, not now, no way, better not, certainly not,
        absolutely not, permission denied, i would rather not, no thanks, no thank you, not
        yet, i decline, over my dead body, out of the question, i object, thumbs down, of
        course not, definitely not, do not bother, leave it, i refuse, not a chance""",
    "COMMENT": """
        great, nice, cool, awesome, excellent, good job, well done, nice work, nice one,
        wow, impressive, brilliant, wonderful, great work, great job, not bad,
        interesting, good work, amazing, good stuff, love it, lovely, i see, got it, neat,
        nicely done, hooray, perfect, i love it, fantastic, sweet, i am back, welcome
        back, good point, fair enough, makes sense, that makes sense, good to know, ok
        cool, great stuff, very nice, looking good, well played, good news, i trust you,
        thanks a lot, many thanks, good call, hmm interesting, nicer""",
}
"""Concept -> its words and phrases."""
