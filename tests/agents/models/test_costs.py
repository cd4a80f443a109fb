"""Do the accounts of a run add up?"""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from agentkernel.agents.models.costs import totals
from agentkernel.agents.models.retries import Retry
from agentkernel.domain.exchange import Exchange, Reply, Usage
from agentkernel.workflows.events import Event, model_asked, model_retried
from tests.agents.models.endpoint_cases import question


def exchange(
    agent: str, round_number: int, cost: float | None, model: str = "m", **reply: float
) -> Exchange:
    usage = Usage(prompt=100, completion=10, cached=40)
    return Exchange(
        model=model,
        question=question(agent=agent, round=round_number),
        reply=Reply.model_validate({"texts": ("x",), "finish": ("stop",), "usage": usage} | reply),
        cost_usd=cost,
        attempts=2,
    )


def test_by_agent_round_and_model() -> None:
    ledger = totals(
        (
            exchange("coder", 2, 0.5, seconds=3.0),
            exchange("planner", 1, 0.25, seconds=1.0, gpu_seconds=0.5),
            exchange("coder", 1, None, model="n", seconds=2.0),
        )
    )
    assert [item.label for item in ledger.by_agent] == ["coder", "planner"]
    assert [item.label for item in ledger.by_round] == ["1", "2"]
    assert [item.label for item in ledger.by_model] == ["m", "n"]
    coder = ledger.by_agent[0]
    assert (coder.questions, coder.requests, coder.prompt, coder.cached) == (2, 4, 200, 80)
    assert (coder.cost_usd, coder.unpriced, coder.seconds) == (0.5, 1, 5.0)
    assert (ledger.total.cost_usd, ledger.total.unpriced) == (0.75, 1)
    assert ledger.total.gpu_seconds == 0.5


def test_what_has_no_price_is_not_free() -> None:
    total = totals((exchange("coder", 1, None),)).total
    assert (total.cost_usd, total.unpriced) == (None, 1)
    assert totals(()).total.cost_usd is None


@pytest.mark.parametrize("reused", [True, False])
def test_the_event_says_what_the_exchange_says(reused: bool) -> None:
    event = model_asked(exchange("coder", 2, 0.5, seconds=3.0), reused)
    assert (event.kind, event.agent, event.model, event.round) == ("model_asked", "coder", "m", 2)
    assert (event.prompt_tokens, event.completion_tokens, event.cached_tokens) == (100, 10, 40)
    assert (event.cost_usd, event.seconds, event.attempts) == (0.5, 3.0, 2)
    assert event.reused is reused
    assert TypeAdapter(Event).validate_json(event.model_dump_json()) == event


def test_a_retry_is_an_event() -> None:
    event = model_retried(Retry("m", "rate_limit", "slow down", 2, 1.5))
    assert (event.kind, event.model, event.failure) == ("model_retried", "m", "rate_limit")
    assert (event.text, event.attempt, event.wait_s) == ("slow down", 2, 1.5)
    assert TypeAdapter(Event).validate_json(event.model_dump_json()) == event
