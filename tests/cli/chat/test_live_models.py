"""Does the screen tell who is asked, what that took, and when a failed request goes out again?"""

from __future__ import annotations

import io
import time

from rich.console import Console

from agentkernel.cli.rendering.live import ModelUsage, RunProgress, usage_of
from agentkernel.domain.exchange import AgentName, Exchange, Message, ModelRequest, Reply, Sampling
from agentkernel.domain.exchange import Usage as Tokens
from agentkernel.workflows.events import Event, ModelAsked, ModelRetried, NodeFinished, NodeStarted
from tests.cli.run_events import started

CODER = "chat:openai:scripted"
NAMES: dict[AgentName, str] = {"coder": CODER}
DRAFTING = NodeStarted(node="draft", round=1, spent_s=0.0)


def asked(agent: AgentName = "coder", **changes: object) -> ModelAsked:
    event = ModelAsked(
        agent=agent,
        model=CODER,
        round=1,
        prompt_tokens=4000,
        completion_tokens=700,
        cached_tokens=1000,
        cost_usd=0.0135,
        seconds=3.5,
        reused=False,
    )
    return event.evolve(**changes)


def retried(wait_s: float) -> ModelRetried:
    return ModelRetried(
        model=CODER, failure="rate_limit", text="slow\ndown", attempt=1, wait_s=wait_s
    )


def screen(use: ModelUsage, *told: Event) -> list[str]:
    progress = RunProgress(models=use)
    for event in (started(), *told):
        progress.show(event)
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    console.print(progress.table())
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def waited(use: ModelUsage, seconds: float) -> None:
    """As if the model had been asked `seconds` ago."""
    assert use.waiting is not None
    use.waiting = use.waiting._replace(since=time.monotonic() - seconds)


def test_a_run_without_models_shows_nothing_of_them() -> None:
    shown = screen(ModelUsage(), DRAFTING)
    assert not [line for line in shown if "models" in line or "waits" in line]


def test_a_long_answer_is_waited_for_by_name() -> None:
    use = ModelUsage(NAMES)
    assert not [line for line in screen(use, DRAFTING) if "waits" in line]
    waited(use, 34.2)
    assert "coder waits for chat:openai:scripted: 34 s" in screen(use)
    assert not [line for line in screen(use, NodeFinished(
        node="draft", round=1, seconds=1.0, spent_s=1.0
    )) if "waits" in line]  # fmt: skip


def test_who_has_no_model_is_not_waited_for() -> None:
    use = ModelUsage(NAMES)
    screen(use, NodeStarted(node="debug", round=1, spent_s=0.0))
    assert use.waiting is None
    replaying = ModelUsage(NAMES, replay=True)
    screen(replaying, DRAFTING)
    assert replaying.waiting is None


def test_tokens_and_money_by_agent_and_in_all() -> None:
    debugger = asked("debugger", prompt_tokens=900, completion_tokens=80, cost_usd=None)
    shown = screen(ModelUsage(NAMES), asked(), asked(), debugger)
    assert "models answers tokens in out USD seconds" in shown
    assert "coder 2 8,000 1,400 0.0270 7.0" in shown
    assert "debugger 1 900 80 no price known 3.5" in shown
    assert "total 3 8,900 1,480 at least 0.0270 10.5" in shown


def test_an_answer_from_the_record_costs_nothing() -> None:
    shown = screen(ModelUsage(NAMES), asked(), asked(reused=True))
    assert "models answers from the record tokens in out USD seconds" in shown
    assert "coder 1 1 4,000 700 0.0135 3.5" in shown


def test_budgets_are_held_against_what_is_spent() -> None:
    shown = screen(ModelUsage(NAMES, tokens_limit=100_000, usd_limit=1.5), asked())
    assert "budget 4,700 of 100,000 tokens, 0.0135 of 1.5 USD" in shown


def test_a_retry_counts_down_and_is_gone_after_the_answer() -> None:
    use = ModelUsage(NAMES)
    shown = screen(use, DRAFTING, retried(wait_s=4.0))
    assert f"{CODER}: rate limit, request 2 in 4 s: slow down" in shown
    assert use.again is not None
    use.again = use.again._replace(due=time.monotonic() - 1)
    assert f"{CODER}: rate limit, request 2 is under way: slow down" in screen(use)
    assert not [line for line in screen(use, DRAFTING, retried(4.0), asked()) if "limit" in line]


def test_what_earlier_sessions_took_is_counted_on() -> None:
    question = ModelRequest(
        agent="coder",
        round=1,
        messages=(Message(role="user", text="?"),),
        sampling=Sampling(temperature=0.0, max_tokens=10),
    )
    reply = Reply(
        texts=("a",), finish=("stop",), usage=Tokens(prompt=1000, completion=100), seconds=2.0
    )
    before = (Exchange(model=CODER, question=question, reply=reply, cost_usd=0.01),)
    assert "coder 2 5,000 800 0.0235 5.5" in screen(ModelUsage(NAMES, usage_of(before)), asked())
