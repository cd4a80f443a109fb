"""What is the user told where a model cannot be had, in one line and without a key?"""

from __future__ import annotations

from agentkernel.agents.models.retries import Failure, Kind
from agentkernel.agents.secrets import redact, redact_url, url_without_credentials
from agentkernel.domain.errors import ModelUnavailable

HAPPENED: dict[Kind, str] = {
    "refused_key": "refuses the key",
    "rate_limit": "takes no more requests for now",
    "budget": "takes no more requests, the account is empty",
    "request": "refuses the request",
}
NEXT: dict[Kind, str] = {
    "refused_key": "set {key} in the environment to a key that is valid there",
    "rate_limit": "'agentkernel resume' later, or ask for fewer samples",
    "budget": "top the account up, then 'agentkernel resume'",
    "request": "check the model's name and what this endpoint takes",
    "unknown": "check the provider's name, its package and {key} in the environment",
}
ANY_NEXT = "check that the endpoint runs, then 'agentkernel resume' goes on from here"


def unavailable(
    name: str, base_url: str | None, failure: Failure, requests: int, spent_s: float
) -> ModelUnavailable:
    """The error for the model `name`, after `requests` that took `spent_s` seconds."""
    where = f" at {url_without_credentials(base_url)}" if base_url else ""
    happened = HAPPENED.get(failure.kind, "does not answer")
    provider = name.removeprefix("chat:").partition(":")[0]
    step = NEXT.get(failure.kind, ANY_NEXT).format(key=f"{provider.upper()}_API_KEY")
    tries = f"{requests} request{'' if requests == 1 else 's'} in {spent_s:.1f} s"
    text = redacted_message(failure.text, base_url).rstrip(".")
    return ModelUnavailable(f"Model {name!r}{where} {happened}: {text} ({tries}). Next: {step}.")


def redacted_message(text: str, base_url: str | None) -> str:
    """What an endpoint or its client says, without a key and without the URL's credentials."""
    return redact(redact_url(text, base_url))


__all__ = ["redacted_message", "unavailable"]
