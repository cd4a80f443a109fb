"""Loading of a zoo's models: code references, input specifications, construction and calls.

A reference is `package.module:Name` or `path/to/file.py:Name`; its hash covers what would
change the named object. An input line is `name=dtype[shape]`, `name=dtype[shape]<N` for
integers below N, or `name=literal`. A model's code is the user's own: trusted, it runs in this
process.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import hashlib
import importlib
import importlib.util
import json
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from agentkernel.domain.errors import ProblemError, one_line, raised_at
from agentkernel.domain.nightly import Zoo, ZooModel
from agentkernel.domain.problem import TensorSpec
from agentkernel.storage.source_text import describe_syntax_error, parse_source
from agentkernel.tools.problem.inputs import InputTree, default_value, parse_input
from agentkernel.tools.problem.packages import (
    imports_of,
    is_installed,
    lies_in,
    pickle_by_value,
    search_path,
    source_bytes,
    version_of,
)

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class ModelInput:
    """One argument of forward."""

    name: str
    spec: InputTree

    def value(self) -> object:
        """A value on the CPU from torch's global generator.

        Floats are normal, integers below their limit, else like booleans 0 or 1, scalars as
        written.
        """
        return default_value(self.spec, "cpu")


def parse_model_input(text: str) -> ModelInput:
    """Read one as `--input` does.

    Raises ProblemError where it does not read so, has several shape sets or no elements.
    """
    name, specs = parse_input(text)
    if len(specs) != 1:
        raise ProblemError(
            f"Input {text!r} has {len(specs)} shape sets. Expected one: a model is called on one "
            "set of shapes. Next: give each set its own entry under 'models'."
        )
    spec = specs[0]
    if isinstance(spec, TensorSpec) and 0 in spec.shape:
        raise ProblemError(
            f"Input {name!r} has no elements: its shape is {list(spec.shape)}. "
            "Expected sizes of 1 or more. Next: give inputs of the size that you run."
        )
    return ModelInput(name, spec)


OWN_INPUTS, OWN_ARGUMENTS = "get_inputs", "get_init_inputs"
"""Functions of a model's file that make the arguments of a call, and of its class."""


@dataclass(frozen=True)
class Reference:
    """A name in a file (`file`), or in a module that Python finds (`module`)."""

    name: str
    module: str = ""
    file: Path | None = None


def parse_reference(text: str, folder: Path) -> Reference:
    """Read `package.module:Name`, or `path/to/file.py:Name` relative to `folder`.

    Nothing is imported. Raises ProblemError where it reads as neither or the file is not there.
    """
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name.isidentifier():
        raise ProblemError(
            f"{text!r} names no class or function. Expected 'package.module:Name' or "
            "'file.py:Name'. Next: write it so."
        )
    if place.endswith(".py"):
        # Unlike Path.resolve this names a loop of links too.
        file = Path(os.path.realpath(folder / place))
        if not file.is_file():
            raise ProblemError(
                f"No such file: {place!r}. Expected a Python file below {str(folder)!r}, where the "
                "zoo is. Next: check the path."
            )
        return Reference(name, file=file)
    if not all(part.isidentifier() for part in place.split(".")):
        raise ProblemError(
            f"{text!r} has no module name before the colon. Expected 'package.module:Name' or "
            "'file.py:Name'. Next: write it so; a file ends in '.py'."
        )
    return Reference(name, module=place)


def has_own(model: ZooModel, name: str, folder: Path) -> bool:
    """Whether the model's file defines the function `name`, or cannot be read so far. Raises
    ProblemError where the reference does not read."""
    file = parse_reference(model.model, folder).file
    if file is None:
        return False
    try:
        tree = parse_source(source_bytes(file), str(file))
    except SyntaxError:
        return True  # what is wrong is told where the model's name is looked up
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)


