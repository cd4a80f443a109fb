"""Findings of compute-sanitizer are read right, and its absence is a note and no more."""

import pytest

from agentkernel.tools.judge.compute_sanitizer import (
    NOT_INSTALLED,
    REPLAYED,
    find_binary,
    read_findings,
    sanitize,
    with_sanitizer_findings,
)
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.sandbox.session import open_worker

OUT_OF_BOUNDS = """
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at add_kernel+0x1f0 in candidate.py:18
=========     by thread (104,0,0) in block (7,0,0)
=========     Access to 0x7f1c2c200fa0 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f1c2c200000 of size 4000 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: [0x2dfbf1]
=========
========= Invalid __global__ write of size 4 bytes
=========     at add_kernel+0x1f0 in candidate.py:19
=========     by thread (105,0,0) in block (7,0,0)
agentkernel: replayed
========= ERROR SUMMARY: 24 errors
"""
RACE = """
========= COMPUTE-SANITIZER
========= Warning: Race reported between Write access at softmax+0x4f0 in candidate.py:9
=========     and Read access at softmax+0x500 in candidate.py:10 [2 hazards]
=========
========= Error: Race reported between Write access at softmax+0x4f0 in candidate.py:24
=========     and Read access at softmax+0x5a0 in candidate.py:25 [128 hazards]
=========
agentkernel: replayed
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 1 warning)
"""
CLEAN = """
========= COMPUTE-SANITIZER
agentkernel: replayed
========= ERROR SUMMARY: 0 errors
"""
LIES = "Invalid __global__ write of size 4 bytes at add_kernel in candidate.py:3\n" + CLEAN


@pytest.mark.parametrize(
    ("tool", "text", "line", "word"),
    [("memcheck", OUT_OF_BOUNDS, 18, "out of bounds"), ("racecheck", RACE, 24, "128 hazards")],
)
def test_the_first_error_and_its_line_are_read(tool, text, line, word):
    found = read_findings(tool, text)
    assert (found.tool, found.line) == (tool, line)
    assert word in found.text
    assert "Host Frame" not in found.text or "backtrace" in found.text


@pytest.mark.parametrize("text", [CLEAN, LIES, "", "Segmentation fault"])
def test_what_is_no_error_of_the_tool_is_no_finding(text):
    assert read_findings("memcheck", text) is None


def test_where_the_tool_is_absent_a_note_says_so(prepared, sources):
    loaded, captured = prepared(sources.ADD_PROBLEM)
    found = sanitize(loaded, captured, sources.ADD, JudgeSettings(seed=0), find=lambda: None)
    assert (found.failure, found.notes) == (None, (NOT_INSTALLED,))


def test_a_verdict_keeps_what_it_was_and_gains_the_note(judged, prepared, sources):
    verdict = judged(sources.ADD_PROBLEM, sources.ADD, seeds=1)
    after = with_sanitizer_findings(
        verdict, *prepared(sources.ADD_PROBLEM), sources.ADD, JudgeSettings(seed=0)
    )
    assert after.accepted
    words = NOT_INSTALLED if find_binary() is None else "needs a GPU"
    assert any(words in note for note in after.notes)


def test_the_candidate_is_called_once_in_the_sandbox_behind_the_tool(sources, tmp_path):
    """`env` stands for the tool: it starts what follows it."""
    import torch

    payload = {
        "command": ["/usr/bin/env", "STANDS_FOR=the-tool"],
        "limit_s": 60.0,
        "source": sources.ADD.replace(
            "        return out", "        print('ran')\n        return out"
        ),
        "call": {
            "init_args": (),
            "init_kwargs": {},
            "seed": 0,
            "inputs": [torch.zeros(5), torch.zeros(5)],
        },
    }
    with open_worker(device="cpu", interpret=True) as worker:
        reply = worker.call("agentkernel.tools.judge.compute_sanitizer:replay", payload, 90.0)
    assert isinstance(reply, dict), reply
    assert reply["output"].split("\n")[-3:-1] == ["ran", REPLAYED]
