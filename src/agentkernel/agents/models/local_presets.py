"""Which weights does `local:...` name, and how are they to be asked?"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import SettingError, one_line
from agentkernel.domain.exchange import Sampling
from agentkernel.storage.yaml_text import read_yaml

PREFIX = "local:"
OWN_FILE = "agentkernel.yaml"
"""How a folder of weights says in what way its model was taught to be asked."""
PRESETS = ("kernelbook-qwen", "kernelllm")
"""Files of that name in configs/coders/."""
Prompt = Literal["coder", "one_shot", "translate", "taught"]
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
        preset = preset.model_copy(update={"adapter": adapter})
    if preset.needs_adapter and not preset.adapter:
        raise SettingError(
            f"Coder '{PREFIX}{spec}' lacks the adapter that {preset.model} was tuned with. "
            f"Expected {PREFIX}{model}+NAME_OR_PATH. Next: name it, see docs/models.md."
        )
    return preset


def _own_preset(folder: Path) -> LocalPreset:
    """What the file in a folder of weights says; "." there is the folder itself."""
    found = load_preset(str(folder / OWN_FILE))
    here = {name: str(folder) for name in ("model", "adapter") if getattr(found, name) == "."}
    return found.model_copy(update=here)


__all__ = ["OWN_FILE", "PRESETS", "LocalPreset", "load_preset", "parse_local"]
