"""`agentkernel runs`: the runs and how they ended."""

from __future__ import annotations

from agentkernel.cli.options import AsJson, ConfigFile, Overrides, Runs
from agentkernel.cli.output import print_plain

MOST_CORRUPT = 20
"""Folders that cannot be read of which each has a line of its own."""


def runs(
    runs_folder: Runs = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List the runs, oldest first."""
    from agentkernel.cli.folder import runs_path
    from agentkernel.cli.output import console, print_json
    from agentkernel.tools.store import list_runs

    folder = runs_path(runs_folder, config, overrides)
    found = list_runs(folder)
    if as_json:
        print_json([item.model_dump(mode="json") for item in found])
        return
    if not found:
        print_plain(f"No runs in {str(folder)!r}. Next: agentkernel optimize FILE --target h100")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("run", "created", "problem", "target", "status"):
        table.add_column(heading, overflow="fold")
    corrupt = [item for item in found if item.error is not None]
    left_out = {item.id for item in corrupt[MOST_CORRUPT:]}
    for item in found:
        if item.id in left_out:
            continue
        table.add_row(item.id, item.created[:19], item.problem, item.target, item.status)
    console().print(table)
    if left_out:
        print_plain(f"{len(left_out)} more that cannot be read; --json names them.")
