"""Does a worker that dies or hangs cost one request, and is nothing that it prints an answer?"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from agentkernel.runtime.pool import AffinityQueue, DeviceRunner, WorkerPlace, assign_jobs
from agentkernel.runtime.worker import ChildProcess, Worker, WorkerDied, WorkerFailed
from tests.runtime.echo import Said

ENTRY = "tests.runtime.echo:echo"


def new_worker() -> Worker[Said, Said]:
    return Worker(ENTRY, ("hello",), TypeAdapter(Said))


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker[Said, Said]]:
    with new_worker() as worker:
        yield worker


def told(worker: Worker[Said, Said], text: str, timeout_s: float = 60.0) -> str:
    answer = worker.ask(Said(text=text), timeout_s)
    return answer.reason if isinstance(answer, WorkerFailed) else answer.text


def test_one_process_answers_until_it_is_lost(worker: Worker[Said, Said]) -> None:
    first = told(worker, "you")
    assert first.startswith("hello you of ")
    assert told(worker, "raise") == "SystemExit: no module here"
    assert told(worker, "you") == first
    assert told(worker, "die").startswith("the process ended with 3: ")
    second = told(worker, "you")
    assert second.startswith("hello you of ")
    assert second != first


def test_what_it_said_last_is_kept(worker: Worker[Said, Said]) -> None:
    assert told(worker, "die").endswith("the last words")


def test_one_that_hangs_is_ended_in_time(worker: Worker[Said, Said]) -> None:
    told(worker, "you")
    begin = time.monotonic()
    assert told(worker, "hang", 0.3) == "no answer within 0.3 s"
    assert time.monotonic() - begin < 5.0
    assert told(worker, "you").startswith("hello")


def test_a_job_that_kills_its_worker_costs_itself_alone() -> None:
    asked = ["a", "die", "b", "c"]
    workers = [new_worker() for _ in range(2)]
    found = dict(
        assign_jobs(
            workers, AffinityQueue(asked).after, lambda worker, place: told(worker, asked[place])
        )
    )
    for worker in workers:
        worker.close()
    assert [found[place].split(" of ")[0] for place in (0, 2, 3)] == [
        "hello a",
        "hello b",
        "hello c",
    ]
    assert "ended with 3" in found[1]


def test_who_stops_early_waits_for_no_answer() -> None:
    worker = new_worker()
    told(worker, "you")
    texts = iter(["you", "hang", "hang"])
    answers = assign_jobs([worker], lambda runner, last: next(texts, None), told)
    assert next(answers)[0] == "you"
    threading.Timer(0.5, worker.kill).start()
    assert "ended with -9" in next(answers)[1]
    assert next(answers) == ("hang", "it was called off")
    worker.close()


def test_a_wait_is_called_off() -> None:
    stop = threading.Event()
    child = ChildProcess(ENTRY, ("hello",))
    assert child.receive(60.0) == b"ready"
    threading.Timer(0.3, stop.set).start()
    died = child.ask(b'{"text": "hang"}', 60.0, stop)
    assert isinstance(died, WorkerDied)
    assert died.exit_code is None
    assert not child.alive
    assert isinstance(child.ask(b"{}", 1.0), WorkerDied)
    child.close()


def test_a_large_request_to_who_does_not_read_ends_in_time() -> None:
    child = ChildProcess("tests.runtime.echo:deaf")
    assert child.receive(60.0) == b"ready"
    begin = time.monotonic()
    died = child.ask(b"x" * (4 << 20), 0.5)
    assert isinstance(died, WorkerDied)
    assert time.monotonic() - begin < 5.0
    child.close()


def test_nothing_begins_in_a_runner_that_was_killed(tmp_path: Path) -> None:
    with closing(DeviceRunner(WorkerPlace("cpu", None, tmp_path), lambda device: True)) as runner:
        runner.kill()
        ended = runner.do(abs, -1, None, lambda ended: True)
    assert ended.died
    assert ended.answer is None


def test_a_worker_that_was_killed_answers_again_once_closed(worker: Worker[Said, Said]) -> None:
    told(worker, "you")
    worker.kill()
    assert told(worker, "you").startswith("the process ended with -9")
    assert told(worker, "you") == "it was called off"
    worker.close()
    assert told(worker, "you").startswith("hello")
