"""Lexicon of objects and of words that only shape a sentence: fillers, questions, negation."""

from __future__ import annotations

NOUNS: dict[str, str] = {
    "MEMORY": """
        memory, vram, footprint, ram, hbm, memory usage, memory use, memory footprint, gpu
        memory, device memory, memory consumption, peak memory, video memory, allocation,
        allocations, allocate, peak usage, memory hungry, memory-hungry, memory hog,
        memory efficiency, memory-efficient, workspace, high water mark, memory peak,
        working set, mem, peak memory usage, memory budget, memory pressure, peak
        allocation, oom, buffers, temporaries, scratch, peak mem, peak vram, peak gpu
        memory, max memory, maximum memory, memory peak usage, gpu mem, gpu ram, device
        mem, mem usage, vram usage, vram use, memory allocation, memory needs, memory
        requirement, memory requirements, bytes allocated, peak device memory, peak
        footprint, peak hbm, dram, allocates, allocating, bytes, at the peak, at peak""",
    "ENERGY": """
        energy, power, joules, joule, watts, watt, electricity, power draw, power usage,
        energy use, energy usage, power consumption, energy consumption, wattage, battery,
        heat, energy efficiency, power efficiency, energy-efficient, power-efficient,
        cooler, power hungry, carbon, eco, green, energy per call, power per call, joules
        per call, performance per watt, perf per watt, electricity bill, power bill,
        energy bill, energy cost""",
    "SPEED": """
        fast, faster, speed, quicker, latency, runtime, run time, execution time,
        quickest, speediest, performance, throughput, swift, wall time, wall clock,
        turnaround, perf, fastest, pure speed, raw speed, response time, run-time, time
        per call, call time, per call latency, latency per call, time per forward, forward
        time, milliseconds, microseconds, response times, quickness, speeds, latencies,
        runtimes, run times""",
    "SLOW": """
        slow, slower, slowness, bottleneck, bottlenecks, bottlenecked, limiter, holding,
        hold, holds, holding back, holding it back, holding us back, holds it back,
        holding this back, hold it back, limiting, limits, limited, limiting factor,
        slows, slowing, slowing down, slows down, sluggish, bound, drags, dragging,
        dragging down, hog, slowdown, laggy, lagging, stall, stalls, stalled, stalling,
        culprit, weakest link, keeping it from, keeps it from, prevents, stops it from,
        stopping it from, stopping us from, keeping us from, latency bound, latency-bound,
        in the way, choke point, chokepoint, crawling, poor, hot spot,
        poor performance, bad performance, slowest, hampering, hinders, hindering, impede,
        inefficient, underperforming, drag, takes so long, take so long, taking so long,
        takes forever, taking forever, so long, takes this long, taking this long, not
        faster, not fast, not quicker, no faster, not any faster, not speed, crawl,
        crawls, limited by memory, limited by compute, memory or compute, compute or
        memory, memory limited, compute limited, memory-limited, compute-limited,
        bandwidth-bound, held back, hurting, hurts, hurting performance, hurts
        performance, eats performance, kills performance, killing performance, in our way,
        so sluggish, the brakes, brakes, only got, only getting, tiny speedup, small
        speedup, little speedup, poor speedup, low speedup, modest speedup, such a small
        speedup, such a tiny speedup, such a low speedup, bad speedup, disappointing
        speedup, eating all the performance, eating performance, eating up performance,
        eating the performance, eats the performance, costing us performance, costing
        performance""",
    "TIME": """
        time, milliseconds, microseconds, cycles, runtime, latency, wall time, seconds,
        time's, timing, timings, times, duration, execution time, run time""",
    "SPENT": """
        spent, spend, spending, goes, going, go, lost, lose, wasted, waste, burned, burnt,
        burning, disappear, disappearing, consumed, consume, consuming, takes, taking,
        take, eaten, eating, eats, eat, eating up, eaten up, used up, distribution,
        distributed, split, dominates, dominate, hungriest, most expensive, longest, takes
        longest, takes the longest, most of the, most, breakdown, break down, sunk, sink,
        vanish, vanishing, hot, hottest, per kernel, accounts for, bulk, costly, being
        spent, chewing, chewing up, where it goes, leak, leaking, biggest, per op,
        divided, spends, is going, being wasted, is wasted, is lost, used most, slowest
        part, costs the most time, the most time, most of its time, swallows, swallow,
        swallowing, soaks up, gobbles, gobbling, guzzles, guzzling, hogs, hogging""",
    "PROFILE": """
        profile, profiling, profiler, hotspot, hotspots, hot spots, time breakdown,
        nsight, breakdown of the time, flame graph, flamegraph, trace, counters,
        occupancy, registers, spills, performance counters, kernel timings, per-kernel
        times, timeline, time distribution, timing breakdown, performance breakdown,
        profiled, profiles, runtime breakdown, latency breakdown, breakdown by kernel,
        breakdown per kernel, register pressure, kernel times, time split, time is
        distributed, the time is distributed, time is spent, the time is spent, breakdown
        of time, time breakdown by kernel, time per kernel, time of each kernel, timings
        per kernel, timings by kernel, kernel by kernel, per kernel timing, per-kernel
        timing, per-kernel time, per-kernel timings, per-kernel breakdown, kernel
        breakdown, detailed timing, detailed timings, where it spends its time, spends its
        time, spends most of its time""",
    "ROOFLINE": """
        memory bound, memory-bound, compute bound, compute-bound, bandwidth bound,
        bandwidth limited,
        roofline, roof, peak, headroom, theoretical limit, theoretical peak, theoretical
        maximum, hardware limit, hardware limits, speed of light, how much faster could
        it, how much faster can it, how much faster can this, how much faster could this,
        room for improvement, room to improve, room left, left on the table, upper bound,
        peak bandwidth, peak performance, hardware peak, of peak, close to the limit, how
        close, arithmetic intensity, theoretical best, theoretical bound, physical limit,
        the ceiling, ceiling, theoretical, best possible, limit of the hardware,
        hardware's limit, potential, theoretically possible, how fast could it, how fast
        can it, bandwidth utilization, bandwidth utilisation, utilisation, utilization,
        max possible, maximum possible, more to gain, room to grow, room, limits of the
        hardware, hardware maximum, physically possible, bandwidth, limit of this card,
        limit of this gpu, limit of the card, limit of the gpu, limits of this card,
        limits of this gpu, what the hardware can do, what the card can do, what the gpu
        can do, what the chip can do, hardware can do, gpu can do, card can do, of the
        peak, maximum bandwidth, max bandwidth, achievable peak, how near, how close to
        peak, hw limit, hw limits, physics, the hardware allows, hardware allows, best we
        could, best we can get, best we could possibly get, best it can get, in theory,
        theoretically, possible on this card, possible on this gpu, possible on this
        hardware""",
    "HISTORY": """
        history, tried, attempted, attempts, log, been doing, steps so far, done so far,
        been trying, explored, have you done, did you do, have we done, journey, past
        attempts, what happened, experiments, tried so far, experimented, tests,
        approaches, tested, have tried, tried out, previous attempts, things you did,
        happened so far, happened, happen, did so far, did you try, you try, did we try,
        been up to, done, track record, account of, changelog, transcript, did, has been
        done, was done, doing so far, went through, been tested, record, considered,
        looked at, go wrong, the story, earlier attempts, attempted so far, been explored,
        covered so far, ground covered, attempt, what worked, worked, turned out, how it
        turned out, how they turned out, what came of it, how they went, how it went, what
        did not work, tried until now, tried already, tried before, been tried, so far
        tried, what you have done, you have done, we have done, you have tried, we have
        tried, have attempted, you attempted, approaches so far, what you did, what you
        just did""",
    "TREE": """
        tree, candidates, all candidates, graph, candidate list, all versions, versions,
        variants, branches, lineage, family tree, overview of candidates, leaderboard, all
        the candidates, candidate tree, ranking, all of them, scoreboard, search tree,
        list of candidates, all variants, map, genealogy, hierarchy, how the candidates
        relate, standings, who descends from whom, descends, descends from, relate, relate
        to each other, are related, related, tree of attempts, tree of candidates, tree of
        versions, candidates so far, full tree, whole tree, the tree, candidates do we
        have, candidates are there, candidates we have, descent, ancestry, parents,
        parents and children, who came from whom, list candidates, which candidates, what
        candidates""",
    "IDEAS": """
        ideas, suggestions, strategies, options, alternatives, hypotheses, possibilities,
        other ideas, ideas left, ideas do you have, proposals, left to try, remains to
        try, remaining ideas, other approaches, else could you try, else can you try,
        could be tried, else can we try, else could we try, untried, up your sleeve, have
        not tried, not tried yet, not tried, brainstorm, left to explore, what could you
        try, what could we try, what can we try, what can you try, ideas do you still
        have, could still try, still try, left in the tank, options do we have, options
        are there, options do i have, candidates for the next step, what are my options""",
    "PLAN": """
        plan, roadmap, next step, next steps, next move, going to do, will you do, are you
        going to do, intend, intention, intentions, plans, planning, strategy, do next,
        doing next, try next, comes next, what is next, agenda, trying next, planned,
        coming up, you do next, going to try, about to do, up next, will you try, come
        next, happens next, game plan, happen next, plan to do, plan of action, upcoming,
        in mind, you will do next, you will do, you will try next, will happen next,
        intend to do, intend to take, intend to, planning to do, planning to try, plan to
        try, steps ahead, lies ahead, is next, are you planning, will we do next, what
        now, next up, have planned, have you planned, is planned, your next""",
    "KERNEL": """
        kernel, kernels, code, source, implementation, triton code, triton source,
        program, triton kernel, source code, listing, text, function, algorithm, optimised
        code, optimized code, generated code, fused kernel, generated kernel, the code,
        op, ops, operation, operations, operator, operators, the kernel""",
    "DIFF": """
        diff, difference, differences, differ, differs, changed, changes, change, delta,
        patch, diffs, what is different, altered, modified, modifications, modification,
        what is new, did you modify, did you alter, did you change, was changed, has
        changed, edits, different, you change, alterations, diverged, changing""",
    "COMPARE": """
        compare, comparison, versus, vs, side by side, side-by-side, comparing, stack up,
        stacks up, measure up, contrast, better than, faster than, slower than, head to
        head, head-to-head, against each other, next to each other, how does it compare,
        put next to, which is faster, which one is faster, which is better, which one is
        better, pit, difference in speed, relative to, comparable, quicker than, compared,
        compares, next to, in comparison, lined up, line up, up against, weigh up, which
        one wins, which wins, who wins, how do they compare, any better than, any faster
        than, any quicker than, any slower than, much faster than, much slower than, much
        better than, against, beats, beat, or better than""",
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
    "STEPWORD": """
        step, steps, change, changes, edits, moves, actions, thing i asked, last thing,
        last request, request, what you just did, what you did, last action, action,
        command, last command, thing i did, thing you did, thing i said, thing we did,
        last move, move, last one, setting, operation, instruction""",
    "PRECISION": """
        precision, precise, accuracy, tolerance, numerics, math, maths, rounding, matmul
        precision, arithmetic, mode, accumulate, accumulation, computation, compute, tensor
        cores, tensor core, cores, multiplication, matmuls, matmul, gemm, dot, dots, dot
        products, format, class, rules, rule, numbers, tensorcores, precision mode, setting""",
    "STRICT": """
        strict, strictly, exact precision, full precision, fp32 precision, ieee, exact,
        stricter, full fp32, full float32, original precision, true fp32, strict mode,
        precisely exact, bit exact, single precision, default precision, strictness,
        strict precision, highest precision, high precision, true float32, real fp32,
        exact results, exact math, exact arithmetic, exact numerics, full accuracy, pure
        fp32, proper fp32, plain fp32, tighten the precision, tighten the tolerance,
        tighten precision, tighten tolerance, strict rule, strict accuracy, no precision
        loss, without precision loss, no loss of precision, no loss of accuracy, no
        accuracy loss, without losing precision, without losing accuracy, maximum
        precision, max precision, precise results, more precise, more accurate, ieee fp32,
        tight tolerance, as precise as eager, strict numerics, bit-accurate, bit accurate,
        strictest, as accurate as eager, as exact as eager, no shortcuts with precision,
        no compromise on precision, no compromises on precision, exact float32, exact
        fp32, full float32 precision, strict again, strict fp32, be strict, precise fp32,
        most accurate, most precise, most exact, highest accuracy, exactness, real
        float32, pure float32, plain float32, proper float32, true single precision, full
        single precision, ieee float32, ieee precision, tightest tolerance, tightest,
        exact float32 only, only fp32, only float32, fp32 only, float32 only""",
    "FP32": "fp32, float32, f32",
    "TF32": """
        tf32, tf-32, tensorfloat32, tensorfloat-32, tensor float 32, tensorfloat, tf 32,
        tf32s, tensorfloat 32, tensor-float-32, tensor float32, tfloat32, tensor float""",
    "BF16": """
        bf16, bfloat16, bfloat, bf-16, brain float, brain floats, bf 16, b16, bfloat 16,
        brain float 16, brainfloat, brainfloat16, brain floating point, brain-float,
        b-float16""",
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
        dimension, embedding dimension, sequence lengths, seq lengths, batch sizes, hidden
        sizes, hidden dims, head dims, context lengths""",
    "LIBRARY": """
        library, libraries, cublas, cudnn, cutlass, library calls, vendor library, vendor
        libraries, library kernels, library gemm, library gemms, library functions, torch
        ops, library call, aten, external kernels, library matmul, torch functions,
        pytorch ops, torch matmul, vendor kernels, torch calls, library routines, library
        code, vendor calls, pytorch calls, pytorch functions, external libraries, library
        ops, torch.matmul, external library, cublaslt, torch matmul and friends,
        torch.matmul and friends, library matmuls, library convolutions, vendor code,
        vendor kernel, cudnn kernels, cublas kernels, torch.mm, torch.bmm, torch
        operators, aten ops, aten calls, aten kernels, torch.nn.functional, library
        versions, library implementations, nvidia libraries, vendor blas, blas, library
        gemm calls, vendor gemm""",
    "OWN": """
        own kernels, only triton, pure triton, triton only, only own kernels, own kernels
        only, your own kernels, only your own kernels, triton kernels only, only triton
        kernels, all triton, everything in triton, hand-written kernels, handwritten
        kernels, hand-written, handwritten, written in triton, triton-only, nothing but
        triton, just triton, kernels of your own, 100% triton, custom kernels only, only
        custom kernels, self-written, fully triton, entirely in triton, entirely triton,
        do it all in triton, just your own kernels, own triton kernels, own triton code,
        only your own triton code, only our own triton kernels, only our own kernels, only
        own triton code, only own triton kernels, your own triton code, your own triton
        kernels, our own triton kernels, kernels you wrote, kernels you wrote yourself,
        only kernels you wrote, only use kernels you wrote, only use your own kernels,
        only use triton, use only triton, all of it in triton, everything hand-written,
        everything handwritten, everything written in triton, hand-written in triton,
        handwritten in triton, triton all the way, must be triton, be all triton, be pure
        triton, be only triton, 100 % triton, all in triton, nothing except triton,
        nothing else than triton, no libraries, exclusively triton, triton exclusively,
        solely triton, purely triton, only in triton, stick to triton, stay in triton,
        home-grown kernels, homegrown kernels, triton through and through, only
        hand-written kernels, only hand-written triton, only hand-written triton kernels,
        own kernels and nothing else, only your kernels, only our kernels""",
    "POLICY": "policy, policies, policy to",
    "MIXED": "mixed, mix, mix of, both",
    "ANYTHING": "any, anything, anything goes, whatever works, no restrictions",
    "COST": """
        cost, costs, price, bill, money, tokens, token, dollars, usd, expense, expenses,
        token usage, tokens used, spent so far, expensive, how much have i spent, how much
        have we spent, how much did this cost, token count, charges, api usage, model
        usage, spending, run up, api bill, how much have you spent, burned, token
        consumption, pay, paying, paid, cash, spend, much money, how expensive, running
        up, owe, on the meter, cents, api costs, api cost, spent on this, run me, cost us,
        cost me, set me back, paying for, what am i paying, dollars spent, money spent,
        burn much, burn money, burn many tokens, burn through, burn a lot""",
}
"""Concept -> its words and phrases."""


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
