"""Conversations of the three tasks: training rows from judged kernels, and held-out questions.

The tasks are to write a kernel, to make one faster, and to repair one. All words of a
completion come from what a row carries: the roofline, the verdict, the times, the text of the
files. Where there is no fact, there is no sentence. Held-out questions repeat the turns of the
held-out rows; writing is asked of a module's file where no row asks it for the wanted GPU.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from agentkernel.agents.conversation import (
    completion,
    faster_turn,
    file_turn,
    repair_turn,
    task_turn,
    write_turn,
)
from agentkernel.agents.evidence import Fact, speed_evidence
from agentkernel.agents.reviewer import Review
from agentkernel.compiler.graph_listing import graph_listing
from agentkernel.domain.base import sha256_text
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import ProblemError, TrainingError, UnknownTarget
from agentkernel.domain.exchange import Message
from agentkernel.domain.verdict import Policy
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.targets import find_target
from agentkernel.training.data.rows import FILES, RIGHT, kernel_of, read_rows
from agentkernel.training.settings import HALVED, JudgedKernel, Say, Split, Task, TrainingRow

if TYPE_CHECKING:
    from agentkernel.domain.plan import Analysis
    from agentkernel.domain.problem import Problem
    from agentkernel.domain.profile import Profile
    from agentkernel.domain.target import Target
    from agentkernel.tools.problem.capture import Captured


def module_facts(problem: Problem) -> dict[str, str]:
    """The inputs as a run names them, and the class where it is not `Model`."""
    shapes = problem.shape_sets
    found = {"inputs": shapes[0].label} if shapes else {}
    return found if problem.class_name == "Model" else found | {"class": problem.class_name}


def graph_facts(captured: Captured) -> dict[str, str]:
    """What is computed from what, a line an operator; nothing of a graph that is too long."""
    listing = graph_listing(captured)
    return {"graph": listing} if listing else {}


def roofline_facts(analysis: Analysis) -> dict[str, str]:
    """What one call moves and computes at the least, and how fast it could be: estimates."""
    return {
        "bytes": str(analysis.bytes_min),
        "operations": str(analysis.flops),
        "roofline": f"{analysis.bound_us:.3g} us",
    }


def profile_facts(
    profile: Profile, analysis: Analysis | None = None, target: Target | None = None
) -> dict[str, str]:
    """The lines of a profile as a run shows them; several of one name in one, the gravest first."""
    found: dict[str, str] = {}
    for fact in speed_evidence(profile, analysis, target).facts:
        before = found.get(fact.name)
        found[fact.name] = fact.value if before is None else f"{before}; {fact.value}"
    return found


SPLITS: tuple[Split, ...] = ("held-out", "train")
NOBODY = "a GPU"
"""The title of one that a row does not name."""


class HeldOutQuestion(NamedTuple):
    """A conversation whose answer is a file for the module in `path`. `given` is the file that it
    goes on from, None where it begins with none; `case` tells a module's questions apart."""

    path: Path
    messages: tuple[Message, ...]
    case: str = ""
    given: str | None = None


class HeldOutQuestions(NamedTuple):
    """All of one task. `target` is the title of the GPU that they ask for, several with commas."""

    task: Task
    target: str
    items: tuple[HeldOutQuestion, ...]

    @property
    def conversations(self) -> tuple[tuple[Message, ...], ...]:
        """What is asked, in order."""
        return tuple(item.messages for item in self.items)


def questions_of(
    task: Task, data: Path, problems: Sequence[Path], target: str | None, policy: Policy
) -> HeldOutQuestions:
    """What is asked about `problems`, the held-out modules of `data`. Raises TrainingError where no
    row of the task is about one of them, UnknownTarget."""
    if task == "write":
        there = (data / FILES["held-out"]).is_file()
        rows = read_rows(data, "held-out") if there else ()
        return to_write(problems, target, policy, rows)
    found = from_rows(task, read_rows(data, "held-out"), problems, policy)
    if not found.items:
        raise TrainingError(
            f"{str(data)!r} has no held-out row of the task {task!r} on {len(problems)} modules. "
            f"Expected some under the policy {policy!r}. Next: --task write, or more modules."
        )
    return found


