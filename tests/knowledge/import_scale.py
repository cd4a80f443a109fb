"""How long does it take to bring in N pairs, how much memory and disk, and how fast are they found?

`python -m tests.knowledge.import_scale 20000 [GENERATED.jsonl.gz]`. The pairs
come in by the commands `knowledge build`, `import` (of an export of generated pairs, where one is
given) and `import-kernelbook` (of made-up rows, some of them broken, copied or under a licence that
is refused). Memory is that of a command with all its children. The questions are those of
benchmarks/retrieval; a question's time begins with its text, so its structure is part of it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agentkernel.domain.knowledge import Filters
from agentkernel.knowledge.base import KnowledgeBase, open_base
from agentkernel.knowledge.code_structure import structure_of_code
from agentkernel.knowledge.evaluation import LabelledQuestion, read_questions
from tests.knowledge.kernelbook_rows import make_rows, write_json_lines

QUESTIONS = Path(__file__).parents[2] / "benchmarks" / "retrieval"
ROWS_A_PAIR = 1.26
"""Made-up rows written for each pair that is wanted: the others are refused."""
SAMPLED_S = 0.1
ASKED = 60
"""Questions of each kind."""
FILTERS = {
    "none": Filters(),
    "architecture": Filters(architecture="hopper"),
    "rare kind": Filters(kinds=("fix",)),
    "verified": Filters(verified=("interpreter", "gpu")),
    "a licence": Filters(licences=("BSD-3-Clause",)),
}


class Ran(NamedTuple):
    """A command that was run to its end."""

    answer: dict[str, object]
    seconds: float
    cpu_s: float
    peak_mib: float


def ran(*words: str) -> Ran:
    """Run `agentkernel knowledge WORDS --json`, watching its memory."""
    command = [sys.executable, "-m", "agentkernel", "knowledge", *words, "--json"]
    began, before = time.monotonic(), os.times()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak: list[float] = [0.0]

    def watch() -> None:
        while child.poll() is None:
            peak[0] = max(peak[0], resident_mib(child.pid))
            time.sleep(SAMPLED_S)

    watcher = threading.Thread(target=watch)
    watcher.start()
    text, _ = child.communicate()
    watcher.join()
    after = os.times()
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    cpu_s = after.children_user + after.children_system
    cpu_s -= before.children_user + before.children_system
    return Ran(json.loads(text), time.monotonic() - began, cpu_s, peak[0])


def resident_mib(process: int) -> float:
    """The memory of a process and its children; what they share is counted once for each."""
    total = 0.0
    try:
        status = Path(f"/proc/{process}/status").read_text()
        total += next(int(x.split()[1]) for x in status.splitlines() if "VmRSS" in x) / 1024
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text().split():
                total += resident_mib(int(child))
    except (OSError, StopIteration):
        pass  # it has just ended
    return total


def size_mib(path: Path) -> float:
    """A file, or all files of a folder."""
    files = [path] if path.is_file() else [item for item in path.rglob("*") if item.is_file()]
    return sum(item.stat().st_size for item in files) / 2**20


def print_run(name: str, run: Ran) -> None:
    print(f"{name:34} {run.seconds:8.1f} {run.cpu_s:8.1f} {run.peak_mib:9.0f}", flush=True)


def bring_in(number: int, generated: Path | None, folder: Path) -> None:
    """The commands, a row of the table each."""
    rows = write_json_lines(folder / "rows.jsonl", make_rows(int(number * ROWS_A_PAIR), seed=1))
    where = ("--where", str(folder / "knowledge"))
    print(f"{'command':34} {'seconds':>8} {'CPU s':>8} {'peak MiB':>9}")
    runs = [ran("build", *where)]
    print_run("build (what the package brings)", runs[0])
    if generated is not None:
        runs.append(ran("import", str(generated), *where))
        print_run(f"import of {generated.name}", runs[-1])
        print("   ", {key: runs[-1].answer[key] for key in ("added", "broken")})
    runs.append(ran("import-kernelbook", str(rows), *where))
    print_run(f"import-kernelbook of {size_mib(rows):.0f} MiB", runs[-1])
    names = ("read", "added", "duplicates", "refused_licence", "broken", "seconds", "pairs")
    print("   ", {key: runs[-1].answer[key] for key in names})
    whole = Ran(
        {},
        sum(run.seconds for run in runs),
        sum(run.cpu_s for run in runs),
        max(run.peak_mib for run in runs),
    )
    print_run("all", whole)
    runs.append(ran("build", *where))
    print_run("build again, nothing to do", runs[-1])
    for part in ("knowledge.sqlite", "vectors", "structures"):
        print(f"{part:34} {size_mib(folder / 'knowledge' / part):8.1f} MiB")


def ask(base: KnowledgeBase) -> None:
    """The times of questions, by kind and filter."""
    questions = read_questions(QUESTIONS, structure_of_code)
    names = ("hits", "p50 ms", "p95 ms", "most", "CPU p95")
    print(f"\n{'question':10} {'filter':14}" + "".join(f"{name:>9}" for name in names))
    base.search(questions[0].query)
    worst = 0.0
    for kind in ("module", "symptom", "error"):
        some = [item for item in questions if item.kind == kind][:ASKED]
        for name, filters in FILTERS.items():
            timed = [answered(base, item, filters) for item in some]
            p50, p95, most = np.percentile([item.wall_ms for item in timed], [50, 95, 100])
            cpu = np.percentile([item.cpu_ms for item in timed], 95)
            hits = np.mean([item.hits for item in timed])
            worst = max(worst, float(p95))
            numbers = "".join(f"{number:9.1f}" for number in (hits, p50, p95, most, cpu))
            print(f"{kind:10} {name:14}{numbers}", flush=True)
    print(f"highest p95 {worst:.1f} ms")


class Answered(NamedTuple):
    """How long one question took, and how many hits it has."""

    wall_ms: float
    cpu_ms: float
    hits: int


def answered(base: KnowledgeBase, question: LabelledQuestion, filters: Filters) -> Answered:
    """Ask one question in place of its own filters with `filters`."""
    query = question.query.evolve(filters=filters)
    began, used = time.perf_counter(), time.process_time()
    if question.kind == "module":
        query = query.evolve(structure=structure_of_code(query.text))
    found = base.search(query)
    took, cpu = time.perf_counter() - began, time.process_time() - used
    return Answered(1e3 * took, 1e3 * cpu, len(found))


def main() -> None:
    """Bring in, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", type=int, help="made-up pairs")
    parser.add_argument("generated", type=Path, nargs="?", help="an export of generated pairs")
    parser.add_argument("--keep", type=Path, help="a folder for what is made, which stays")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = given.keep or Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "knowledge").exists():
            bring_in(given.number, given.generated, folder)
        began = time.perf_counter()
        with open_base(folder / "knowledge") as base:
            print(f"opened in {time.perf_counter() - began:.2f} s")
            ask(base)


if __name__ == "__main__":
    main()
