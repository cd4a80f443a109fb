"""Which words shape a sentence (fillers, politeness, questions, negation) and name nothing?"""

from __future__ import annotations

PHRASING: dict[str, str] = {
    "FILLER": """
        a, an, the, of, to, my, our, your, their, its, me, us, we, i, you, they, some,
        any, bit, little, now, here, there, really, actually, just, simply, right, so, as,
        well, too, very, quite, rather, maybe, perhaps, much, many, be, been, being, am,
        will, shall, would, could, can, should, do, does, is, are, has, have, got, get,
        getting, up, over, down, turn, leave it at, away, once, ever, again, yet, still,
        already, far, let, please, kindly, thanks, thank you, cheers, hey, hi, hello, ok,
        okay, alright, hmm, um, uh, oh, then, also, man, mate, dude, buddy, module, model,
        network, layer, gpu, gpus, card, cards, device, hardware, machine, thing, things,
        stuff, way, ways, kind, sort, possible, possibly, everything, all, both, each,
        every, own, same, such, what's, going, come, go, goes, like, want, need, needs,
        wish, would like, looking, look, lets, sure, fine, next, instead, only, about,
        code, drop-in, pytorch, torch, it all, whole, entire, side, end, point, total,
        currently, today, quickly, exactly, basically, honestly, literally, kinda, pretty,
        else, real, good, full, overall, general, detail, details, moment, second
        thoughts, job, work, works, working, set, give, given, hand, bring, put, make,
        makes, making, made, sense, by, per, into, onto, them, these, those, am i, go
        ahead and, go and, time being, together, between, among, around, through, inside,
        within reason, result, results, output, forward, pass, session, tool, agent,
        kernel engineer, from now on, for now, at the moment, so far, up to now, until
        now, in general, as well, in a nutshell, briefly, in short, step by step, a bit, a
        little, a lot, a touch, slightly, somewhat, considerably, significantly, further,
        in detail, quick, as possible, if possible, if you can, if you could, when you
        can, at all, by the way, with me, for me, for us, to me, to us, on this, of this,
        at this, on it, of it, in it, for it, at it, with it, first of all, actual,
        straight, clear, clearly, bigger picture, wondering, curious, anyway, though,
        however, true, sorry, whatever, kind of, sort of, sir, folks, everyone, forth,
        taken, new, run's, yours, mine, more or less, this time, anymore, any more, any
        longer, oops, whoops, argh, damn, ah, oh no, never mind, yourself, themselves,
        itself, that said, sounds, seems, promising, interesting, looks, into two, in two,
        main, after all, right now, in plain words, in plain english, in simple words, in
        simple terms, plain words, plain english, like i am five, like i am a beginner, if
        it helps, if that helps, if it is faster, if needed, if necessary, if need be, if
        you need to, if you must, if you like, if you want, if you wish, if that is ok, if
        that is okay, if that works, where it helps, where they win, where it wins, where
        it makes sense, where possible, wherever possible, wherever it helps, where
        needed, if you think it helps, if it is useful, from here on, from there, from
        here, from this point, from this point on, in terms of, was a mistake, it was a
        mistake, did not mean it, did not mean that, did not mean to, looks best, works
        best, sounds best, seems best, is best, matter, matters, surely, obviously,
        certainly, probably, hopefully, fraction, percentage, percent of, proportion,
        left, remaining, production, prod, cluster, deployment, datacenter, data center,
        for the moment, while you are at it, when you have time, when you have a moment,
        when you get a chance, when you are ready, as our best, as the best, as best, as
        my best, as the winner, as our winner, part, parts, portion, piece, bits, simple,
        simply put, terms, roughly, approximately, nearly, almost, ever so, altogether,
        totally, completely, entirely, properly, specifically, especially, particularly,
        mostly, mainly, finally, lastly, thing is, in fact, to be honest, tbh, btw, fyi,
        in that case, for this, for that, this way, that way, the way, along, ahead, back
        then, guys, friend, dear, bro, pal, yo, howdy, greetings, evening, alright then,
        well then, ok then, okay then, right then, now then, so then, once and for all, on
        my side, on our side, on our end, on my end, for sure, no problem, no worries,
        real quick, asap, straight away, right away, at once, soon, later on, these days,
        nowadays, big, huge, major, key, primary, biggest issue, own request, if you
        would, if you will, would be nice, would be great, would be good, is fine for now,
        i think, i believe, i feel, in my opinion, imo, i would say, i mean, you know, you
        see, shape-wise, speed-wise, memory-wise, after that, in the end, in total, over
        here, over there, precisely, exact same, every single, no wait, oh wait, wait a
        second, wait a minute, wait no, actually wait, oh no wait, must, may, might, that
        is what we use, that is what i use, that is what we have, that is what we run,
        that is what we need, our server, our servers, the server we use, do with, in
        practice, in reality, in the real world, as much as you like, as much as you
        want, as much as you wish, as much as you need, as often as you like, as often as you
        want, as you like, as you wish, as you please, nothing else, and nothing else, with
        nothing else""",
    "THIS": "this, that, it, this thing, that thing, this one, that one, the one",
    "PREP": "for, on, in, with, at, using, under, within, without exceeding",
    "POLITE": """
        can you, could you, would you, will you, can we, could we, shall we, should we
        maybe, how about, what about, what if we, what if you, why not, why do not we, why
        do we not, i want you to, i want to, i would like to, i would like you to, i would
        like, would it be possible to, is it possible to, is there a way to, is there any
        way to, any chance you could, any chance of, any chance we could, do you mind,
        would you mind, mind, feel free to, go ahead, i need you to, i need to, i need,
        let me, let us, you can, you could, you may, we can, we could, we should, you
        should, i think we should, i think you should, see if you can, see if you could,
        see if we can, try to, try and, do me a favour and, do me a favor and, be so kind
        as to, please go ahead and, time to, it is time to, i guess, i suppose, i would
        love to, i would love, are you able to, are we able to, we need to, we have to,
        you need to, you have to, we want to, we want, i want, you are allowed to, you are
        free to, it is ok to, it is okay to, it is fine to, i am ok with, i am okay with,
        i am fine with, i am happy with you, do you think you could, can you please, could
        you please, happy for you to, next time, i would rather have, i would rather, i
        would prefer, i would prefer to, we would like to, we would like, we would prefer,
        i would appreciate it if you could, i would be glad if you could, it would be
        great if you could, it would be nice if you could, would you be able to, would you
        kindly, if i may, may i ask you to, i would ask you to, what i want is, what i
        need is, what we need is, what we want is, all i want is, all i need is, all we
        need is, my wish is, i hope you can, can you maybe, could you maybe, could you
        perhaps, can you just, could you just, i think you can, i believe we can, maybe we
        should, maybe you should, perhaps we should, perhaps you could, maybe you could,
        let us just, let us now, let us maybe, let us rather, you should probably, you
        might want to, you might as well, might as well, let us also, we had better, you
        had better, please could you""",
    "MAY": "can i, could i, may i, might i, am i able to, is it ok if i, can i please",
    "WHAT": "what, which, who, whose, what sort of, what kind of, what is it that, anything",
    "WHERE": "where, whereabouts",
    "WHY": """
        why, how come, what makes, what is making, what made, reason, reasons, what
        causes, what is causing, cause, what is behind, for what reason, explanation for,
        any idea why, what is the reason, do you know why, got any idea why, how is it
        that, what is keeping, what keeps""",
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
        compared with, over, or, since, in comparison with, in comparison to, based on,
        starting from, starting at, off of, on top of, originating from, next to""",
    "OUT": "out, off",
    "ITIS": "it is, this is, that is, which is, we are, you are, it runs, they are",
    "NEG": """
        not, never, neither, under no circumstances, on no account, by no means, nobody,
        hardly, barely, in no case, no way i""",
    "HOWTO": "how do i, how do we, how can i, how can we, how would i, how would we, how to",
    "FOREIGN": """
        github, gitlab, git, pull request, email, e-mail, mail, slack, alarm, reminder,
        install, uninstall, upgrade, update the driver, driver, docker, conda, pip, onnx,
        tensorrt, cuda, cuda graphs, hip, rocm, metal, jax, c++, rust, rename, for good,
        forever, permanently, for ever, learning rate, optimizer, epochs, epoch, training
        run, temperature, workers, threads, random seed, block size, block sizes,
        num_warps, num_stages, warps, stages, docstring, comments, unit test, unit tests,
        font, colours, colors, colour, color, dark mode, terminal, window, weather, joke,
        haiku, poem, coffee, lunch, dinner, music, song, boss, manager, meeting, invoice,
        license, licence, windows, macos, linux, laptop, phone, password, what time is it,
        the queue, tomorrow, yesterday, every day, each time, every time, whenever,
        unless, weights to, quantize, quantise, quantization, checkpoint, dataset, data
        set, wandb, tensorboard, jupyter, notebook, vscode, shell, folder, first layer,
        last layer, except, except for, apart from, what is a, what is an, apples,
        computer, show me the money, save me, save us, explain yourself, gpus in parallel,
        multi-gpu, twitter, website, internet, wikipedia, chatgpt, gpt""",
    "NEEDLESS": "no need for, no need to, no need of, not necessary, no point in",
    "INSTEADOF": """
        instead of, rather than, in place of, as opposed to, anything but, other
        than, over and above, away from, changed my mind about, change my mind
        about, second thoughts about, second thoughts on, as against""",
    "BUT": "but, only, just",
    "SEP": """
        and, then, and then, and also, plus, after that, afterwards, next, followed by, as
        well as, and after that""",
}
"""Concept -> its words and phrases."""
