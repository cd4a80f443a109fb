"""How is somebody at a terminal asked whether a run may go on?"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from agentkernel.cli.output import print_plain
from agentkernel.workflows.approval import Approve, PendingApproval


def approver(*, as_json: bool) -> Approve | None:
    """Who asks on this terminal; None where nobody reads the question or could answer it."""
    there = sys.stdin.isatty() and sys.stdout.isatty() and not as_json
    return ask_approval if there else None


def ask_approval(asked: PendingApproval) -> bool:
    """Show what is asked about, and wait for y or n; the end of the input is a no."""
    for line in approval_lines(asked):
        print_plain(line)
    question = "Draft this?" if asked.kind == "plan" else "Judge this?"
    while True:
        try:
            answer = input(f"{question} [y/N] ").strip().lower()
        except EOFError:
            print_plain()
            return False
        if answer in ("y", "yes"):
            return True
        if answer in ("", "n", "no"):
            return False


def approval_lines(asked: PendingApproval) -> Iterator[str]:
    """The plan's hypotheses, or the candidate's text below who drafted it and why."""
    if asked.candidate is None:
        tried = asked.plan.hypotheses if asked.plan is not None else (asked.hypothesis,)
        for item in tried:
            predicted = item.predicted_us
            time = "" if predicted is None else f" ({predicted:.1f} us predicted)"
            yield f"{item.strategy}{time}: {item.reason}"
        return
    made = asked.candidate
    yield f"# {made.id} by {made.coder}: {asked.hypothesis.strategy}, {asked.hypothesis.reason}"
    yield from made.source.splitlines()
