"""TorchInductor's answers, asked for once a test run however many processes it has."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkernel.compiler.lift.inductor_code import InductorCode, NotLifted, Variant
    from agentkernel.tools.problem.capture import Captured

FOLDER = "AGENTKERNEL_TESTS_SHARED"
"""The variable that names the folder which this run's processes share, see conftest.py."""


def shared_codes(
    name: str, jobs: Sequence[tuple[Captured, Variant]]
) -> tuple[InductorCode | NotLifted, ...]:
    """`generate_many` for the H200; the first process of a run that asks for `name` does it."""
    from agentkernel.compiler.lift.inductor_process import generate_many
    from agentkernel.tools.targets import find_target

    path = Path(os.environ[FOLDER]) / f"{name}.jsonl"
    with path.open("a+", encoding="utf-8") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        kept.seek(0)
        lines = kept.read().splitlines()
        if not lines:
            answers = generate_many(jobs, find_target("h200").target)
            kept.write("".join(answer.model_dump_json() + "\n" for answer in answers))
            return answers
    return tuple(_read(line) for line in lines)


def _read(line: str) -> InductorCode | NotLifted:
    from agentkernel.compiler.lift.inductor_code import InductorCode, NotLifted

    kind = InductorCode if '"source"' in line else NotLifted
    return kind.model_validate_json(line)
