"""The queue: order, identity, attempts, one answer each, and files of other versions."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.domain.errors import EnvironmentFailure, SettingError
from agentkernel.runtime.machine import CPU
from agentkernel.serving.app import Judging
from agentkernel.serving.pool import devices_for, keep
from agentkernel.serving.submission import Answer, Submission, Work, WorkerAnswer
from agentkernel.serving.submission_queue import FILE_NAME, MOST_ATTEMPTS, Claim, Queue
from agentkernel.storage.configuration import load_settings


def work(candidate: str = "x", place: str = "here", **given: object) -> Work:
    judging = Judging(load_settings(), place, "0" * 64, workers=1)
    return judging.work(Submission(problem="p", candidate=candidate, **given))  # type: ignore[arg-type]


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with Queue(tmp_path, 3) as found:
        yield found


def claimed(queue: Queue) -> Claim:
    claim = queue.claim(wait=False)
    assert claim is not None
    return claim


def test_the_oldest_is_first_and_a_full_queue_takes_no_more(queue: Queue) -> None:
    tickets = [queue.submit(work(name)) for name in "abc"]
    assert [ticket and ticket.ahead for ticket in tickets] == [0, 1, 2]
    assert queue.submit(work("d")) is None
    assert queue.submit(work("b")) == tickets[1]
    assert [claimed(queue).work.candidate for _ in range(3)] == ["a", "b", "c"]
    assert queue.claim(wait=False) is None
    assert queue.submit(work("d")) is not None


def test_the_identity_is_the_content_and_what_decides() -> None:
    assert work().id == work().id
    settings = load_settings()
    others = [
        work("y"),
        work(policy="any"),
        work(precision="tf32"),
        work(seed=1),
        work(target="a100-80"),
        work(profile=True),
        work(name="other"),
        work(place="a GPU"),
        work().evolve(judge_sha256="1" * 64),
        work().evolve(settings=settings.evolve(judge=settings.judge.evolve(seeds=1))),
    ]
    assert len({item.id for item in [work(), *others]}) == 1 + len(others)
    assert work().evolve(settings=settings.evolve(runs="elsewhere")).id == work().id


def test_only_the_first_answer_is_kept(queue: Queue) -> None:
    queue.submit(work())
    claim = claimed(queue)
    queue.finish(claim, Answer(error="first"))
    queue.finish(claim, Answer(error="second"))
    queue.lost(claim, "late")
    queue.release()
    assert queue.answer(claim.id) == Answer(error="first").model_dump_json()
    assert queue.counts() == (0, 0, 1)
    assert queue.claim(wait=False) is None


def test_a_loss_waits_behind_the_others(queue: Queue) -> None:
    queue.submit(work("a"))
    queue.submit(work("b"))
    claim = claimed(queue)
    queue.lost(claim, "it died")
    assert queue.ticket(claim.id) == (claim.id, "queued", 1, 1)
    assert [claimed(queue).work.candidate for _ in range(2)] == ["b", "a"]


def test_what_is_lost_each_time_has_that_for_an_answer(queue: Queue) -> None:
    queue.submit(work())
    for _ in range(MOST_ATTEMPTS):
        claim = claimed(queue)
        queue.lost(claim, "it died")
    answer = Answer.model_validate_json(queue.answer(claim.id) or "")
    assert answer == Answer(error=f"not judged in {MOST_ATTEMPTS} tries: it died")
    assert queue.claim(wait=False) is None


def test_what_ran_waits_again_once_the_file_is_opened(tmp_path: Path) -> None:
    with Queue(tmp_path, 3) as queue:
        queue.submit(work("a"))
        queue.submit(work("b"))
        queue.finish(claimed(queue), Answer(error="none"))
        assert claimed(queue).work.candidate == "b"
        assert queue.counts() == (0, 1, 1)
    with Queue(tmp_path, 3) as queue:
        assert queue.counts() == (1, 0, 1)
        assert claimed(queue).work.candidate == "b"


def test_work_of_another_version_has_an_error_for_an_answer(tmp_path: Path) -> None:
    with Queue(tmp_path, 3) as queue:
        queue.submit(work("a"))
        queue.submit(work("b"))
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
        db.execute("update submissions set work = '{}' where number = 1")
    with Queue(tmp_path, 3) as queue:
        assert claimed(queue).work.candidate == "b"
        assert "another version" in (queue.answer(work("a").id) or "")


def test_a_damaged_file_is_salvaged(tmp_path: Path) -> None:
    with Queue(tmp_path, 3) as queue:
        queue.submit(work("a"))
    path = tmp_path / FILE_NAME
    data = path.read_bytes()
    path.write_bytes(b"x" * 100 + data[100:])
    with Queue(tmp_path, 3) as queue:
        assert queue.mended is not None
        assert "damaged" in queue.mended
        assert queue.submit(work("b")) is not None


def test_who_waits_for_a_claim_gets_what_comes_and_nothing_at_the_end(queue: Queue) -> None:
    got: list[Claim | None] = []
    threads = [threading.Thread(target=lambda: got.append(queue.claim())) for _ in range(2)]
    for thread in threads:
        thread.start()
    queue.submit(work())
    while not got:
        threads[0].join(0.01)
    assert got[0] is not None
    queue.end()
    for thread in threads:
        thread.join()
    assert got[1] is None


def test_a_worker_that_cannot_judge_is_no_answer(queue: Queue) -> None:
    queue.submit(work())
    claim = claimed(queue)
    with pytest.raises(EnvironmentFailure, match="no sandbox"):
        keep(queue, claim, WorkerAnswer(unable="no sandbox"))
    assert queue.answer(claim.id) is None


def test_a_worker_a_gpu_else_the_cpu() -> None:
    assert devices_for(None, ("0", "1"), 8) == ("0", "1")
    assert devices_for(1, ("0", "1"), 8) == ("0",)
    assert devices_for(None, (), 2) == (CPU, CPU)
    assert devices_for(5, (), 2) == (CPU,) * 5
    with pytest.raises(SettingError, match="--workers 3 is more than the GPUs here, 2"):
        devices_for(3, ("0", "1"), 8)
