"""Operations of the sandboxed worker for a search: many schedules of one problem."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

from agentkernel.tools.compile.binaries import Binary, enter
from agentkernel.tools.problem.arguments import called_flat
from agentkernel.tools.problem.structures import leaves_of
from agentkernel.tools.profiler.timing.process import bind, take_weights
from agentkernel.tools.profiler.timing.stopwatch import Call, CallTimer
from agentkernel.tools.sandbox.protocol import JSON

if TYPE_CHECKING:
    import torch
    from torch import nn
    from triton.knobs import CompileTimes

    from agentkernel.domain.problem import DataStructure
    from agentkernel.tools.sandbox.tensors import TensorRef
    from agentkernel.tools.sandbox.worker import WorkerState

Variant = tuple[int, str, int, Sequence[Binary]]
SAMPLES = 512
PIECE = 1 << 24
"""Elements that are looked at once: a sum over truth values is made of as many int64."""
LOG_CHARS = 400
FLUSH_US, MOST_FLUSHES = 60.0, 16
"""About what a flush takes on the card with the fastest memory (512 MB at 8 TB/s); so many are as
long as a hundred launches."""
COMPILED = "compiled_s"
"""Beside the replies by number: seconds of kernels that had to be compiled here."""


def start(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Keep what schedules share. Payload: flush_bytes, threads, and `problems`, each init_args,
    init_kwargs, arguments, state (name -> TensorRef) and inputs (TensorRefs and scalars)."""
    state.memory["threads"] = payload["threads"]
    state.memory["problems"] = payload["problems"]
    state.memory["bench"] = CallTimer(state.device, cast(int, payload["flush_bytes"]))
    state.memory["calls"] = {}
    state.memory["compiled_s"] = _note_compilations()
    if state.device == "cuda":
        from triton.runtime import driver

        driver.active.get_current_device()
    return {}


def _note_compilations() -> list[float]:
    """The seconds of every kernel that this process compiles from now on: one whose binary came
    along is found in the cache, and is none."""
    import triton

    compiled_s: list[float] = []

    def listener(*, times: CompileTimes, cache_hit: bool, **_: object) -> None:
        if not cache_hit:
            compiled_s.append(times.total / 1e6)

    triton.knobs.compilation.listener = listener
    return compiled_s


def warm(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Load and call `variants` (number, source, which of the problems, compiled kernels), several
    at once, since Triton compiles outside Python's lock what is not compiled. The reply has, by
    number, a sketch of the output or an error, and the seconds that were compiled."""
    variants = cast("Sequence[Variant]", payload["variants"])
    threads = cast(int, state.memory["threads"])
    with ThreadPoolExecutor(max_workers=threads) as pool:
        found = list(pool.map(lambda item: _warm_one(item, state), variants))
    bench = cast(CallTimer, state.memory["bench"])
    bench.wait()
    bench.give_back()
    compiled_s = cast("list[float]", state.memory["compiled_s"])
    replies: dict[str, JSON] = {
        str(item[0]): reply for item, reply in zip(variants, found, strict=True)
    }
    replies[COMPILED] = sum(compiled_s)
    compiled_s.clear()
    return replies


def time_block(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """`us`: microseconds of `calls` cold calls of schedule `index` on the device, after untimed
    ones; one call alone where that is longer than `limit_us`. `launch_us`: what the processor needs
    to launch a whole drop-in, which it does during the flushes before a call; a part of one is
    launched by the whole, as a CUDA graph where launches would hold it up."""
    calls = cast("dict[int, Call]", state.memory["calls"])
    call = calls[cast(int, payload["index"])]
    bench = cast(CallTimer, state.memory["bench"])
    first = bench.block(call, 1, cast(float, payload["last_us"]))
    launch_us, limit_us = 0.0, cast(float, payload["limit_us"])
    flushes = 1
    if payload["whole"]:
        launch_us = bench.enqueue_us(call)
        flushes = min(MOST_FLUSHES, 1 + int(launch_us / FLUSH_US))
        if first[0] > limit_us and flushes > 1:
            first = bench.block(call, 1, first[0], flushes)
    if first[0] > limit_us:
        return {"us": list(first), "launch_us": launch_us}
    found = bench.block(call, cast(int, payload["calls"]), first[0], flushes)
    return {"us": list(found), "launch_us": launch_us}


def _warm_one(variant: Variant, state: WorkerState) -> dict[str, JSON]:
    import torch

    index, source, problem, binaries = variant
    shared = cast("Sequence[Mapping[str, object]]", state.memory["problems"])[problem]
    try:
        enter(binaries)
        with torch.no_grad():
            call = _call(f"schedule_{index}", source, shared, state)
            call()
            sketch = _sketch(call())
    except Exception as error:  # noqa: BLE001 - a schedule may raise anything
        text = "".join(traceback.format_exception_only(error)).strip()
        # Of memory that ran out the figures stand first, and advice after them.
        short = isinstance(error, torch.OutOfMemoryError)
        return {"error": text[:LOG_CHARS] if short else text[-LOG_CHARS:]}
    cast("dict[int, Call]", state.memory["calls"])[index] = call
    return sketch


def _call(name: str, source: str, shared: Mapping[str, object], state: WorkerState) -> Call:
    """The schedule's `ModelNew` with the shared weights, bound to the shared inputs."""
    module = state.execute(source, name=name)
    weights = cast("Mapping[str, TensorRef]", shared["state"])
    made = _without_numbers(module.ModelNew, shared)
    if made is not None:
        take_weights(made, weights, state)
    if made is None or any(tensor.is_meta for tensor in _tensors(made)):
        made = _construct(module.ModelNew, shared)
        take_weights(made, weights, state)
    return bind(made.to(state.device).eval(), cast("Sequence[object]", shared["inputs"]), state)


def _without_numbers(function: object, shared: Mapping[str, object]) -> nn.Module | None:
    """Built on meta, which draws no random numbers; None where the constructor needs real ones."""
    import torch

    try:
        with torch.device("meta"):
            return _construct(function, shared)
    except Exception:  # noqa: BLE001 - whatever a real error is, building on the CPU raises it again
        return None


def _construct(function: object, shared: Mapping[str, object]) -> nn.Module:
    args = cast("Sequence[object]", shared["init_args"])
    kwargs = cast("Mapping[str, object]", shared["init_kwargs"])
    made = cast("type[nn.Module]", function)(*args, **kwargs)
    return called_flat(made, cast("DataStructure | None", shared.get("arguments")))


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    """Parameters, buffers, and tensors kept as plain attributes."""
    import torch

    yield from module.parameters()
    yield from module.buffers()
    for item in module.modules():
        yield from (value for value in vars(item).values() if isinstance(value, torch.Tensor))


def _sketch(output: object) -> dict[str, JSON]:
    """See agreement.Sketch: samples at even distances over each output, NaN and inf as 0."""
    import torch

    samples: list[float] = []
    nans = 0
    for leaf in leaves_of(output):
        if not isinstance(leaf, torch.Tensor) or leaf.numel() == 0:
            continue
        flat = leaf.reshape(-1)
        if flat.is_floating_point():
            for piece in torch.split(flat, PIECE):
                nans += int(torch.isnan(piece).sum())
        count = min(SAMPLES, flat.numel())
        places = torch.arange(count, device=flat.device) * flat.numel() // count
        picked = flat[places].double().nan_to_num(0.0, 0.0, 0.0)
        samples.extend(picked.tolist())
    return {"nan": nans, "samples": cast("list[JSON]", samples)}
