"""`agentkernel optimize`: what is the fastest drop-in that can be trusted?"""

from __future__ import annotations

import sys

import typer

from agentkernel.cli.options import (
    NO_CONFIGURED,
    NO_DRAFTING,
    ApproveWhat,
    AsJson,
    BaselineName,
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
    PolicyName,
    PrecisionName,
    Reference,
    Replay,
    Rounds,
    Speedup,
    TargetName,
    TimeLimit,
    with_groups,
)


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
    from agentkernel.cli.models import model_usage, with_checked_models
    from agentkernel.cli.rendering.quantities import parse_bytes, parse_seconds
    from agentkernel.cli.rendering.watch import follow
    from agentkernel.storage.settings import load_settings
    from agentkernel.tools.problem.problems import load_problem

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

    from agentkernel.cli.rendering.approve import approver
    from agentkernel.workflows.optimize import run
    from agentkernel.workflows.state import OptimizeRequest

    request = OptimizeRequest(problem, settings, out, tuple(sys.argv[1:]))
    result = follow(
        lambda on_event: run(request, on_event, approve=approver(as_json=as_json)),
        as_json=as_json,
        models=model_usage(settings),
    )
    raise typer.Exit(result.exit_code)
