"""`agentkernel doctor`: what is there, what is missing, and which command mends it?"""

from __future__ import annotations

import typer

from agentkernel.cli.options import AsJson, BaseUrl, CoderName, ConfigFile, Overrides


def doctor(
    coder: CoderName = None,
    base_url: BaseUrl = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Check this machine and what a coder needs; exit 4 where what every run needs is missing."""
    from agentkernel.cli.checks import all_checks
    from agentkernel.cli.model_checks import model_checks
    from agentkernel.cli.output import console, print_json
    from agentkernel.storage.settings import load_settings

    settings = load_settings(config, overrides or (), {"coder": coder, "models.base_url": base_url})
    checks = (*all_checks(settings), *model_checks(settings))
    broken = any(check.required and not check.ok for check in checks)
    if as_json:
        print_json({"ok": not broken, "checks": [check.as_dict() for check in checks]})
    else:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, pad_edge=False)
        for check in checks:
            state = "ok" if check.ok else "missing" if check.required else "absent"
            table.add_row(check.name, state, Text(check.found), Text(check.mend))
        console().print(table)
    raise typer.Exit(4 if broken else 0)
