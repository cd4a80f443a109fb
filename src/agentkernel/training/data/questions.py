"""What is a model asked about the held-out modules, in each of the three tasks?

All in the turns of the held-out rows as they stand: the module with its graph, and to mend or to
make faster a file, and what the judge or the profiler said of it. To write is asked of a module's
file where no such row asks it for the GPU that is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from agentkernel.agents.conversation import task_turn
from agentkernel.agents.taught import write_turn
from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import ProblemError, TrainingError, UnknownTarget
from agentkernel.domain.exchange import Message
from agentkernel.domain.rules import Policy
from agentkernel.tools.problem.problems import load_problem
from agentkernel.tools.targets import find_target
from agentkernel.training.data.rows import FILES, kernel_of, read_rows
from agentkernel.training.training import Split, Task, TrainingRow

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


def target_of(data: Path, given: str | None, say: Callable[[str], None]) -> str | None:
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


__all__ = [
    "HeldOutQuestion",
    "HeldOutQuestions",
    "from_rows",
    "questions_of",
    "target_of",
    "to_write",
]