def target_of(data: Path, given: str | None, say: Say) -> str | None:
    """The GPU that the task write asks for: `given`, else that of the rows of `data`, whose prompts
    name it; None where they name none, or several. That `given` is another one is said, in a line.

    The held-out rows say it; where there are none with a target, the training rows.
    Raises UnknownTarget.
    """
    named = next((found for split in SPLITS if (found := _targets(data, split))), frozenset())
    if given is None:
        return min(named) if len(named) == 1 else None
    title = find_target(given).target.title
    others = sorted({_title(name) for name in named})
    if others and others != [title]:
        say(
            f"--target is {title}, and the rows of {str(data)!r} ask for {', '.join(others)}: the "
            "model was taught with other words"
        )
    return given


def _targets(data: Path, split: Split) -> frozenset[str]:
    """The known GPUs that the rows of `split` are for."""
    if not (data / FILES[split]).is_file():
        return frozenset()
    names = {row.target for row in read_rows(data, split) if row.target is not None}
    return frozenset(name for name in names if _title(name) != NOBODY)


def to_write(
    problems: Sequence[Path],
    target: str | None,
    policy: Policy,
    rows: Iterable[TrainingRow] = (),
) -> HeldOutQuestions:
    """One question a module, that of `rows` where one asks for the same GPU; one that cannot be
    loaded is left out. Raises UnknownTarget."""
    title = find_target(target).target.title
    same = (row for row in rows if _title(row.target) == title)
    asked = {item.path: item for item in from_rows("write", same, problems, policy).items}
    found = (_to_write(path, title, policy, asked.get(path)) for path in problems)
    return HeldOutQuestions("write", title, tuple(item for item in found if item is not None))


def _to_write(
    path: Path, target: str, policy: Policy, asked: HeldOutQuestion | None
) -> HeldOutQuestion | None:
    try:
        loaded = load_problem(str(path))
    except ProblemError:
        return None
    if asked is not None:
        return asked._replace(case="")
    return HeldOutQuestion(path, (task_turn(loaded, target, policy),))


def from_rows(
    task: Task, rows: Iterable[TrainingRow], problems: Sequence[Path], policy: Policy
) -> HeldOutQuestions:
    """The rows of `task` on one of `problems`, module by module; a module may have several, or
    none. One that asks for a file under another policy is left out."""
    places = {sha256_text(path.read_bytes().decode()): path for path in problems}
    found: dict[Path, list[HeldOutQuestion]] = {path: [] for path in problems}
    targets: list[str] = []
    for row in rows:
        path = places.get(row.problem_sha256)
        if row.task != task or path is None or not _asks_for(policy, row.messages[0]):
            continue
        given = kernel_of(row.messages[1].text) if len(row.messages) > 1 else None
        case = sha256_text("\0".join(item.text for item in row.messages))[:12]
        if all(item.case != case for item in found[path]):
            found[path].append(HeldOutQuestion(path, row.messages, case, given))
            targets.append(_title(row.target))
    items = tuple(item for several in found.values() for item in several)
    return HeldOutQuestions(task, ", ".join(dict.fromkeys(targets)), items)


def _asks_for(policy: Policy, turn: Message) -> bool:
    """The policy is the end of the turn's last sentence."""
    end = write_turn("", "Model", "", policy).text.rstrip().rpartition("`ModelNew`, ")[2]
    return turn.text.rstrip().endswith(end)


def _title(target: str | None) -> str:
    try:
        return find_target(target).target.title if target is not None else NOBODY
    except UnknownTarget:
        return NOBODY


FASTER = 1.05
"""A kernel has to be so many times faster for the difference to be taught."""
MOST_LINES = 3
"""Lines of a repair that are named; where more differ, the file alone says so."""
LONGEST = 300
"""Characters of what others wrote on one line."""
NO_TARGET = "a GPU"
OWN_FACTS = ("inputs", "class", "graph", "bytes", "operations", "roofline")
"""Those facts of a row that are no line of a profile."""
LAUNCH = re.compile(r"^[ \t]+(\w+)\[(?=.*\]\()", re.M)
SCHEDULE = re.compile(r"\b(BLOCK\w{0,20}|num_warps|num_stages|GROUP\w{0,20}|SPLIT\w{0,20})=(\d+)\b")
FENCES = re.compile(r"^[ \t]*(`{3,}|~{3,}).*$", re.M)


