"""How much memory, disk and time does a night over thousands of models take besides its work?

python benchmarks/scale/night.py --models 2000 --blocks 8

A night is killed in the middle, the same call finishes it, and a second night uses what is known.
The scheduler, the engine, the library and the reports are the real ones; see `recorded` for the
work. Each call is a process of its own, whose peak is what the table shows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import recorded

from agentkernel.cli.nightly.zoo import NightlyScreen, kernels_of
from agentkernel.nightly.library import Library
from agentkernel.nightly.page.comparison import compare_nights
from agentkernel.nightly.page.files import write_night
from agentkernel.nightly.regions import WorkOrder, budget_of, merge_cuts
from agentkernel.nightly.run import NightOptions, run_night
from agentkernel.nightly.scheduler.engine import LocalEngine
from agentkernel.nightly.scheduler.jobs import Ranking
from agentkernel.nightly.scheduler.scheduler import Scheduler
from agentkernel.storage.configuration import load_settings

BUDGET_S = 1e7
"""Never spent: each job's part of it is computed all the same."""


@dataclass
class Watched:
    """The screen of `agentkernel batch`, with a kill after `kill` answers."""

    screen: NightlyScreen
    kill: int
    changes: int = 0

    def watch(self, scheduler: Scheduler) -> None:
        """Show it; each job changes a night twice."""
        self.screen.watch(scheduler)
        self.changes += 1
        if self.kill and self.changes > 2 * self.kill:
            os.kill(os.getpid(), signal.SIGKILL)


def ranking(least_share: float) -> Ranking:
    """The real one, with another floor."""
    return Ranking(merge_cuts, partial(WorkOrder, least_share=least_share), budget_of)


def call(asked: argparse.Namespace) -> dict[str, float]:
    """One call of `agentkernel batch` and its figures."""
    folder: Path = asked.folder
    zoo = recorded.zoo_of(asked.models, asked.blocks, asked.sharing, folder, spread=asked.spread)
    wanted = NightOptions(
        zoo=zoo,
        parts=recorded.parts_of(zoo),
        target="h200",
        settings=load_settings(None, (), {"runs": str(folder / "runs")}),
        gpu=recorded.GPU,
        versions=recorded.VERSIONS,
        locks=folder / "locks",
        budget_s=BUDGET_S,
    )
    engine = LocalEngine(("cpu",), folder / "locks", lanes=asked.lanes)
    watched = Watched(NightlyScreen(as_json=True), asked.kill)
    figures: dict[str, float] = {}
    with Library(folder / "library.sqlite") as library:
        before = library.night("last", zoo=zoo.name)
        began = time.monotonic()
        night = run_night(
            wanted, library, engine, recorded.work, ranking(asked.least_share), watched.watch
        )
        figures["night_s"] = time.monotonic() - began
        figures["night_cpu_s"] = time.process_time()
        figures["night_peak_mb"] = peak_mb()
        began = time.monotonic()
        comparison = compare_nights(before, night)
        library.save_night(night, comparison.exit_code)
        history = library.history(zoo.name)
        kernels = kernels_of(library, night)
        paths = write_night(folder / "reports", night, comparison, history, kernels)
        figures["report_s"] = time.monotonic() - began
    figures["jobs"] = watched.changes / 2
    figures["regions"] = len(night.regions)
    figures["kernels"] = sum(row.sha256 is not None for row in night.regions)
    figures["exit_code"] = comparison.exit_code
    figures |= {f"{path.name}_mb": megabytes(path) for path in paths}
    figures["peak_mb"] = peak_mb()
    return figures


def peak_mb() -> float:
    """Largest resident set of this process so far (Linux gives kilobytes), without the lanes'."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def megabytes(path: Path) -> float:
    """Of a file, with SQLite's side file."""
    beside = path.with_name(f"{path.name}-wal")
    return sum(item.stat().st_size for item in (path, beside) if item.exists()) / 1e6


def measure(words: list[str], folder: Path, kill: int) -> dict[str, float]:
    """A call in a process of its own; empty figures where it was killed, as asked."""
    began = time.monotonic()
    told = folder / "figures.json"
    told.unlink(missing_ok=True)
    own = ["--folder", str(folder), "--figures", str(told), "--kill", str(kill)]
    with (folder / "screen.jsonl").open("a") as screen:
        code = subprocess.call([sys.executable, __file__, *words, *own], stdout=screen)
    if code != (-signal.SIGKILL if kill else 0):
        raise SystemExit(f"the call ended with {code}")
    figures: dict[str, float] = {"wall_s": time.monotonic() - began}
    with contextlib.suppress(FileNotFoundError):
        figures |= json.loads(told.read_text())
    figures["library_mb"] = megabytes(folder / "library.sqlite")
    return figures


def main() -> None:
    """Three calls, a line of figures each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=2000)
    parser.add_argument("--blocks", type=int, default=8, help="of five regions each, a model")
    parser.add_argument("--sharing", type=float, default=0.75, help="0: all regions are distinct")
    parser.add_argument("--spread", action="store_true", help="a use for each recorded call")
    parser.add_argument("--least-share", type=float, default=0.0, help="0.005 is the night's own")
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--figures", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kill", type=int, default=0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.figures is not None:
        asked.figures.write_text(json.dumps(call(asked)))
        return
    words = sys.argv[1:]
    kill = asked.models + asked.models * asked.blocks // 4
    with tempfile.TemporaryDirectory(prefix="agentkernel-scale-") as name:
        for what, after in (("killed", kill), ("finished", 0), ("second", 0)):
            figures = measure(words, Path(name), after)
            shown = {key: round(value, 2) for key, value in figures.items()}
            print(json.dumps({"call": what, **shown}), flush=True)


if __name__ == "__main__":
    main()
