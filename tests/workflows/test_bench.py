"""Does a bench get through its suite whatever one problem does, and go on after a kill?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import bench_work

from agentkernel.errors import MissingDependency
from agentkernel.tools.bench.rows import Row, rows_path
from agentkernel.tools.bench.suite import Shard, parse_shard, part, read_suite
from agentkernel.tools.settings import load_settings
from agentkernel.workflows.bench import finished_rows, hang_limit_s, run_bench
from agentkernel.workflows.bench_problem import Asked, Task

WHOLE = Shard()
CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
if __name__ == "__main__":
    from test_bench import run_slow
    run_slow(Path(sys.argv[1]))
"""


def tasks(folder: Path, *names: str, time_s: float | None = None) -> list[Task]:
    suite = folder / "suite" / "level1"
    suite.mkdir(parents=True, exist_ok=True)
    for name in names:
        (suite / f"{name}.py").write_text("")
    asked = Asked(settings=load_settings(None, (), {"budget.time_s": time_s}))
    out, cache = str(folder / "out"), str(folder / "cache")
    problems = read_suite(folder / "suite")
    return [Task(problem=item, asked=asked, out=out, cache=cache) for item in problems]


def run(folder: Path, own: list[Task], devices: tuple[str, ...] = ("cpu",)) -> list[Row]:
    said: list[Row] = []
    run_bench(own, devices, folder / "out", WHOLE, said.append, bench_work.work)
    return said


def begun(folder: Path) -> Counter[str]:
    path = folder / "out" / "begun.txt"
    return Counter(line.split()[0] for line in path.read_text().splitlines())


def run_slow(folder: Path) -> None:
    """What the child does that is killed: three problems of a second each."""
    run(folder, tasks(folder, "slow1", "slow2", "slow3"))


def test_a_problem_that_breaks_its_process_costs_no_other(tmp_path: Path) -> None:
    own = tasks(tmp_path, "bug", "dies", "good1", "good2")
    said = run(tmp_path, own)
    errors = {row.name: row.error for row in said}
    assert errors["level1/bug"] == "ZeroDivisionError: oops"
    assert "its process ended" in (errors["level1/dies"] or "")
    assert (errors["level1/good1"], errors["level1/good2"]) == (None, None)
    assert finished_rows(own, tmp_path / "out") == tuple(sorted(said, key=lambda row: row.name))


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
    assert len(run(tmp_path, [own[0].model_copy(update={"problem": found[0]})])) == 1


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
    assert hang_limit_s(timed.asked.model_copy(update={"samples": 4})) == 3600.0


def test_a_kill_takes_its_lanes_with_it_and_the_same_call_goes_on(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD.format(tests=str(Path(__file__).parent)))
    child = subprocess.Popen([sys.executable, str(script), str(tmp_path)])
    rows = rows_path(tmp_path / "out", WHOLE)
    wait_until(lambda: rows.is_file() and bool(rows.read_text()))
    child.send_signal(signal.SIGKILL)
    child.wait()
    pids = {int(word) for word in (tmp_path / "out" / "begun.txt").read_text().split()[1::2]}
    wait_until(lambda: not any(alive(pid) for pid in pids))
    own = tasks(tmp_path, "slow1", "slow2", "slow3")
    said = run(tmp_path, own)
    assert [row.name for row in said] == ["level1/slow2", "level1/slow3"]
    assert begun(tmp_path)["slow1"] == begun(tmp_path)["slow3"] == 1
    assert [row.error for row in finished_rows(own, tmp_path / "out")] == [None] * 3


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
