"""A search on another machine: forms are written here, and timed there beside their plain one."""

from __future__ import annotations

import torch
from torch import nn

from agentkernel.domain.candidate import TrialResult
from agentkernel.remote import wire
from agentkernel.remote.instruments import RemoteSearcher
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.search.space import Form
from agentkernel.tools.targets import find_target


class There:
    """A machine on which a longer source takes less time."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def ask(self, question: wire.Rank, _: object) -> tuple[TrialResult, ...]:
        self.asked.append(question.space.labels)
        return tuple(
            TrialResult(label=label, sha256="", schedule=schedule, time_us=100.0 - len(source))
            for label, source, schedule in zip(
                question.space.labels, question.space.sources, question.space.schedules, strict=True
            )
        )


def test_the_forms_of_the_fastest_are_timed_beside_it() -> None:
    there = There()
    seen: list[tuple[int, float]] = []

    def forms(place: int, time_us: float) -> list[Form]:
        seen.append((place, time_us))
        return [Form("long, direct", "xxxxx")]

    problem = problem_from_module(nn.ReLU(), (torch.randn(4),))
    target = find_target("h200").target
    searcher = RemoteSearcher(there)  # type: ignore[arg-type]
    schedules = [{"a": {"BLOCK": 1}}, {"a": {"BLOCK": 2}}]
    found = searcher.rank(problem, ["x", "xxx"], ["short", "long"], schedules, target, forms)
    assert seen == [(1, 97.0)]
    assert there.asked == [("short", "long"), ("long", "long, direct")]
    assert [item.label for item in found] == ["short", "long", "long, direct"]
    assert found[2].schedule == schedules[1]
    assert found[2].time_us == 95.0
    assert len(searcher.rank(problem, ["x"], ["short"], schedules[:1], target)) == 1
