"""How often does a model write a kernel that the judge accepts, on modules that it never saw?"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from agentkernel.agents.coders.answer import extract_module
from agentkernel.agents.coders.taught import write_turn
from agentkernel.domain.base import Frozen
from agentkernel.domain.exchange import Message
from agentkernel.domain.verdict import Policy
from agentkernel.errors import ProblemError
from agentkernel.tools.bench.metrics import pass_at_k
from agentkernel.tools.problems import load_problem
from agentkernel.tools.targets import find_target
from agentkernel.workflows.pair_process import Verification
from agentkernel.workflows.training.intervals import Interval, mean_interval, wilson
from agentkernel.workflows.training.judging import STRICT, Asked, Found, judge_all
from agentkernel.workflows.training.writer import Writer

KS = (1, 10)
Show = Callable[[int, int | None, str], None]
"""Hears how much is done, of how much where that is known, and a few words."""


class Counted(Frozen):
    """What became of one problem's samples."""

    problem: str
    family: str
    samples: int
    correct: int
    hacks: int
    no_file: int
    undecided: int
    reasons: dict[str, int] = Field(default_factory=dict)


class Family(Frozen):
    """The modules of one kind."""

    problems: int
    pass_at: dict[int, float]


class PassAt(Frozen):
    """What a writer is worth on held-out modules, with 95% intervals: of pass@k over problems, of
    the rates over samples."""

    problems: int
    samples: int
    policy: Policy
    target: str
    pass_at: dict[int, Interval]
    """By k; a k of more than `samples` is left out."""
    hack_rate: Interval
    no_file_rate: Interval
    undecided: int
    """Samples that the judge came to no answer on: they count as wrong."""
    by_family: dict[str, Family]
    writing_s: float
    judging_s: float
    rows: tuple[Counted, ...] = ()

    def line(self) -> str:
        """One line for a terminal."""
        passed = ", ".join(f"pass@{k} {item.text()}" for k, item in self.pass_at.items())
        return (
            f"{passed}; hacks {self.hack_rate.value:.1%}, no file {self.no_file_rate.value:.1%} "
            f"({self.problems} problems x {self.samples} samples)"
        )


class _Posed(NamedTuple):
    path: Path
    messages: tuple[Message, ...]


def pass_at(
    writer: Writer,
    problems: Sequence[Path],
    samples: int,
    *,
    target: str | None = None,
    policy: Policy = "triton",
    ks: Sequence[int] = KS,
    verification: Verification = STRICT,
    jobs: int | None = None,
    families: Mapping[str, str] | None = None,
    seed: int = 0,
    show: Show = lambda done, total, words: None,
) -> PassAt:
    """Ask `writer` for `samples` files of each problem, in the words that it was taught with, and
    judge every one; each counts once, right or not (Chen et al., arXiv 2107.03374).

    `families` names a problem's family by its file's stem, else it is seen from its operators. A
    problem that cannot be loaded is left out. Raises ModelUnavailable, UnknownTarget.
    """
    begin = time.monotonic()
    title = find_target(target).target.title
    posed = [item for path in problems if (item := _posed(path, title, policy)) is not None]
    answers = writer.write(
        [item.messages for item in posed],
        samples,
        lambda done, total: show(done, total, "answers written"),
    )
    texts = [[sample.text for sample in several] for several in answers]
    files = [[extract_module(text) for text in several] for several in texts]
    written = time.monotonic()
    asked = [
        Asked(item.path, source)
        for item, several in zip(posed, files, strict=True)
        for source in several
        if source is not None
    ]
    judged = dict(
        zip(
            asked,
            judge_all(
                asked,
                verification.model_copy(update={"policy": policy}),
                jobs,
                lambda done, total: show(done, total, "candidates judged"),
            ),
            strict=True,
        )
    )
    rows = tuple(
        _counted(item.path, several, judged, families or {})
        for item, several in zip(posed, files, strict=True)
    )
    end = time.monotonic()
    return summed(
        rows,
        samples,
        ks,
        policy,
        title,
        writing_s=written - begin,
        judging_s=end - written,
        seed=seed,
    )


