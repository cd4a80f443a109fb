"""`agentkernel resume`: how does a run that was cut off go on?"""

from __future__ import annotations

import typer

from agentkernel.cli.options import AsJson, ConfigFile, Overrides, RunName, Runs


def resume(
    run: RunName = "last",
    runs: Runs = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a run after a kill or Ctrl-C; nothing that is finished is judged again."""
    from agentkernel.cli.folder import runs_path
    from agentkernel.cli.models import use_before
    from agentkernel.cli.watch import follow
    from agentkernel.tools.store import find_run

    folder = find_run(runs_path(runs, config, overrides), run)

    from agentkernel.cli.approve import asker
    from agentkernel.workflows.optimize import resume as go_on

    result = follow(
        lambda on_event: go_on(str(folder), on_event, approve=asker(as_json=as_json)),
        as_json=as_json,
        models=use_before(folder),
    )
    raise typer.Exit(result.exit_code)
