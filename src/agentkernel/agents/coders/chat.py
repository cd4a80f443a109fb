"""How does a chat model draft a candidate, and mend one that the judge refused?"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import yaml

from agentkernel.agents.coders.answer import extract_module
from agentkernel.agents.prompts import render
from agentkernel.agents.protocols import Attempt, DraftRequest
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate, Draft, NoTemplate
from agentkernel.errors import ModelUnavailable, SettingError, one_line
from agentkernel.tools.problems import LoadedProblem

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)$")
NO_CODE = "the model's answer held no complete Python file that defines ModelNew"
AGAIN = (
    "Your answer held no complete Python file with `class ModelNew`. Send it in one fenced block."
)


class ChatOptions(Frozen):
    """What every chat model is asked with; `configs/coders/chat.yaml` holds the packaged values."""

    temperature: float
    timeout_s: float
    max_retries: int
    max_tokens: int


@cache
def packaged_options() -> ChatOptions:
    """The values of `configs/coders/chat.yaml`."""
    text = resources.files("agentkernel.configs").joinpath("coders/chat.yaml").read_text()
    return ChatOptions.model_validate(yaml.safe_load(text))


@dataclass
class ChatCoder:
    """Drafts through any model that LangChain's `init_chat_model` knows.

    `model` is `PROVIDER:MODEL`, such as `openai:gpt-5`; `base_url` names an OpenAI-compatible
    endpoint. The key comes from the provider's own environment variable and is neither kept nor
    printed.
    """

    model: str
    base_url: str | None = None
    options: ChatOptions = field(default_factory=packaged_options)
    name: str = field(init=False)
    """As written after `--coder`."""

    def __post_init__(self) -> None:
        self.name = f"chat:{self.model}"

    def draft(self, problem: LoadedProblem, request: DraftRequest) -> Draft:
        """One candidate: a new one, or the last one mended where there is a diagnosis.

        Raises ModelUnavailable where the model cannot be reached.
        """
        messages = prompt_messages(problem, request)
        source = extract_module(self._ask(messages))
        if source is None:
            source = extract_module(self._ask([*messages, ("user", AGAIN)]))
        if source is None:
            return Draft(candidate=None, none=NoTemplate(reason=NO_CODE))
        refused = last_refused(request)
        candidate = Candidate(
            source=source,
            coder=self.name,
            round=request.round,
            parent=refused.candidate.sha256 if refused else None,
            strategy=request.hypothesis.strategy,
            note="mended after the judge's verdict" if refused else "drafted from the module",
        )
        return Draft(candidate=candidate)

    def _ask(self, messages: Sequence[tuple[str, str]]) -> str:
        model = self._connect()
        try:
            return str(model.invoke(list(messages)).text)
        except Exception as error:  # providers share no exception type
            raise self._unavailable(error) from error

    def _connect(self) -> BaseChatModel:
        from langchain.chat_models import init_chat_model

        settings: dict[str, str | int | float] = {
            "temperature": self.options.temperature,
            "timeout": self.options.timeout_s,
            "max_retries": self.options.max_retries,
            "max_tokens": self.options.max_tokens,
        }
        if self.base_url is not None:
            settings["base_url"] = self.base_url
            if self.model.startswith("openai:") and not os.environ.get("OPENAI_API_KEY"):
                settings["api_key"] = "none"
        try:
            model: BaseChatModel = init_chat_model(self.model, **settings)  # type: ignore[call-overload]
        except Exception as error:  # providers share no exception type
            raise self._unavailable(error) from error
        return model

    def _unavailable(self, error: Exception) -> ModelUnavailable:
        where = f" at {self.base_url}" if self.base_url else ""
        provider = self.model.partition(":")[0]
        return ModelUnavailable(
            f"Chat model {self.model!r}{where} does not answer: {type(error).__name__}: "
            f"{redact(_sentence(error))} Expected a running endpoint, a known model and "
            f"{provider.upper()}_API_KEY in the environment. Next: 'agentkernel doctor'."
        )


def prompt_messages(problem: LoadedProblem, request: DraftRequest) -> list[tuple[str, str]]:
    """The conversation as (role, text): the task; after a refusal the draft and the verdict too."""
    task = render(
        "coder",
        problem=problem.problem,
        target=request.target,
        goals=request.goals,
        plan=request.plan,
        hypothesis=request.hypothesis,
        retrieved=request.retrieved,
    )
    messages = [("user", task)]
    refused = last_refused(request)
    if refused is not None and refused.verdict is not None:
        failure = refused.verdict.failure
        text = render(
            "debugger",
            candidate=refused.candidate,
            verdict=refused.verdict,
            failure=failure.model_dump(exclude={"kind"}) if failure else {},
            diagnosis=request.diagnosis,
        )
        messages += [("assistant", f"```python\n{refused.candidate.source}```"), ("user", text)]
    return messages


def last_refused(request: DraftRequest) -> Attempt | None:
    """The attempt to mend: the last one of the history, where a diagnosis asks for a repair."""
    if request.diagnosis is None or request.diagnosis.action != "repair" or not request.history:
        return None
    last = request.history[-1]
    return last if last.verdict is not None and not last.verdict.accepted else None


def parse_model(spec: str) -> tuple[str, str | None]:
    """`PROVIDER:MODEL` or `PROVIDER:MODEL@URL` -> the model and its endpoint."""
    model, _, url = spec.partition("@")
    provider, _, name = model.partition(":")
    if not provider or not name:
        raise SettingError(
            f"Coder 'chat:{spec}' names no model. Expected chat:PROVIDER:MODEL, "
            "such as chat:openai:gpt-5, with @URL behind it for an endpoint of your own."
        )
    return model, url or None


def redact(text: str) -> str:
    """`text` without the value of any environment variable that looks like a secret."""
    for key, value in os.environ.items():
        if len(value) >= 8 and SECRET_NAME.search(key.upper()):
            text = text.replace(value, f"<{key}>")
    return text


def _sentence(error: Exception) -> str:
    text = one_line(error)
    return text if text.endswith(".") else f"{text}."


__all__ = ["ChatCoder", "ChatOptions", "parse_model", "prompt_messages", "redact"]
