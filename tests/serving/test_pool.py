"""A worker a GPU, what hangs, and what ends the server."""

from __future__ import annotations

import errno
import fcntl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentkernel.domain.errors import DiskFailure, EnvironmentFailure
from agentkernel.runtime.machine import CPU
from agentkernel.serving import judge_worker
from agentkernel.serving import pool as module
from agentkernel.serving.app import Judging
from agentkernel.serving.pool import LocalPool, keep
from agentkernel.serving.server import ServeRequest, serve
from agentkernel.serving.submission import Answer, Submission
from agentkernel.serving.submission_queue import Queue
from agentkernel.storage.configuration import load_settings
from tests.serving.servers import submission, until

KINDS = ("lock", "lanes")
QUICK = load_settings(None, ("judge.budget_s=0", "judge.seeds=1"))


@contextmanager
def working(queue: Queue, devices: tuple[str, ...], locks: Path) -> Iterator[None]:
    """A pool at work in a thread."""
    pool = LocalPool(queue, devices, locks)
    thread = threading.Thread(target=pool.run)
    thread.start()
    try:
        yield
    finally:
        pool.stop()
        thread.join()


def submitted(queue: Queue, asked: dict[str, object]) -> str:
    work = Judging(QUICK, "here", "0" * 64, workers=1).work(Submission.model_validate(asked))
    ticket = queue.submit(work)
    assert ticket is not None
    return ticket.id


def answer_of(queue: Queue, name: str) -> Answer:
    until(lambda: queue.answer(name) is not None)
    return Answer.model_validate_json(queue.answer(name) or "")


def is_held(lock: Path) -> bool:
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_each_worker_has_a_gpu_that_is_held(tmp_path: Path) -> None:
    seen, locks = tmp_path / "seen", tmp_path / "locks"
    meeting = (
        "import os, time\n"
        f"os.makedirs({str(seen)!r}, exist_ok=True)\n"
        f"open(os.path.join({str(seen)!r}, os.environ['CUDA_VISIBLE_DEVICES']), 'w').close()\n"
        f"while len(os.listdir({str(seen)!r})) < 2:\n    time.sleep(0.05)"
    )
    with Queue(tmp_path, 9) as queue, working(queue, ("4", "6"), locks):
        names = [submitted(queue, submission(n, prelude=meeting)) for n in range(2)]
        answers = [answer_of(queue, name) for name in names]
        held = [is_held(locks / f"gpu-{device}.{kind}") for device in "46" for kind in KINDS]
        assert held == [True] * 4
    assert all(answer.verdict and answer.verdict.accepted for answer in answers)
    assert sorted(path.name for path in seen.iterdir()) == ["4", "6"]
    assert not any(is_held(path) for path in locks.iterdir())


def test_what_hangs_is_ended_and_has_that_for_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 2.0)
    with Queue(tmp_path, 9) as queue, working(queue, (CPU,), tmp_path):
        name = submitted(queue, submission(prelude="import time\ntime.sleep(600)"))
        assert answer_of(queue, name) == Answer(error="no answer within 2 s")
        ticket = queue.ticket(name)
        assert ticket is not None
        assert ticket.attempts == 0


def test_where_no_worker_answers_no_submission_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENTRY", "agentkernel.no_such_module:judge")
    with Queue(tmp_path, 9) as queue:
        names = [submitted(queue, submission(n)) for n in range(2)]
        with pytest.raises(EnvironmentFailure, match="No worker answers any more"):
            LocalPool(queue, (CPU,), tmp_path).run()
        assert [queue.answer(name) for name in names] == [None, None]
        assert queue.counts() == (2, 0, 0)


def test_a_lost_gpu_is_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "99")
    with pytest.raises((RuntimeError, AssertionError)):
        judge_worker.require_gpu()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    judge_worker.require_gpu()


@pytest.mark.parametrize(
    "error",
    [
        DiskFailure("No room left on the disk of '/tmp/x'. Next: make room."),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
)
def test_a_full_disk_is_no_answer_and_the_submission_waits_for_the_next_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError | DiskFailure
) -> None:
    worker = judge_worker.WorkerJudge(tmp_path)

    def full(path: Path, text: str) -> None:
        raise error

    with Queue(tmp_path, 9) as queue:
        name = submitted(queue, submission())
        claim = queue.claim()
        assert claim is not None
        with monkeypatch.context() as patch:
            patch.setattr(judge_worker, "write_atomic", full)
            found = worker.answer(claim.work)
        with pytest.raises(EnvironmentFailure, match=r"No (room|space) left"):
            keep(queue, claim, found)
        assert queue.answer(name) is None
    with Queue(tmp_path, 9) as queue:
        again = queue.claim(wait=False)
        assert again is not None
        keep(queue, again, worker.answer(again.work))
        assert answer_of(queue, name).verdict is not None
        ticket = queue.ticket(name)
        assert ticket is not None
        assert ticket.attempts == 0


def test_another_error_of_the_system_costs_an_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(path: Path, text: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(judge_worker, "write_atomic", short)
    work = Judging(QUICK, "here", "0" * 64, workers=1).work(Submission.model_validate(submission()))
    with pytest.raises(OSError, match="Too many open files"):
        judge_worker.WorkerJudge(tmp_path).answer(work)


class FailingPool:
    """Finds that nothing can be judged here once something is submitted."""

    workers = 1

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def run(self) -> None:
        submitted(self.queue, submission())
        self.queue.claim()
        raise EnvironmentFailure("no sandbox")

    def stop(self) -> None:
        self.queue.end()


def test_a_pool_that_cannot_judge_ends_the_server_and_the_queue_is_kept(tmp_path: Path) -> None:
    said: list[str] = []
    asked = ServeRequest("127.0.0.1", 0, tmp_path, None, 9, QUICK, "here")
    with pytest.raises(EnvironmentFailure, match="no sandbox"):
        serve(asked, FailingPool, said.append)
    assert "0 finished, 1 waiting" in said[-1]
