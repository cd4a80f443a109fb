"""`agentkernel chat`: flags of a new session, or the list of sessions where no module is named."""

from __future__ import annotations

from pathlib import Path

import typer

from agentkernel.cli.chat.conversation import ChatRequest, run_chat
from agentkernel.cli.chat.sessions import BackgroundLoad, Flags, list_sessions, plain_values
from agentkernel.cli.options import (
    ChatFlags,
    settings_of,
)
from agentkernel.domain.errors import ProblemError
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.problem.packages import is_dotted, module_file


def chat(flags: ChatFlags) -> None:
    """`agentkernel chat`."""
    given = Flags(
        given=plain_values(settings_of(flags)),
        overrides=tuple(flags.settings.overrides or ()),
        config=None if flags.settings.config is None else str(flags.settings.config),
    )
    settings = given.settings({})
    reference = flags.reference
    if reference is None:
        list_sessions(Path(settings.runs), as_json=flags.as_json)
        return

    def load() -> LoadedProblem:
        return load_problem(reference, flags.inputs or (), flags.init, flags.kwargs)

    check_file(reference)
    call = ChatRequest(
        flags=given,
        name=Path(reference.partition(":")[0]).name.removesuffix(".py"),
        loading=BackgroundLoad(load),
        script=flags.script,
        as_json=flags.as_json,
        debug=bool(flags.context.obj),
    )
    raise typer.Exit(run_chat(call))


def check_file(reference: str) -> None:
    """Raises ProblemError at once for a file that is not there: torch need not be awaited."""
    path = reference.partition(":")[0]
    if Path(path).is_file():
        return
    if is_dotted(path):
        module_file(path)
        return
    raise ProblemError(
        f"No such file: {path!r}. Expected a Python file with a torch module. "
        "Next: check the path; 'agentkernel chat' alone lists the last sessions."
    )
