"""A new conversation as its command line asks for it, and what is worked out ahead of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.chat.figures import EstimateCache
from agentkernel.cli.chat.conversation import ChatRequest, run_chat
from agentkernel.cli.chat.loading import BackgroundLoad
from agentkernel.cli.chat.sessions import Flags, list_sessions, plain_values
from agentkernel.cli.options import ChatFlags, settings_of
from agentkernel.cli.terminal import print_plain
from agentkernel.domain.errors import KnowledgeError, OutputError, SettingError
from agentkernel.domain.knowledge import Query
from agentkernel.knowledge.base import open_base
from agentkernel.knowledge.store import folder_of
from agentkernel.knowledge.store_schema import FILE_NAME
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.problem.packages import is_dotted, module_file, no_such_file
from agentkernel.tools.targets import find_target
from agentkernel.workflows.run import goals_of

if TYPE_CHECKING:
    from agentkernel.cli.chat.prompt import PromptInput
    from agentkernel.domain.settings import Settings


def begin(flags: ChatFlags, name: str) -> int:
    """Converse with a script or a pipe, or list the sessions where no module is named; the exit
    code."""
    if flags.reference is None:
        settings = given_flags(flags).settings({})
        list_sessions(Path(settings.runs), as_json=flags.as_json)
        return 0
    loading = BackgroundLoad(lambda: problem_of(flags))
    return run_chat(request_of(flags, name, loading))


def request_of(
    flags: ChatFlags, name: str, loading: BackgroundLoad, feed: PromptInput | None = None
) -> ChatRequest:
    """What is asked for. Raises SettingError, UnknownTarget, ProblemError for what is wrong in a
    word of it."""
    given = given_flags(flags)
    given.settings({})
    assert flags.reference is not None
    check_file(flags.reference)
    return ChatRequest(
        flags=given,
        name=name,
        loading=loading,
        script=flags.script,
        as_json=flags.as_json,
        debug=bool(flags.context.obj),
        feed=feed,
    )


def given_flags(flags: ChatFlags) -> Flags:
    """What of the command line makes the settings."""
    return Flags(
        given=plain_values(settings_of(flags)),
        overrides=tuple(flags.settings.overrides or ()),
        config=None if flags.settings.config is None else str(flags.settings.config),
    )


def problem_of(flags: ChatFlags) -> LoadedProblem:
    """The module that is named, loaded. Raises ProblemError."""
    assert flags.reference is not None
    return load_problem(flags.reference, flags.inputs or (), flags.init, flags.kwargs)


def check_file(reference: str) -> None:
    """Raises ProblemError at once for a file that is not there: torch need not be awaited."""
    path = reference.partition(":")[0]
    if Path(path).is_file():
        return
    if is_dotted(path):
        module_file(path)
        return
    raise no_such_file(path, "; 'agentkernel chat' alone lists the last sessions")


def preparation_of(call: ChatRequest) -> Preparation:
    """What is worked out while the first line is typed."""
    flags = call.flags
    assert flags is not None
    return Preparation(
        call.estimates, call.loading.problem, lambda: flags.settings({}), print_plain
    )


WARM_UP_QUERY = "softmax"


@dataclass(frozen=True)
class Preparation:
    """The module's graph, figures and first plan, and the knowledge that a search opens."""

    estimates: EstimateCache
    problem: Callable[[], LoadedProblem]
    settings: Callable[[], Settings]
    tell: Callable[[str], None]
    """Hears what was fixed in the knowledge."""

    def look(self) -> None:
        """Fill the outlook. Raises what /plan would say."""

        settings = self.settings()
        resolved = find_target(settings.target)
        problem, goals = self.problem(), goals_of(settings)
        self.estimates.figures(problem, resolved.target, goals.precision)
        self.estimates.first_plan(problem, resolved, goals, settings)

    def knowledge(self) -> None:
        """Ask the knowledge folder once and close it: libraries and files are then at hand. Nothing
        is begun where there is none, and nothing is kept open: others may have to fix it."""
        known = self.settings().knowledge
        try:
            folder: Path = folder_of(known.index)
            if (folder / FILE_NAME).is_file():
                with open_base(folder, known.embedder, say=self.tell) as base:
                    base.search(Query(text=WARM_UP_QUERY, words=WARM_UP_QUERY, limit=1))
        except (OutputError, KnowledgeError, SettingError):
            pass  # a search says what is wrong with it
