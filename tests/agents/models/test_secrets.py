"""Keys are cut out of whatever is told, however they are split."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentkernel.agents.safe_text import Redactor, redact, redact_url, url_without_credentials

KEY = "abcabcab"


@pytest.fixture(autouse=True, scope="module")
def some_key() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_API_KEY", KEY)
        patch.setenv("LONGER_TOKEN", f"{KEY}-more")
        yield


def test_the_name_stands_for_the_value() -> None:
    assert redact(f"key {KEY} refused") == "key <SOME_API_KEY> refused"
    assert redact(f"{KEY}-more") == "<LONGER_TOKEN>"


def test_a_short_value_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOT_KEY", "class")
    assert redact("class ModelNew") == "class ModelNew"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text("abc- ", max_size=12), max_size=12))
def test_pieces_say_what_the_whole_says(pieces: list[str]) -> None:
    redactor = Redactor()
    said = "".join([redactor.feed(piece) for piece in pieces]) + redactor.rest()
    assert KEY not in said
    assert said.replace("<SOME_API_KEY>", KEY).replace("<LONGER_TOKEN>", f"{KEY}-more") == "".join(
        pieces
    )


def test_an_endpoint_is_told_without_its_credentials() -> None:
    url = "http://user:pw12@127.0.0.1:8000/v1?token=t1"
    assert url_without_credentials(url) == "http://127.0.0.1:8000/v1"
    assert redact_url(f"no {url} for pw12", url) == (
        "no http://<hidden>@127.0.0.1:8000/v1?<hidden> for <hidden>"
    )
