"""Blocks of public libraries, drawn at random and taken out of their models with one call's inputs.

A block is a module of a class that the library defines, as its model calls it: one of each class,
no more than `MOST_LEAVES` modules without children, with inputs that are tensors or plain values.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import torch
from models import LIBRARIES, recipe
from torch import nn

MOST_LEAVES = 24
MOST_PARAMETERS = 200_000


class Block(NamedTuple):
    """Where a block stands: a submodule's path in a library's model, and the class it is of."""

    library: str
    model: str
    path: str
    class_name: str


class Called(NamedTuple):
    """A block taken out of its model, with the arguments of the first call that the model made."""

    module: nn.Module
    args: tuple[object, ...]
    kwargs: dict[str, object]


IDLE = ("Identity", "Dropout", "DropPath", "StochasticDepth")
"""Ends of the names of classes that return their input in eval mode."""


class Absent(LookupError):
    """A model at its published widths calls no module of the block's class, or does not run."""


def take(block: Block, *, wide: bool = False, seed: int = 0) -> Called:
    """Build the block's model anew and record the block's first call; at the published widths that
    of the first module of its class, which may stand elsewhere. Raises Absent where none is."""
    try:
        recorded = dict(_calls(block.library, block.model, wide=wide, seed=seed))
    except Exception as error:
        if not wide:  # the block was drawn from the small model, which ran
            raise
        raise Absent(f"{block.model}: {type(error).__name__}: {error}") from error
    paths = [block.path, *recorded]
    for path in paths:
        if path in recorded and class_name(recorded[path].module) == block.class_name:
            return recorded[path]
    raise Absent(f"{block.model} has no {block.class_name}")


def class_name(module: nn.Module) -> str:
    """The full name of a module's class."""
    return f"{type(module).__module__}.{type(module).__qualname__}"


def blocks_of(library: str, model: str) -> list[Block]:
    """The blocks of one small model, the first of each class."""
    found: dict[str, Block] = {}
    for path, called in _calls(library, model, wide=False, seed=0):
        if path and _is_block(called, library):
            name = class_name(called.module)
            found.setdefault(name, Block(library, model, path, name))
    return list(found.values())


def population(library: str) -> list[Block]:
    """Every block of a library's models, one of each class; a model that does not run is said."""
    found: dict[str, Block] = {}
    for model, _ in LIBRARIES[library]():
        try:
            for block in blocks_of(library, model):
                found.setdefault(block.class_name, block)
        except Exception as error:  # noqa: BLE001 - another library's constructor may raise anything
            print(f"{library} {model}: {type(error).__name__}: {error}", file=sys.stderr)
    return list(found.values())


def draw(count: int, seed: int, libraries: Collection[str] = ()) -> list[Block]:
    """`count` blocks of each library at random, the same for the same seed and versions."""
    return [
        block
        for library in libraries or LIBRARIES
        for block in random.Random(f"{seed} {library}").sample(sorted(population(library)), count)
    ]


def _calls(library: str, model: str, *, wide: bool, seed: int) -> Iterator[tuple[str, Called]]:
    torch.manual_seed(seed)
    made = recipe(library, model)
    whole = made.build(wide).eval()
    calls: dict[str, Called] = {}

    def record(path: str) -> Any:
        def hook(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            if path not in calls:
                calls[path] = Called(module, _detached(args), _detached(kwargs))

        return hook

    for path, module in whole.named_modules():
        module.register_forward_pre_hook(record(path), with_kwargs=True)
    arguments = made.call(whole, wide)
    with torch.no_grad():
        whole(*arguments.pop("", ()), **arguments)
    for module in whole.modules():
        module._forward_pre_hooks.clear()
        module._forward_pre_hooks_with_kwargs.clear()
    yield from calls.items()


def _is_block(called: Called, library: str) -> bool:
    module = called.module
    leaves = sum(1 for item in module.modules() if not list(item.children()))
    size = sum(item.numel() for item in module.parameters())
    return (
        type(module).__module__.startswith(f"{library}.")
        and leaves <= MOST_LEAVES
        and size <= MOST_PARAMETERS
        and bool(list(_tensors((called.args, called.kwargs))))
        and not type(module).__name__.endswith(IDLE)
    )


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _detached(value: Any) -> Any:
    """Tensors with storage of their own, so that what the model does later does not change them."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, list | tuple):
        return type(value)(_detached(item) for item in value)
    if isinstance(value, dict):
        return {key: _detached(item) for key, item in value.items()}
    return value
