"""Which words say how far to go: limits, goals and ends?"""

from __future__ import annotations

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
