"""Is every trick of the corpus one that works elsewhere, and does it fail here?"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from agentkernel.bench.redteam.corpus import CorpusEntry, CorpusFinding, acts_on, read_corpus
from agentkernel.bench.redteam.runner import CorpusJudge
from tests.redteam.naive import NaiveJudge

INSATIABLE = ("hangs_and_ignores_signals", "memory_hog")
ENTRIES = read_corpus(Path(__file__).parent)
GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


LONG = {"square_weights", "hangs_and_ignores_signals", "memory_hog", "a_million_outputs"}
"""Each takes as long as a dozen others."""
TRICKS_A_GATE = 4
"""So many of the tricks that a gate must catch under one level of the policy are quick."""
HONEST_LINES = 40
"""Honest kernels with a longer source are slow."""


def quick_names() -> frozenset[str]:
    """The candidates that `make test` judges on the CPU."""
    found, tricks = set(), Counter[tuple[object, ...]]()
    for entry in ENTRIES:
        if entry.name in LONG or not acts_on(entry, "cpu"):
            continue
        if entry.kind == "hostile":
            tricks[entry.gate, entry.policy] += 1
            if tricks[entry.gate, entry.policy] <= TRICKS_A_GATE:
                found.add(entry.name)
        elif len(entry.source.splitlines()) <= HONEST_LINES:
            found.add(entry.name)
    return frozenset(found)


QUICK = quick_names()


def candidates(kind: str, device: str) -> list[object]:
    """Those that act on the CPU, and of the others those that need a GPU; one problem's candidates
    go to the same process, which captures it once."""
    found = []
    for entry in ENTRIES:
        needed = "cpu" if acts_on(entry, "cpu") else "cuda"
        if entry.kind == kind and needed == device:
            marks = [pytest.mark.xdist_group(entry.problem_name)]
            if device != "cpu":
                marks += GPU
            elif entry.name not in QUICK:
                marks.append(pytest.mark.slow)
            found.append(pytest.param(entry, id=entry.name, marks=marks))
    return found


def fooled(judge: NaiveJudge, entry: CorpusEntry) -> None:
    opinion = judge.judge(Path(entry.problem).read_text(encoding="utf-8"), entry.source)
    assert opinion.fooled, f"{entry.name} fools nobody: {opinion.why}"


def as_expected(found: CorpusFinding) -> None:
    said = f"{found.name}: expected {found.expected}, found {found.gate}: {found.reason}"
    assert found.right, said


@pytest.mark.parametrize("entry", candidates("hostile", "cpu"))
def test_a_trick_fools_the_naive_judge(entry: CorpusEntry, naive_on_cpu: NaiveJudge) -> None:
    fooled(naive_on_cpu, entry)


@pytest.mark.parametrize("entry", candidates("hostile", "cpu"))
def test_a_trick_is_rejected(
    entry: CorpusEntry, bench_on_cpu: CorpusJudge, tight_bench_on_cpu: CorpusJudge
) -> None:
    bench = tight_bench_on_cpu if entry.name in INSATIABLE else bench_on_cpu
    as_expected(bench.judge(entry))


@pytest.mark.parametrize("entry", candidates("honest", "cpu"))
def test_an_honest_kernel_is_accepted(entry: CorpusEntry, bench_on_cpu: CorpusJudge) -> None:
    as_expected(bench_on_cpu.judge(entry))


@pytest.mark.parametrize("entry", candidates("hostile", "cuda"))
def test_a_trick_of_the_gpu_fools_the_naive_judge(
    entry: CorpusEntry, naive_on_gpu: NaiveJudge
) -> None:
    fooled(naive_on_gpu, entry)


@pytest.mark.parametrize("entry", candidates("hostile", "cuda"))
def test_a_trick_of_the_gpu_is_rejected(entry: CorpusEntry, bench_on_gpu: CorpusJudge) -> None:
    as_expected(bench_on_gpu.judge(entry, profile=entry.gate == "timing"))


@pytest.mark.parametrize("entry", candidates("honest", "cuda"))
def test_an_honest_kernel_of_the_gpu_is_accepted(
    entry: CorpusEntry, bench_on_gpu: CorpusJudge
) -> None:
    as_expected(bench_on_gpu.judge(entry))
