"""Where are the answers of a practising model judged, and whose times count?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from agentkernel.domain.errors import SettingError
from agentkernel.tools.targets import find_target
from agentkernel.training.judging import PRACTICE
from agentkernel.training.rl.reward import Basis
from agentkernel.training.rl.turn_pool import Judges, LocalJudges
from agentkernel.training.rl.turn_work import TurnSettings


@dataclass(frozen=True)
class Practice:
    """Where answers are judged and how fast right ones are. None: on the GPU that is here, timed
    there; without one in the interpreter, with estimates for `target`."""

    target: str | None = None
    device: Literal["cpu", "cuda"] | None = None
    speed: Basis | Literal["none"] | None = None
    jobs: int | None = None
    """Processes of this machine that judge; as many as it has processors."""
    ray: str | None = None
    """The address of a Ray cluster whose workers judge."""


def turn_settings(practice: Practice) -> TurnSettings:
    """What the judges are told. Raises SettingError for times that nobody here can measure."""
    device = practice.device or ("cuda" if torch.cuda.is_available() else "cpu")
    resolved = find_target(practice.target)
    measurable = (
        device == "cuda" and resolved.measurable and resolved.target.vendor == "nvidia"
    ) or practice.ray is not None
    if practice.speed == "measured" and not measurable:
        raise SettingError(
            f"Speedups cannot be measured for {resolved.target.name!r} on {device!r}. Expected the "
            "GPU that is here, with --device cuda. Next: --speed estimated."
        )
    chosen = practice.speed or ("measured" if measurable and device == "cuda" else "estimated")
    verification = PRACTICE.model_copy(update={"device": device})
    return TurnSettings(verification=verification, target=practice.target, speed=chosen)


def judges_of(practice: Practice | None, asked: TurnSettings) -> Judges:
    """Who judges: processes of this machine, or the workers of a Ray cluster."""
    if practice is not None and practice.ray is not None:
        from agentkernel.training.rl.turn_ray import RayJudges

        return RayJudges(practice.ray, asked)
    return LocalJudges(asked, practice.jobs if practice else None)


def basis_words(asked: TurnSettings) -> str:
    """How fast right kernels are, and who says so."""
    words = {
        "measured": "measured on the GPU",
        "estimated": f"estimated for {find_target(asked.target).target.name}, nobody measured them",
        "none": "not looked at",
    }
    return words[asked.speed]


__all__ = ["Practice", "basis_words", "judges_of", "turn_settings"]
