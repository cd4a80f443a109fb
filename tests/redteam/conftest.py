"""What do the red team's tests share? Nothing of the corpus is ever imported by pytest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentkernel.bench.redteam.runner import CorpusJudge, CorpusSettings
from tests.redteam.naive import NaiveJudge

collect_ignore = ["bases", "hostile", "honest", "problems"]


@pytest.fixture(scope="session")
def naive_on_cpu() -> Iterator[NaiveJudge]:
    with NaiveJudge("cpu") as judge:
        yield judge


@pytest.fixture(scope="session")
def bench_on_cpu() -> Iterator[CorpusJudge]:
    with CorpusJudge(
        CorpusSettings(device="cpu", time_limit_s=15.0, budget_s=0.0, seed=0, seeds=3)
    ) as bench:
        yield bench


@pytest.fixture(scope="session")
def tight_bench_on_cpu() -> Iterator[CorpusJudge]:
    """For those that take all the time or memory there is: less of it is waited for, or filled."""
    with CorpusJudge(
        CorpusSettings(
            device="cpu", time_limit_s=5.0, memory_bytes=4 << 30, budget_s=0.0, seed=0, seeds=3
        )
    ) as bench:
        yield bench


@pytest.fixture(scope="session")
def naive_on_gpu() -> Iterator[NaiveJudge]:
    with NaiveJudge("cuda") as judge:
        yield judge


@pytest.fixture(scope="session")
def bench_on_gpu() -> Iterator[CorpusJudge]:
    with CorpusJudge(CorpusSettings(device="cuda", seed=0)) as bench:
        yield bench
