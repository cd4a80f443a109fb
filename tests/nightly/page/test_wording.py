"""How the jobs read that a night lost."""

from __future__ import annotations

from agentkernel.domain.nightly import LostJob
from agentkernel.nightly.page.figures import lost_text

ENDED = "the night was ended in the middle of it"


def test_one_that_was_lost_reads_as_it_was_kept() -> None:
    assert lost_text([LostJob(job="cut a", why="killed", again=2)]) == [
        ("cut a", "killed; done again 2\u00d7")
    ]


def test_a_night_that_was_killed_ten_times_is_one_line_with_a_count() -> None:
    lost = [LostJob(job=f"kernel {number % 5}", why=ENDED) for number in range(19)]
    assert lost_text([*lost, LostJob(job="cut a", why="killed")]) == [
        ("kernel 0, kernel 1, kernel 2 and 2 more", f"{ENDED}; done again 19\u00d7"),
        ("cut a", "killed; done again 1\u00d7"),
    ]