def find(reference: Reference, folder: Path) -> object:
    """Import what `reference` names, with `folder` on the search path: the user's own code.

    Raises ProblemError where it does not import, or has no such name.
    """
    with search_path(folder, *([reference.file.parent] if reference.file else [])):
        module = _execute(reference.file) if reference.file else _import(reference.module)
        try:
            return getattr(module, reference.name)
        except AttributeError as error:
            place = reference.module or str(reference.file)
            known = [key for key in vars(module) if not key.startswith("_")]
            near = difflib.get_close_matches(reference.name, known, n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ProblemError(
                f"{place} has no {reference.name!r}.{hint} Expected a class or function of that "
                "name. Next: check its spelling."
            ) from error
        except Exception as error:
            # A package that loads its names when they are asked for.
            raise _not_imported(f"{reference.module}:{reference.name}", error) from error


def defining_sha(reference: Reference, folder: Path) -> str:
    """Hex SHA-256 over what would change the thing that `reference` names.

    Own code: the text of its file and of every file beside it that they import. Installed
    packages: the versions of those that the file imports, and of the one that it belongs to.
    Call it after `find`.
    """
    with search_path(folder, *([reference.file.parent] if reference.file else [])):
        file = reference.file or _module_file(reference.module)
        texts, packages = _walk(file) if file else ({}, set())
    if reference.module:
        packages.add(reference.module.partition(".")[0])
    digest = hashlib.sha256()
    for text in texts.values():
        digest.update(hashlib.sha256(text).digest())
    for package in sorted(packages):
        digest.update(f"{package}={version_of(package)};".encode())
    return digest.hexdigest()


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        top = name.partition(".")[0]
        missing = error.name or name
        hint = (
            f"install the package that has {missing!r}, or name a file: 'path/to/file.py:Name'"
            if missing.partition(".")[0] != top or not _exists(top)
            else f"check which modules {top!r} has"
        )
        raise ProblemError(
            f"No module named {missing!r} for {name!r}. Expected one that Python can import. "
            f"Next: {hint}."
        ) from error
    except (Exception, SystemExit) as error:
        raise _not_imported(name, error) from error


def _execute(file: Path) -> ModuleType:
    """Run a file as a module of its own name; a second model from the same text shares it.

    cloudpickle takes what it defines along by value: another process knows no such module.
    """
    text = source_bytes(file)
    try:
        parse_source(text, str(file))
    except SyntaxError as error:
        raise ProblemError(
            f"{file.name} {describe_syntax_error(error)}. Expected valid Python. "
            "Next: fix the syntax."
        ) from error
    digest = hashlib.sha256(str(file).encode() + text).hexdigest()[:12]
    name = f"agentkernel_zoo_{file.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = set(sys.modules)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _not_imported(file.name, error) from error
    fresh = [sys.modules[key] for key in set(sys.modules) - before]
    pickle_by_value(*(item for item in fresh if lies_in(item, file.parent)))
    return module


def _not_imported(name: str, error: BaseException) -> ProblemError:
    return ProblemError(
        f"{name} raised {type(error).__name__} when imported: {one_line(error)}. "
        "Expected code that imports by itself. Next: import it in Python."
    )


def _exists(module: str) -> bool:
    return module in sys.modules or importlib.util.find_spec(module) is not None


def _module_file(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _walk(file: Path) -> tuple[dict[Path, bytes], set[str]]:
    """The texts of `file` and of its neighbours that it imports, and the other packages' names.

    Files of an installed package are not followed: its version says what they are.
    """
    texts: dict[Path, bytes] = {}
    packages = {"torch"}
    waiting = [file]
    while waiting:
        path = waiting.pop(0)
        if path in texts:
            continue
        texts[path] = source_bytes(path)
        for level, name in _imports(texts[path]):
            beside = [] if is_installed(path) else _beside(path, level, name)
            waiting.extend(beside)
            if not beside and level == 0:
                packages.add(name.partition(".")[0])
    return texts, packages


def _imports(text: bytes) -> Sequence[tuple[int, str]]:
    """None of a neighbour of the file that no Python could import either."""
    try:
        return imports_of(text)
    except SyntaxError:
        return ()


def _beside(path: Path, level: int, name: str) -> list[Path]:
    """The file that an import means, where it lies in the folder of `path` or of its package."""
    folder = path.parents[max(level, 1) - 1]
    place = folder.joinpath(*name.split("."))
    return [item for item in (place.with_suffix(".py"), place / "__init__.py") if item.is_file()]


Maker = Callable[..., object]


@dataclass(frozen=True)
class ForwardCall:
    """What forward is called with: `module(*args, **kwargs)`."""

    args: tuple[object, ...] = ()
    kwargs: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class LoadedModel:
    """A model whose class is at hand. The user's own code: trusted, runs in this process.

    `sha256` is over what would change the module, its inputs or their dtype: the entry but for its
    weight, the text that defines it, and the versions of the libraries that it comes from.
    """

    spec: ZooModel
    sha256: str
    constructor: Maker
    maker: Maker | None
    lines: tuple[ModelInput, ...]
    folder: Path
    arguments: Maker | None = None
    """Makes the constructor's positional arguments, where `init` names none."""

    def build(self, device: str = "cpu") -> nn.Module:
        """The module after `torch.manual_seed(spec.seed)`: eval mode, cast, without gradients.

        It is built on the CPU first, so that a seed draws the same weights on every device; on
        "meta" it is built there and has none. Raises ProblemError where the constructor raises or
        gives no module.
        """
        import torch
        from torch import nn

        _seed(self.spec.seed)
        try:
            with torch.device("meta" if device == "meta" else "cpu"), search_path(self.folder):
                given = () if self.arguments is None else self.arguments()
                module = self.constructor(*cast("Iterable[object]", given), **self.spec.init)
        except (Exception, SystemExit) as error:
            raise ProblemError(
                f"Model {self.spec.name!r}: {self.spec.model} raised {type(error).__name__}: "
                f"{one_line(error)} ({raised_at(error)}). Expected: it accepts "
                f"{_label(self.spec.init)}. Next: correct 'init', or call it by itself in Python."
            ) from error
        if not isinstance(module, nn.Module):
            raise ProblemError(
                f"Model {self.spec.name!r}: {self.spec.model} gave a {type(module).__name__}. "
                "Expected a torch module. Next: name a module class, or a function that returns a "
                "module."
            )
        module = module.eval().requires_grad_(False)
        if self.spec.dtype is not None:
            module = module.to(getattr(torch, self.spec.dtype))
        return module.to(device)

    def make_call(self, device: str = "cpu", seed: int = 0) -> ForwardCall:
        """The inputs of one call on `device`, floating ones cast to the model's dtype.

        The same `seed` gives the same values on every device; each line of `inputs` is passed by
        its name. Raises ProblemError where `make_inputs` raises, or gives neither tuple nor dict.
        """
        _seed(seed)
        if self.maker is None:
            call = ForwardCall((), {line.name: line.value() for line in self.lines})
        else:
            call = self._own_call(self.maker)
        return ForwardCall(
            tuple(self._placed(item, device) for item in call.args),
            {key: self._placed(item, device) for key, item in call.kwargs.items()},
        )

    def _own_call(self, maker: Maker) -> ForwardCall:
        where = f"Model {self.spec.name!r}: {self.spec.make_inputs}"
        try:
            with search_path(self.folder):
                values = maker()
        except (Exception, SystemExit) as error:
            raise ProblemError(
                f"{where} raised {type(error).__name__}: {one_line(error)} ({raised_at(error)}). "
                "Expected: called without arguments, it gives a tuple, or a dict of keyword "
                "arguments. Next: call it by itself in Python."
            ) from error
        if isinstance(values, list | tuple) and not hasattr(values, "_fields"):
            return ForwardCall(tuple(values))
        if isinstance(values, Mapping) and all(isinstance(key, str) for key in values):
            return ForwardCall((), dict(values))
        raise ProblemError(
            f"{where} gave a {type(values).__name__}. Expected a tuple of arguments, or a dict of "
            "keyword arguments with names as keys. Next: return (x,) for a single tensor."
        )

    def _placed(self, value: object, device: str) -> object:
        """`value` with its tensors on `device` and floats in the model's dtype, nested or not."""
        import torch
        from torch.utils._pytree import tree_map_only

        dtype = None if self.spec.dtype is None else getattr(torch, self.spec.dtype)

        def place(tensor: torch.Tensor) -> torch.Tensor:
            cast = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
            return tensor.detach().to(device=device, dtype=cast)

        placed: object = tree_map_only(torch.Tensor, place, value)
        return placed


def load_model(zoo: Zoo, model: ZooModel) -> LoadedModel:
    """Import what `model` names; nothing is built yet.

    Raises ProblemError where a name does not import, is not there, or cannot be called.
    """
    folder = Path(zoo.folder)
    try:
        reference = parse_reference(model.model, folder)
        constructor = _callable(reference, folder, "a torch module class, or a function")
        inputs = parse_reference(model.make_inputs, folder) if model.make_inputs else None
        maker = _callable(inputs, folder, "a function") if inputs else None
        lines = tuple(parse_model_input(line) for line in model.inputs)
        arguments = None
        as_a_problem = inputs == dataclasses.replace(reference, name=OWN_INPUTS)
        if as_a_problem and not model.init and has_own(model, OWN_ARGUMENTS, folder):
            own = dataclasses.replace(reference, name=OWN_ARGUMENTS)
            arguments = _callable(own, folder, "a function")
    except ProblemError as error:
        raise ProblemError(f"Model {model.name!r}: {error}") from error
    if isinstance(constructor, type):
        _check_class(model, constructor)
    digest = hashlib.sha256(
        json.dumps(model.model_dump(exclude={"weight"}), sort_keys=True).encode()
    )
    for item in filter(None, (reference, inputs)):
        digest.update(defining_sha(item, folder).encode())
    return LoadedModel(model, digest.hexdigest(), constructor, maker, lines, folder, arguments)


def _callable(reference: Reference, folder: Path, what: str) -> Maker:
    value = find(reference, folder)
    if callable(value) and not _is_module(value):
        return value
    raise ProblemError(
        f"{reference.name!r} is a {type(value).__name__}. Expected {what}. "
        "Next: name what makes it, not the thing itself."
    )


def _is_module(value: object) -> bool:
    from torch import nn

    return isinstance(value, nn.Module)


def _check_class(model: ZooModel, found: type) -> None:
    """Raise ProblemError where a class is no torch module."""
    from torch import nn

    if not issubclass(found, nn.Module):
        raise ProblemError(
            f"Model {model.name!r}: {model.model} is the class {found.__name__}, which is no torch "
            "module. Expected a subclass of torch.nn.Module, or a function that returns a module. "
            "Next: name one."
        )


def flat_outputs(output: object) -> tuple[torch.Tensor, ...]:
    """The tensors of what forward returned, in the order in which it holds them.

    Sequences, dicts, dataclasses and transformers' outputs, in one another; None, numbers and
    strings are left out. Raises ProblemError for anything else, since nothing could compare it, and
    where there is no tensor at all.
    """
    tensors = tuple(_tensors(output, "its output"))
    if not tensors:
        raise ProblemError(
            f"Forward returned {type(output).__name__} without a tensor. Expected one at least: "
            "there is nothing to compare. Next: have the model return its tensors."
        )
    return tensors


def _tensors(value: object, place: str) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif value is None or isinstance(value, bool | int | float | complex | str):
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, f"{place}[{key!r}]")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _tensors(item, f"{place}[{index}]")
    elif is_dataclass(value):
        for item in fields(value):
            yield from _tensors(getattr(value, item.name), f"{place}.{item.name}")
    else:
        raise ProblemError(
            f"Forward returned a {type(value).__name__} as {place}. Expected tensors, in sequences "
            "or dicts. Next: have the model leave it out; a cache with 'use_cache: false'."
        )


def _seed(seed: int) -> None:
    import torch

    torch.manual_seed(seed)
    random.seed(seed)


def _label(init: Mapping[str, object]) -> str:
    return f"({', '.join(f'{key}={one_line(repr(value), 40)}' for key, value in init.items())})"
