"""Is an answer's cost right, and unknown where no price is known?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.agents.models.costs import (
    Price,
    Prices,
    cost_of,
    load_prices,
    unpriced,
)
from agentkernel.agents.models.provider import parse_model
from agentkernel.domain.errors import SettingError
from agentkernel.domain.exchange import Usage

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
        ("chat:openai:unheard-of", None),
        ("chat:ollama:llama3", None),
    ],
)
def test_the_providers_lists_price_what_the_user_does_not(model: str, cost: float | None) -> None:
    usage = Usage(prompt=90_000, completion=10_000, cached=50_000)
    assert cost_of(usage, model, Prices()) == (None if cost is None else pytest.approx(cost / 10))


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
