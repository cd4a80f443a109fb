"""Costs of answers, unknown where no price is known, and the accounts of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from agentkernel.agents.models.costs import (
    Price,
    Prices,
    cost_of,
    load_prices,
    totals,
    unpriced,
)
from agentkernel.agents.models.provider import parse_model
from agentkernel.agents.models.retries import Retry
from agentkernel.domain.errors import SettingError
from agentkernel.domain.exchange import Exchange, Reply, Usage
from agentkernel.workflows.events import Event, model_asked, model_retried
from tests.agents.models.endpoint_cases import question

USAGE = Usage(prompt=1_000_000, completion=100_000, cached=400_000)
TABLE = Prices(
    prices=(
        Price(model="openai:m-mini*", input=1, output=2, most_prompt=500_000),
        Price(model="openai:m*", input=10, output=20, cached=1),
        Price(model="openai:own@http://127.0.0.1*", input=3, output=4),
    )
)


@pytest.mark.parametrize(
    ("model", "cost"),
    [
        ("chat:openai:m-2026", 6.0 + 0.4 + 2.0),
        ("openai:m", 8.4),
        ("chat:openai:m-mini", None),
        ("chat:openai:own@http://127.0.0.1:8000/v1", 3.4),
        ("chat:openai:own", None),
        ("chat:openai:m@http://127.0.0.1:8000/v1", None),
        ("local:somewhere", None),
    ],
)
def test_cost(model: str, cost: float | None) -> None:
    assert cost_of(USAGE, model, TABLE) == (None if cost is None else pytest.approx(cost))


def test_tokens_that_nobody_counted_are_not_free() -> None:
    assert cost_of(Usage(), "openai:m", TABLE) is None


def test_an_own_endpoint_has_its_own_price_name() -> None:
    spec = parse_model("chat:openai:m@http://user:pw@127.0.0.1:8000/v1")
    assert spec.priced_as == "chat:openai:m@http://127.0.0.1:8000/v1"
    assert parse_model("chat:openai:m").priced_as == "chat:openai:m"


@pytest.mark.parametrize(
    ("model", "cost"),
    [
        ("chat:anthropic:claude-sonnet-4-5-20250929", 0.5 * 0.3 + 0.4 * 3.0 + 0.1 * 15.0),
        ("chat:openai:gpt-5.4-mini", 0.5 * 0.075 + 0.4 * 0.75 + 0.1 * 4.5),
        ("chat:google_genai:gemini-2.5-flash", 0.5 * 0.03 + 0.4 * 0.3 + 0.1 * 2.5),
        ("chat:openai:gpt-4.1@http://127.0.0.1:8000/v1", None),
        ("chat:anthropic:claude-sonnet-4-5@http://127.0.0.1:8000/v1", None),
        ("chat:openai:unheard-of", None),
        ("chat:ollama:llama3", None),
    ],
)
def test_the_providers_lists_price_what_the_user_does_not(model: str, cost: float | None) -> None:
    usage = Usage(prompt=90_000, completion=10_000, cached=50_000)
    assert cost_of(usage, model, Prices()) == (None if cost is None else pytest.approx(cost / 10))


def test_more_that_was_cached_than_asked_is_counted_as_asked() -> None:
    assert cost_of(Usage(prompt=10, cached=20), "chat:openai:gpt-4.1", Prices()) is not None


def test_the_user_goes_before_the_package(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text('prices: [{model: "openai:gpt-4.1", input: 7, output: 8}]\n')
    prices = load_prices(path)
    usage = Usage(prompt=1_000_000)
    assert cost_of(usage, "chat:openai:gpt-4.1", prices) == 7
    assert cost_of(usage, "chat:openai:gpt-4o-mini", prices) == pytest.approx(0.15)


def test_the_user_file_lies_beside_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load_prices() == Prices()
    (tmp_path / "agentkernel").mkdir()
    (tmp_path / "agentkernel" / "prices.yaml").write_text(
        'prices: [{model: "openai:own@*", input: 7, output: 8}]\n'
    )
    assert load_prices().of("chat:openai:own@http://127.0.0.1:1/v1") is not None
    assert str(tmp_path) in unpriced("chat:openai:other")


@pytest.mark.parametrize("text", ["prices: 3", "[1]", "prices: [{model: m, input: -1, output: 1}]"])
def test_a_wrong_price_table_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(SettingError, match=r"prices\.yaml") as caught:
        load_prices(path)
    assert "\n" not in str(caught.value)


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