def spread_over(problems: Sequence[Path], most: int) -> tuple[Path, ...]:
    """At most `most` of them, as far apart in their order as they can be."""
    count = min(most, len(problems))
    return tuple(problems[place * len(problems) // count] for place in range(count))


def _posed(path: Path, target: str, policy: Policy) -> _Posed | None:
    try:
        problem = load_problem(str(path)).problem
    except ProblemError:
        return None
    shapes = problem.shape_sets[0].label if problem.shape_sets else ""
    return _Posed(path, (write_turn(problem.source, problem.class_name, target, policy, shapes),))


def _counted(
    path: Path,
    files: Sequence[str | None],
    judged: Mapping[Asked, Found],
    families: Mapping[str, str],
) -> Counted:
    found = [judged[Asked(path, source)] for source in files if source is not None]
    reasons: dict[str, int] = defaultdict(int)
    for item in found:
        if not item.accepted:
            reasons[item.reason.partition(":")[0][:40] or "unknown"] += 1
    family = families.get(path.stem) or family_of(path.read_text(encoding="utf-8"))
    return Counted(
        problem=path.stem,
        family=family,
        samples=len(files),
        correct=sum(item.accepted is True for item in found),
        hacks=sum(item.hack is not None for item in found),
        no_file=sum(source is None for source in files),
        undecided=sum(item.accepted is None for item in found),
        reasons=dict(reasons),
    )


def summed(
    rows: Sequence[Counted],
    samples: int,
    ks: Sequence[int],
    policy: Policy,
    target: str,
    *,
    writing_s: float = 0.0,
    judging_s: float = 0.0,
    seed: int = 0,
) -> PassAt:
    """The figures of many problems."""
    known = tuple(k for k in ks if k <= samples)
    total = sum(row.samples for row in rows)
    groups: dict[str, list[Counted]] = defaultdict(list)
    for row in rows:
        groups[row.family].append(row)
    return PassAt(
        problems=len(rows),
        samples=samples,
        policy=policy,
        target=target,
        pass_at={
            k: interval
            for k in known
            if (interval := mean_interval(_passed(rows, k), seed)) is not None
        },
        hack_rate=wilson(sum(row.hacks for row in rows), total),
        no_file_rate=wilson(sum(row.no_file for row in rows), total),
        undecided=sum(row.undecided for row in rows),
        by_family={
            name: Family(
                problems=len(group),
                pass_at={k: sum(_passed(group, k)) / len(group) for k in known},
            )
            for name, group in sorted(groups.items())
        },
        writing_s=writing_s,
        judging_s=judging_s,
        rows=tuple(rows),
    )


def _passed(rows: Sequence[Counted], k: int) -> list[float]:
    found = (pass_at_k(row.samples, row.correct, k) for row in rows)
    return [value for value in found if value is not None]


FAMILIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("attention", ("attention",)),
    ("convolution", ("conv1d", "conv2d", "conv3d", "conv_transpose")),
    ("matmul", ("matmul", "linear", ".bmm", ".mm(", "einsum", " @ ", "addmm", "baddbmm")),
    ("norm", ("norm(", "norm1d", "norm2d", "layernorm", "rmsnorm", "batchnorm", "groupnorm")),
    ("softmax", ("softmax", "logsumexp")),
    ("loss", ("loss", "cross_entropy", "kl_div", "nll")),
    ("pool", ("pool",)),
    ("scan", ("cumsum", "cumprod", "cummax", "sort", "topk")),
    (
        "reduction",
        (
            ".sum(",
            ".mean(",
            ".amax(",
            ".max(",
            ".var(",
            ".std(",
            ".prod(",
            "argmax",
            "argmin",
            ".amin(",
            ".min(",
            ".any(",
            ".all(",
        ),
    ),
    (
        "layout",
        (
            "transpose",
            "permute",
            "torch.cat",
            "gather",
            "embedding",
            "where(",
            "flip",
            "roll(",
            "index_select",
            "stack(",
        ),
    ),
)
"""The first whose word stands in a module's text says its kind."""


def family_of(text: str) -> str:
    """The kind of a module, by the heaviest operator that its text names; else "elementwise"."""
    lower = text.lower()
    for name, words in FAMILIES:
        if any(word in lower for word in words):
            return name
    return "elementwise"


__all__ = ["Counted", "PassAt", "family_of", "pass_at", "spread_over", "summed"]
