"""`agentkernel train sft` and `rl`: the training of a model.

`sft` fine-tunes a model or makes a new one, and `rl` continues with rewards from the judge; the
same call continues after a kill.
"""

from __future__ import annotations

import typer

from agentkernel.cli.console import progress_bar
from agentkernel.cli.train.options import RlFlags, SftFlags
from agentkernel.cli.train.outcome import (
    EXIT_INTERRUPTED,
    judging_device,
    line_printer,
    print_outcome,
)
from agentkernel.tools.targets import find_target
from agentkernel.training.distributed import command_of, current_ranks, gpus_of, launch
from agentkernel.training.rl.judge_pool import RlJudging
from agentkernel.training.rl.train import RlResult, train_rl
from agentkernel.training.settings import load_training, with_model
from agentkernel.training.sft.train import HeldOutJudging, SftResult, train_sft


def sft(flags: SftFlags) -> None:
    """`agentkernel train sft`."""
    settings = load_training(flags.training, flags.overrides or ())
    if flags.gpus != "1":
        _launch_ranks(flags.context, flags.gpus)

    judging = HeldOutJudging(target=flags.target, samples=flags.samples, times=flags.evaluations)
    with progress_bar("training", silent=flags.as_json or not current_ranks().first) as show:
        done = train_sft(
            flags.data,
            with_model(settings, flags.model),
            flags.out,
            older=flags.older,
            judging=judging,
            say=line_printer(flags.as_json),
            show=show,
        )
    if current_ranks().first:
        print_outcome(done, done.record, done.record.ended, sft_lines(done), as_json=flags.as_json)
    elif done.record.ended == "signal":
        raise typer.Exit(EXIT_INTERRUPTED)


def _launch_ranks(context: typer.Context, gpus: str) -> None:
    """Do the same in a process for each GPU and raise typer.Exit, unless this is one of them
    already, or one is all there are."""
    count = gpus_of(gpus)
    if count > 1 and current_ranks().count == 1:
        raise typer.Exit(launch(command_of(command_words(context)), count))


def command_words(context: typer.Context) -> list[str]:
    """The words of this call, `--gpus` left out."""
    flags: list[str] = ["--debug"] if context.find_root().obj is True else []
    arguments: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name == "gpus" or value is None or value is False:
            continue
        if parameter.param_type_name == "argument":
            arguments.append(str(value))
        elif value is True:
            flags.append(parameter.opts[0])
        else:
            several = value if isinstance(value, list | tuple) else [value]
            flags += [word for item in several for word in (parameter.opts[0], str(item))]
    return ["train", "sft", *flags, "--", *arguments]


def sft_lines(done: SftResult) -> list[str]:
    """What came out."""
    record = done.record
    loss = "-" if record.loss is None else f"{record.loss:.4f}"
    held = "" if record.held_out_loss is None else f", {record.held_out_loss:.4f} on held-out rows"
    several = f" x {record.ranks}" if record.ranks > 1 else ""
    lines = [
        f"{record.steps} of {record.planned_steps} steps, {record.epochs:g} passes over "
        f"{record.rows} rows, {record.tokens:,} tokens in {record.seconds:.0f} s on "
        f"{record.device}{several}; loss {loss}{held}"
    ]
    if record.passed is not None:
        lines.append(record.passed.line())
    return lines


def rl(flags: RlFlags) -> None:
    """`agentkernel train rl`."""
    settings = load_training(flags.training, flags.overrides or ())
    if flags.device is not None and flags.ray is None:  # a cluster's workers have GPUs of their own
        resolved = find_target(flags.target)
        judging_device(flags.device, measurable=resolved.measurable, target=resolved.target.name)
    rl_judging = RlJudging(
        target=flags.target, device=flags.device, speed=flags.speed, jobs=flags.jobs, ray=flags.ray
    )
    with progress_bar("practice", silent=flags.as_json) as show:
        done = train_rl(
            flags.data,
            with_model(settings, flags.model),
            flags.out,
            rl_judging=rl_judging,
            say=line_printer(flags.as_json),
            show=show,
        )
    print_outcome(done, done.record, done.record.ended, rl_lines(done), as_json=flags.as_json)


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
