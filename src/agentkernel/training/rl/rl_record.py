"""What does a practice write of itself, beside its weights?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.certificate import Versions
from agentkernel.storage.atomic import write_atomic
from agentkernel.training import folder
from agentkernel.training.device import Precision
from agentkernel.training.folder import Ended
from agentkernel.training.rl.reward import Basis
from agentkernel.training.rl.rl_curve import RlPoint
from agentkernel.training.training import TrainingSettings


class Means(Frozen):
    """The means of a few steps; see RlPoint."""

    steps: int
    reward: float
    first: float
    correct: float
    hack_rate: float
    speedup: float | None


class RlRecord(Frozen):
    """training.json: how the weights beside it came about."""

    kind: Literal["rl"] = "rl"
    name: str
    ended: Ended
    settings: TrainingSettings
    model: str
    model_sha256: str
    data: str
    data_sha256: str
    parameters: int
    trained_parameters: int
    steps: int
    planned_steps: int
    problems: int
    turns: int
    answer_tokens: int
    begin: Means | None
    end: Means | None
    speed: Basis | Literal["none"]
    """Whether the rewards' speedups were measured or estimated: never both in one training."""
    judged_on: Literal["cpu", "cuda"]
    device: str
    precision: Precision
    seconds: float
    versions: Versions
    packages: dict[str, str]

    @property
    def finished(self) -> bool:
        """True where no step is left."""
        return self.ended == "steps"


def read_rl_record(out: Path) -> RlRecord | None:
    """What training.json says; None where there is none that can be read."""
    try:
        return RlRecord.model_validate_json((out / folder.RECORD).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError):
        return None


def write_rl_record(out: Path, record: RlRecord) -> None:
    """Write training.json. Raises OutputError."""
    write_atomic(out / folder.RECORD, record.model_dump_json(indent=1))


def means(points: Sequence[RlPoint]) -> Means | None:
    """Over some steps; None where there are none."""
    if not points:
        return None
    speedups = [point.speedup for point in points if point.speedup is not None]
    names = ("reward", "first", "correct", "hack_rate")
    found = {name: sum(getattr(point, name) for point in points) / len(points) for name in names}
    speedup = sum(speedups) / len(speedups) if speedups else None
    return Means(steps=len(points), speedup=speedup, **found)


def rl_title(record: RlRecord) -> str:
    """What stands over the curve."""
    steps = f"{record.steps} of {record.planned_steps} steps"
    return f"{record.name}: {record.parameters:,} weights, {steps}, speedups {record.speed}"


__all__ = ["Means", "RlRecord", "means", "read_rl_record", "rl_title", "write_rl_record"]