class DraftedConversation(NamedTuple):
    """A conversation that could be learned from. `rank` 0 is the module's first choice for the
    task: the fastest kernel, the first mistake."""

    task: Task
    messages: tuple[Message, ...]
    completion: str
    row: JudgedKernel
    """The kernel in the completion."""
    rank: int
    reasoning_by: Literal["facts", "teacher", "none"]
    speedup: float | None = None

    @property
    def characters(self) -> int:
        """Of all turns."""
        return sum(len(item.text) for item in self.messages) + len(self.completion)


def conversations(
    rows: Sequence[JudgedKernel], reviews: Mapping[str, Review]
) -> Iterator[DraftedConversation]:
    """Those of one module, whose rows all passed. `reviews`: a kernel's hash -> what a teacher said
    of it. Kernels for other targets or under other policies are never compared."""
    right = [row for row in rows if row.label in RIGHT]
    yield from _written(right)
    yield from _faster(right, reviews)
    yield from _repaired(rows)


def training_row(
    drafted: DraftedConversation, split: Literal["train", "held-out"], licence: str
) -> TrainingRow:
    """The row as it is stored, under a `licence` as the settings spell it."""
    row = drafted.row
    return TrainingRow(
        task=drafted.task,
        messages=drafted.messages,
        completion=drafted.completion,
        source=row.source,
        licence=licence,
        label=row.label,
        problem_sha256=row.problem_sha256,
        kernel_sha256=row.sha256,
        structure=row.structure,
        split=split,
        bound=row.bound,
        target=row.target,
        reasoning_by=drafted.reasoning_by,
        speedup=drafted.speedup,
    )


def unjudged_row(row: JudgedKernel) -> DraftedConversation:
    """A pair that nobody judged, as a conversation without reasons: it stands beside the data."""
    return DraftedConversation("write", (_asked(row),), completion("", row.kernel), row, 0, "none")


# -- write -----------------------------------------------------------------------------------------


def _written(right: Sequence[JudgedKernel]) -> Iterator[DraftedConversation]:
    """Of those that are not known to be slower than another of them."""
    slow = {item.slow.sha256 for item in slower_kernels(right)}
    best = (row for row in right if row.sha256 not in slow and row.strategy != HALVED)
    for rank, row in enumerate(sorted(best, key=_merit)):
        words = plan_words(row)
        by: Literal["facts", "none"] = "facts" if words else "none"
        yield DraftedConversation(
            "write", (_asked(row),), completion(words, row.kernel), row, rank, by
        )


def _merit(row: JudgedKernel) -> tuple[bool, float, bool]:
    """The measured ones first, the fastest of them first; then the coder's own order."""
    return (row.time_us is None, row.time_us or 0.0, row.parent is not None)


def plan_words(row: JudgedKernel) -> str:
    """Bound, plan and tiles of a right kernel, a sentence each.

    Of a row whose question has no graph, the operators in their order come first. Bytes, operations
    and times are left out: whoever is asked could only guess them.
    """
    operators = "" if row.facts.get("graph") else _line(", ".join(row.structure.split()))
    sentences = [f"Operators: {operators}."] if operators else []
    if row.bound is not None:
        sentences.append(f"Bound: {row.bound}.")
    launches = row.verdict.launches if row.verdict else ()
    plan = [_line(row.strategy)] if row.strategy else []
    if launches:
        named = ", ".join(dict.fromkeys(map(_line, launches)))
        plan.append(f"{len(launches)} launch{'es' if len(launches) > 1 else ''} ({named})")
    if plan:
        sentences.append(f"Plan: {', '.join(plan)}.")
    tiles = schedule_of(row.kernel)
    if tiles:
        sentences.append(f"Tiles: {', '.join(f'{key}={value}' for key, value in tiles.items())}.")
    return " ".join(sentences)


