"""Do files for one module go to one judge, and does nobody wait while something is left?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentkernel.runtime.pool import AffinityQueue


def test_a_judge_stays_with_its_problem_and_others_take_new_ones() -> None:
    queue = AffinityQueue(["a", "b", "a", "b", "b", "c"])
    first, second = queue.after(0, None), queue.after(0, None)
    assert (first, second) == (1, 0)  # the one with most questions is begun first
    assert queue.after(0, first) == 3
    assert queue.after(0, second) == 2
    # Of "a" nothing is left: who was at it takes the one that nobody is at, then helps with "b".
    assert queue.after(0, 2) == 5
    assert queue.after(0, 5) == 4
    assert queue.after(0, 3) is None


@given(st.lists(st.sampled_from("abcdef")), st.integers(1, 5), st.randoms())
def test_each_question_is_handed_out_once_and_few_judges_share_a_problem(
    problems: list[str], judges: int, random: object
) -> None:
    queue = AffinityQueue(problems)
    last: list[int | None] = [None] * judges
    seen: list[int] = []
    at: dict[str, set[int]] = {}
    working = list(range(judges))
    while working:
        judge = random.choice(working)  # type: ignore[attr-defined]
        place = queue.after(0, last[judge])
        if place is None:
            working.remove(judge)
            continue
        # Another's problem is taken only where none is left that nobody is at.
        problem, before = problems[place], last[judge]
        others = {problems[item] for item in last if item is not None and item != before}
        if before is None or problems[before] != problem:
            left = {problems[item] for item in range(len(problems)) if item not in seen}
            assert problem not in others or left <= others
        last[judge] = place
        seen.append(place)
        at.setdefault(problem, set()).add(judge)
    assert sorted(seen) == list(range(len(problems)))
    if judges == 1:
        assert [problems[place] for place in seen] == [
            name
            for name in dict.fromkeys(problems[place] for place in seen)
            for _ in range(problems.count(name))
        ]
