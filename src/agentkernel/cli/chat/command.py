"""`agentkernel chat`: flags of a new session, or the list of sessions where no module is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkernel.cli.options import (
    AnswerSamples,
    AsJson,
    BaseUrl,
    CoderName,
    ConfigFile,
    DebuggerName,
    Init,
    Inputs,
    Kwargs,
    Overrides,
    PlannerName,
    ReviewerName,
    Runs,
    TargetName,
    Temperature,
    TokenLimit,
    UsdLimit,
    model_flags,
)

if TYPE_CHECKING:
    from agentkernel.tools.problem.loading import LoadedProblem

Subject = Annotated[
    str | None,
    typer.Argument(
        metavar="[FILE[:CLASS]]",
        help="A file with Model, get_inputs and get_init_inputs, or FILE:CLASS with --input. "
        "Without it: the last sessions.",
    ),
]
Script = Annotated[
    Path | None,
    typer.Option(
        "--script", metavar="FILE", help="Lines fed as if typed, or an exported session.jsonl."
    ),
]


def chat(
    context: typer.Context,
    reference: Subject = None,
    script: Script = None,
    inputs: Inputs = None,
    init: Init = "",
    kwargs: Kwargs = "",
    target: TargetName = None,
    runs: Runs = None,
    coder: CoderName = None,
    base_url: BaseUrl = None,
    planner: PlannerName = None,
    debugger: DebuggerName = None,
    reviewer: ReviewerName = None,
    samples: AnswerSamples = None,
    temperature: Temperature = None,
    tokens: TokenLimit = None,
    usd: UsdLimit = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Tune one module in conversation: ask, steer, go back, compare, keep."""
    from agentkernel.cli.chat.conversation import ChatRequest, run_chat
    from agentkernel.cli.chat.sessions import BackgroundLoad, Flags, plain_values

    given: dict[str, object] = {
        "target": target,
        "coder": coder,
        "runs": None if runs is None else str(runs),
        **model_flags(
            base_url=base_url,
            planner=planner,
            debugger=debugger,
            reviewer=reviewer,
            samples=samples,
            temperature=temperature,
            tokens=tokens,
            usd=usd,
        ),
    }
    flags = Flags(
        given=plain_values(given),
        overrides=tuple(overrides or ()),
        config=None if config is None else str(config),
    )
    settings = flags.settings({})
    if reference is None:
        from agentkernel.cli.chat.sessions import list_sessions

        list_sessions(Path(settings.runs), as_json=as_json)
        return

    def load() -> LoadedProblem:
        from agentkernel.tools.problem.loading import load_problem

        return load_problem(reference, inputs or (), init, kwargs)

    check_file(reference)
    call = ChatRequest(
        flags=flags,
        name=Path(reference.partition(":")[0]).name.removesuffix(".py"),
        loading=BackgroundLoad(load),
        script=script,
        as_json=as_json,
        debug=bool(context.obj),
    )
    raise typer.Exit(run_chat(call))


def check_file(reference: str) -> None:
    """Raises ProblemError at once for a file that is not there: torch need not be awaited."""
    from agentkernel.domain.errors import ProblemError
    from agentkernel.tools.problem.packages import is_dotted, module_file

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
