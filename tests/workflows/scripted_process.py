"""Runs the scripted loop in a process of its own, which a test then kills."""

from __future__ import annotations

import sys
from pathlib import Path

from agentkernel.workflows.events import Event
from agentkernel.workflows.optimize import resume, run
from agentkernel.workflows.state import OptimizeRequest
from tests.workflows import fakes

SCRIPTS = (
    fakes.Script("tail", failure=fakes.mismatch("tail"), speedup=1.4, compiled=1.3),
    fakes.Script("formula", failure=fakes.mismatch("all")),
    fakes.Script("rows", speedup=1.6, compiled=1.5),
    fakes.Script("slow", speedup=0.8, compiled=1.5),
)


def workshop(delay_s: float) -> fakes.FakeWorkshop:
    return fakes.FakeWorkshop(SCRIPTS, delay_s=delay_s)


def main(folder: Path, delay_s: float) -> None:
    def say(event: Event) -> None:
        print(event.kind, flush=True)

    runs = folder / "runs"
    if runs.is_dir() and any(runs.iterdir()):
        resume("last", say, runs=runs, workshop=workshop(delay_s))
    else:
        settings = fakes.settings(runs, "budget.rounds=4")
        request = OptimizeRequest(fakes.small_problem(folder), settings)
        run(request, say, workshop=workshop(delay_s))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
