"""Configuration: YAML read within limits, and the settings tree made of its layers.

Packaged defaults < user file < `-c key=value` < flags. Whatever is wrong with a YAML text is a
YAMLError: the reader of PyYAML raises ValueError for an invalid date or a number that is too
long, and takes 40 seconds for a megabyte.
"""

from __future__ import annotations

import copy
import difflib
import functools
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import yaml
from pydantic import ValidationError

from agentkernel.domain.errors import SettingError, expected_of, one_line
from agentkernel.domain.settings import Settings
from agentkernel.storage.files import config_folder, read_regular

MOST_BYTES = 250_000
MOST_BRACKETS = 500
"""Nested so deep, values of a text could not be composed within Python's own limit either."""


class BoundedLoader(yaml.SafeLoader):
    """Refuses brackets in brackets at a depth: PyYAML's time for them grows with its square."""

    def fetch_flow_collection_start(self, TokenClass: type[yaml.Token]) -> None:
        if self.flow_level >= MOST_BRACKETS:
            raise _refused(RecursionError())
        super().fetch_flow_collection_start(TokenClass)


Loader = type[BoundedLoader]


def read_yaml(path: Path, loader: Loader = BoundedLoader) -> object:
    """The values in a file that the user typed. Raises OSError, UnicodeDecodeError, YAMLError."""
    return parse_yaml(_text(path), loader)


def parse_yaml(text: str, loader: Loader = BoundedLoader) -> object:
    """The values of a text. Raises YAMLError."""
    _check_size(text)
    try:
        found: object = yaml.load(text, loader)
    except (ValueError, OverflowError, RecursionError, MemoryError, TypeError) as error:
        raise _refused(error) from None
    return found


def compose_yaml(path: Path) -> yaml.Node | None:
    """The nodes of a file that the user typed, none of which is looked at; None for an empty one.
    Raises OSError, UnicodeDecodeError, YAMLError."""
    text = _text(path)
    _check_size(text)
    try:
        found: yaml.Node | None = yaml.compose(text, BoundedLoader)
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise _refused(error) from None
    return found


def _text(path: Path) -> str:
    return read_regular(path, MOST_BYTES, typed=True).decode()


def _check_size(text: str) -> None:
    if len(text) > MOST_BYTES:
        raise yaml.YAMLError(f"it has {len(text):,} characters, the most is {MOST_BYTES:,}")


def _refused(error: Exception) -> yaml.YAMLError:
    if isinstance(error, RecursionError | MemoryError):
        return yaml.YAMLError("it is nested too deeply")
    return yaml.YAMLError(str(error))


def user_config_path() -> Path:
    """`~/.config/agentkernel/config.yaml`, or below XDG_CONFIG_HOME."""
    return config_folder() / "config.yaml"


def load_settings(
    config: Path | None = None,
    overrides: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
) -> Settings:
    """The settings in force: packaged < user file < `overrides` < `flags`.

    `config` names the user file (None: the usual place, if it is there). `overrides` are
    `section.key=value` with YAML values. `flags` maps dotted keys to values; None means not given.
    Raises SettingError, which names the key and the nearest known one.
    """
    tree = default_tree()
    path = config or _usual_file()
    if path is not None:
        for key, value in _flatten(_read_yaml(path)):
            _put(tree, key, value, str(path))
    for item in overrides:
        key, value = parse_override(item, "judge.seeds=3")
        _put(tree, key, value, f"-c {item}")
    for key, given in (flags or {}).items():
        if given is not None:
            _put(tree, key, given, f"{key}={given!r}")
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise SettingError(_explain(error)) from error


def _usual_file() -> Path | None:
    """The user's file where it is; a user without a home has none."""
    try:
        path = user_config_path()
    except SettingError:
        return None
    return path if path.is_file() else None


def default_tree() -> dict[str, object]:
    """The packaged defaults as a tree of plain values."""
    return copy.deepcopy(_packaged())


@functools.cache
def _packaged() -> dict[str, object]:
    text = files("agentkernel.configs").joinpath("default.yaml").read_text(encoding="utf-8")
    tree: dict[str, object] = yaml.safe_load(text)
    return tree


def _read_yaml(path: Path) -> dict[str, object]:
    try:
        tree = read_yaml(path)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingError(
            f"Cannot read the configuration {str(path)!r}: {one_line(error)}. "
            "Expected YAML such as 'target: h100'."
        ) from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise SettingError(
            f"The configuration {str(path)!r} holds a {type(tree).__name__}. "
            "Expected keys and values such as 'target: h100'."
        )
    return tree


def parse_override(item: str, example: str) -> tuple[str, object]:
    """The key and the value of a `-c key=value`. Raises SettingError, which names `example`."""
    key, equals, text = item.partition("=")
    if not equals or not key.strip():
        raise SettingError(f"-c {item!r} does not read as key=value. Expected e.g. {example!r}.")
    try:
        return key.strip(), parse_yaml(text)
    except yaml.YAMLError as error:
        raise SettingError(
            f"-c {item!r}: {text!r} is not a YAML value. Expected e.g. {example.partition('=')[2]}."
        ) from error


def require_known(key: str, known: Sequence[str], where: str) -> None:
    """Raise SettingError, which names the nearest of `known`, where `key` is none of them."""
    if key not in known:
        last = {name.rpartition(".")[2]: name for name in reversed(known)}
        near = [last[key]] if key in last else difflib.get_close_matches(key, known, n=1)
        if not near:  # "time" for "budget.time_s"
            typed = key.rpartition(".")[2]
            near = [last[name] for name in difflib.get_close_matches(typed, last, n=1, cutoff=0.7)]
        hint = f"The nearest known one is {near[0]!r}." if near else f"Known: {', '.join(known)}."
        raise SettingError(f"Unknown setting {key!r} ({where}). {hint}")


def _flatten(tree: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tree.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flatten(value, f"{dotted}.")
        else:
            yield dotted, value


def _put(tree: dict[str, object], key: str, value: object, where: str) -> None:
    require_known(key, [name for name, _ in _flatten(default_tree())], where)
    *sections, last = key.split(".")
    node: dict[str, object] = tree
    for section in sections:
        child = node[section]
        if not isinstance(child, dict):
            raise SettingError(f"Setting {section!r} ({where}) has no keys below it.")
        node = child
    node[last] = value


def _explain(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    return f"Setting {key!r} is {first['input']!r}. {expected_of(first['msg'])}."
