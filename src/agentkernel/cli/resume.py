"""`agentkernel resume`: a run or a chat session that goes on after a kill or Ctrl-C.

Nothing finished is judged again. With --time a run that its time limit ended goes on too.
"""

from __future__ import annotations

from pathlib import Path

import typer

from agentkernel.cli.chat.conversation import ChatRequest, run_chat
from agentkernel.cli.chat.loading import BackgroundLoad
from agentkernel.cli.chat.sessions import last_used, read_flags, session_folder
from agentkernel.cli.configuration import runs_path, usage_before
from agentkernel.cli.options import LAST, ResumeFlags
from agentkernel.cli.rendering.run import approver, follow
from agentkernel.cli.rendering.text import parse_seconds
from agentkernel.cli.terminal import print_plain
from agentkernel.domain.errors import SettingError
from agentkernel.runtime.stages import recording
from agentkernel.tools.own_files import LIVE, trust_live
from agentkernel.tools.run_store import find_run


def resume(flags: ResumeFlags) -> None:
    """`agentkernel resume`."""
    below = runs_path(flags.runs, flags.settings)
    session = last_used(below) if flags.run == LAST else session_folder(below, flags.run)
    if flags.run == LAST and session is not None:
        print_plain(f"'last' is the chat {session.name}: no run was used after it.", error=True)
    more_s = parse_seconds(flags.time)
    if session is not None and more_s is not None:
        raise SettingError(
            f"--time gives more to a run, and {session.name!r} is a chat. Next: leave it out, and "
            "say there how long a step may take."
        )
    if session is not None:
        _trust(session, flags.unpickle)
        code = resume_session(
            session,
            flags.settings.overrides or [],
            as_json=flags.as_json,
            debug=bool(flags.context.obj),
        )
        raise typer.Exit(code)

    folder = find_run(below, flags.run)
    _trust(folder, flags.unpickle)

    from agentkernel.workflows.optimize import resume as go_on

    with recording():
        result = follow(
            lambda on_event: go_on(
                str(folder), on_event, approve=approver(as_json=flags.as_json), more_s=more_s
            ),
            as_json=flags.as_json,
            models=usage_before(folder),
        )
    raise typer.Exit(result.exit_code)


def _trust(folder: Path, unpickle: bool) -> None:
    if unpickle and (folder / LIVE).exists():
        trust_live(folder)


def resume_session(folder: Path, overrides: list[str], *, as_json: bool, debug: bool) -> int:
    """Open a session again with the flags that it began with, and `overrides` over them."""
    flags = read_flags(folder)
    if flags is not None:
        flags = flags.evolve(overrides=(*flags.overrides, *overrides))
        flags.settings({})
    name = folder.name.partition("-chat-")[0]
    return run_chat(
        ChatRequest(flags, name, BackgroundLoad(), folder=folder, as_json=as_json, debug=debug)
    )
