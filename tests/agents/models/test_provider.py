"""Does a name lead to the right model?"""

from __future__ import annotations

import pytest

from agentkernel.agents.models.provider import ModelSpec, make_model, parse_model
from agentkernel.domain.errors import SettingError

URL = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    ("spec", "base_url", "expected"),
    [
        ("chat:openai:m", None, ModelSpec("chat:openai:m", None)),
        ("chat:openai:m", URL, ModelSpec("chat:openai:m", URL)),
        (f"chat:openai:m@{URL}", None, ModelSpec("chat:openai:m", URL)),
        (f"chat:openai:m@{URL}", "http://127.0.0.1:1", ModelSpec("chat:openai:m", URL)),
        ("chat:openai:org/m:8b", None, ModelSpec("chat:openai:org/m:8b", None)),
    ],
)
def test_names(spec: str, base_url: str | None, expected: ModelSpec) -> None:
    assert parse_model(spec, base_url) == expected
    assert make_model(spec, base_url).name == expected.name


@pytest.mark.parametrize("spec", ["chat:openai", "chat:", "chat::m", "chat:openai:"])
def test_a_name_without_a_model(spec: str) -> None:
    with pytest.raises(SettingError, match="names no model"):
        parse_model(spec)


def test_an_endpoint_is_a_url() -> None:
    with pytest.raises(SettingError, match="is no URL"):
        parse_model("chat:openai:m", "127.0.0.1:8000")
