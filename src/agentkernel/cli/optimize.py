"""`agentkernel optimize` and `resume`: start an optimization run, or continue one.

`resume` continues a run or a chat session after a kill or Ctrl-C; nothing finished is judged
again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentkernel.cli.options import (
    NO_CONFIGURED,
    NO_DRAFTING,
    ApproveWhat,
    AsJson,
    BaselineName,
    ConfigFile,
    Configured,
    Drafting,
    FromScratch,
    Init,
    Inputs,
    Kwargs,
    MaxAutotune,
    MaxMemory,
    ObjectiveName,
    Out,
    Overrides,
    PolicyName,
    PrecisionName,
    Reference,
    Replay,
    Rounds,
    Runs,
    Speedup,
    TargetName,
    TimeLimit,
    Unpickle,
    with_groups,
)
from agentkernel.cli.terminal import print_plain


@with_groups
def optimize(
    reference: Reference,
    inputs: Inputs = None,
    init: Init = "",
    kwargs: Kwargs = "",
    target: TargetName = None,
    speedup: Speedup = None,
    baseline: BaselineName = None,
    objective: ObjectiveName = None,
    max_memory: MaxMemory = None,
    max_autotune: MaxAutotune = None,
    precision: PrecisionName = None,
    policy: PolicyName = None,
    rounds: Rounds = None,
    time: TimeLimit = None,
    out: Out = None,
    drafting: Drafting = NO_DRAFTING,
    replay: Replay = None,
    from_scratch: FromScratch = False,
    approve: ApproveWhat = None,
    configured: Configured = NO_CONFIGURED,
    as_json: AsJson = False,
) -> None:
    """Make a module faster: plan, draft, judge, measure, decide; hand over a drop-in."""
    from agentkernel.cli.options import model_usage, with_checked_models
    from agentkernel.cli.rendering.run import follow
    from agentkernel.cli.rendering.text import parse_bytes, parse_seconds
    from agentkernel.storage.configuration import load_settings
    from agentkernel.tools.problem.loading import load_problem

    settings = load_settings(
        configured.config,
        configured.overrides or (),
        {
            "target": target,
            "approve": approve,
            "goals.speedup": speedup,
            "goals.baseline": baseline,
            "goals.objective": objective,
            "goals.max_memory_bytes": parse_bytes(max_memory),
            "goals.precision": precision,
            "goals.policy": policy,
            "budget.rounds": rounds,
            "budget.time_s": parse_seconds(time),
            "profile.max_autotune": max_autotune,
            "team.from_scratch": from_scratch or None,
            **drafting.settings(replay),
            **configured.settings(),
        },
    )
    settings = with_checked_models(settings)
    problem = load_problem(reference, inputs or (), init, kwargs)

    from agentkernel.cli.rendering.run import approver
    from agentkernel.workflows.optimize import run
    from agentkernel.workflows.state import OptimizeRequest

    request = OptimizeRequest(problem, settings, out, tuple(sys.argv[1:]))
    result = follow(
        lambda on_event: run(request, on_event, approve=approver(as_json=as_json)),
        as_json=as_json,
        models=model_usage(settings),
    )
    raise typer.Exit(result.exit_code)


LAST = "last"
Name = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="The name of a run or a chat; 'last' is what was used last of both."
    ),
]


def resume(
    context: typer.Context,
    run: Name = LAST,
    runs: Runs = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    unpickle: Unpickle = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a run or a session after a kill or Ctrl-C; nothing finished is judged again."""
    from agentkernel.cli.chat.sessions import last_used, session_folder
    from agentkernel.cli.options import runs_path

    below = runs_path(runs, config, overrides)
    session = last_used(below) if run == LAST else session_folder(below, run)
    if run == LAST and session is not None:
        print_plain(f"'last' is the chat {session.name}: no run was used after it.", error=True)
    if session is not None:
        _trust(session, unpickle)
        code = resume_session(session, overrides or [], as_json=as_json, debug=bool(context.obj))
        raise typer.Exit(code)

    from agentkernel.cli.options import usage_before
    from agentkernel.cli.rendering.run import follow
    from agentkernel.tools.run_store import find_run

    folder = find_run(below, run)
    _trust(folder, unpickle)

    from agentkernel.cli.rendering.run import approver
    from agentkernel.workflows.optimize import resume as go_on

    result = follow(
        lambda on_event: go_on(str(folder), on_event, approve=approver(as_json=as_json)),
        as_json=as_json,
        models=usage_before(folder),
    )
    raise typer.Exit(result.exit_code)


def _trust(folder: Path, unpickle: bool) -> None:
    from agentkernel.tools.own_files import LIVE, trust_live

    if unpickle and (folder / LIVE).exists():
        trust_live(folder)


def resume_session(folder: Path, overrides: list[str], *, as_json: bool, debug: bool) -> int:
    """Open a session again with the flags that it began with, and `overrides` over them."""
    from agentkernel.cli.chat.conversation import ChatRequest, run_chat
    from agentkernel.cli.chat.sessions import BackgroundLoad, read_flags

    flags = read_flags(folder)
    if flags is not None:
        flags = flags.evolve(overrides=(*flags.overrides, *overrides))
        flags.settings({})
    name = folder.name.partition("-chat-")[0]
    return run_chat(
        ChatRequest(flags, name, BackgroundLoad(), folder=folder, as_json=as_json, debug=debug)
    )
