"""How is a model of a zoo built, called, and its answer taken apart into tensors?"""

from __future__ import annotations

import hashlib
import inspect
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.domain.errors import AgentKernelError, ProblemError, one_line, raised_at
from agentkernel.domain.zoo import Zoo, ZooModel
from agentkernel.nightly.zoo.inputs import ModelInput, parse_model_input
from agentkernel.nightly.zoo.references import (
    Reference,
    defining_sha,
    find,
    parse_reference,
    search_path,
)

if TYPE_CHECKING:
    import torch
    from torch import nn

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
                module = self.constructor(**self.spec.init)
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
    except ProblemError as error:
        raise ProblemError(f"Model {model.name!r}: {error}") from error
    if isinstance(constructor, type):
        _check_class(model, constructor)
    digest = hashlib.sha256(
        json.dumps(model.model_dump(exclude={"weight"}), sort_keys=True).encode()
    )
    for item in filter(None, (reference, inputs)):
        digest.update(defining_sha(item, folder).encode())
    return LoadedModel(model, digest.hexdigest(), constructor, maker, lines, folder)


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


def run_call(module: nn.Module, call: ForwardCall) -> object:
    """What `module` returns, without gradients.

    Raises ProblemError where the inputs do not fit its forward, or forward raises on them; what
    the GPU raises (memory, a broken kernel) passes through as it is.
    """
    import torch

    with torch.no_grad():
        try:
            return module(*call.args, **call.kwargs)
        except (AgentKernelError, torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except Exception as error:
            raise _unfit(module, call, error) from error


def _unfit(module: nn.Module, call: ForwardCall, error: Exception) -> ProblemError:
    name = type(module).__name__
    try:
        inspect.signature(module.forward).bind(*call.args, **call.kwargs)
    except TypeError as mismatch:
        takes = ", ".join(inspect.signature(module.forward).parameters) or "nothing"
        return ProblemError(
            f"The inputs do not fit {name}.forward: {one_line(mismatch)}. It takes: {takes}. "
            "Next: name the inputs as forward does."
        )
    except ValueError:
        pass
    shapes = ", ".join(
        [*map(_shown, call.args), *(f"{key}={_shown(item)}" for key, item in call.kwargs.items())]
    )
    return ProblemError(
        f"The forward of {name} raised {type(error).__name__}: {one_line(error)} "
        f"({raised_at(error)}) on {shapes}. Expected: it runs on them. "
        "Next: check shapes and dtypes against the constructor's arguments."
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


def _shown(value: object) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return one_line(repr(value), 40)


__all__ = ["ForwardCall", "LoadedModel", "flat_outputs", "load_model", "run_call"]
