"""Submissions outlive workers and servers: each is judged until it has its one answer."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.serving.servers import noting, serving, submission, until

FIRST_HANGS = "if n == 1:\n    time.sleep(600)"


@pytest.mark.slow
def test_a_killed_workers_submission_is_judged_again(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    with serving(tmp_path / "state", "--workers", "1") as server:
        name = server.submit(submission(prelude=noting(marks, FIRST_HANGS)))
        until(marks.exists)
        assert server.state(name) == "running"
        (pid,) = server.worker_pids()
        os.killpg(pid, signal.SIGKILL)
        result = server.result(name)
    assert (result["verdict"]["accepted"], result["attempts"]) == (True, 1)
    assert marks.read_text() == "xx"


@pytest.mark.slow
def test_what_ends_its_worker_each_time_has_an_error_for_an_answer(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    with serving(tmp_path / "state", "--workers", "1") as server:
        name = server.submit(submission(prelude=noting(marks, "os._exit(7)")))
        result = server.result(name)
        assert (result["verdict"], result["attempts"]) == (None, 3)
        assert result["error"].startswith("not judged in 3 tries: the process ended with 7")
        assert server.result(server.submit(submission()))["verdict"]["accepted"]
    assert marks.read_text() == "xxx"


def test_a_killed_servers_queue_is_worked_off_by_the_next(tmp_path: Path) -> None:
    finished, hung = tmp_path / "finished", tmp_path / "hung"
    with serving(tmp_path / "state", "--workers", "1") as server:
        done = server.submit(submission(0, prelude=noting(finished)))
        answer = server.result(done)
        running = server.submit(submission(1, prelude=noting(hung, FIRST_HANGS)))
        until(hung.exists)
        queued = server.submit(submission(2))
        (pid,) = server.worker_pids()
        server.process.kill()
        server.process.wait()
    until(lambda: not Path(f"/proc/{pid}").exists())
    with serving(tmp_path / "state", "--workers", "1", lines=3) as server:
        assert server.said[2] == "Kept from before: 1 finished, 2 waiting."
        assert server.result(running)["verdict"]["accepted"]
        assert server.result(queued)["verdict"]["accepted"]
        assert server.result(done) == answer
        assert server.submit(submission(0, prelude=noting(finished))) == done
        assert server.ask("GET", "/health").json["done"] == 3
    assert (finished.read_text(), hung.read_text()) == ("x", "xx")


@pytest.mark.slow
def test_an_interrupted_server_says_what_it_keeps(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    with serving(tmp_path / "state", "--workers", "1") as server:
        server.result(server.submit(submission(0)))
        running = server.submit(submission(1, prelude=noting(marks, FIRST_HANGS)))
        server.submit(submission(2))
        until(marks.exists)
        with ThreadPoolExecutor(1) as threads:
            path = f"/submissions/{running}/result?wait_s=60"
            waiting = threads.submit(server.ask, "GET", path)
            time.sleep(1)
            text = server.end()
            assert waiting.result().status == 202
        assert "1 finished, 2 waiting; the same command goes on." in text
        assert text.count("\n") == 1
        assert server.process.returncode == 130


def test_a_full_queue_says_when_to_come_again(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    with serving(tmp_path / "state", "--workers", "1", "--queue", "1") as server:
        server.submit(submission(0, prelude=noting(marks, FIRST_HANGS)))
        until(marks.exists)
        queued = server.submit(submission(1))
        said = server.ask("POST", "/submissions", submission(2))
        assert said.status == 429
        assert 1 <= int(said.headers["retry-after"]) <= 60
        assert "The queue is full: 1 wait" in said.json["error"]
        assert server.submit(submission(1)) == queued
        assert server.ask("GET", "/health").json["queued"] == 1
