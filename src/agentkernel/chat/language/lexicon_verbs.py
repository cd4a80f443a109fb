"""Lexicon of actions, of limits and goals, and of words about the session itself."""

from __future__ import annotations

VERBS: dict[str, str] = {
    "SHOW": """
        show, display, print, list, view, see, dump, pull up, bring up, let me see, let me
        look at, show me, give me, render, present, take a look at, have a look at, look
        at, get me, share, read, cat, put up, reveal, open up, list out, want to see, to
        see, open, spell out, draw, plot, draw me, sketch, visualise, visualize, look
        like, looks like, put on screen, paste, echo, type out, write out, hand me, let me
        read, let me view, want to read, want to look at, pop up""",
    "TELL": """
        tell, say, report, tell me, let me know, talk, give me an idea of, know, want to
        know, understand, learn, remind, remind me, recap, summarise, summarize, sum up,
        summary, overview, rundown, run down, quick summary, brief, fill me in, catch me
        up, quickly tell me, please tell me""",
    "EXPLAIN": """
        explain, describe, walk me through, walk through, talk me through, talk through,
        take me through, clarify, elaborate, go through, break down, how does, how do,
        what is going on in, what is happening in, what is happening on, what happens in,
        what happens on, what happens at, what is going on on, what is going on at,
        meaning, mean, means, explanation, what does, help me understand, guide me
        through, teach me, annotate, comment on, purpose, doing, the idea behind, the
        logic behind, logic, how it works, purpose of, interpret, unpack, run me through,
        make sense of, decipher, illuminate, demystify, not understand, not get, not
        follow, confused by, puzzled by, lost on, understand, to understand, makes no
        sense, make no sense, does not make sense, looks odd, looks weird, looks strange,
        looks wrong, looks suspicious, confuses me, confusing, puzzling, puzzles me,
        unclear, not clear, gist, is structured, structured, how this works, how that
        works, stands for, i am stuck at, i am stuck on, stuck at, stuck on, i do not see
        why, not see why, not see what""",
    "RUN": """
        run, go, start, begin, launch, kick off, proceed, continue, resume, carry on, keep
        going, go on, go for it, optimise, optimize, rerun, re-run, iterate, keep at it,
        keep trying, try again, once more, one more time, fire away, get going, get
        started, hit it, run it, run this, run it again, do it again, retry, another
        attempt, another go, another try, another round, one more round, give it another
        shot, give it another go, have another go, go again, carry on optimising,
        carry on optimizing, crack on,
        press on, do your thing, move on, keep optimising, keep optimizing, keep
        searching, keep working, search, tune, autotune, let it run, optimising,
        optimizing, have at it, take another shot, another shot, another pass, one more
        pass, one more try, let it rip, get on with it, keep on going, start optimising,
        start optimizing, get cracking, optimisation, optimization, do another round, keep
        running, second attempt, one more go, one more attempt, from where you left off,
        where you left off, pick up where you left off, from where we left off, where we
        left off, continue from where you left off, continue from where we left off, kick
        it off, onwards, onward, another iteration, one more iteration, do another
        iteration, next iteration, next round, go ahead with the optimisation, go ahead
        with the optimization, go ahead with the search, start the search, start
        searching, begin searching, set off, roll on, roll, full steam ahead, keep it up,
        keep it going, keep this going, on with it, back to work, get to work, get back to
        work, do the next round, run the next round, pick it up again, pick up again, take
        it from here, let it continue, give it a go, take it away, get it going, get this
        going, get the ball rolling, start it, start it up, off you go, start now, begin
        now, continue from there, carry on from there, go on from there, proceed from
        there, continue from here, carry on from here, go on from here, do your magic,
        work your magic, you have my blessing, carry on searching, keep on searching, keep
        on trying, keep on, keep at it please, continue searching, continue optimising,
        continue optimizing, continue working, continue the search, carry on working,
        resume the search, resume searching, resume work, resume the run, start the run,
        begin the search, another turn""",
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
        harder, full throttle, no holds barred, not hold back, turn it up, turn up the
        heat, more intense, intensify, extreme, more exotic, explore more, explore
        further, wring more, gutsier, widen the search, broaden the search, expand the
        search, larger search, bigger search, more exhaustive, exhaustive, more drastic,
        drastic, squeeze harder, cannot be fast enough, drive it harder, go for broke, be
        greedy, greedier, less careful, adventurous, creative, bigger risks, more
        risk-taking, do better, do better than that, better than that, more to squeeze,
        more to squeeze out, not be shy, go further, wild, wild rewrites, fearless,
        reckless, too timid, too cautious, too safe, too conservative, too careful, too
        tame, timid, cautious, play it too safe, playing it too safe, playing it safe,
        playing safe, play it safe, more adventurous, less shy, not be afraid, more
        imaginative, more creative, think bigger, think big, aim higher, raise the bar, up
        the ante, dial it up, ramp it up, ramp up, go harder, go deeper, go crazy, go
        nuts, more invasive, more adventurous, big changes, bigger changes, bolder
        changes, unconventional, out of the box, outside the box, heavy rewrites, crazy
        ideas, crazy, large rewrites, big rewrites, more drastically, pushing harder, be
        less shy, risky, risk it, risk more, take a risk, take more chances, take some
        risks, stop being so careful, stop being so cautious, stop being so timid, stop
        being so conservative, stop playing safe, stop playing it safe, way too
        conservative, way too cautious, way too timid, way too careful""",
    "TOOSLOW": "too slow, still slow, not good enough, not enough, disappointing, still too slow",
    "STOP": """
        stop, halt, cancel, abort, pause, hold on, enough, that is enough, that will do,
        call it off, kill it, interrupt, break off, finish here, wait, quit running, cease,
        kill the run, finish, stop it, knock it off, terminate, stop right there, hang on,
        freeze, call it a night, stop searching, stop optimising, stop optimizing, stop
        running, stop working, stop the run, stop the search, give up, end the run, end the
        search, end this run, kill, done searching, enough searching, quit searching""",
    "QUIT": """
        quit, exit, bye, goodbye, q, leave, log out, logout, see you, see ya, i am done,
        we are done, close the session, end the session, close session, call it a day,
        that is all, that is it for today, end session, leave the session, shut down,
        close the chat, end the chat, good night, i am off, finish the session, that is
        all for today, done for today, i am finished, we are finished, signing off, sign
        off, close this session, enough for today, enough for now, end this session, see
        you tomorrow, see you later, see you soon, talk to you later, talk later, stop for
        today, that is all for now, that is it for now, i am out, we are finished here, i
        am done here, i am done for today, close up, close it down, wrap it up for today,
        catch you later, cya, ciao, done here, close up shop, going home, heading home, i
        have to go, i have to leave, got to go, end of session, let me out, get me out of
        here, until tomorrow, leave now, farewell""",
    "USE": """
        use, call, try, take, pick, choose, go with, go for, apply, set, adopt, change to,
        move to, change over to, switch to, switch, change, shift to, try out, make use
        of, turn on, activate, run with, work with, work in, using, employ, do it, do
        this, do that, try it, try this, relax to, loosen to, drop to, drop down to,
        lower, trying, switching to, compile, build, aim, aim at, aim for, optimise,
        optimize, tune, retarget, target, run, run it, run this, try with, test, go,
        rerun, re-run, redo, compute, calculate, do, move, repeat, measure, check,
        benchmark, time it, optimising, port, port it, move over to, generate, tailor,
        specialise, specialize, consider, assume, swap to, swap in, retry, try again,
        deploy, prepare, produce, optimized, optimised, adapt, make it work, make this
        work, focus on, be, deploying, deployed, deploy on, deploy to, going onto, going
        to run on, ends up on, end up on, run on, runs on, running on, moving to, move
        onto, retune for, retune, re-target, tune it, re-tune, design for, designed for,
        meant for, intended for, test on, test with""",
    "ALLOW": """
        allow, allowed, permit, permitted, enable, accept, acceptable, ok, okay, fine, is
        ok, is okay, is fine, are fine, are ok, tolerate, welcome, tolerable, let it use,
        let it be, loosen, relax, loosened, relaxed, feel free to use, can use, may use,
        good enough, will do, is good enough, no problem with, do not mind, would not
        mind, can live with, live with, happy with, enough, is enough, sufficient,
        suffices, permissible, authorise, authorize, grant, legalise, unlock, on, opt in,
        opt into, let the kernels use, is welcome, go ahead with, no objection to, no
        objections to, is all we need, is all i need, do not mind if you use, not mind if
        you use, do not mind if you, is no problem, no issue with, is alright, is all
        right, all right, alright, is tolerable, is perfectly fine, is totally fine, is
        good enough for us, can tolerate, tolerates, cope with, can cope with, no problem
        using, would be fine, would be ok, would be okay, would be acceptable, is
        permitted, are permitted, is allowed, are allowed, allowing, enabling, okay with,
        ok with, cool with, fine with, fall back on, fall back to, falling back on, may
        call, may be used, can be used, be my guest with, good with, comfortable with,
        works for me, work for me, works fine, works for us, is good for me, i have no
        problem with, i have no issue with, i have no objection to, i have no objections
        to, we have no problem with, no worries about, would be all right""",
    "FORBID": """
        forbid, forbidden, disallow, disallowed, disable, disabled, ban, banned, prohibit,
        avoid, turn off, switch off, off, drop, remove, get rid of, stop using, quit
        using, stay away from, steer clear of, rule out, exclude, no longer, lose, kick
        out, block, deny, refuse, refrain from, ditch, eliminate, cut out, skip, revoke,
        do not want, do not like, forget, forget about, stop, off limits, off the table,
        do away with, no go, no-go, keep away from, leave out, keep out, without, no more,
        no use of, stop calling, do without, keep clear of, avoid using, avoid calling,
        avoid calling into, without using, without any, with no, free of""",
    "REDUCE": """
        less, reduce, lower, cut, cut down, cut down on, shrink, smaller, small, minimise,
        minimize, minimal, minimum, squeeze, save, lean, leaner, tighter, trim, decrease,
        lessen, fewer, slim, slim down, compress, bring down, get down, lower down, drop,
        slash, economise, economize, frugal, lighter, lightweight, light, low, conserve,
        lowest, smallest, least, tighten, reducing, cutting, shrinking, saving, saves, too
        much, too big, too large, too high, too hungry, hungry, sparing, easier, easy, go
        easy, go easy on, be gentle, be nicer, optimise, optimize, running out of, run out
        of, short on, tight on, short of, low on, focus on, care about, efficient,
        efficiency, thrifty, conservative, trimmed, stingy, diet, goal, objective,
        priority, prioritise, prioritize, aim for, improve, reduction, scale back, pare
        down, more efficient, be economical, economical, dial down, target, is what
        counts, what counts, counts most, is what matters, matters most, matters more, is
        all i care about, all i care about, is all that matters, is all we care about,
        only care about, cares about, caring about, is the priority, is my priority, is
        our priority, comes first, is most important, most important, above all, is key,
        bring that down, bring it down, bring this down, get that down, get it down, get
        this down, cut it down, cut that down, cut this down, keep it down, keep it low,
        keep it small, make do with, optimise it for, optimize it for, optimise this for,
        optimize this for, go for the lowest, dial back, cut back, cut back on, go lower,
        ease off, ease up on, too hungry for, way too high, way too much, way too big,
        favour, favor, criterion, metric, keep running out of, keeps running out of, kept
        running out of, ran out of, runs out of""",
    "RETURN": """
        go back, go back to, back to, back, return, return to, revert, revert to, roll
        back, rollback, rewind, restore, reset to, switch to, switch back, check out,
        checkout, jump to, jump back, get back to, come back to, head back, move back,
        take me back, take us back, pick up from, resume from, continue from, carry on
        from, reinstate, bring back, go on from, change back, put back, start from,
        backtrack, work from, proceed from, activate, prefer, keep going from, reload,
        load, make current, step back to, flip back, fall back to, fall back, swap back,
        continue with, carry on with, start over from, return us, restart from, start
        again from, build on, move on from, move to, hop back, recover, go to, jump over
        to, hop over to, hop to, hop onto, hop on, jump onto, move me to, move me back to,
        move me onto, move me back onto, move over onto, move back onto, move back to,
        take me to, put me on, put me back on, get me back to, get me onto, bring me back
        to, bring us back to, get us back to, go over to, head to, head over to, move
        onto, go onto, going back to, returning to, reverting to, back onto, again to, go
        with the earlier, swing back to""",
    "UNDO": """
        undo, undo it, undo that, undo this, take back, take that back, take it back, go
        back, go back one, one step back, step back, a step back, back one step, back up,
        scrap that, revert, revert it, revert that, roll back, roll that back, roll it
        back, rollback, reverse that, reverse, cancel that, never mind that, put it back,
        put it back the way it was, as it was, unwind, backtrack, the way it was before,
        forget that, rewind, scratch that, take that change back, undo the last change,
        undo the last step, revert the last change, revert the last step, undo my last
        change, roll back the last change, undo last, before that, strike that, go back a
        step, back out, ctrl-z, go one step back, revert last, undo what you just did,
        undo what you did, revert what you just did, revert what you did, revert what i
        just did, unmake, undo my last, scratch it, strike it, wind that back, wind it
        back, wind back, walk that back, walk it back, step backwards, go backwards, oops
        undo, restore the previous state, go one back, one back, back one, never mind what
        i just said, never mind what i said, forget what i just said, forget what i said,
        ignore what i just said, ignore what i said, ignore my last message, ignore that
        last one""",
    "REDO": """
        redo, redo it, redo that, undo the undo, bring it back, bring that back, reapply,
        put that back, redo the last step, restore that, undo that undo, revert the undo,
        re-apply, redo the change, cancel the undo, reverse the undo""",
    "FORK": """
        split, fork, branch, branch off, branch out, diverge, split off, start a branch,
        start a new branch, new branch, open a branch, make a branch, create a branch,
        another branch, a separate branch, separate branch, side branch, parallel branch,
        spin off, fork off, start a fork, create a fork, make a fork, new line of work,
        parallel line, spawn a branch, second branch from, start another branch,
        branching, forking, splitting, sub-branch, a branch, separate line, explore
        separately, open a second branch, second branch, open another branch, start a
        second branch, open a new line, new line, a new line of work, second line of work,
        start a second line, go off on a branch, branch away, side line, sidetrack, side
        track, separate track, in parallel, alternative line, create a new branch, make a
        new branch""",
    "BRANCH": "branch, branches, fork, line of work",
    "OTHER": """
        other, another, different, alternative, alternate, new, change, changed, vary,
        more, various, additional, else, change the, modify, different ones, larger,
        bigger, smaller, switch, fresh, swap""",
    "KEEP": """
        keep, keep it, accept, ship, ship it, lock in, lock it in, take, take it, adopt,
        commit, go with, settle on, settle for, stick with, stay with, stick to, approve,
        happy with, hold on to, retain, preserve, is a keeper, keeper, i will take, we
        will take, choose, pick, prefer, hang on to, use, finalise, finalize, mark as
        accepted, bank, sign off on, merge, is the winner, winner, is the one, pin,
        select, promote, i like, like, is good, is good enough, good enough, keeping, let
        us keep, i am happy with, is the one i want, i want, run with, satisfied with,
        pleased with, mark, as accepted, marked as accepted, keeps, hold onto, stay on, i
        will keep, let us take, take it as, accepting, is my favourite, is my favorite,
        favourite, favorite, our best, the one to keep, i am satisfied with""",
    "REJECT": """
        reject, discard, throw away, throw out, drop, get rid of, ditch, delete, dump,
        remove, scrap, toss, toss out, bin, trash, kill, abandon, give up on, do not want,
        dismiss, decline, do not like, no good, is no good, is bad, is useless, forget,
        forget about, prune, erase, rule out, chuck, chuck out, is rubbish, get it out,
        eliminate, cut, disregard, not worth keeping, thumbs down on""",
    "REJECTED": """
        reject, rejected, fail, failed, fails, failing, failure, wrong, refused, refuse,
        incorrect, not accepted, thrown out, discarded, dropped, not pass, not good
        enough, invalid, turned down, not verified, broken, break, breaks, not work, not
        correct, disqualified, not right, error, errors, crash, crashed, crashes,
        mismatch, bad""",
    "TRY": """
        try, try it, try this, try that, try out, attempt, go for, go with, test, pursue,
        do, implement, explore, give a shot, give a go, work on, draft, use, take, pick,
        build, switch to, move on to, go ahead with, proceed with, follow, run, run with,
        start, choose, chase, investigate, test out, have a go at, trying, go, give, let
        us do, continue with, see, realise, realize, execute, tackle, develop, experiment
        with, move to, look into, shot, a shot, a go, a try, a whirl, a spin, do it,
        sounds promising, check out, see what happens with, see what happens if, happens
        with, give it a try, give that a try, give it a go, give that a go, give it a
        shot, give that a shot, i would go with, go ahead and do, let us go with, opt for,
        let us see what happens with, dig into""",
    "SAVE": """
        save, write, store, write out, save it, put, write it, dump, save it as, store it,
        save to disk, to disk, write to disk, save as, write to, save to, put it in, save
        into, place, drop it in, persist, store as, output it, out to, dump it""",
    "EXPORT": """
        export, bundle, package, package up, archive, exporting, export it, zip, zip up,
        pack up, pack, exported, exports, wrap up as a package, ship as a package, as a
        package, package it, package it up, package this up, bundle it, bundle up, bundle
        everything, zip it up, make a package, make a bundle, make an archive, wrap it up
        as, wrap this up as, wrap up as""",
    "DROPIN": """
        drop-in, dropin, drop in, file, files, disk, folder, module, optimised module,
        optimized module, directory, copy, replacement, kernel, code, result, best,
        version, path, session, report, everything, as, to, source, artifact, artefact,
        work, log, transcript, the code, the kernel, package, importable, i can import, we
        can import, archive, bundle, zip, outcome, final version, final kernel, winning
        kernel, winner""",
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
        verify, validate, recheck, re-check, check, double check, double-check, test,
        prove, judge, confirm, verification, check it, make sure, verifying, verified,
        validated, judged, run the judge, ensure, checked, re-verify, reverify, retest,
        re-test, cross-check, verdict, sanity check, replay, still passes, passes,
        passing, pass, run the checks, run the tests, run the checks again, run the
        verification, run a check, rerun the checks, run the correctness check, are you
        sure, sure that, put to the test, put it to the test, check against, examine""",
    "CORRECT": """
        correct, correctness, right, accurate, accuracy, valid, correctly, right answer,
        right results, sound, trust, trustworthy, correct results, correct answer, right
        answers, accurate enough, numerically, numerics, numerically correct, matches,
        match, match the original, matches the original, bit-exact, agrees with the
        original, equivalent, reliable, right result, the right result, same results, same
        result, same output, same outputs, same values, same answer, same numbers, agree
        with, agrees with, results right, good results, is this right, is right, are
        right, it right, give correct results, gives correct results, equals""",
    "CERTIFICATE": """
        certificate, cert, proof, evidence, attestation, certificates, proof of
        correctness, certified, certification, certify""",
    "EDIT": """
        edit, modify, edit by hand, hand edit, change by hand, by hand, manually, tweak,
        open in an editor, open in my editor, editor, manual edit, edit it, hand-edit,
        alter, in vim, in an editor, in my editor, myself, rewrite by hand, change myself,
        editing, manual change, manual changes, tinker, tinker with, open, change, adjust,
        make a change, make changes""",
}
"""Concept -> its words and phrases."""


