from __future__ import annotations

from collections.abc import Mapping

import pytest

from agentkernel.domain.region import Kernel
from agentkernel.swap.end_to_end import EndToEndVerdict
from agentkernel.swap.selection import select_correct
from tests.swap.applied_kernels import norm_kernel

EIGHT = tuple(f"{i:016x}" for i in range(8))


def made(number: int) -> Kernel:
    """A kernel of the region with this number; the later ones gain less."""
    item = norm_kernel(speedup=3.0 - number / 10)
    key = item.key.evolve(signature=EIGHT[number])
    return item.evolve(key=key)


KERNELS = {f"{place}.{number}": made(number) for number in range(8) for place in ("a", "b")}


class Judge:
    """Refuses what holds a bad signature, and errors that come to more than `most`."""

    def __init__(self, *bad: int, most: int = 8, provable: bool = True) -> None:
        self.bad = {EIGHT[i] for i in bad}
        self.most = most
        self.provable = provable
        self.asked: list[set[str]] = []

    def __call__(self, kernels: Mapping[str, Kernel]) -> EndToEndVerdict:
        names = {item.key.signature for item in kernels.values()}
        assert len(kernels) == 2 * len(names), "all uses of a kernel, or none"
        assert names not in self.asked
        self.asked.append(names)
        wrong = names & self.bad
        return EndToEndVerdict(
            accepted=self.provable and not wrong and len(names) <= self.most,
            worst_error=len(names) / 10,
            eager_error=0.1,
            reason=f"wrong with {len(names)}",
            provable=self.provable,
        )


def test_all_are_kept_where_all_are_right() -> None:
    judge = Judge()
    found = select_correct(KERNELS, judge)
    assert (dict(found.kernels), dict(found.left_out), found.checks) == (KERNELS, {}, 1)


@pytest.mark.parametrize("bad", range(8))
def test_one_that_is_wrong_is_left_out_alone(bad: int) -> None:
    judge = Judge(bad)
    found = select_correct(KERNELS, judge)
    assert {item.key.signature for item in found.kernels.values()} == {*EIGHT} - {EIGHT[bad]}
    assert set(found.left_out) == {EIGHT[bad]}
    assert found.left_out[EIGHT[bad]].startswith("wrong with ")
    assert found.verdict.accepted
    assert found.verdict.worst_error == 0.7
    assert found.checks == len(judge.asked) <= 7


def test_errors_that_add_up_leave_the_weakest_out() -> None:
    found = select_correct(KERNELS, Judge(most=5))
    assert {item.key.signature for item in found.kernels.values()} == {*EIGHT[:5]}
    assert set(found.left_out) == {*EIGHT[5:]}


def test_checks_are_counted_and_what_was_not_tried_says_so() -> None:
    judge = Judge(0, 2, 4, 6)
    found = select_correct(KERNELS, judge, most_checks=2)
    assert found.checks == len(judge.asked) == 3
    assert found.left_out[EIGHT[7]] == "not tried in 2 checks"
    assert not found.kernels or found.verdict.accepted
    assert {*found.left_out} | {item.key.signature for item in found.kernels.values()} == {*EIGHT}


def test_none_is_right_or_nothing_can_be_proven() -> None:
    found = select_correct(KERNELS, Judge(*range(8)), most_checks=20)
    assert (dict(found.kernels), set(found.left_out)) == ({}, {*EIGHT})
    assert not found.verdict.accepted
    judge = Judge(provable=False)
    found = select_correct(KERNELS, judge)
    assert (dict(found.kernels), len(judge.asked), set(found.left_out)) == ({}, 1, {*EIGHT})
