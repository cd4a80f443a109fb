"""Which kernels does a forward launch, and with what? Launches are noted, nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction, create_function_from_signature

if TYPE_CHECKING:
    Grid = Sequence[int] | Callable[[Mapping[str, object]], Sequence[int]]


@dataclass(frozen=True)
class Launch:
    """One launch as the JIT would compile it: signature, constants and alignment included."""

    name: str
    source: ASTSource
    options: Mapping[str, object]
    grid: tuple[int, int, int]
    constants: dict[str, int | float | bool | str]
    num_warps: int
    num_stages: int
    bytes_touched: int
    key: str
    """Launches with one key are the same binary."""
    function_source: str


@contextmanager
def record_launches(target: GPUTarget) -> Iterator[list[Launch]]:
    """Note every Triton launch in the block, specialised for `target`, instead of doing it.

    `@triton.autotune` takes its first configuration, since there is nothing to time.
    """
    launches: list[Launch] = []
    backend = make_backend(target)
    binders: dict[int, Callable[..., object]] = {}

    def run(self: JITFunction, *args: object, grid: Grid, warmup: bool, **kwargs: object) -> None:
        kwargs["debug"] = False
        if id(self) not in binders:
            binders[id(self)] = create_function_from_signature(self.signature, self.params, backend)
        launch = _bind(self, backend, binders[id(self)], args, kwargs, () if warmup else grid)
        if not warmup:
            launches.append(launch)

    previous_run, previous_tune = JITFunction.run, Autotuner.run
    JITFunction.run, Autotuner.run = run, _first_configuration
    try:
        yield launches
    finally:
        JITFunction.run, Autotuner.run = previous_run, previous_tune


def _first_configuration(self: Autotuner, *args: object, **kwargs: object) -> None:
    config = self.configs[0]
    settings = config.all_kwargs()
    if config.pre_hook is not None:
        config.pre_hook({**dict(zip(self.arg_names, args, strict=False)), **kwargs, **settings})
    self.fn.run(*args, **kwargs, **settings)


def _bind(
    function: JITFunction,
    backend: object,
    binder: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    grid: Grid,
) -> Launch:
    """Arguments to signature, by the JIT's own binder: 16-divisibility, ones as constants."""
    bound, specialization, options = cast(
        "tuple[dict[str, object], list[object], object]", binder(*args, **kwargs)
    )
    parsed, signature, constexprs, attrs = function._pack_args(
        backend, kwargs, bound, specialization, options
    )
    names = [parameter.name for parameter in function.params]
    constants = {
        names[path[0]]: _plain(value) for path, value in constexprs.items() if len(path) == 1
    }
    blocks = [int(size) for size in (grid(bound) if callable(grid) else grid)]
    key = f"{function.cache_key} {signature} {constexprs} {attrs} {parsed}"
    return Launch(
        name=function.__name__,
        source=ASTSource(function, signature, constexprs, attrs),
        options=parsed.__dict__,
        grid=cast("tuple[int, int, int]", tuple([*blocks, 1, 1, 1][:3])),
        constants=constants,
        num_warps=parsed.num_warps,
        num_stages=parsed.num_stages,
        bytes_touched=bytes_touched(bound.values()),
        key=key,
        function_source=function.src,
    )


def _plain(value: object) -> int | float | bool | str:
    return value if isinstance(value, int | float | bool | str) else str(value)


def bytes_touched(values: object) -> int:
    """Bytes behind the distinct tensors in `values`: for each storage what its views cover."""
    views: dict[int, dict[tuple[object, ...], int]] = {}
    whole: dict[int, int] = {}
    for tensor in _tensors(values):
        storage = tensor.untyped_storage()
        whole[storage._cdata] = storage.nbytes()
        view = (tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))
        covered = views.setdefault(storage._cdata, {})
        covered[view] = tensor.numel() * tensor.element_size()
    return sum(min(whole[key], sum(covered.values())) for key, covered in views.items())


def _tensors(values: object) -> Iterator[torch.Tensor]:
    for value in cast("Sequence[object]", values):
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)
        elif isinstance(getattr(value, "base", None), torch.Tensor):
            yield cast("torch.Tensor", getattr(value, "base"))  # noqa: B009 - a TMA descriptor
