"""Which modules may a model practise on, and which of them at which step?"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.errors import TrainingError
from agentkernel.domain.exchange import Message
from agentkernel.training.data.rows import (
    FENCE,
    FILES,
    admitted,
    held_out_hash,
    held_out_problems,
    is_held_back,
    read_rows,
)
from agentkernel.training.training import TASKS, TrainingRow


class RlProblem(Frozen):
    """A module to practise on: its text, and the turn in which the rows ask for it."""

    text: str
    task: Message
    structure: str

    @property
    def sha256(self) -> str:
        """Identity of the module's text."""
        return sha256_text(self.text)


def training_problems(
    data: Path, licences: Sequence[str], spared: float = 0.0
) -> tuple[RlProblem, ...]:
    """The modules of the training rows, each once, in the order of their hashes; where a share is
    `spared`, those alone that fine-tuning left out.

    Raises TrainingError where a row may not be learned from, where its module is a held-out one or
    has the structure of one, and where no module is left.
    """
    held_out_hash(data)  # raises where it is not that of the card
    hashes, structures = held_out_keys(data)
    found: dict[str, RlProblem] = {}
    for row in admitted(read_rows(data, "train"), licences, TASKS):
        if row.problem_sha256 in hashes or (row.structure and row.structure in structures):
            raise TrainingError(
                f"Row {row.id[:12]} asks for module {row.problem_sha256[:12]}, which is held out "
                "or built like one that is. Expected modules of the training part alone. Next: "
                "make the data again."
            )
        if row.problem_sha256 not in found and (
            not spared or is_held_back(row.problem_sha256, spared)
        ):
            found[row.problem_sha256] = _problem(row)
    if not found:
        raise TrainingError(
            f"{str(data)!r} has no module to practise on (rl.spared={spared}). Expected some in "
            f"{FILES['train']}. Next: 'agentkernel train data' makes rows; -c rl.spared=0 takes "
            "all modules."
        )
    return tuple(found[key] for key in sorted(found))


def held_out_keys(data: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Hashes and structures of all that is held out, of the rows and of the modules' files."""
    rows: Iterable[TrainingRow] = ()
    if (data / FILES["held-out"]).is_file():
        rows = tuple(read_rows(data, "held-out"))
    files = (path.read_text(encoding="utf-8") for path in held_out_problems(data))
    hashes = {row.problem_sha256 for row in rows} | {sha256_text(text) for text in files}
    return frozenset(hashes), frozenset(row.structure for row in rows if row.structure)


def _problem(row: TrainingRow) -> RlProblem:
    """The module as it stands in the row's first turn. Raises TrainingError where that is another
    text than the row says."""
    task = row.messages[0]
    text = module_in(task.text, row.problem_sha256)
    if text is None:
        raise TrainingError(
            f"The first turn of row {row.id[:12]} does not hold its module "
            f"({row.problem_sha256[:12]}). Expected the very text in a ```python fence. Next: make "
            "the data again."
        )
    return RlProblem(text=text, task=task, structure=row.structure)


def module_in(turn: str, sha256: str) -> str | None:
    """The fenced text of that hash; a fence keeps all but the newlines at a text's ends."""
    for _, fenced in FENCE.findall(turn):
        bare = str(fenced).strip("\n")
        for text in (f"{bare}\n", bare, str(fenced), f"\n{bare}\n"):
            if sha256_text(text) == sha256:
                return text
    return None


def chosen_at(
    problems: Sequence[RlProblem], step: int, count: int, seed: int
) -> tuple[RlProblem, ...]:
    """The `count` problems of a step (from 0): all are seen once before any is seen again, in
    another order each time. The same arguments give the same problems, so that nothing about it has
    to be kept for a training that goes on."""
    begin, total = step * count, len(problems)
    passes = range(begin // total, (begin + count - 1) // total + 1)
    orders = {number: _order(total, f"{seed}/{number}") for number in passes}
    places = (divmod(number, total) for number in range(begin, begin + count))
    return tuple(problems[orders[number][place]] for number, place in places)


def _order(total: int, seed: str) -> list[int]:
    order = list(range(total))
    random.Random(seed).shuffle(order)
    return order


__all__ = ["RlProblem", "chosen_at", "held_out_keys", "module_in", "training_problems"]
