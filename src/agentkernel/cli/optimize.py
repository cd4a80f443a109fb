"""`agentkernel optimize`: an optimization run of one module."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from agentkernel.cli.candidate import load_subject
from agentkernel.cli.configuration import model_usage, settings_from, with_checked_models
from agentkernel.cli.console import console
from agentkernel.cli.early import optimize_values
from agentkernel.cli.options import OptimizeFlags
from agentkernel.cli.rendering.run import approver, follow
from agentkernel.cli.rendering.search import order_table
from agentkernel.cli.rendering.stages import stage_table
from agentkernel.cli.terminal import loading
from agentkernel.runtime.stages import process_age_s, recording, stage
from agentkernel.tools.run_store import read_run
from agentkernel.tools.search.order import orders
from agentkernel.workflows.optimize import run
from agentkernel.workflows.state import OptimizeRequest


def optimize(flags: OptimizeFlags) -> None:
    """`agentkernel optimize`."""
    values = optimize_values(flags)
    with recording() as clock:
        clock.add("load", process_age_s() - clock.wall_s())
        with stage("load"), loading(silent=flags.as_json):
            settings = with_checked_models(settings_from(flags.configured, values))
            problem = load_subject(flags.subject)
        request = OptimizeRequest(problem, settings, flags.out, tuple(sys.argv[1:]))
        result = follow(
            lambda on_event: run(request, on_event, approve=approver(as_json=flags.as_json)),
            as_json=flags.as_json,
            models=model_usage(settings),
        )
        if flags.timing and not flags.as_json:
            console().print(stage_table(clock.times(), clock.wall_s()))
            records = read_run(Path(settings.runs), result.run).records
            found = orders([trial for draft in records.drafts() for trial in draft.tried])
            if found:
                console().print(order_table(found))
    raise typer.Exit(result.exit_code)
