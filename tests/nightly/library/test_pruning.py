"""Does pruning drop what was asked for, and never the last that is good?"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.nightly.library import Library, PruneRule
from tests.nightly.library.library_rows import days_ago, kernel, key, night, region

NEWER, OLDER, WRONG = "newer\n", "older\n", "wrong\n"


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    """Of one signature three kernels, the newest one withdrawn; of another one alone."""
    with Library(tmp_path / "library.sqlite", pytest.fail) as opened:
        opened.put(kernel(source=OLDER, created=days_ago(90)))
        opened.put(kernel(source=NEWER, created=days_ago(60)))
        wrong = kernel(source=WRONG, created=days_ago(50))
        opened.put(wrong)
        opened.withdraw(wrong.sha256, "wrong")
        opened.put(kernel(1, source="alone\n", created=days_ago(70), at=key(1, torch="2.11.0")))
        yield opened


def left(library: Library) -> list[str]:
    return [item.source for item in library.kernels()]


def test_without_yes_nothing_is_dropped(library: Library) -> None:
    found = library.prune(PruneRule(older_than_days=30))
    assert [item.kernel.sha256 for item in found.kernels] == [
        kernel(source=text).sha256 for text in (OLDER, WRONG)
    ]
    assert (found.spared, found.dropped) == (2, False)
    assert len(left(library)) == 4


def test_the_newest_valid_of_a_signature_stays(library: Library) -> None:
    found = library.prune(PruneRule(older_than_days=30), yes=True)
    assert (len(found.kernels), found.dropped) == (2, True)
    assert left(library) == ["alone\n", NEWER]
    connection = sqlite3.connect(library.path)
    assert connection.execute("select count(*) from certificates").fetchone() == (2,)
    connection.close()


def test_all_drops_the_newest_too(library: Library) -> None:
    library.prune(PruneRule(older_than_days=65, newest_too=True), yes=True)
    assert left(library) == [NEWER, WRONG]


def test_a_newest_one_that_does_not_belong_together_shields_nothing(library: Library) -> None:
    connection = sqlite3.connect(library.path)
    with connection:
        connection.execute(
            "update kernels set judge_sha256 = '' where sha256 = ?",
            (kernel(source=NEWER).sha256,),
        )
    connection.close()
    library.prune(PruneRule(older_than_days=30), yes=True)
    assert left(library) == [OLDER, "alone\n"]


def test_what_was_verified_since_is_not_old(library: Library) -> None:
    library.verified(kernel(source=OLDER).sha256, days_ago(2))
    library.prune(PruneRule(older_than_days=30), yes=True)
    assert left(library) == [OLDER, "alone\n", NEWER]


@pytest.mark.parametrize(
    ("rule", "gone"),
    [
        (PruneRule(withdrawn=True), [WRONG]),
        (PruneRule(keep_torch="2.13.0", newest_too=True), ["alone\n"]),
        (PruneRule(keep_torch="2.13.0"), []),
        (PruneRule(keep_triton="9"), [OLDER, WRONG]),
        (PruneRule(keep_gpu="NVIDIA H100"), [OLDER, WRONG]),
        (PruneRule(), []),
    ],
)
def test_each_reason(rule: PruneRule, gone: list[str], library: Library) -> None:
    before = left(library)
    library.prune(rule, yes=True)
    assert left(library) == [item for item in before if item not in gone]


def test_nights_and_jobs_go_by_age_and_the_last_and_last_green_stay(library: Library) -> None:
    for name, days, status in (
        ("oldest", 40.0, "new"),
        ("green", 30.0, "new"),
        ("red", 20.0, "withdrawn"),
        ("last", 15.0, "withdrawn"),
        ("killed", 12.0, "new"),
    ):
        done = None if name == "killed" else days_ago(days)
        rows = (region(status="withdrawn" if status == "withdrawn" else "new"),)
        library.save_night(night(name, started=days_ago(days), finished=done, regions=rows))
    library.save_job("old", "cut", "1")
    found = library.prune(PruneRule(nights_older_than_days=10), yes=True)
    assert found.nights == ("oldest", "red", "killed")
    assert [item.id for item in library.nights()] == ["green", "last"]
    assert (found.kernels, found.jobs, library.job("old")) == ((), 0, "1")


def test_the_pickle_of_a_kernel_that_is_gone_goes_too(library: Library, tmp_path: Path) -> None:
    live = tmp_path / "live.pkl"
    live.write_bytes(b"module")
    library.put(kernel(source=WRONG, created=days_ago(50)), live=live)
    (kept,) = (tmp_path / "library.sqlite.live").iterdir()
    library.prune(PruneRule(withdrawn=True), yes=True)
    assert kept.exists(), "a put of this moment may be about to need it"
    from agentkernel.nightly.library import library as module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LIVE_GRACE_S", -60.0)
        library.prune(PruneRule(withdrawn=True), yes=True)
    assert not kept.exists()
    assert os.path.exists(live)
