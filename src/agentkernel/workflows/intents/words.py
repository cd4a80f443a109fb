"""Which words stand for which concept?

One row a concept; entries are separated by commas and may be phrases. A word may stand under
several concepts: the grammar's rows say which one is meant.
"""

from __future__ import annotations

from functools import cache

from agentkernel.workflows.intents.text import words_of

LEXICON: dict[str, str] = {
    # Words that say nothing about what is wanted.
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
    # Questions.
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
    # Doing.
    "SHOW": """
        show, display, print, list, view, see, dump, pull up, bring up, let me see, let me
        look at, show me, give me, render, present, take a look at, have a look at, look at,
        get me, share, read, cat, put up, reveal, open up, list out, want to see, to see,
        open, spell out""",
    "TELL": """
        tell, say, report, tell me, let me know, talk, give me an idea of, know, want to
        know, understand, learn, remind, remind me, recap, summarise, summarize, sum up,
        summary, overview, rundown, run down, quick summary, brief, fill me in, catch me up""",
    "EXPLAIN": """
        explain, describe, walk me through, walk through, talk me through, talk through,
        take me through, clarify, elaborate, go through, break down, how does, how do, what
        is going on in, what is happening in, what is happening on, what happens in, what
        happens on, what happens at, what is going on on, what is going on at, meaning,
        mean, means, explanation, what does, help me understand, guide me through, teach me,
        annotate, comment on, purpose, doing, the idea behind, the logic behind, logic, how
        it works, purpose of, interpret, unpack, run me through, make sense of, decipher,
        illuminate, demystify, not understand, not get, not follow, confused by, puzzled by,
        lost on""",
    "RUN": """
        run, go, start, begin, launch, kick off, proceed, continue, resume, carry on, keep
        going, go on, go for it, optimise, optimize, rerun, re-run, iterate, keep at it,
        keep trying, try again, once more, one more time, fire away, get going, get started,
        hit it, run it again, do it again, retry, another attempt, another go, another try,
        another round, one more round, give it another shot, give it another go, have
        another go, go again, carry on optimising, carry on optimizing, crack on, press on,
        do your thing, move on, keep optimising, keep optimizing, keep searching, keep
        working, search, tune, autotune, let it run, optimising, optimizing, have at it,
        take another shot, another shot, another pass, one more pass, one more try, let it
        rip, get on with it, keep on going, start optimising, start optimizing, get
        cracking, optimisation, optimization, do another round, keep running, second
        attempt, one more go, one more attempt, from where you left off, where you left off,
        pick up where you left off""",
    "AGGRESSIVE": """
        aggressive, aggressively, harder, bolder, bold, wilder, ambitious, go all out, all
        out, push, push it, push harder, push further, dig deeper, deeper, more effort,
        riskier, take more risks, more risk, take risks, radical, crank it up, crank up,
        pull out all the stops, go wild, go bigger, be more daring, daring, more rounds,
        other seeds, different seeds, more seeds, another seed, different seed, new seed,
        other seed, new seeds, more candidates, more variants, more attempts, more tries,
        wider search, search wider, broader search, search more broadly, search harder,
        search further, step it up, step up, squeeze more, squeeze more out, squeeze more
        speed, squeeze out more, more speed, even faster, go faster, not fast enough, more
        performance, max effort, less conservative, less cautious, less timid, not
        aggressive enough, be brave, braver, crazier, something crazier, try harder, work
        harder, full throttle, no holds barred, not hold back, turn it up, turn up the heat,
        more intense, intensify, extreme, more exotic, explore more, explore further, wring
        more, gutsier, widen the search, broaden the search, expand the search, larger
        search, bigger search, more exhaustive, exhaustive, more drastic, drastic, squeeze
        harder, cannot be fast enough, drive it harder, go for broke, be greedy, greedier,
        less careful""",
    "TOOSLOW": "too slow, still slow, not good enough, not enough, disappointing, still too slow",
    "STOP": """
        stop, halt, cancel, abort, pause, hold on, enough, that is enough, that will do,
        call it off, kill it, interrupt, break off, finish here, wait, quit running, cease,
        kill the run, finish, stop it, knock it off, terminate, stop right there, hang on,
        freeze, call it a night, stop searching, stop optimising, stop optimizing, stop
        running, stop working, stop the run, stop the search, give up, end the run, end the
        search, end this run, kill, done searching, enough searching, quit searching""",
    "QUIT": """
        quit, exit, bye, goodbye, q, leave, log out, logout, see you, see ya, i am done, we
        are done, close the session, end the session, close session, call it a day, that is
        all, that is it for today, end session, leave the session, shut down, close the
        chat, end the chat, good night, i am off, finish the session, that is all for today,
        done for today, i am finished, we are finished, signing off, sign off, close this
        session, enough for today, enough for now, end this session""",
    "USE": """
        use, call, try, take, pick, choose, go with, go for, apply, set, adopt, change to,
        move to, change over to, switch to, switch, change, shift to, try out, make use of,
        turn on, activate, run with, work with, work in, using, employ, do it, do this, do
        that, try it, try this, relax to, loosen to, drop to, drop down to, lower, trying,
        switching to, compile, build, aim, aim at, aim for, optimise, optimize, tune,
        retarget, target, run, run it, run this, try with, test, go, rerun, re-run, redo,
        compute, calculate, do, move, repeat, measure, check, benchmark, time it,
        optimising, port, port it, move over to, generate, tailor, specialise, specialize,
        consider, assume, swap to, swap in, retry, try again, deploy, prepare, produce,
        optimized, optimised, adapt, make it work, make this work, focus on, be""",
    "ALLOW": """
        allow, allowed, permit, permitted, enable, accept, acceptable, ok, okay, fine, is
        ok, is okay, is fine, are fine, are ok, tolerate, welcome, tolerable, let it use,
        let it be, loosen, relax, loosened, relaxed, feel free to use, can use, may use,
        good enough, will do, is good enough, no problem with, do not mind, would not mind,
        can live with, live with, happy with, enough, is enough, sufficient, suffices,
        permissible, authorise, authorize, grant, legalise, unlock, on, opt in, opt into,
        let the kernels use, is welcome, go ahead with""",
    "FORBID": """
        forbid, forbidden, disallow, disallowed, disable, disabled, ban, banned, prohibit,
        avoid, turn off, switch off, off, drop, remove, get rid of, stop using, quit using,
        stay away from, steer clear of, rule out, exclude, no longer, lose, kick out, block,
        deny, refuse, refrain from, ditch, eliminate, cut out, skip, revoke, do not want, do
        not like, forget, forget about, stop, off limits, off the table, do away with, no
        go, no-go, keep away from, leave out, keep out, without, no more""",
    "REDUCE": """
        less, reduce, lower, cut, cut down, cut down on, shrink, smaller, small, minimise,
        minimize, minimal, minimum, squeeze, save, lean, leaner, tighter, trim, decrease,
        lessen, fewer, slim, slim down, compress, bring down, get down, lower down, drop,
        slash, economise, economize, frugal, lighter, lightweight, light, low, conserve,
        lowest, smallest, least, tighten, reducing, cutting, shrinking, saving, saves, too
        much, too big, too large, too high, too hungry, hungry, sparing, easier, easy, go
        easy, go easy on, be gentle, be nicer, optimise, optimize, running out of, run out
        of, short on, tight on, short of, low on, focus on, care about, efficient,
        efficiency, thrifty, conservative, trimmed, stingy, diet, goal, objective, priority,
        prioritise, prioritize, aim for, improve, reduction, scale back, pare down, more
        efficient, be economical, economical, dial down, target""",
    "RETURN": """
        go back, go back to, back to, back, return, return to, revert, revert to, roll back,
        rollback, rewind, restore, reset to, switch to, switch back, check out, checkout,
        jump to, jump back, get back to, come back to, head back, move back, take me back,
        take us back, pick up from, resume from, continue from, carry on from, reinstate,
        bring back, go on from, change back, put back, start from, backtrack, work from,
        proceed from, activate, prefer, keep going from, reload, load, make current, step
        back to, flip back, fall back to, fall back, swap back, continue with, carry on
        with, start over from, return us, restart from, start again from, build on, move on
        from, move to, hop back, recover""",
    "UNDO": """
        undo, undo it, undo that, undo this, take back, take that back, take it back, go
        back, go back one, one step back, step back, a step back, back one step, back up,
        scrap that, revert, revert it, revert that, roll back, roll that back, roll it back,
        rollback, reverse that, reverse, cancel that, never mind that, put it back, put it
        back the way it was, as it was, unwind, backtrack, the way it was before, forget
        that, rewind, scratch that, take that change back, undo the last change, undo the
        last step, revert the last change, revert the last step, undo my last change, roll
        back the last change, undo last, before that, strike that, go back a step, back out,
        ctrl-z, go one step back, revert last""",
    "REDO": """
        redo, redo it, redo that, undo the undo, bring it back, bring that back, reapply,
        put that back, redo the last step, restore that, undo that undo, revert the undo,
        re-apply, redo the change, cancel the undo, reverse the undo""",
    "FORK": """
        split, fork, branch, branch off, branch out, diverge, split off, start a branch,
        start a new branch, new branch, open a branch, make a branch, create a branch,
        another branch, a separate branch, separate branch, side branch, parallel branch,
        spin off, fork off, start a fork, create a fork, make a fork, new line of work,
        parallel line, spawn a branch, second branch from, start another branch, branching,
        forking, splitting, sub-branch, a branch, separate line, explore separately""",
    "BRANCH": "branch, branches, fork, line of work",
    "OTHER": """
        other, another, different, alternative, alternate, new, change, changed, vary, more,
        various, additional, else, change the, modify, different ones, larger, bigger,
        smaller, switch""",
    "KEEP": """
        keep, keep it, accept, ship, ship it, lock in, lock it in, take, take it, adopt,
        commit, go with, settle on, settle for, stick with, stay with, stick to, approve,
        happy with, hold on to, retain, preserve, is a keeper, keeper, i will take, we will
        take, choose, pick, prefer, hang on to, use, finalise, finalize, mark as accepted,
        bank, sign off on, merge, is the winner, winner, is the one, pin, select, promote, i
        like, like, is good, is good enough, good enough, keeping, let us keep, i am happy
        with, is the one i want, i want, run with""",
    "REJECT": """
        reject, discard, throw away, throw out, drop, get rid of, ditch, delete, dump,
        remove, scrap, toss, toss out, bin, trash, kill, abandon, give up on, do not want,
        dismiss, decline, do not like, no good, is no good, is bad, is useless, forget,
        forget about, prune, erase, rule out, chuck, chuck out, is rubbish, get it out,
        eliminate, cut, lose, disregard""",
    "REJECTED": """
        reject, rejected, fail, failed, fails, failing, failure, wrong, refused, refuse,
        incorrect, not accepted, thrown out, discarded, dropped, not pass, not good enough,
        not ok, invalid, turned down, not verified, broken, break, breaks, not work, not
        correct, disqualified, not right, error, errors, crash, crashed, crashes, mismatch,
        bad""",
    "TRY": """
        try, try it, try this, try that, try out, attempt, go for, go with, test, pursue,
        do, implement, explore, give a shot, give a go, work on, draft, use, take, pick,
        build, switch to, move on to, go ahead with, proceed with, follow, run, run with,
        start, choose, chase, investigate, test out, have a go at, trying, go, give, let us
        do, continue with, see, realise, realize, execute, tackle, develop, experiment with,
        move to, look into, shot, a shot, a go, a try, a whirl, a spin""",
    "SAVE": """
        save, write, store, write out, save it, put, write it, dump, save it as, store it,
        save to disk, to disk, write to disk, save as, write to, save to, put it in, save
        into, place, drop it in, persist, store as, output it, out to, dump it""",
    "EXPORT": """
        export, bundle, package, package up, archive, exporting, export it, zip, zip up,
        pack up, pack""",
    "DROPIN": """
        drop-in, dropin, drop in, file, files, disk, folder, module, optimised module,
        optimized module, directory, copy, replacement, kernel, code, result, best, version,
        path, session, report, everything, as, to, source, artifact, artefact, work, log,
        transcript""",
    "REPAIR": """
        fix, repair, mend, debug, correct it, correct that, fix it, patch it up, fix up,
        sort out, get it working, get it to pass, get it right, heal, make it pass, resolve,
        make it work, make it correct, make it work again, sort it out, get this working,
        get it to work, rectify, cure, remedy, fixing, deal with, make it compile, get it to
        compile""",
    "ERROR": """
        error, errors, bug, bugs, problem, problems, issue, mismatch, crash, failure, wrong
        results, wrong result, wrong, fail, failing, failed, broken, incorrect, nan, nans,
        compile error, compilation error, failing test, mistake, fault, breakage, wrong
        values, accuracy problem, race, illegal memory access, out of bounds, numerical
        mismatch""",
    "VERIFY": """
        verify, validate, recheck, re-check, check, double check, double-check, test, prove,
        judge, confirm, verification, check it, make sure, verifying, verified, validated,
        judged, run the judge, ensure, checked, re-verify, reverify, retest, re-test,
        cross-check, verdict, sanity check, replay, still passes, passes, passing, pass""",
    "CORRECT": """
        correct, correctness, right, accurate, accuracy, valid, correctly, right answer,
        right results, sound, trust, trustworthy, correct results, correct answer, right
        answers, accurate enough, numerically, numerics, numerically correct, matches,
        match, match the original, matches the original, bit-exact, agrees with the
        original, equivalent, reliable""",
    "CERTIFICATE": """
        certificate, cert, proof, evidence, attestation, certificates, proof of correctness,
        certified, certification""",
    "EDIT": """
        edit, modify, edit by hand, hand edit, change by hand, by hand, manually, tweak,
        open in an editor, open in my editor, editor, manual edit, edit it, hand-edit,
        alter, in vim, in an editor, in my editor, myself, rewrite by hand, change myself,
        editing, manual change, manual changes, tinker, tinker with, open, change, adjust,
        make a change, make changes""",
    # Things.
    "MEMORY": """
        memory, vram, footprint, ram, hbm, memory usage, memory use, memory footprint, gpu
        memory, device memory, memory consumption, peak memory, video memory, allocation,
        allocations, allocate, peak usage, memory hungry, memory-hungry, memory hog, memory
        efficiency, memory-efficient, workspace, high water mark, memory peak, working set,
        mem, peak memory usage, memory budget, memory pressure, peak allocation, oom,
        buffers, temporaries, scratch""",
    "ENERGY": """
        energy, power, joules, joule, watts, watt, electricity, power draw, power usage,
        energy use, energy usage, power consumption, energy consumption, wattage, battery,
        heat, energy efficiency, power efficiency, energy-efficient, power-efficient,
        cooler, power hungry, carbon, eco, green""",
    "SPEED": """
        fast, faster, speed, quicker, latency, runtime, run time, execution time, quickest,
        speediest, performance, throughput, swift, wall time, wall clock, turnaround, perf,
        fastest, pure speed, raw speed, response time, run-time""",
    "SLOW": """
        slow, slower, slowness, bottleneck, bottlenecks, bottlenecked, limiter, holding,
        hold, holds, holding back, holding it back, holding us back, holds it back, holding
        this back, hold it back, limiting, limits, limited, limiting factor, slows, slowing,
        slowing down, slows down, sluggish, bound, drags, dragging, dragging down, hog,
        slowdown, laggy, lagging, stall, stalls, stalled, stalling, culprit, weakest link,
        keeping it from, keeps it from, prevents, stops it from, stopping it from, stopping
        us from, keeping us from, memory bound, memory-bound, compute bound, compute-bound,
        latency bound, latency-bound, bandwidth bound, bandwidth limited, in the way, choke
        point, chokepoint, crawling, poor, hot spot, poor performance, bad performance,
        slowest, hampering, hinders, hindering, impede, inefficient, underperforming, drag,
        takes so long, take so long, taking so long, takes forever, taking forever, so long,
        takes this long, taking this long, not faster, not fast, not quicker, no faster, not
        any faster, not speed""",
    "TIME": """
        time, milliseconds, microseconds, cycles, runtime, latency, wall time, seconds,
        time's, timing, timings, times, duration, execution time, run time""",
    "SPENT": """
        spent, spend, spending, goes, going, go, lost, lose, wasted, waste, burned, burnt,
        burning, disappear, disappearing, consumed, consume, consuming, takes, taking, take,
        eaten, eating, eats, eat, eating up, eaten up, used up, distribution, distributed,
        split, dominates, dominate, hungriest, most expensive, longest, takes longest, takes
        the longest, most of the, most, breakdown, break down, sunk, sink, vanish,
        vanishing, hot, hottest, per kernel, accounts for, bulk, costly, being spent,
        chewing, chewing up, where it goes, leak, leaking, biggest, per op, divided""",
    "PROFILE": """
        profile, profiling, profiler, hotspot, hotspots, hot spots, time breakdown, nsight,
        breakdown of the time, flame graph, flamegraph, trace, counters, occupancy,
        registers, spills, performance counters, kernel timings, per-kernel times, timeline,
        time distribution, timing breakdown, performance breakdown, profiled, profiles,
        runtime breakdown, latency breakdown, breakdown by kernel, breakdown per kernel,
        register pressure, kernel times, time split""",
    "ROOFLINE": """
        roofline, roof, peak, headroom, theoretical limit, theoretical peak, theoretical
        maximum, hardware limit, hardware limits, speed of light, how much faster could it,
        how much faster can it, how much faster can this, how much faster could this, room
        for improvement, room to improve, room left, left on the table, upper bound, peak
        bandwidth, peak performance, hardware peak, of peak, close to the limit, how close,
        arithmetic intensity, theoretical best, theoretical bound, physical limit, the
        ceiling, ceiling, theoretical, best possible, limit of the hardware, hardware's
        limit, potential, theoretically possible, how fast could it, how fast can it,
        bandwidth utilization, bandwidth utilisation, utilisation, utilization, max
        possible, maximum possible, more to gain, room to grow, room, limits of the
        hardware, hardware maximum, physically possible, bandwidth""",
    "HISTORY": """
        history, tried, attempted, attempts, log, been doing, steps so far, done so far,
        been trying, explored, have you done, did you do, have we done, journey, past
        attempts, what happened, experiments, tried so far, experimented, tests, approaches,
        tested, have tried, tried out, previous attempts, things you did, happened so far,
        happened, happen, did so far, did you try, you try, did we try, been up to, done,
        track record, account of, changelog, transcript, did, has been done, was done, doing
        so far, went through, been tested, record, considered, looked at, go wrong, the
        story, earlier attempts, attempted so far, been explored, covered so far, ground
        covered, attempt""",
    "TREE": """
        tree, candidates, all candidates, graph, candidate list, all versions, versions,
        variants, branches, lineage, family tree, overview of candidates, leaderboard, all
        the candidates, candidate tree, ranking, all of them, scoreboard, search tree, list
        of candidates, all variants, map, genealogy, hierarchy, how the candidates relate,
        standings""",
    "IDEAS": """
        what are my options, ideas, suggestions, strategies, options, alternatives,
        hypotheses, possibilities, other ideas, ideas left, ideas do you have, proposals,
        left to try, remains to try, remaining ideas, other approaches, could you try, else
        could you try, could we try, can we try, can you try, else can you try, could be
        tried, else can we try, else could we try, untried, up your sleeve, have not tried,
        not tried yet, not tried, brainstorm, left to explore""",
    "PLAN": """
        plan, roadmap, next step, next steps, next move, going to do, will you do, are you
        going to do, intend, intention, intentions, plans, planning, strategy, do next,
        doing next, try next, comes next, what is next, agenda, trying next, planned, coming
        up, you do next, going to try, about to do, up next, will you try, come next,
        happens next, game plan, happen next, plan to do, plan of action, upcoming, in mind""",
    "KERNEL": """
        kernel, kernels, code, source, implementation, triton code, triton source, program,
        triton kernel, source code, listing, text, function, algorithm, optimised code,
        optimized code, generated code, fused kernel, generated kernel, the code""",
    "DIFF": """
        diff, difference, differences, differ, differs, changed, changes, change, delta,
        patch, diffs, what is different, altered, modified, modifications, modification,
        what is new, did you modify, did you alter, did you change, was changed, has
        changed, edits, different, you change, alterations, diverged, changing""",
    "COMPARE": """
        compare, comparison, versus, vs, side by side, side-by-side, comparing, stack up,
        stacks up, measure up, contrast, better than, faster than, slower than, head to
        head, head-to-head, against each other, next to each other, how does it compare, put
        next to, which is faster, which one is faster, which is better, which one is better,
        pit, difference in speed, relative to, comparable, quicker than, compared, compares""",
    "MUCH": "so much, that much, this much, as much, quite so much",
    "AGAINST": """
        against, from, to, and, vs, versus, between, with, than, relative to, compared to,
        compared with, over, or, since, in comparison with, in comparison to""",
    "CANDWORD": """
        candidate, candidates, version, variant, attempt, number, kernel, solution, cand,
        step, node, versions, kernels, variants, draft, revision, attempts, solutions""",
    "IDEAWORD": """
        idea, strategy, approach, suggestion, option, hypothesis, proposal, plan,
        alternative, thought, ideas, technique, one you suggested, one you proposed, one on
        your list, trick, suggestions""",
    "LINEWORD": "line, lines, row, ln",
    "ROUNDWORD": """
        round, rounds, iteration, iterations, tries, attempts, generations, drafts, attempt,
        passes, candidates, generation, goes, shots, times, turns""",
    "STEPWORD": "step, steps, change, changes, edits, moves, actions",
    "PRECISION": """
        precision, precise, accuracy, tolerance, numerics, math, maths, rounding, matmul
        precision, arithmetic, mode, accumulate, accumulation, computation, compute, tensor
        cores, tensor core, cores, multiplication, matmuls, matmul, gemm, dot, dots, dot
        products, format, class, rules, rule, numbers, tensorcores, precision mode, setting""",
    "STRICT": """
        strict, strictly, exact precision, full precision, fp32 precision, ieee, exact,
        stricter, full fp32, full float32, original precision, true fp32, strict mode,
        precisely exact, bit exact, single precision, default precision, strictness, strict
        precision, highest precision, high precision, true float32, real fp32, exact
        results, exact math, exact arithmetic, exact numerics, full accuracy, pure fp32,
        proper fp32, plain fp32, tighten the precision, tighten the tolerance, tighten
        precision, tighten tolerance, strict rule, strict accuracy, no precision loss,
        without precision loss, no loss of precision, no loss of accuracy, no accuracy loss,
        without losing precision, without losing accuracy, maximum precision, max precision,
        precise results, more precise, more accurate, ieee fp32, tight tolerance, as precise
        as eager, strict numerics""",
    "FP32": "fp32, float32, f32",
    "TF32": "tf32, tf-32, tensorfloat32, tensorfloat-32, tensor float 32, tensorfloat, tf 32",
    "BF16": "bf16, bfloat16, bfloat, bf-16, brain float, brain floats, bf 16, b16",
    "REDUCED": """
        reduced precision, lower precision, low precision, looser precision, less precise,
        less precision, loose precision, lossy, mixed precision, relaxed precision,
        approximate, approximations, sloppy, less strict, looser, less accurate, looser
        tolerance, lossy math, precision loss, loose""",
    "DTYPE": """
        fp16, float16, half, half precision, half-precision, f16, fp64, float64, f64, double
        precision, int8, int32, int64, uint8, i8""",
    "DTYPEWORD": """
        dtype, dtypes, datatype, data type, input type, type, inputs, input, tensors,
        activations, weights, tensor, data, element type""",
    "TARGETWORD": """
        target, gpu, card, device, hardware, machine, architecture, gpus, accelerator,
        board, chip, targets, cards, graphics card, platform, nvidia, amd""",
    "TRITON": "triton",
    "OUT": "out, off",
    "ITIS": "it is, this is, that is, which is, we are, you are, it runs, they are",
    "ELSEIDEA": """
        something else, something different, a different approach, another approach, another
        idea, another strategy, a new approach, a different strategy, the other idea, a
        different idea, a fresh approach, a fresh idea, a different angle, another angle,
        another way, another tack, a different tack""",
    "LOCAL": """
        local, local gpu, this machine, my machine, this gpu, my gpu, my own gpu, local
        card, local machine, the gpu here, my card, the card in this machine, gpu in this
        machine, this card, this box, my box""",
    "SHAPE": """
        shape, shapes, size, sizes, dims, dimensions, dimension, input shape, input shapes,
        problem size, problem sizes, input size, input sizes, resolution, tensor shape,
        tensor shapes, extents, shaped, sized, problem shape, input dimensions, dim""",
    "SIZENAME": """
        batch, batch size, batch-size, batchsize, batches, sequence length, seq length,
        seqlen, seq len, seq, sequence, hidden size, hidden dimension, hidden dim, hidden,
        channels, heads, head dim, height, width, rows, columns, cols, context length,
        vocab, vocab size, tokens, features, n, m, k, sequences of length, bs, head
        dimension, embedding dimension""",
    "LIBRARY": """
        library, libraries, cublas, cudnn, cutlass, library calls, vendor library, vendor
        libraries, library kernels, library gemm, library gemms, library functions, torch
        ops, library call, aten, external kernels, library matmul, torch functions, pytorch
        ops, torch matmul, vendor kernels, torch calls, library routines, library code,
        vendor calls, pytorch calls, pytorch functions, external libraries, library ops,
        torch.matmul, external library""",
    "OWN": """
        own kernels, only triton, pure triton, triton only, only own kernels, own kernels
        only, your own kernels, only your own kernels, triton kernels only, only triton
        kernels, all triton, everything in triton, hand-written kernels, handwritten
        kernels, hand-written, handwritten, written in triton, triton-only, nothing but
        triton, just triton, kernels of your own, 100% triton, custom kernels only, only
        custom kernels, self-written, fully triton, entirely in triton, entirely triton, do
        it all in triton, just your own kernels""",
    "POLICY": "policy, policies, policy to",
    "MIXED": "mixed, mix, mix of, both",
    "ANYTHING": "any, anything, anything goes, whatever works, no restrictions",
    "COST": """
        cost, costs, price, bill, money, tokens, token, dollars, usd, expense, expenses,
        token usage, tokens used, spent so far, expensive, how much have i spent, how much
        have we spent, how much did this cost, token count, charges, api usage, model usage,
        spending, run up, api bill, how much have you spent, burned, token consumption, pay,
        paying, paid, cash, spend""",
    "DOCS": """
        docs, documentation, manual, the docs, reference, triton docs, triton documentation,
        docs for, api docs, handbook, knowledge base, manuals, reference docs, doc""",
    "SEARCH": """
        search, look up, lookup, look for, find, search for, consult, check, ask, query,
        google, what do, what does, grep, dig up, look in, look, read up on, read, find out,
        browse, look it up, see, say""",
    "HELP": """
        help, help me, commands, what can you do, what can i say, what can i do, what can i
        ask, usage, how do i use this, how do i use you, how does this work here,
        instructions, what are my options, what do you understand, what are you able to do,
        h, what can i type, which commands, what can i ask you, what can i tell you, what
        commands, how do i use this tool, capabilities, features do you have, what are you
        capable of, guide, i am lost, i am stuck""",
    "STATUS": """
        status, progress, state, how are we doing, how is it going, how are things, where
        are we, where do we stand, where are things, current state, how far are we, how far
        along, how far have you got, how far did you get, state of play, what is up, best so
        far, doing so far, stand, standing, situation, update, current best, how is it
        coming along, how are you doing, how fast, how fast is it, how quick, how much
        faster, speedup so far, current speedup, what speedup, still running, any progress,
        any luck, finished, going on, news, how is it looking, where we are, done yet, time
        is left, budget is left, rounds are left, rounds left, time left, budget left, made
        it faster, is it faster, best result so far, best time so far, how did it go, how
        did that go, how does it look, how fast are we, are you done, are we done, is it
        done, what are you doing, what are you up to, what are you working on, any news,
        coming along, any better, is it any faster, speedup, at the moment doing, what is
        happening, faster yet, how is the run going, how is the search going, where things
        stand, best speedup so far, have we got, what have we got, eta""",
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
    "NO": """
        nope, nah, never mind, decline, denied, deny, disagree, do not do it, do not do
        that, i disagree, rather not, negative, not now, no way, better not, certainly not,
        absolutely not, permission denied, i would rather not, no thanks, no thank you, not
        yet, i decline, over my dead body, out of the question, i object, thumbs down, of
        course not, definitely not, do not bother, leave it, i refuse, not a chance""",
    "COMMENT": """
        great, nice, cool, awesome, excellent, good job, well done, nice work, nice one,
        wow, impressive, brilliant, wonderful, great work, great job, not bad, interesting,
        good work, amazing, good stuff, love it, lovely, i see, got it, neat, nicely done,
        hooray, perfect, i love it, fantastic, sweet""",
    "ATMOST": """
        at most, no more than, not more than, under, below, less than, max, maximum, up to,
        limit, cap, capped, only has, has only, stay below that, stay under that, not
        exceed, without exceeding, never exceed, never more than, budget, within, fit, fit
        in, fit into, fits, fits in, fits into, stay under, stay below, stay within, keep
        under, keep below, keep within, keep it under, keep it below, keep it within,
        ceiling, limited to, limit it to, restrict, restrict it to, cap it at, not above,
        not over, not use more than, only have, have only, only got, bound, upper bound, not
        exceeding, stays under, stays below, only use, allowance, constrain, inside, smaller
        than, hard limit, or less, tops, must not exceed, not go over, not go above, not go
        beyond, constraint, at the most, or under, not take more than, not spend more than,
        only spend, ration, not let it exceed, remain under, remain below, restrict to,
        limits, capacity""",
    "ATLEAST": """
        at least, not less than, never less than, minimum, no less than, or more, or better,
        or faster, or higher""",
    "UNTIL": """
        until, till, once you reach, once you hit, once you get, when you reach, when you
        hit, when you get, once it reaches, once it hits, once it is, when it is, when it
        reaches, when it hits, as soon as it is, as soon as you reach, as soon as you hit,
        as soon as it reaches, as soon as it hits, once we reach, once we hit, once we are
        at, when we reach, when we hit, when we are at, if you reach, if you hit, reach,
        reaches, hit, hits, get to, gets to, achieve, as soon as you have, as soon as we
        have, once you have, once we have, when you have, when we have, once it gets to,
        when it gets to, as soon as it gets to, as soon as we reach, as soon as we hit, as
        soon as you get, as soon as we get, once you get to, when you get to, once we get,
        when we get, once there is, once you see, as soon as you see, until you reach, until
        you hit, until you get, until you have, until it is, until it reaches, until it
        hits, until we reach, until we hit, until we have, until we get, is all i need, is
        all we need, is good enough, is fine, is plenty for me, good enough, is enough, is
        plenty, suffices, enough, will do, attain, obtain, once at, is sufficient, satisfied
        with, happy with, if you get, if you get to, not bother going past, not bother going
        beyond, not go past, not go beyond, no need to go past, no need to go beyond, do not
        bother going past, do not bother going beyond, not need more than, if it reaches, if
        it hits""",
    "AFTER": """
        after, not longer than, no longer than, not take longer than, only, spend, take,
        give it, give yourself, another, more, further, extra, additional, budget of, time
        limit, time budget, timeout, deadline, time out, use, you have, have, got, not run
        longer than, not run for more than, wrap up, allotted, finish, be done""",
    "GOAL": """
        goal, target, aim, aim for, aiming for, shoot for, objective, speedup, speed-up,
        speed up, speedups, gain, improvement, acceleration, go for, want, need, faster, as
        fast, quicker, satisfied, threshold, get me, content with, speed, get, settle for,
        runtime, latency, happy, the time""",
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

ORDINALS = {
    "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
    "eighth": 8, "ninth": 9, "tenth": 10, "eleventh": 11, "twelfth": 12,
}  # fmt: skip
CARDINALS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15, "sixteen": 16,
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "hundred": 100,
    "couple": 2, "dozen": 12,
}  # fmt: skip
PLACES = {
    "last": "last", "latest": "last", "newest": "last", "recent": "last",
    "fastest": "fastest", "best": "fastest", "quickest": "fastest", "winning": "fastest",
    "winner": "fastest", "champion": "fastest", "leader": "fastest",
    "previous": "previous", "prior": "previous", "preceding": "previous", "earlier": "previous",
    "parent": "parent", "predecessor": "parent",
    "original": "original", "baseline": "original", "eager": "original", "reference": "original",
    "current": "current", "present": "current",
    "other": "other",
}  # fmt: skip
"""Adjectives and nouns that name a candidate by its place."""
PLACE_NOUNS = words_of(
    "candidate version variant one kernel attempt solution result run code module candidates "
    "implementation source draft pytorch torch model revision"
)
ALWAYS_A_CANDIDATE = words_of(
    "parent predecessor original baseline winner champion leader fastest best"
)
"""Places that need no noun behind them."""
ORDINARY = words_of("""
    point print share shared stage patch match taken cast casts state block tiled tiles light
    quiet quite later great where there these those their thing think would could should about
    after might while whole white write wrote right night price prize prime trace track trick
    world words weeks hours house horse mouse month mouth other under order older owner lower
    power tower lover cover never fever level lever clean clear plain plane place space spare
    scale store story stone stuff start smart stand brand grand large small still style table
    loops looped unroll unrolled expect except respect inspect aspect tokens broken spoken pencil
    tensor sensor center matter better letter butter water waste taste paste party pasta
    shave shade shake excited editor credit branch brunch ranch french benches bench""")
"""Ordinary words near the lexicon's, which are never read as mistyped ones."""


@cache
def entries() -> dict[str, frozenset[str]]:
    """Word or phrase -> the concepts it may stand for."""
    found: dict[str, set[str]] = {}
    for concept, words in LEXICON.items():
        for word in words.split(","):
            found.setdefault(" ".join(word.split()), set()).add(concept)
    return {word: frozenset(concepts) for word, concepts in found.items() if word}


@cache
def longest_phrase() -> int:
    """Words in the longest phrase."""
    return max(len(phrase.split()) for phrase in entries())
