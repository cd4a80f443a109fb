"""How do a packaged configuration, or a file, and `-c key=value` become the settings of a
training?"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path

import yaml
from pydantic import BaseModel, ValidationError

from agentkernel.domain.errors import SettingError, one_line
from agentkernel.storage.yaml_text import parse_yaml, read_yaml
from agentkernel.training.training import Lora, NewModel, TrainingSettings

PACKAGED = ("tiny", "small", "qwen2.5-coder-3b", "llama-3.1-8b")
"""Files of that name in configs/training/."""
PARTS: Mapping[str, type[BaseModel]] = {"new": NewModel, "sft.lora": Lora}
"""Sections that a file may leave out, and whose keys can be set all the same."""


def load_training(config: str, overrides: Sequence[str] = ()) -> TrainingSettings:
    """The settings of a packaged name or of a YAML file, with `section.key=value` put on top.

    Raises SettingError, which names the key and the nearest known one.
    """
    tree = _tree(config)
    known = tuple(known_keys())
    for item in overrides:
        key, value = _override(item)
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
            hint = f"The nearest known one is {near[0]!r}." if near else f"Known: {_list(known)}."
            raise SettingError(f"Unknown setting {key!r} (-c {item}). {hint}")
        _put(tree, key, value)
    try:
        found = TrainingSettings.model_validate(tree)
    except ValidationError as error:
        raise SettingError(_explained(error, config)) from error
    if (found.model is None) == (found.new is None):
        raise SettingError(
            f"The training {config!r} names {'both' if found.model else 'neither'} a model and a "
            "new one. Expected 'model' (a folder or a name) or 'new' (sizes). Next: set one."
        )
    return found


def with_model(settings: TrainingSettings, model: str | None) -> TrainingSettings:
    """`settings` for the weights in `model`, where one is given: nothing is made new then."""
    return settings if model is None else settings.model_copy(update={"model": model, "new": None})


def known_keys() -> Iterator[str]:
    """All dotted keys that can be set."""
    yield from _keys(TrainingSettings, "")


def _keys(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        part = PARTS.get(key) or field.annotation
        if isinstance(part, type) and issubclass(part, BaseModel):
            yield from _keys(part, f"{key}.")
        else:
            yield key
    if model is NewModel:
        yield prefix.rstrip(".")


def _tree(config: str) -> dict[str, object]:
    try:
        if config in PACKAGED:
            folder = resources.files("agentkernel.configs").joinpath("training")
            tree = yaml.safe_load(folder.joinpath(f"{config}.yaml").read_text(encoding="utf-8"))
        elif config.endswith((".yaml", ".yml")):
            tree = read_yaml(Path(config))
        else:
            raise SettingError(
                f"Unknown training {config!r}. Known: {_list(PACKAGED)}. "
                "Next: one of these, or the path of a YAML file."
            )
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingError(
            f"Cannot read the training {config!r}: {one_line(error)}. Expected YAML such as "
            "configs/training/small.yaml."
        ) from error
    if not isinstance(tree, dict):
        raise SettingError(
            f"The training {config!r} holds a {type(tree).__name__}. Expected keys and values such "
            "as configs/training/small.yaml."
        )
    return tree


def _override(item: str) -> tuple[str, object]:
    key, equals, text = item.partition("=")
    if not equals or not key.strip():
        raise SettingError(f"-c {item!r} does not read as key=value. Expected e.g. 'sft.epochs=2'.")
    try:
        return key.strip(), parse_yaml(text)
    except yaml.YAMLError as error:
        raise SettingError(f"-c {item!r}: {text!r} is no YAML value. Expected e.g. 2.") from error


def _put(tree: dict[str, object], key: str, value: object) -> None:
    *sections, last = key.split(".")
    for section in sections:
        below = tree.get(section)
        if not isinstance(below, dict):
            below = tree[section] = {}
        tree = below
    tree[last] = value


def _explained(error: ValidationError, config: str) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    return f"Setting {key!r} of the training {config!r} is {first['input']!r}. {first['msg']}."


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)


__all__ = ["PACKAGED", "known_keys", "load_training", "with_model"]
