"""What did the worker see the candidate do? Launches, operators, threads, flags, forms of outputs.

Installed before the candidate is loaded; what it uses is bound by then, and what it notes lies in
closures that no module names. A candidate in the same process can still reach them by walking
frames or objects: some ways of doing that are noted, none is prevented.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from agentkernel.tools.judge.watch import is_own

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import nn

    from agentkernel.tools.judge.ambient import Ambient
    from agentkernel.tools.judge.operators import Operators
    from agentkernel.tools.sandbox.protocol import JSON
    from agentkernel.tools.sandbox.worker import WorkerState

KEPT = 40
"""So many different findings of one kind are reported."""
TINY_ELEMENTS = 64


@dataclass
class Call:
    """One call of forward. `launches` counts the candidate's kernels as they were first seen."""

    launches: list[int] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    library: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    draws: bool = False


@dataclass(frozen=True)
class Witness:
    """What `child` calls: `loaded` after the candidate was loaded, `call` instead of the model,
    `inspect` on its outputs; `testify` and `mute` are the parent's."""

    loaded: Callable[[], None]
    call: Callable[[nn.Module, Sequence[object]], object]
    inspect: Callable[[Sequence[object]], None]
    testify: Callable[[], dict[str, JSON]]
    mute: Callable[[Sequence[int] | None], None]


def install(state: WorkerState) -> Witness:
    """The worker's witness, hooked in on the first call; each call starts a new record."""
    found = state.memory.get("witness")
    if not isinstance(found, Witness):
        found = _make_witness(state)
        state.memory["witness"] = found
    found.testify()
    return found


