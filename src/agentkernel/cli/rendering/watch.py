"""How is a run shown while it goes on, and its result at the end?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentkernel.cli.output import console, print_json
from agentkernel.workflows.events import Event, Finished, ModelWriting, OnEvent, ignore
from agentkernel.workflows.outcome import Result

if TYPE_CHECKING:
    from agentkernel.cli.rendering.live_models import ModelUsage


def follow(
    job: Callable[[OnEvent], Result],
    *,
    as_json: bool,
    lines: bool = True,
    panel: bool = True,
    models: ModelUsage | None = None,
) -> Result:
    """Run `job`, showing its events: a live table on a terminal, JSON `lines` elsewhere, there
    without what a model is writing unless they were asked for.

    With `as_json` the last line is the result itself, otherwise a `panel` with the result.
    `models`: who may be asked, and what they took before.
    """
    if not as_json and sys.stdout.isatty():
        from agentkernel.cli.rendering.live import LiveTable

        with LiveTable(console(), models) as table:
            result = job(table.show)
    else:
        told = print_event if as_json else print_done
        result = job(told if lines else ignore)
    if not panel:
        return result
    if as_json:
        print_json(result)
    else:
        from agentkernel.cli.rendering.panel import result_panel

        console().print(result_panel(result))
    return result


def print_done(event: Event) -> None:
    """The same for a pipe: an answer is told of when it is whole."""
    if not isinstance(event, ModelWriting):
        print_event(event)


def print_event(event: Event) -> None:
    """One JSON line; the result is not repeated, it has its own line or panel."""
    if not isinstance(event, Finished):
        print_json(event)
