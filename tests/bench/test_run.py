"""Does a bench get through its suite whatever one problem does, and go on after a kill?"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentkernel.bench.report import markdown
from agentkernel.bench.run import finished_rows, hang_limit_s, run_bench
from agentkernel.bench.suite import (
    BenchOptions,
    BenchTask,
    Row,
    Shard,
    parse_shard,
    part,
    read_suite,
    rows_path,
)
from agentkernel.bench.summary import summarise
from agentkernel.domain.errors import MissingDependency
from agentkernel.storage.configuration import load_settings
from tests.bench import bench_work

WHOLE = Shard()
SLOW = tuple(f"slow{number}" for number in range(1, 7))
CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
if __name__ == "__main__":
    from tests.bench.test_run import run_slow
    run_slow(Path(sys.argv[1]), int(sys.argv[2]))
"""


def tasks(folder: Path, *names: str, time_s: float | None = None) -> list[BenchTask]:
    suite = folder / "suite" / "level1"
    suite.mkdir(parents=True, exist_ok=True)
    for name in names:
        (suite / f"{name}.py").write_text("")
    asked = BenchOptions(settings=load_settings(None, (), {"budget.time_s": time_s}))
    out, cache = str(folder / "out"), str(folder / "cache")
    problems = read_suite(folder / "suite")
    return [BenchTask(problem=item, asked=asked, out=out, cache=cache) for item in problems]


def run(
    folder: Path, own: list[BenchTask], devices: tuple[str, ...] = ("cpu",), lanes: int = 1
) -> list[Row]:
    said: list[Row] = []
    run_bench(own, devices * lanes, folder / "out", WHOLE, said.append, bench_work.work)
    return said


def begun(folder: Path) -> Counter[str]:
    path = folder / "out" / "begun.txt"
    return Counter(line.split()[0] for line in path.read_text().splitlines())


def run_slow(folder: Path, lanes: int) -> None:
    """What the child does that is killed: problems of a second each."""
    run(folder, tasks(folder, *SLOW[: 3 * lanes]), ("6",), lanes)


@dataclass(frozen=True)
class Part:
    """What one problem did on one device, from when to when."""

    device: str
    kind: str
    begin_s: float
    end_s: float

    def overlaps(self, other: Part) -> bool:
        return self.begin_s < other.end_s and other.begin_s < self.end_s


def parts(folder: Path) -> list[Part]:
    lines = (folder / "out" / "parts.txt").read_text().splitlines()
    words = [line.split() for line in lines]
    return [Part(item[0], item[1], float(item[2]), float(item[3])) for item in words]


def overlapping(found: list[Part], one: str, other: str) -> list[tuple[Part, Part]]:
    """Pairs of the same device that went on at the same time."""
    return [
        (a, b)
        for a, b in itertools.combinations(found, 2)
        if {a.kind, b.kind} == {one, other} and a.device == b.device and a.overlaps(b)
    ]


def test_a_problem_that_breaks_its_process_costs_no_other(tmp_path: Path) -> None:
    own = tasks(tmp_path, "bug", "dies", "good1", "good2")
    said = run(tmp_path, own)
    errors = {row.name: row.error for row in said}
    assert errors["level1/bug"] == "ZeroDivisionError: oops"
    assert "its process ended" in (errors["level1/dies"] or "")
    assert (errors["level1/good1"], errors["level1/good2"]) == (None, None)
    assert finished_rows(own, tmp_path / "out") == tuple(sorted(said, key=lambda row: row.name))


def test_no_process_outlives_an_error(tmp_path: Path) -> None:
    """One that has lost its GPU would fail every problem after the one that lost it."""
    said = run(tmp_path, tasks(tmp_path, "a1", "poisons", "z1", "z2"))
    assert [row.name for row in said if row.error] == ["level1/poisons"]
    lines = (tmp_path / "out" / "begun.txt").read_text().splitlines()
    pids = [line.split()[1] for line in lines]
    assert (pids[0], pids[2]) == (pids[1], pids[3])
    assert pids[0] != pids[2]


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    own = tasks(tmp_path, "bug", "good")
    run(tmp_path, own)
    assert run(tmp_path, own) == []
    assert begun(tmp_path) == {"bug": 1, "good": 1}


