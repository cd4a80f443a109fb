"""Which modules are there to make pairs of: files, or those of a published set?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from agentkernel.domain.errors import SettingError
from agentkernel.knowledge import kernelbook
from agentkernel.knowledge.code_structure import module_class
from agentkernel.knowledge.pair_files import shards_of
from agentkernel.knowledge.pairs import problem_files
from agentkernel.training.data.modules import LICENCE, GeneratedProblem
from agentkernel.training.data.vetting import module_refusal

NAMED = re.compile(r"\bModel\b")


def problems_in(path: Path, licence: str = LICENCE) -> Iterator[GeneratedProblem]:
    """The modules of a folder in the KernelBench convention, which are under `licence`, or those of
    KernelBook's shards, each under its own. Nothing is run here.

    Raises ProblemError or SettingError where there are none.
    """
    if path.is_dir() and next(path.rglob("*.py"), None) is not None:
        for file in problem_files(path):
            name = Path(file.name).stem
            yield GeneratedProblem(text=file.text, name=name, licence=licence)
        return
    yield from _published(path)


def _published(path: Path) -> Iterator[GeneratedProblem]:
    shards_of(path)
    for row in kernelbook.read_pairs(path):
        found = None if isinstance(row, kernelbook.BadRow) else as_problem(row)
        if found is not None:
            yield found


def as_problem(pair: kernelbook.Pair) -> GeneratedProblem | None:
    """The module of a published pair, its class called `Model`; None where that cannot be, or the
    module is none that may be run, or is not under one permissive licence."""
    if len(pair.licences) != 1:
        return None
    node = module_class(pair.python_code, pair.entry_point or None)
    if node is None:
        return None
    text = pair.python_code
    if node.name != "Model":
        if NAMED.search(text):
            return None
        text = re.sub(rf"\b{re.escape(node.name)}\b", "Model", text)
    licence = pair.licences[0]
    if module_refusal(text, licence, kernelbook.PERMISSIVE) is not None:
        return None
    return GeneratedProblem(text=text, name=node.name, licence=licence, source="kernelbook")


def write_problems(count: int, start: int, out: Path) -> int:
    """Write the generator's modules of the seeds from `start` on, `count` different ones, one file
    each; how many were not there yet. Raises SettingError, OutputError."""
    from itertools import islice

    from agentkernel.storage.atomic import make_folder, write_atomic
    from agentkernel.training.data.pairs import generated

    if count < 1:
        raise SettingError(
            f"count is {count}. Expected 1 or more. Next: say how many modules to write."
        )
    make_folder(out)
    fresh = 0
    for problem in islice(generated(start), count):
        path = out / f"{problem.name}.py"
        if not path.is_file():
            write_atomic(path, problem.text)
            fresh += 1
    return fresh


__all__ = ["as_problem", "problems_in", "write_problems"]
