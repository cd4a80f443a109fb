"""`agentkernel resume`: how does a run or a session that was cut off go on?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentkernel.cli.options import AsJson, ConfigFile, Overrides, Runs, Unpickle
from agentkernel.cli.output import print_plain

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
    from agentkernel.cli.chat.chat_sessions import last_used, session_folder
    from agentkernel.cli.folder import runs_path

    below = runs_path(runs, config, overrides)
    session = last_used(below) if run == LAST else session_folder(below, run)
    if run == LAST and session is not None:
        print_plain(f"'last' is the chat {session.name}: no run was used after it.", error=True)
    if session is not None:
        _trust(session, unpickle)
        code = resume_session(session, overrides or [], as_json=as_json, debug=bool(context.obj))
        raise typer.Exit(code)

    from agentkernel.cli.models import usage_before
    from agentkernel.cli.rendering.watch import follow
    from agentkernel.tools.store import find_run

    folder = find_run(below, run)
    _trust(folder, unpickle)

    from agentkernel.cli.rendering.approve import approver
    from agentkernel.workflows.optimize import resume as go_on

    result = follow(
        lambda on_event: go_on(str(folder), on_event, approve=approver(as_json=as_json)),
        as_json=as_json,
        models=usage_before(folder),
    )
    raise typer.Exit(result.exit_code)


def _trust(folder: Path, unpickle: bool) -> None:
    from agentkernel.tools.live_module import LIVE, trust_live

    if unpickle and (folder / LIVE).exists():
        trust_live(folder)


def resume_session(folder: Path, overrides: list[str], *, as_json: bool, debug: bool) -> int:
    """Open a session again with the flags that it began with, and `overrides` over them."""
    from agentkernel.cli.chat.chat_hold import ChatRequest, run_chat
    from agentkernel.cli.chat.chat_open import BackgroundLoad, read_flags

    flags = read_flags(folder)
    if flags is not None:
        flags = flags.model_copy(update={"overrides": (*flags.overrides, *overrides)})
        flags.settings({})
    name = folder.name.partition("-chat-")[0]
    return run_chat(
        ChatRequest(flags, name, BackgroundLoad(), folder=folder, as_json=as_json, debug=debug)
    )
