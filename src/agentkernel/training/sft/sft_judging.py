"""What is a model that is fine-tuned worth on held-out modules, on its way and at the end?"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from agentkernel.training.curve import LossPoint
from agentkernel.training.data.questions import questions_of, target_of
from agentkernel.training.data.rows import held_out_hash, held_out_problems
from agentkernel.training.evaluate.evaluate import PassAt, Show, run_evaluation, spread_over
from agentkernel.training.folder import Record
from agentkernel.training.judged_problems import Verification
from agentkernel.training.judging import STRICT
from agentkernel.training.training import TrainingSettings


@dataclass(frozen=True)
class HeldOutJudging:
    """How the held-out modules are judged while and after a model is trained."""

    target: str | None = None
    samples: int = 4
    times: int = 1
    """How often: the last time at the end, the others in between."""
    verification: Verification = STRICT
    jobs: int | None = None


def with_target(
    judging: HeldOutJudging | None,
    data: Path,
    settings: TrainingSettings,
    say: Callable[[str], None],
) -> HeldOutJudging | None:
    """The same with the GPU that the rows of `data` ask for, where none is given; another one is
    said. Raises UnknownTarget."""
    if not settings.sft.evaluate_problems:
        return judging
    judging = judging or HeldOutJudging()
    return replace(judging, target=target_of(data, judging.target, say))


def checkpoint_judge(
    data: Path,
    settings: TrainingSettings,
    judging: HeldOutJudging | None,
    show: Show,
    readable_in: Callable[[Path], AbstractContextManager[Path]],
) -> Callable[[Path, int], LossPoint | None] | None:
    """Judges a checkpoint as the finished model is judged; None where nobody wants it."""
    if judging is None or judging.times < 2 or settings.sft.method != "full":
        return None

    def judge(place: Path, step: int) -> LossPoint | None:
        with readable_in(place) as found:
            passed = judge_model(str(found), data, settings, judging, show)
        return None if passed is None else evaluation_point(step, 0.0, passed, None)

    return judge


def judge_model(
    model: str, data: Path, settings: TrainingSettings, judging: HeldOutJudging, show: Show
) -> PassAt | None:
    """What the model is worth on some held-out modules, spread over all of them; None where there
    are none, or none are asked for."""
    from agentkernel.training.evaluate.writer import LocalWriter, sampling_of

    held_out_hash(data)  # raises where it is not that of the card
    problems = held_out_problems(data)
    most = settings.sft.evaluate_problems
    if not problems or not most:
        return None
    chosen = spread_over(problems, most)
    return run_evaluation(
        LocalWriter(model, sampling_of(settings.sampling), seed=settings.sft.seed),
        questions_of("write", data, chosen, judging.target, judging.verification.policy),
        judging.samples,
        policy=judging.verification.policy,
        verification=judging.verification,
        jobs=judging.jobs,
        show=show,
    )


def evaluation_point(step: int, epoch: float, passed: PassAt, record: Record | None) -> LossPoint:
    """The curve's point for what was judged; tokens and seconds are those of the `record`."""
    first = passed.pass_at.get(1)
    return LossPoint(
        step=step,
        epoch=epoch,
        tokens=record.tokens if record else 0,
        seconds=record.seconds if record else 0.0,
        pass_at_1=first.value if first else None,
        hack_rate=passed.hack_rate.value,
        problems=passed.problems,
    )


__all__ = ["HeldOutJudging", "checkpoint_judge", "evaluation_point", "judge_model", "with_target"]
