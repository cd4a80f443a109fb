"""Reading of a zoo's YAML file, with errors that name the place and the expected value."""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import get_args

import yaml
from pydantic import ValidationError

from agentkernel.domain.errors import ProblemError, expected_of, one_line
from agentkernel.domain.nightly import PART_OF, ModelDType, Zoo, ZooModel
from agentkernel.nightly.zoo.loader import (
    OWN_INPUTS,
    has_own,
    parse_model_input,
    parse_reference,
)
from agentkernel.storage.configuration import (
    BoundedLoader,
    compose_yaml,
    default_tree,
    read_yaml,
)
from agentkernel.tools.problem.inputs import SHORT_DTYPES

ZOO_KEYS = tuple(key for key in Zoo.model_fields if key != "folder")
MODEL_KEYS = tuple(ZooModel.model_fields)
MODES = ("inference", "eval")
MOST_VALUES = 100_000
"""A file of a few lines may stand for more values than fit in memory, by anchors within anchors."""
SHOWN = 80
"""Characters of a value that a message shows."""


def packaged_zoos() -> dict[str, Path]:
    """The zoos that come with the package, by name, in alphabetical order."""
    folder = Path(str(resources.files("agentkernel.configs") / "zoo"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def read_zoo(path: Path) -> Zoo:
    """The zoo in the YAML file `path`, or the packaged one of that name (`tiny`).

    Nothing is imported or built. Raises ProblemError with one line: a file that is missing or no
    YAML, a key that is unknown (with the nearest), twice there or missing, a name that two models
    share, a training entry, a dtype, an input or a setting that does not read.
    """
    file = _find(path)
    tree = _read_yaml(file)
    _refuse_training(tree, f"Zoo {file.name}")
    _check_keys(tree, ZOO_KEYS, f"Zoo {file.name}")
    entries = tree.get("models")
    if not isinstance(entries, list) or not entries:
        raise ProblemError(
            f"Zoo {file.name} has {_seen(entries)} under 'models'. Expected a list of one model or "
            "more. Next: write '- name: mlp', and below it 'model: mlp.py:Mlp' and 'inputs:'."
        )
    settings = tree.get("settings") or {}
    _check_settings(settings, file.name)
    folder = file.resolve().parent
    models = [_model(entry, index, file, folder) for index, entry in enumerate(entries, 1)]
    _check_names([model.name for model in models], file.name)
    values = {"name": _name_of(file), **tree, "settings": settings}
    _check_name(values["name"], file.name)
    try:
        return Zoo.model_validate({**values, "models": models, "folder": str(folder)})
    except ValidationError as error:
        raise ProblemError(f"Zoo {file.name}: {_explain(error)}") from error


def top_keys(path: Path) -> tuple[str, ...] | None:
    """The keys that the YAML file at `path` has at its top; none where it holds no mapping, None
    where it cannot be read. No value is looked at."""
    try:
        node = compose_yaml(path)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    if not isinstance(node, yaml.MappingNode):
        return ()
    return tuple(str(key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode))


def _find(path: Path) -> Path:
    if path.is_file():
        return path
    known = packaged_zoos()
    if str(path) in known:
        return known[str(path)]
    near = difflib.get_close_matches(str(path), known, n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ProblemError(
        f"No such zoo: {str(path)!r}.{hint} Expected a YAML file, or a packaged zoo: "
        f"{', '.join(known)}. Next: check the path."
    )


class _Loader(BoundedLoader):
    """Refuses a key that is twice in one mapping, where YAML itself keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        twice = [key for key, count in keys.items() if count > 1]
        if twice:
            line = node.start_mark.line + 1
            raise yaml.YAMLError(f"the key {twice[0]!r} is there twice, from line {line} on")
        values: dict[object, object] = super().construct_mapping(node, deep)
        return values

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge what `<<` names; of several values of a key the last alone is kept, as it would be
        anyway: merges of merges would double them at each step."""
        super().flatten_mapping(node)
        last = {
            key.value if isinstance(key, yaml.ScalarNode) else id(key): (key, value)
            for key, value in node.value
        }
        node.value = list(last.values())


def _read_yaml(path: Path) -> dict[str, object]:
    try:
        tree = read_yaml(path, _Loader)
        _check_size(tree)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ProblemError(
            f"Cannot read the zoo {str(path)!r}: {one_line(error)}. "
            "Expected YAML with a list under 'models'. Next: fix that line."
        ) from error
    if not isinstance(tree, dict):
        raise ProblemError(
            f"The zoo {str(path)!r} holds {_seen(tree)}. Expected keys and values: "
            f"{', '.join(ZOO_KEYS)}. Next: put the models into a list under 'models:'."
        )
    return tree


def _check_size(tree: object) -> None:
    """Raise YAMLError where the values, each counted as often as it is named, are too many."""
    known: dict[int, float] = {}

    def size(value: object) -> float:
        if not isinstance(value, list | tuple | dict):
            return 1
        if id(value) not in known:
            known[id(value)] = (
                math.inf
            )  # while it is counted: it holds itself where it is met again
            items = value.values() if isinstance(value, dict) else value
            known[id(value)] = 1 + sum(map(size, items))
        return known[id(value)]

    if size(tree) > MOST_VALUES:
        raise yaml.YAMLError(f"its anchors stand for more than {MOST_VALUES:,} values")


def _name_of(file: Path) -> str:
    """Of a zoo whose file says none: what is no part of a name becomes a dash."""
    return re.sub(r"[^\w .-]", "-", file.stem).lstrip(" .-")[:64] or "zoo"


def _check_name(name: object, file: str) -> None:
    if isinstance(name, str) and PART_OF in name:
        raise ProblemError(
            f"Zoo {file} has the name {one_line(name, SHOWN)!r}. Expected one without {PART_OF!r}, "
            "which stands before the models of '--only'. Next: rename it."
        )


def _model(entry: object, index: int, file: Path, folder: Path) -> ZooModel:
    if not isinstance(entry, dict):
        raise ProblemError(
            f"Model {index} of {file.name} is {_seen(entry)}. Expected keys and values: "
            f"{', '.join(MODEL_KEYS)}. Next: write '- name: NAME' and the others below it."
        )
    where = f"Model {one_line(entry.get('name', index), SHOWN)!r} of {file.name}"
    _refuse_training(entry, where)
    _check_keys(entry, MODEL_KEYS, where)
    values = {key: value for key, value in entry.items() if value is not None}
    if "dtype" in values:
        values["dtype"] = _dtype(values["dtype"], where)
    try:
        model = ZooModel.model_validate(values)
    except ValidationError as error:
        raise ProblemError(f"{where}: {_explain(error)}") from error
    _check_sources(model, where, folder)
    if model.inputs or model.make_inputs:
        return model
    return model.evolve(make_inputs=f"{model.model.rpartition(':')[0]}:{OWN_INPUTS}")


def _check_sources(model: ZooModel, where: str, folder: Path) -> None:
    """Raise ProblemError where the model's references or inputs do not read."""
    if model.inputs and model.make_inputs:
        raise ProblemError(
            f"{where} has both 'inputs' and 'make_inputs'. Expected one of them. Next: drop one."
        )
    try:
        for reference in filter(None, (model.model, model.make_inputs)):
            parse_reference(reference, folder)
        given = model.inputs or model.make_inputs or has_own(model, OWN_INPUTS, folder)
        names = [parse_model_input(line).name for line in model.inputs]
    except ProblemError as error:
        raise ProblemError(f"{where}: {error}") from error
    if not given:
        raise ProblemError(
            f"{where} has no inputs. Expected e.g. inputs: ['x=f32[2,16,64]'], 'make_inputs: "
            f"file.py:function', or a function {OWN_INPUTS}() in the model's file. "
            "Next: add one of them."
        )
    twice = _twice(names)
    if twice:
        raise ProblemError(
            f"{where} has two inputs called {twice!r}. Expected each once. Next: drop one."
        )


def _refuse_training(tree: dict[str, object], where: str) -> None:
    """Raise ProblemError where training is asked for, and drop the keys that say inference."""
    training, mode = tree.get("training", False), tree.get("mode", MODES[0])
    if training or mode not in MODES:
        said = one_line(f"training: {training}" if training else f"mode: {mode}", SHOWN)
        raise ProblemError(
            f"{where} has '{said}'. Expected inference: nights hold models in eval mode without "
            "gradients for now. Next: drop that key to have its forward made faster, or drop the "
            "model."
        )
    for key in ("training", "mode"):
        tree.pop(key, None)


def _check_keys(tree: Mapping[str, object], known: Sequence[str], where: str) -> None:
    for key in map(str, tree):
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"The nearest known one is {near[0]!r}." if near else ""
            raise ProblemError(
                f"{where} has the unknown key {one_line(key, SHOWN)!r}. "
                f"{hint or 'Known: ' + ', '.join(known) + '.'} Next: rename or drop it."
            )


def _check_settings(settings: object, name: str) -> None:
    if not isinstance(settings, dict):
        raise ProblemError(
            f"Zoo {name} has {_seen(settings)} under 'settings'. Expected dotted keys and values "
            "such as 'budget.rounds: 2'. Next: write them so."
        )
    known = tuple(_dotted(default_tree()))
    _check_keys(settings, known, f"'settings' of zoo {name}")


def _dotted(tree: Mapping[str, object], prefix: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _check_names(names: Sequence[str], file: str) -> None:
    twice = _twice(names)
    if twice:
        places = [str(index) for index, name in enumerate(names, 1) if name == twice]
        raise ProblemError(
            f"Zoo {file} has {len(places)} models called {twice!r} (entries {', '.join(places)}). "
            "Expected a name of its own for each. Next: rename all but one."
        )


def _twice(names: Sequence[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _dtype(given: object, where: str) -> str:
    """The long name of a dtype that is given by either name."""
    long = get_args(ModelDType)
    name = SHORT_DTYPES.get(str(given), str(given))
    if name in long:
        return name
    short = (key for key, value in SHORT_DTYPES.items() if value in long)
    raise ProblemError(
        f"{where} has dtype {one_line(repr(given), SHOWN)}. Expected one of "
        f"{', '.join((*long, *short))}. Next: name one, or drop the key to keep what the model has."
    )


def _seen(value: object) -> str:
    """What stands in the file, for a message."""
    if value is None:
        return "nothing"
    if isinstance(value, list | dict) and not value:
        return f"an empty {type(value).__name__}"
    return f"the {type(value).__name__} {one_line(value, 40)!r}"


def _explain(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{key!r} is missing. Expected it in every entry. Next: add it."
    wanted = expected_of(first["msg"])
    return f"{key!r} is {one_line(repr(first['input']), SHOWN)}. {wanted}. Next: fix it."


__all__ = ["packaged_zoos", "read_zoo", "top_keys"]