BOUNDS: dict[str, str] = {
    "ATMOST": """
        at most, no more than, not more than, under, below, less than, max, maximum, up
        to, limit, cap, capped, only has, has only, stay below that, stay under that, not
        exceed, without exceeding, never exceed, never more than, budget, within, fit, fit
        in, fit into, fits, fits in, fits into, stay under, stay below, stay within, keep
        under, keep below, keep within, keep it under, keep it below, keep it within,
        ceiling, limited to, limit it to, restrict, restrict it to, cap it at, not above,
        not over, not use more than, only have, have only, only got, bound, upper bound,
        not exceeding, stays under, stays below, only use, allowance, constrain, inside,
        smaller than, hard limit, or less, tops, must not exceed, not go over, not go
        above, not go beyond, constraint, at the most, or under, not take more than, not
        spend more than, only spend, ration, not let it exceed, remain under, remain
        below, restrict to, limits, capacity, must not go above, never go over, the limit
        is, limit is, my limit is, hard cap, upper limit, keep it to, hold it to, hold it
        under, hold it below, keep to, not allocate more than, no larger than, no bigger
        than, no higher than, no longer than, lower than, shorter than, maximum of, max
        of, at the very most, or fewer, there is only, we only have, i only have, has to
        fit in, has to fit into, must fit in, must fit into, must stay under, must stay
        below, should stay under, should stay below, to play with, to work with,
        available, not more, not longer, not any more, and not more, and no more, and not
        longer, is the most, is the limit, is the max, is the maximum, is all i have, is
        all we have, is all there is, is all you get, is the ceiling, is my limit, is our
        limit, is the cap, is the budget, is our budget, is my budget, is what we have, is
        what i have, nothing above, nothing over, nothing beyond, nothing more than,
        anything up to, no further than""",
    "ATLEAST": """
        at least, not less than, never less than, minimum, no less than, or more, or
        better, or faster, or higher, anything above, anything over, anything beyond,
        anything from, anything better than, above, no slower than, or above, or beyond,
        upwards of, minimum of""",
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
        when we get, once there is, once you see, as soon as you see, until you reach,
        until you hit, until you get, until you have, until it is, until it reaches, until
        it hits, until we reach, until we hit, until we have, until we get, is all i need,
        is all we need, is good enough, is fine, is plenty for me, good enough, is enough,
        is plenty, suffices, enough, will do, attain, obtain, once at, is sufficient,
        satisfied with, happy with, if you get, if you get to, not bother going past, not
        bother going beyond, not go past, not go beyond, no need to go past, no need to go
        beyond, do not bother going past, do not bother going beyond, not need more than,
        if it reaches, if it hits, beat eager by, beats eager by, as soon as we beat eager
        by, as soon as you beat eager by, as soon as it beats eager by, once we beat eager
        by, once you beat eager by, once it beats eager by, when we beat eager by, when
        you beat eager by, when it beats eager by, as soon as we are at, as soon as you
        are at, as soon as it is at, once you are at, when you are at, as soon as there
        is, would be plenty, would be enough, would be fine, would do, would suffice,
        makes me happy, make me happy, will be enough, will be plenty, will be fine, is
        more than enough, is all i want, is all we want, i am happy with, i am satisfied
        with, i would be happy with, once you have reached, when you have reached, once it
        has reached, as soon as it has, once it has, once we have reached, when we have
        reached, the moment you hit, the moment we hit, the moment you reach, the moment
        it is, the moment it hits, if you manage, if you can get, if we reach, if we hit,
        if we get, if we get to, if it gets to""",
    "AFTER": """
        after, not longer than, no longer than, not take longer than, only, spend, take,
        give it, give yourself, another, more, further, extra, additional, budget of, time
        limit, time budget, timeout, deadline, time out, use, you have, have, got, not run
        longer than, not run for more than, wrap up, allotted, finish, be done, be done
        within, be done in, done within, done in, finish within, finish in, be finished
        within, wrap up within, wrap it up in, wrap it up within, time for this is, i
        have, i have got, i can give you, you get, you have got, use up to, take up to""",
    "GOAL": """
        goal, target, aim, aim for, aiming for, shoot for, objective, speedup, speed-up,
        speed up, speedups, gain, improvement, acceleration, go for, want, need, faster, as
        fast, quicker, satisfied, threshold, get me, content with, speed, get, settle for,
        runtime, latency, happy, the time""",
}
"""Concept -> its words and phrases."""


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
