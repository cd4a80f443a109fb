"""A thousand submissions of forty files, ten workers killed: one answer each, none judged twice."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.serving.servers import Server, noting, serving, submission, until

SUBMISSIONS, FILES, KILLS = 1000, 40, 10
LIMIT_S = 900.0


def kill_workers(server: Server) -> int:
    """Kill one worker after the other in the middle of a judgement, each once another one has
    answered since; how many."""
    killed, answered = 0, -1
    while killed < KILLS:
        health = server.ask("GET", "/health").json
        if health["done"] == FILES:
            break
        pids = server.worker_pids()
        if health["done"] > answered and health["running"] and pids:
            answered = health["done"]
            time.sleep(random.uniform(0.0, 0.5))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(random.choice(pids), signal.SIGKILL)
                killed += 1
        time.sleep(0.1)
    return killed


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
def test_each_submission_ends_in_one_answer(tmp_path: Path) -> None:
    marks = [tmp_path / f"marks{number}" for number in range(FILES)]
    files = [
        submission(number, prelude=noting(marks[number]), factor=2.0 if number % 4 else 2.5)
        for number in range(FILES)
    ]
    order = [number % FILES for number in range(SUBMISSIONS)]
    random.Random(1).shuffle(order)
    began = time.monotonic()
    with (
        serving(tmp_path / "state", "--workers", "2") as server,
        ThreadPoolExecutor(9) as threads,
    ):
        killed = threads.submit(kill_workers, server)
        names = list(threads.map(lambda number: server.submit(files[number]), order))
        early = {name: server.result(name) for name in names[:5]}
        results = list(threads.map(server.result, names))
        assert killed.result() == KILLS
        until(lambda: server.ask("GET", "/health").json["done"] == FILES)
        assert {name: server.result(name) for name in early} == early
    seconds = time.monotonic() - began
    assert len(set(names)) == FILES
    for number, result in zip(order, results, strict=True):
        assert result["error"] == ""
        assert result["verdict"]["accepted"] == bool(number % 4)
    attempts = {number: result["attempts"] for number, result in zip(order, results, strict=True)}
    assert 0 < sum(attempts.values()) <= KILLS
    for number, count in attempts.items():
        assert 1 <= len(marks[number].read_text()) <= 1 + count
    with contextlib.closing(sqlite3.connect(tmp_path / "state" / "queue.sqlite")) as db:
        query = "select count(*), count(distinct id), sum(state = 'done') from submissions"
        assert db.execute(query).fetchone() == (FILES, FILES, FILES)
    assert seconds < LIMIT_S
    print(f"{SUBMISSIONS} submissions, {sum(attempts.values())} reruns, {seconds:.0f} s")