def testify(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Op: what was seen since the candidate was built, or since the last time."""
    del payload
    return cast(Witness, state.memory["witness"]).testify()


def mute(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Op: from now on launches of these kernels (by number; None for all) do nothing."""
    cast(Witness, state.memory["witness"]).mute(cast("list[int] | None", payload["kernels"]))
    return {}


def _make_witness(state: WorkerState) -> Witness:
    import torch

    from agentkernel.tools.judge.ambient import changes, take_ambient
    from agentkernel.tools.judge.operators import Operators, record_operators
    from agentkernel.tools.judge.outliving import (
        Streams,
        children,
        late_work,
        python_threads,
        system_threads,
        watch_events,
        watch_threads,
    )
    from agentkernel.tools.sandbox.worker import CANDIDATE_FILE

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # two lines a call otherwise
    file = str(state.scratch / CANDIDATE_FILE)
    kernels: list[object] = []
    calls: list[Call] = []
    violations: dict[tuple[str, str], int] = {}
    muted: set[int] | None = set()
    inside = 0
    calling = False
    before: Ambient | None = None
    threads: tuple[int, int] | None = None
    streams = Streams()

    def note(rule: str, text: str) -> None:
        if len(violations) < KEPT:
            violations.setdefault((rule, text), len(calls) - 1)

    def launched(kernel: object) -> bool:
        """Note the launch; True where it is to do nothing."""
        if not is_own(kernel, file):
            return False
        index = next((i for i, item in enumerate(kernels) if item is kernel), len(kernels))
        if index == len(kernels):
            kernels.append(kernel)
        if calls:
            calls[-1].launches.append(index)
        return muted is None or index in muted

    def left_torch(what: str) -> None:
        if calling and not inside:
            calls[-1].operators.append(what)

    def within(step: int) -> None:
        nonlocal inside
        inside += step

    _hook_launches(state, launched, within)
    _hook_numbers(left_torch)
    watch_events(file, lambda: calling, note)
    watch_threads(file, note)
    if state.device == "cuda":
        streams.watch(torch.cuda.Stream)
        streams.watch(torch.cuda.ExternalStream)

    def compare() -> None:
        if before is not None:
            for text in changes(before, take_ambient())[:KEPT]:
                note("global-state", text)

    def loaded() -> None:
        compare()
        if python_threads() > 1 or children():
            note(
                "side-work",
                f"after loading: {python_threads()} threads, {len(children())} children",
            )

    def call(model: nn.Module, values: Sequence[object]) -> object:
        nonlocal calling
        calls.append(Call())
        operators = Operators()
        random = random_state(state.device)
        calling = True
        try:
            result = record_operators(lambda: model(*values), operators)
        finally:
            calling = False
        _keep(calls[-1], operators)
        if operators.hidden:
            note("global-state", operators.hidden)
        calls[-1].draws = differs(random, random_state(state.device))
        return result

    def inspect(leaves: Sequence[object]) -> None:
        nonlocal threads
        if state.device == "cuda":
            current = torch.cuda.current_stream().synchronize
            late = late_work(leaves, streams, current, torch.cuda.synchronize)
            if late:
                note("side-work", late)
        for index, leaf in enumerate(leaves):
            text = not_a_result(leaf, state.device)
            if text:
                note("deferred", f"output {index} {text}")
        compare()
        if python_threads() > 1 or children():
            note(
                "side-work", f"{python_threads()} threads, {len(children())} children after a call"
            )
        count = system_threads()
        if threads is None or len(calls) <= 2:
            threads = (len(calls), count)
        elif state.interpret and count > threads[1]:
            note("side-work", f"{count} threads after a call, {threads[1]} after the first two")

    def testify() -> dict[str, JSON]:
        nonlocal before, threads
        report: dict[str, JSON] = {
            "kernels": [[_name(item), _line(item)] for item in kernels],
            "calls": [_call_report(item) for item in calls],
            "violations": [[rule, text, index] for (rule, text), index in violations.items()],
        }
        calls.clear()
        violations.clear()
        before, threads = take_ambient(), None
        return report

    def mute(which: Sequence[int] | None) -> None:
        nonlocal muted
        muted = None if which is None else set(which)

    return Witness(loaded, call, inspect, testify, mute)


def not_a_result(leaf: object, device: str) -> str:
    """Why `leaf` is no plain tensor in memory of `device`; "" where it is one, or no tensor."""
    import torch

    if not isinstance(leaf, torch.Tensor):
        return ""
    kind = type(leaf)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        return f"is a {kind.__module__}.{kind.__name__}, a subclass of Tensor"
    if vars(leaf):
        return f"carries attributes: {', '.join(sorted(vars(leaf)))[:80]}"
    if leaf.layout is not torch.strided or torch._is_functional_tensor(leaf) or leaf.is_neg():
        return "is not laid out in memory as it reads"
    if leaf.is_conj() or leaf.is_quantized or leaf.device.type != device:
        return f"is not a plain tensor on {device}"
    if leaf.numel() and leaf.untyped_storage().data_ptr() == 0:
        return "has no memory"
    return ""


def _hook_launches(
    state: WorkerState, launched: Callable[[object], bool], within: Callable[[int], None]
) -> None:
    if state.interpret:
        from triton.runtime.interpreter import InterpretedFunction as Kind
    else:
        from triton.runtime.jit import JITFunction as Kind

        _hook_compiled(launched)
    original = Kind.run

    def run(self: object, *args: object, **kwargs: object) -> object:
        if not kwargs.get("warmup") and launched(self):
            return None
        within(1)
        try:
            return original(self, *args, **kwargs)
        finally:
            within(-1)

    Kind.run = run


def _hook_compiled(launched: Callable[[object], bool]) -> None:
    """`kernel.warmup(...)[grid](...)` launches without JITFunction.run."""
    from triton.compiler.compiler import CompiledKernel

    original = CompiledKernel.__getitem__

    def runner(self: object, grid: object) -> Callable[..., object]:
        run = original(self, grid)

        def start(*args: object, **kwargs: object) -> object:
            kernel = getattr(getattr(self, "src", None), "fn", None)
            return None if launched(kernel) else run(*args, **kwargs)

        return start

    CompiledKernel.__getitem__ = runner


def _hook_numbers(left_torch: Callable[[str], None]) -> None:
    """Ways from a tensor to numbers that torch's operators do not show."""
    import torch

    def seen(name: str) -> Callable[..., object]:
        original = getattr(torch.Tensor, name)

        def read(self: torch.Tensor, *args: object, **kwargs: object) -> object:
            if self.numel() > TINY_ELEMENTS:
                left_torch(f"Tensor.{name} ({self.numel()} elements)")
            return original(self, *args, **kwargs)

        return read

    for name in ("numpy", "tolist", "__array__", "__dlpack__"):
        setattr(torch.Tensor, name, seen(name))


def _keep(call: Call, operators: Operators) -> None:
    call.operators += list(dict.fromkeys(operators.compute))[:KEPT]
    call.library += list(dict.fromkeys(operators.library))[:KEPT]
    call.moved += list(dict.fromkeys(operators.moved))[:KEPT]


def _call_report(call: Call) -> JSON:
    return {
        "launches": cast("list[JSON]", call.launches[:10_000]),
        "operators": cast("JSON", call.operators),
        "library": cast("JSON", call.library),
        "moved": cast("JSON", call.moved),
        "draws": call.draws,
    }


def random_state(device: str) -> list[torch.Tensor]:
    """The generators that a call on `device` may draw from."""
    import torch

    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state()] if device == "cuda" else states


def differs(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> bool:
    """True where something was drawn in between."""
    import torch

    return not all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def _name(kernel: object) -> str:
    return str(getattr(getattr(kernel, "fn", None), "__name__", "?"))


def _line(kernel: object) -> int:
    code = getattr(getattr(kernel, "fn", None), "__code__", None)
    return int(getattr(code, "co_firstlineno", 0))


__all__ = ["Witness", "install", "mute", "not_a_result", "testify"]
