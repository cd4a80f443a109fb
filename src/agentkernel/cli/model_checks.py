"""What does a model need on this machine: packages, a key, weights; and is it there?"""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.cli.checks import Check
from agentkernel.cli.models import named_models
from agentkernel.domain.errors import AgentKernelError

if TYPE_CHECKING:
    from agentkernel.agents.models.factory import ModelSpec
    from agentkernel.domain.settings import Settings

KEYS = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "google_genai": "GOOGLE_API_KEY",
    "mistralai": "MISTRAL_API_KEY",
}
"""Provider -> the variable that its client reads."""
LOCAL_PACKAGES = ("transformers", "accelerate", "peft")
CHAT_PACKAGES = ("langchain-openai", "langchain-anthropic")
LOCAL_MEND = "pip install 'agentkernel[local]'"


def model_checks(settings: Settings) -> tuple[Check, ...]:
    """Keys, the packages of both kinds of models, then each model that `settings` name, or the file
    that is the coder."""
    named = tuple(check_model(agent, spec, settings) for agent, spec in named_models(settings))
    given = (check_given(settings.coder),) if settings.coder.startswith("file:") else ()
    return (check_keys(), check_chat(), check_local(), *named, *given)


def check_given(spec: str) -> Check:
    """Whether the file of `file:PATH` can be read."""
    from agentkernel.agents.given import file_coder

    try:
        found = file_coder(spec)
    except AgentKernelError as error:
        return Check("coder", False, str(error), "name another file")
    return Check("coder", True, f"{found.name}, {len(found.source.splitlines())} lines")


def check_keys() -> Check:
    """Which chat models' keys are set; their values are never read further than that."""
    present = [name for name in KEYS.values() if os.environ.get(name)]
    found = ", ".join(present) or "none; only --coder chat:... needs one"
    return Check("keys", bool(present), found, "" if present else "export OPENAI_API_KEY=...")


def check_chat() -> Check:
    """The clients of chat models; one for each provider that is asked."""
    present = [f"{name} {version}" for name, version in _versions(CHAT_PACKAGES) if version]
    found = ", ".join(present) or "no client; only --coder chat:... needs one"
    mend = "" if present else "pip install 'agentkernel[openai]' or 'agentkernel[anthropic]'"
    return Check("chat models", bool(present), found, mend)


def check_local() -> Check:
    """The packages of models in this process."""
    versions = _versions(LOCAL_PACKAGES)
    lacking = [name for name, version in versions if not version]
    present = ", ".join(f"{name} {version}" for name, version in versions if version)
    if not lacking:
        return Check("local models", True, present)
    found = f"without {', '.join(lacking)}; only --coder local:... needs them"
    return Check("local models", False, found, LOCAL_MEND)


def check_model(agent: str, spec: str, settings: Settings) -> Check:
    """What the model `spec` of this agent needs. Nothing is asked of it or of the hub."""
    from agentkernel.agents.models.factory import record_name
    from agentkernel.agents.models.local_presets import PREFIX

    try:
        found = record_name(spec, settings.models.base_url)
    except AgentKernelError as error:
        return Check(agent, False, str(error), "see docs/models.md")
    return _check_here(agent, spec) if spec.startswith(PREFIX) else _check_there(agent, found)


def _check_there(agent: str, found: ModelSpec) -> Check:
    """A client for the provider, and its key unless the endpoint is one's own."""
    from agentkernel.agents.secrets import url_without_credentials

    provider = found.name.removeprefix("chat:").partition(":")[0]
    package = f"langchain-{provider.replace('_', '-')}"
    if not _version(package):
        return Check(agent, False, f"{found.name} needs {package}", f"pip install {package}")
    if found.base_url is not None:
        return Check(
            agent, True, f"{found.name} at {url_without_credentials(found.base_url)}, no key needed"
        )
    key = KEYS.get(provider)
    if key is not None and not os.environ.get(key):
        return Check(agent, False, f"{found.name} needs {key}", f"export {key}=...")
    return Check(agent, True, f"{found.name}, with {key}" if key else found.name)


def _check_here(agent: str, spec: str) -> Check:
    """The packages, and the folders that are named; a name on the hub is not looked up."""
    from agentkernel.agents.models.local_presets import parse_local

    preset = parse_local(spec)
    wanted = ["transformers", "accelerate", *(["peft"] if preset.adapter else [])]
    wanted += ["bitsandbytes"] if preset.quantization == "4bit" else []
    lacking = [name for name, version in _versions(tuple(wanted)) if not version]
    if lacking:
        extra = " bitsandbytes" if "bitsandbytes" in lacking else ""
        return Check(agent, False, f"{spec} needs {', '.join(lacking)}", f"{LOCAL_MEND}{extra}")
    places = [name for name in (preset.model, preset.adapter) if name]
    away = [name for name in places if not any(Path(name).expanduser().glob("*.safetensors"))]
    wrong = [name for name in away if name.startswith(("/", ".", "~"))]
    if wrong:
        mend = "name the folder of the weights"
        return Check(agent, False, f"{spec}: no *.safetensors in {wrong[0]}", mend)
    if away:
        fetch = f"hf download {away[0]}"
        return Check(agent, True, f"{spec}: {', '.join(away)} from the hub or its cache", fetch)
    return Check(agent, True, f"{spec}: its weights are here")


def _versions(names: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(name, _version(name)) for name in names]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
