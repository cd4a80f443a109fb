"""`agentkernel chat`: how is a module tuned in conversation?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

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
    Overrides,
    PlannerName,
    Reference,
    ReviewerName,
    Runs,
    TargetName,
    Temperature,
    TokenLimit,
    UsdLimit,
    model_flags,
)

if TYPE_CHECKING:
    from agentkernel.domain.settings import Settings
    from agentkernel.workflows.chat import Conversation, Reply

SettingsFor = Callable[[Mapping[str, object]], "Settings"]
PROMPT = "agentkernel> "


def chat(
    reference: Reference,
    inputs: Inputs = None,
    init: Init = "",
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
    """Talk about one module: another GPU, precision or objective, again, diff, undo, keep."""
    from agentkernel.cli.models import checked, model_use
    from agentkernel.tools.problems import load_problem
    from agentkernel.tools.settings import load_settings
    from agentkernel.tools.targets import find_target

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

    def settings_for(changes: Mapping[str, object]) -> Settings:
        settings = load_settings(config, overrides or (), {**given, **changes})
        find_target(settings.target)
        return checked(settings)

    settings = settings_for({})
    problem = load_problem(reference, inputs or (), init)

    from agentkernel.cli.watch import follow
    from agentkernel.workflows.chat import Conversation
    from agentkernel.workflows.optimize import run

    conversation = Conversation(
        problem,
        settings_for,
        lambda request, _: follow(
            lambda on_event: run(request, on_event),
            as_json=as_json,
            lines=as_json,
            panel=False,
            models=model_use(request.settings),
        ),
        lambda _: None,
        Path(settings.runs) / ".chat",
    )
    raise typer.Exit(converse(conversation, as_json=as_json))


def converse(conversation: Conversation, *, as_json: bool) -> int:
    """Answer each line until the end; the exit code is the last run's."""
    greet(conversation, as_json=as_json)
    for line in read_lines(as_json=as_json):
        if not line.strip():
            continue
        reply = conversation.answer(line)
        say(reply, as_json=as_json)
        if reply.ended:
            break
    step = conversation.step
    return 0 if step is None else step.result.exit_code


def read_lines(*, as_json: bool) -> Iterator[str]:
    """Lines typed at a prompt, or piped in."""
    if not sys.stdin.isatty() or as_json:
        yield from sys.stdin
        return
    from prompt_toolkit import PromptSession

    session: PromptSession[str] = PromptSession(PROMPT)
    while True:
        try:
            yield session.prompt()
        except EOFError:
            return


def greet(conversation: Conversation, *, as_json: bool) -> None:
    """What is on the table when the conversation begins."""
    if as_json:
        return
    problem = conversation.problem.problem
    print(f"{problem.name}: {problem.shape_sets[0].label}. 'go' starts, 'help' lists the words.")
    if conversation.step is not None:
        count = len(conversation.thread.steps)
        print(f"{count} earlier steps; at step {conversation.step.id}. 'history' shows them.")


def say(reply: Reply, *, as_json: bool) -> None:
    """The answer, with the result of a run as a panel."""
    from agentkernel.cli.output import console, print_json
    from agentkernel.cli.panel import result_panel

    if as_json:
        print_json(reply)
        return
    if reply.text:
        print(reply.text, flush=True)
    if reply.result is not None:
        console().print(result_panel(reply.result))