def test_a_changed_problem_or_question_is_a_new_one(tmp_path: Path) -> None:
    own = tasks(tmp_path, "good")
    run(tmp_path, own)
    assert len(run(tmp_path, tasks(tmp_path, "good", time_s=9.0))) == 1
    (tmp_path / "suite" / "level1" / "good.py").write_text("# changed\n")
    found = read_suite(tmp_path / "suite")
    assert len(run(tmp_path, [own[0].evolve(problem=found[0])])) == 1


@pytest.mark.slow
def test_each_device_has_a_process_of_its_own(tmp_path: Path) -> None:
    said = run(tmp_path, tasks(tmp_path, "slow1", "slow2", "slow3", "slow4"), ("6", "7"))
    assert {row.target for row in said} == {"6", "7"}, "each sees its own GPU alone"
    lines = (tmp_path / "out" / "begun.txt").read_text().split()
    assert len(set(lines[1::2])) == 2


def test_shards_merge(tmp_path: Path) -> None:
    own = tasks(tmp_path, "a", "b", "c", "d", "e")
    for text in ("2/2", "1/2"):
        shard = parse_shard(text)
        mine = part(own, shard)
        run_bench(mine, ("cpu",), tmp_path / "out", shard, lambda _: None, bench_work.work)
        assert rows_path(tmp_path / "out", shard).is_file()
    rows = finished_rows(own, tmp_path / "out")
    assert [row.name for row in rows] == [f"level1/{name}" for name in "abcde"]
    assert run(tmp_path, own) == []


@pytest.mark.parametrize(
    ("name", "error"), [("lacks", MissingDependency), ("interrupted", KeyboardInterrupt)]
)
def test_what_is_the_machines_ends_the_bench_and_leaves_no_row(
    tmp_path: Path, name: str, error: type[BaseException]
) -> None:
    own = tasks(tmp_path, "a_good", name)
    with pytest.raises(error):
        run(tmp_path, own)
    assert [row.name for row in finished_rows(own, tmp_path / "out")] == ["level1/a_good"]


def test_an_interrupt_waits_for_nobody(tmp_path: Path) -> None:
    def interrupt(row: Row) -> None:
        raise KeyboardInterrupt

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_bench(
            tasks(tmp_path, "endless", "quick"), ("cpu", "cpu"), tmp_path / "out", WHOLE,
            interrupt, bench_work.work,
        )  # fmt: skip
    assert time.monotonic() - begin < 60.0


def test_a_problem_that_hangs_is_ended(tmp_path: Path) -> None:
    own, said = tasks(tmp_path, "good", "slow"), list[Row]()
    run_bench(
        own, ("cpu",), tmp_path / "out", WHOLE, said.append, bench_work.work, lambda asked: 0.5
    )
    assert [row.error is None for row in said] == [True, False]
    assert "hung" in (said[1].error or "")


def test_the_limit_grows_with_the_budget(tmp_path: Path) -> None:
    (plain,), (timed,) = tasks(tmp_path, "a"), tasks(tmp_path, "a", time_s=100.0)
    assert hang_limit_s(plain.asked) is None
    assert hang_limit_s(timed.asked) == 900.0
    assert hang_limit_s(timed.asked.evolve(samples=4)) == 3600.0


def test_timing_is_alone_on_its_gpu_and_the_rest_is_not(tmp_path: Path) -> None:
    names = [f"measured{number}" for number in range(8)]
    said = run(tmp_path, tasks(tmp_path, *names), ("6", "7"), lanes=3)
    assert [row.error for row in said] == [None] * 8
    found = parts(tmp_path)
    assert len(found) == 24
    for kind in ("working", "timing"):
        assert overlapping(found, "timing", kind) == []
    assert overlapping(found, "compiling", "compiling"), "problems are worked on side by side"
    assert overlapping(found, "compiling", "timing"), "one compiles while another one times"
    timings = [item for item in found if item.kind == "timing"]
    assert any(
        a.overlaps(b) for a, b in itertools.combinations(timings, 2) if a.device != b.device
    ), "each GPU has a gate of its own"