def schedule_of(kernel: str) -> dict[str, int]:
    """Tile sizes, warps and stages as the file's launches say them: `BLOCK_N`, and of several
    kernels `add_kernel BLOCK_N`; of several launches of one kernel the last."""
    launches = list(LAUNCH.finditer(kernel))
    several = len({item[1] for item in launches}) > 1
    ends = [item.start() for item in launches[1:]] + [len(kernel)]
    return {
        f"{launch[1]} {name}" if several else name: int(value)
        for launch, end in zip(launches, ends, strict=False)
        for name, value in SCHEDULE.findall(kernel[launch.start() : end])
    }


# -- optimise --------------------------------------------------------------------------------------


class SlowerKernel(NamedTuple):
    """A right kernel, and the fastest of those of its module that were timed alike."""

    slow: JudgedKernel
    best: JudgedKernel
    measured: bool


def slower_kernels(right: Sequence[JudgedKernel]) -> Iterator[SlowerKernel]:
    """Those of the right kernels of one module that a faster one is taught with, the slowest of
    each GPU or target first."""
    groups: dict[tuple[str, str, str], list[tuple[float, JudgedKernel]]] = {}
    for row in right:
        if row.time_us is not None and row.gpu:
            key = ("measured", f"{row.gpu} {row.target}", str(row.policy))
            groups.setdefault(key, []).append((row.time_us, row))
        elif row.estimated_us is not None:
            key = ("estimated", row.target or "", str(row.policy))
            groups.setdefault(key, []).append((row.estimated_us, row))
    for key, timed in groups.items():
        timed.sort(key=lambda item: item[0])
        best_us, best = timed[0]
        for slow_us, slow in reversed(timed[1:]):
            if best_us > 0 and slow_us / best_us >= FASTER:
                yield SlowerKernel(slow, best, measured=key[0] == "measured")


def _faster(
    right: Sequence[JudgedKernel], reviews: Mapping[str, Review]
) -> Iterator[DraftedConversation]:
    for rank, (slow, best, measured) in enumerate(slower_kernels(right)):
        yield _optimised(slow, best, reviews.get(slow.sha256), measured, rank)


def _optimised(
    slow: JudgedKernel, best: JudgedKernel, review: Review | None, measured: bool, rank: int
) -> DraftedConversation:
    facts = speed_facts(slow)
    speedup = None
    if measured and slow.time_us and best.time_us:
        speedup = round(slow.time_us / best.time_us, 4)
    words = _review_words(review) if review else ""
    by: Literal["facts", "teacher", "none"] = "teacher"
    if not words:
        words = _change_words(slow, best)
        by = "facts" if words else "none"
    messages = (_asked(slow), file_turn(slow.kernel), faster_turn(facts))
    text = completion(words, best.kernel)
    return DraftedConversation("optimise", messages, text, best, rank, by, speedup)


def speed_facts(row: JudgedKernel) -> tuple[Fact, ...]:
    """The lines of the row's profile; without one, what its times say in the same words."""
    if "time" in row.facts:
        return tuple(
            Fact(_line(name), _line(value))
            for name, value in row.facts.items()
            if name not in OWN_FACTS
        )
    time = f"{row.time_us:.1f} us, measured" if row.time_us is not None else ""
    if not time and row.estimated_us is not None:
        time = f"{row.estimated_us:.1f} us, estimated"
    eager = f"{row.eager_us / row.time_us:.2f}x" if row.eager_us and row.time_us else ""
    best = _line(row.facts.get("roofline", ""))
    launches = str(len(row.verdict.launches)) if row.verdict and row.verdict.launches else ""
    said = (
        ("bound by", row.bound or ""),
        ("time", time),
        ("possible", f"{best} on the roofline" if best else ""),
        ("speedup over eager", eager),
        ("launches", launches),
    )
    return tuple(Fact(name, value) for name, value in said if value)


