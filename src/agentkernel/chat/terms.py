"""What the terms of an answer mean, in two sentences each."""

from __future__ import annotations

import re

from agentkernel.chat.language.question_words import TERMS

EXPLAINED: dict[str, str] = {
    "roofline": (
        "The roofline is the least time that a call can take on a GPU: the larger of its bytes "
        "over the memory's bandwidth and its operations over the peak of the units. In the picture "
        "the roof rises with the operations a byte until the peak is reached, and how far below it "
        "a mark lies is what could still be gained."
    ),
    "memory": (
        "Bound by memory means that moving the bytes takes longer than computing on them. What "
        "helps is to move fewer: fused operations, and values that are read once."
    ),
    "compute": (
        "Bound by compute means that the operations take longer than moving the bytes does. What "
        "helps is faster units, such as tensor cores, or less to compute."
    ),
    "latency": (
        "Bound by latency means that the work itself takes so short that the start of each launch "
        "is most of the time. What helps is fewer launches or more work in a call, not a faster "
        "kernel."
    ),
    "mixed": (
        "Bound by both means that moving the bytes and computing on them take about as long. What "
        "helps one alone gains little."
    ),
    "ridge": (
        "The ridge is the number of operations a byte at which the roof of a GPU turns flat. Left "
        "of it memory is the limit, right of it the units are."
    ),
    "intensity": (
        "Arithmetic intensity is the number of operations for each byte that a call moves, in "
        "FLOP/byte. Below the ridge of the GPU memory is the limit, above it the units are."
    ),
    "occupancy": (
        "Occupancy is the share of an SM's warps that a kernel can keep there at once; registers "
        "and shared memory limit it. A low one hides less of the time that memory takes, and a "
        "high one alone makes nothing fast."
    ),
    "spills": (
        "A spill is a value that found no free register and lies in memory instead. It costs a "
        "write and a read each time; fewer registers' worth of work a thread, as with more warps, "
        "avoids it."
    ),
}


def explained(words: str) -> str:
    """The explanation of the term in a question."""
    name = next(name for name, pattern in TERMS.items() if re.search(pattern, words))
    return EXPLAINED[name]
