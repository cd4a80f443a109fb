"""`agentkernel train rl`: how does a model get better by practising on the judge?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agentkernel.cli.options import AsJson, Overrides
from agentkernel.cli.train.train_options import (
    DataFolder,
    ModelFolder,
    Training,
    judging_device,
    line_printer,
    print_outcome,
)

if TYPE_CHECKING:
    from agentkernel.training.rl.rl import RlResult

PolicyWeights = Annotated[
    str,
    typer.Option(
        "--model", metavar="NAME_OR_PATH", help="Weights to begin with, as of 'train sft'."
    ),
]
SpeedupTarget = Annotated[
    str | None, typer.Option("--target", help="GPU that speedups are of; the local one, else h100.")
]
Device = Annotated[
    Literal["cpu", "cuda"] | None,
    typer.Option("--device", help="Where answers are judged; cpu is the interpreter."),
]
SpeedBy = Annotated[
    Literal["measured", "estimated", "none"] | None,
    typer.Option("--speed", help="How fast right kernels are; measured where a GPU is."),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Processes that judge; one a processor.")
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray", metavar="ADDRESS", help="Judge on a Ray cluster: auto, local, ray://HOST:10001."
    ),
]


def rl(
    data: DataFolder,
    model: PolicyWeights,
    out: ModelFolder,
    training: Training = "small",
    target: SpeedupTarget = None,
    device: Device = None,
    speed: SpeedBy = None,
    jobs: Jobs = None,
    ray: RayAddress = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Let a model practise on the training modules, several turns each, rewarded by the judge; the
    same call goes on after a kill."""
    from agentkernel.cli.knowledge_progress import progress_bar
    from agentkernel.tools.targets import find_target
    from agentkernel.training.configuration import load_training
    from agentkernel.training.rl.rl import RlJudging, train_rl

    settings = load_training(training, overrides or ())
    if device is not None and ray is None:  # a cluster's workers have GPUs of their own
        resolved = find_target(target)
        judging_device(device, measurable=resolved.measurable, target=resolved.target.name)
    rl_judging = RlJudging(target=target, device=device, speed=speed, jobs=jobs, ray=ray)
    with progress_bar("practice", silent=as_json) as show:
        done = train_rl(
            data,
            settings,
            out,
            model=model,
            rl_judging=rl_judging,
            say=line_printer(as_json),
            show=show,
        )
    print_outcome(done, done.record, done.record.ended, rl_lines(done), as_json=as_json)


def rl_lines(done: RlResult) -> list[str]:
    """What came out."""
    record = done.record
    lines = [
        f"{record.steps} of {record.planned_steps} steps, {record.turns:,} answers to "
        f"{record.problems:,} modules judged in {record.seconds:.0f} s on {record.device}"
    ]
    if record.begin is not None and record.end is not None:
        first, last = record.begin, record.end
        faster = "" if last.speedup is None else f", speedup {last.speedup:.2f} ({record.speed})"
        lines.append(
            f"reward {first.reward:.3f} -> {last.reward:.3f}, right at once {first.first:.1%} -> "
            f"{last.first:.1%}, cheats {first.hack_rate:.1%} -> {last.hack_rate:.1%}{faster} "
            f"(means of {first.steps} steps)"
        )
    return lines


__all__ = ["rl"]
