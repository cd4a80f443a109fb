"""Where are the answers of a practising model judged, and whose times count?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from agentkernel.domain.errors import SettingError
from agentkernel.tools.targets import find_target
from agentkernel.training.judging import RL_VERIFICATION
from agentkernel.training.rl.reward import Basis
from agentkernel.training.rl.turn_pool import JudgeBackend, LocalBackend
from agentkernel.training.rl.turn_work import TurnSettings


@dataclass(frozen=True)
class RlJudging:
    """Where answers are judged and how fast right ones are. None: on the GPU that is here, timed
    there; without one in the interpreter, with estimates for `target`."""

    target: str | None = None
    device: Literal["cpu", "cuda"] | None = None
    speed: Basis | Literal["none"] | None = None
    jobs: int | None = None
    """Processes of this machine that judge; as many as it has processors."""
    ray: str | None = None
    """The address of a Ray cluster whose workers judge."""


def turn_settings(rl_judging: RlJudging) -> TurnSettings:
    """What the judges are told. Raises SettingError for times that nobody here can measure."""
    device = rl_judging.device or ("cuda" if torch.cuda.is_available() else "cpu")
    resolved = find_target(rl_judging.target)
    measurable = (
        device == "cuda" and resolved.measurable and resolved.target.vendor == "nvidia"
    ) or rl_judging.ray is not None
    if rl_judging.speed == "measured" and not measurable:
        raise SettingError(
            f"Speedups cannot be measured for {resolved.target.name!r} on {device!r}. Expected the "
            "GPU that is here, with --device cuda. Next: --speed estimated."
        )
    chosen = rl_judging.speed or ("measured" if measurable and device == "cuda" else "estimated")
    verification = RL_VERIFICATION.model_copy(update={"device": device})
    return TurnSettings(verification=verification, target=rl_judging.target, speed=chosen)


def make_judges(rl_judging: RlJudging | None, asked: TurnSettings) -> JudgeBackend:
    """Who judges: processes of this machine, or the workers of a Ray cluster."""
    if rl_judging is not None and rl_judging.ray is not None:
        from agentkernel.training.rl.turn_ray import RayBackend

        return RayBackend(rl_judging.ray, asked)
    return LocalBackend(asked, rl_judging.jobs if rl_judging else None)


def speed_source_note(asked: TurnSettings) -> str:
    """How fast right kernels are, and who says so."""
    words = {
        "measured": "measured on the GPU",
        "estimated": f"estimated for {find_target(asked.target).target.name}, nobody measured them",
        "none": "not looked at",
    }
    return words[asked.speed]


__all__ = ["RlJudging", "make_judges", "speed_source_note", "turn_settings"]