def test_lanes_leave_no_gate_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gates"))
    (tmp_path / "gates").mkdir()
    run(tmp_path, tasks(tmp_path, "dies", "measured1", "measured2"), ("6",), lanes=2)
    assert len(parts(tmp_path)) == 6
    assert list((tmp_path / "gates").glob("agentkernel-gate-*")) == []


def test_a_lane_that_dies_costs_only_its_problem(tmp_path: Path) -> None:
    own = tasks(tmp_path, "dies1", "dies2", "slow1", "slow2", "slow3", "slow4")
    said = run(tmp_path, own, ("6",), lanes=2)
    assert {row.name for row in said if row.error} == {"level1/dies1", "level1/dies2"}
    assert begun(tmp_path) == Counter(Path(task.problem.name).name for task in own)


@pytest.mark.slow
def test_tasks_begin_in_their_order(tmp_path: Path) -> None:
    own = tasks(tmp_path, *SLOW)
    run(tmp_path, own, ("6",), lanes=2)
    lines = (tmp_path / "out" / "begun.txt").read_text().splitlines()
    names = [line.split()[0] for line in lines]
    assert [set(names[at : at + 2]) for at in (0, 2, 4)] == [
        set(SLOW[at : at + 2]) for at in (0, 2, 4)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_kill_takes_its_lanes_with_it_and_the_same_call_goes_on(
    tmp_path: Path, lanes: int
) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD.format(root=str(Path(__file__).parents[2])))
    child = subprocess.Popen([sys.executable, str(script), str(tmp_path), str(lanes)])
    rows = rows_path(tmp_path / "out", WHOLE)
    wait_until(lambda: rows.is_file() and bool(rows.read_text()))
    child.send_signal(signal.SIGKILL)
    child.wait()
    pids = {int(word) for word in (tmp_path / "out" / "begun.txt").read_text().split()[1::2]}
    wait_until(lambda: not any(alive(pid) for pid in pids))
    own = tasks(tmp_path, *SLOW[: 3 * lanes])
    kept = {row.name for row in finished_rows(own, tmp_path / "out")}
    said = run(tmp_path, own, ("6",), lanes)
    assert {row.name for row in said} == {task.problem.name for task in own} - kept
    again = [name for name, count in begun(tmp_path).items() if count > 1]
    assert len(again) <= lanes, "what the kill cut off, and nothing else"
    assert not kept & {f"level1/{name}" for name in again}
    alone = tmp_path / "alone"
    whole = tasks(alone, *SLOW[: 3 * lanes])
    run(alone, whole, ("6",), lanes)
    assert told(own, tmp_path) == told(whole, alone)


@pytest.mark.slow
def test_a_second_call_beside_the_first_does_nothing_again(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD.format(root=str(Path(__file__).parents[2])))
    child = subprocess.Popen([sys.executable, str(script), str(tmp_path), "1"])
    wait_until(lambda: (tmp_path / "out" / "begun.txt").is_file())
    own = tasks(tmp_path, *SLOW[:3])
    said = run(tmp_path, own, ("6",))
    assert child.wait() == 0
    assert not said, "the call that waited for the device had nothing left to do"
    assert set(begun(tmp_path).values()) == {1}


def told(own: list[BenchTask], folder: Path) -> tuple[str, str]:
    """The rows in their order and the table that is made of them."""
    rows = finished_rows(own, folder / "out")
    plain = [row.evolve(key="") for row in rows]
    return repr(plain), markdown(summarise("suite", rows), rows)


def wait_until(true: object, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z" and os.path.exists(f"/proc/{pid}")