def _change_words(slow: JudgedKernel, best: JudgedKernel) -> str:
    """What differs between the two, from their texts and verdicts."""
    sentences = []
    in_the_way = _line(slow.facts.get("in the way", ""))
    bound = _line(slow.facts.get("bound by", "")) or slow.bound
    if bound or in_the_way:
        said = [f"{bound}-bound" if bound else "", in_the_way]
        sentences.append(f"Bottlenecks: {'; '.join(item for item in said if item)}.")
    changes = []
    if slow.strategy != best.strategy and slow.strategy and best.strategy:
        changes.append(f"{_line(slow.strategy)} -> {_line(best.strategy)}")
    before, after = (len(item.verdict.launches) if item.verdict else 0 for item in (slow, best))
    if before != after and before and after:
        changes.append(f"{before} -> {after} launches")
    old, new = schedule_of(slow.kernel), schedule_of(best.kernel)
    changes += [
        f"{name} {old[name]} -> {new[name]}"
        for name in new
        if name in old and old[name] != new[name]
    ]
    if changes:
        sentences.append(f"Changes: {', '.join(changes)}.")
    return " ".join(sentences)


def _review_words(review: Review) -> str:
    """A teacher's review, without fences: the one file of a completion is the kernel."""
    analysis = " ".join(FENCES.sub("", review.analysis).split())
    items = [" ".join(FENCES.sub("", item).split()) for item in review.optimizations]
    told = [f"Bottlenecks: {analysis}"] if analysis else []
    told += ["Changes:", *(f"- {item}" for item in items)] if items else []
    if told and review.estimated_speedup is not None:
        told.append(f"Estimated speedup: {review.estimated_speedup:.2f}x")
    return "\n".join(told)


# -- repair ----------------------------------------------------------------------------------------


def _repaired(rows: Sequence[JudgedKernel]) -> Iterator[DraftedConversation]:
    """Each refused kernel with the right one that it was made of, or that was made of it."""
    right = {row.sha256: row for row in rows if row.label in RIGHT}
    children: dict[str, JudgedKernel] = {}
    for row in right.values():
        if row.parent is not None:
            children.setdefault(row.parent, row)
    rank = 0
    for row in rows:
        if row.label != "refused" or row.verdict is None:
            continue
        repaired = right.get(row.parent or "") or children.get(row.sha256)
        if repaired is None or repaired.policy != row.policy:
            continue
        # `change` says what was done to the parent; of a file that became its child, nobody knows.
        known = row.change if repaired.sha256 == row.parent else ""
        words = repair_words(row.kernel, repaired.kernel, known)
        candidate = Candidate(source=row.kernel, coder=row.coder, round=1, strategy=row.strategy)
        messages = (
            _asked(repaired),
            file_turn(row.kernel),
            repair_turn(candidate, row.verdict),
        )
        text = completion(words, repaired.kernel)
        by: Literal["facts", "none"] = "facts" if words else "none"
        yield DraftedConversation("repair", messages, text, repaired, rank, by)
        rank += 1


def repair_words(broken: str, repaired: str, change: str) -> str:
    """The mistake where it is known, and the few lines that differ."""
    told = [f"Diagnosis: {_line(change)}."] if change.strip() else []
    old, new = broken.splitlines(), repaired.splitlines()
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    edits = [item for item in matcher.get_opcodes() if item[0] != "equal"]
    lines = sum(max(end - start, upto - first) for _, start, end, first, upto in edits)
    if edits and lines <= MOST_LINES:
        for _, start, end, first, upto in edits:
            told.append(
                f"Line {start + 1}: {_quoted(old[start:end])} -> {_quoted(new[first:upto])}"
            )
    return "\n".join(told)


def _quoted(lines: Sequence[str]) -> str:
    if not lines:
        return "nothing"
    return " / ".join(f"`{_line(line)}`" for line in lines)


# -- what all three begin with ---------------------------------------------------------------------


def _asked(row: JudgedKernel) -> Message:
    return write_turn(
        row.problem,
        _line(row.facts.get("class", "")) or "Model",
        _task_title(row.target),
        row.policy,
        _line(row.facts.get("inputs", "")),
        "\n".join(map(_line, row.facts.get("graph", "").splitlines())),
    )


@lru_cache(maxsize=64)
def _task_title(target: str | None) -> str:
    """The GPU's title, as a model is asked in a run; a name that nobody knows stays none."""
    if target is None:
        return NO_TARGET
    try:
        return find_target(target).target.title
    except UnknownTarget:
        return NO_TARGET


def _line(text: str) -> str:
    """What stood in a row, on one line, of a bounded length, without a fence."""
    return " ".join(text.split())[:LONGEST].replace("```", "'''")
