"""Presets of local models, and the folder on this machine that holds a model's files."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import ModelUnavailable, SettingError, one_line
from agentkernel.domain.exchange import Sampling
from agentkernel.storage.configuration import read_yaml

PREFIX = "local:"
OWN_FILE = "agentkernel.yaml"
"""How a folder of weights says in what way its model was taught to be asked."""
PRESETS = ("kernelbook-qwen", "kernelllm")
"""Files of that name in configs/coders/."""
Prompt = Literal["coder", "one_shot", "translate", "taught"]
"""Files that ask for a first draft: the whole task, or what a tuned model was taught to expect."""
Quantization = Literal["none", "4bit"]
EXPECTED = "Expected local:NAME_OR_PATH[+ADAPTER], local:PRESET[+ADAPTER] or local:FILE.yaml"


class LocalPreset(Frozen):
    """A model on this machine and the way it was taught to be asked."""

    model: str = Field(min_length=1)
    """A name on the hub, or a folder."""
    adapter: str | None = None
    """The PEFT adapter that is put on it, a name or a folder too."""
    needs_adapter: bool = False
    """True where `model` alone is not the model that is meant."""
    prompt: Prompt = "coder"
    """The file in agents/prompts/ that asks for a first draft."""
    chat_template: bool = True
    """Put the conversation in the tokenizer's own template, where it has one."""
    temperature: float = Field(default=0.8, ge=0)
    top_p: float = Field(default=0.95, gt=0, le=1)
    max_tokens: int = Field(default=4096, ge=1)
    stop: tuple[str, ...] = ()
    quantization: Quantization = "none"
    release_between: bool = True
    """Take the weights off the GPU after an answer where the judge would be short of memory."""
    judge_gb: float = Field(default=8.0, ge=0)
    """GPU memory, in GB, that is to be free for judge and profiler."""

    def sampling(self, samples: int = 1, seed: int | None = None) -> Sampling:
        """How one question is sampled."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_tokens,
            samples=samples,
            stop=self.stop,
            seed=seed,
        )


def load_preset(name: str) -> LocalPreset:
    """A packaged preset by name, or the one in a YAML file. Raises SettingError."""
    try:
        if name in PRESETS:
            folder = resources.files("agentkernel.configs").joinpath("coders")
            tree = yaml.safe_load(folder.joinpath(f"{name}.yaml").read_text())
        elif name.endswith((".yaml", ".yml")):
            tree = read_yaml(Path(name))
        else:
            raise SettingError(
                f"Unknown preset {name!r}. Known: {', '.join(PRESETS)}. "
                "Next: one of these, or the path of a YAML file."
            )
        return LocalPreset.model_validate(tree)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
        raise SettingError(
            f"Cannot read the preset {name!r}: {one_line(error)}. Expected the keys of "
            "configs/coders/kernelllm.yaml. Next: correct the file."
        ) from error


def parse_local(coder: str) -> LocalPreset:
    """What `local:...` (the prefix may be left out) stands for. Raises SettingError."""
    spec = coder.removeprefix(PREFIX)
    # A folder may have a plus sign in its name; a name on the hub has none.
    model, plus, adapter = (spec, "", "") if Path(spec).is_dir() else spec.partition("+")
    if not model or (plus and not adapter):
        raise SettingError(f"Coder '{PREFIX}{spec}' names no model. {EXPECTED}.")
    if model in PRESETS or model.endswith((".yaml", ".yml")):
        preset = load_preset(model)
    elif (Path(model) / OWN_FILE).is_file():
        preset = _own_preset(Path(model))
    else:
        preset = LocalPreset(model=model)
    if adapter:
        preset = preset.evolve(adapter=adapter)
    if preset.needs_adapter and not preset.adapter:
        raise SettingError(
            f"Coder '{PREFIX}{spec}' lacks the adapter that {preset.model} was tuned with. "
            f"Expected {PREFIX}{model}+NAME_OR_PATH. Next: name it, see docs/models.md."
        )
    return preset


def _own_preset(folder: Path) -> LocalPreset:
    """What the file in a folder of weights says; "." there is the folder itself."""
    found = load_preset(str(folder / OWN_FILE))
    return found.evolve(
        model=str(folder) if found.model == "." else found.model,
        adapter=str(folder) if found.adapter == "." else found.adapter,
    )


WANTED = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
"""What is fetched: no pickled weights and no Python, which run code as they are read."""
HUB_TIMEOUT_S = 5.0
"""How long the hub may take to say that it knows a name, before any file is asked for."""


def model_folder(name: str) -> Path:
    """The folder of the model or adapter `name`: a path, a cached copy, or fetched from the hub.

    Raises ModelUnavailable where it is nowhere, or holds no safetensors.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        folder = _cached(name) or _fetched(name)
    if any(folder.glob("*.safetensors")):
        return folder
    raise ModelUnavailable(
        f"Model {name!r} has no *.safetensors in {str(folder)!r}. Expected safetensors, as pickled "
        f"weights can run code. Next: a safetensors copy, or {_fetch_line(name)}."
    )


def local_model_folder(name: str) -> Path | None:
    """The folder of the model or adapter `name` if it is on this machine, with its weights: nobody
    is asked for it."""
    folder = Path(name).expanduser()
    try:
        found = folder if folder.is_dir() else _cached(name)
    except ModelUnavailable:
        return None
    return found if found is not None and any(found.glob("*.safetensors")) else None


def _cached(name: str) -> Path | None:
    """The whole copy in the hub's cache, None where there is none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        found = Path(snapshot_download(name, local_files_only=True, allow_patterns=list(WANTED)))
    except HFValidationError as error:
        raise _nowhere(name, "it is neither a folder nor a name on the hub") from error
    except OSError:
        return None
    # The cache also knows models of which only a configuration was ever read.
    return found if any(found.glob("*.safetensors")) else None


def _fetched(name: str) -> Path:
    from huggingface_hub import HfApi, constants, snapshot_download

    if constants.HF_HUB_OFFLINE:
        raise _nowhere(name, "HF_HUB_OFFLINE forbids asking the hub")
    try:
        # One short question first: a download would try again and again where no hub answers.
        HfApi().model_info(name, timeout=HUB_TIMEOUT_S)
        return Path(snapshot_download(name, allow_patterns=list(WANTED)))
    except Exception as error:  # the hub's client and its HTTP library share no exception type
        raise _nowhere(name, f"the hub says {type(error).__name__}: {one_line(error)}") from error


def _nowhere(name: str, why: str) -> ModelUnavailable:
    from huggingface_hub import constants

    return ModelUnavailable(
        f"Model {name!r} is not here: looked for a folder of that name and in "
        f"{constants.HF_HUB_CACHE}; {why.rstrip('.')}. Expected local:FOLDER or a name on the hub. "
        f"Next: give the folder's path, or {_fetch_line(name)}."
    )


def _fetch_line(name: str) -> str:
    return f"'hf download {name}' (older: huggingface-cli download) where there is a network"
