"""The tracer in the worker: launches, operators, threads, flags and forms of outputs of calls.

Installed before the candidate is loaded; what it uses is bound by then, and what it notes lies
in closures that no module names. A candidate in the same process can still reach them by walking
frames or objects: some ways of doing that are noted, none is prevented.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import torch

from agentkernel.tools.judge.execution import operators, process_state
from agentkernel.tools.judge.execution.launches import (
    CudaGraphs,
    Launched,
    LaunchForms,
    is_own,
    launch_state,
    named_as,
)
from agentkernel.tools.judge.execution.operators import TINY_ELEMENTS
from agentkernel.tools.judge.execution.process_state import watch_events, watch_threads
from agentkernel.tools.judge.execution.uninitialized_memory import UninitializedMemory
from agentkernel.tools.judge.policy.graph_form import plain_form
from agentkernel.tools.sandbox.worker import CANDIDATE_FILE

if TYPE_CHECKING:
    from agentkernel.tools.judge.execution.operators import Operators
    from agentkernel.tools.judge.execution.process_state import ProcessState
    from agentkernel.tools.judge.policy.families import Work
    from agentkernel.tools.judge.worker.calls import CallResult
    from agentkernel.tools.sandbox.protocol import JSON
    from agentkernel.tools.sandbox.worker import WorkerState


@dataclass(frozen=True)
class Tracer:
    """What `child` calls: `loading` around all that loads the candidate, `loaded` afterwards,
    `call` around all of a call that runs its code, `inspect` on its outputs; `drain` and `ablate`
    are the parent's."""

    loading: Callable[[Callable[[], object]], object]
    loaded: Callable[[str], None]
    call: Callable[[Callable[[], CallResult], Mapping[int, str], set[int], int], CallResult]
    inspect: Callable[[Sequence[object]], None]
    drain: Callable[[], dict[str, JSON]]
    ablate: Callable[[Sequence[int] | None, bool, int | None], None]
    wrote: Callable[[], list[str]]
    forms: Callable[[], dict[str, JSON]]


def install_tracer(state: WorkerState) -> Tracer:
    """The worker's tracer, hooked in on the first call; each call starts a new record."""
    found = state.memory.get("witness")
    if not isinstance(found, Tracer):
        found = _make_tracer(state)
        state.memory["witness"] = found
    found.drain()
    return found


def drain(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Op: what was seen since the candidate was built, or since the last time."""
    del payload
    return cast(Tracer, state.memory["witness"]).drain()


def forms(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Op: the forms in which kernels were launched in the interpreter."""
    del payload
    return cast(Tracer, state.memory["witness"]).forms()


def ablate(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Op: from now on launches of these kernels (by number; None for all) do nothing, or copy the
    tensor at the place `copied` among their operands, and with `zeros` fresh memory holds zeros."""
    kernels = cast("list[int] | None", payload["kernels"])
    copied = cast("int | None", payload.get("copied"))
    cast(Tracer, state.memory["witness"]).ablate(kernels, payload["zeros"] is True, copied)
    return {}


def _make_tracer(state: WorkerState) -> Tracer:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # two lines a call otherwise
    file = str(state.scratch / CANDIDATE_FILE)
    leftovers = cast("int | None", state.memory.get("leftovers"))
    record = CallRecorder(state.device, state.interpret, file, leftovers)
    _hook_launches(state, record.launched, record.copy_instead, record.within, record.form)
    _hook_numbers(record.left_torch)
    watch_events(file, lambda: record.calling, record.note)
    watch_threads(file, record.note)
    if state.device == "cuda":
        record.watch_device()
        _hook_jiterator(record.left_torch)
    return Tracer(
        record.loading,
        record.loaded,
        record.call,
        record.inspect,
        record.drain,
        record.ablate,
        record.wrote,
        record.forms,
    )


def _hook_launches(
    state: WorkerState,
    launched: Callable[[object], bool],
    copy_instead: Callable[[Sequence[object]], None],
    within: Callable[[int], int],
    form: Callable[[object, Sequence[object], Mapping[str, object]], bool],
) -> None:
    hidden_arrays: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    if state.interpret:
        from triton.runtime.interpreter import InterpretedFunction as Kind

        from agentkernel.tools.judge.interpreter.hooks import hidden_arrays
    else:
        from triton.runtime.jit import JITFunction as Kind

        _hook_compiled(launched, within)
    original = Kind.run

    def run(self: object, *args: object, **kwargs: object) -> object:
        if not kwargs.get("warmup") and launched(self):
            copy_instead([*args, *kwargs.values()])
            return Launched()
        noted = form(self, args, kwargs)
        within(1)
        try:
            with contextlib.nullcontext() if noted else hidden_arrays():
                return original(self, *args, **kwargs)
        finally:
            within(-1)

    Kind.run = named_as(original, run)


def _hook_compiled(launched: Callable[[object], bool], within: Callable[[int], int]) -> None:
    """`kernel.warmup(...)[grid](...)` launches without JITFunction.run, and so does the `run` of
    what was compiled, which a launch itself asks for."""
    from triton.compiler.compiler import CompiledKernel

    original, run_of = CompiledKernel.__getitem__, CompiledKernel.run.fget

    def runner(self: object, grid: object) -> Callable[..., object]:
        run = original(self, grid)

        def start(*args: object, **kwargs: object) -> object:
            if launched(_function(self)):
                return None
            within(1)
            try:
                return run(*args, **kwargs)
            finally:
                within(-1)

        return start

    def run(self: object) -> Callable[..., object]:
        found: Callable[..., object] = run_of(self)
        if within(0):
            return found

        def start(*args: object) -> object:
            return None if launched(_function(self)) else found(*args)

        return start

    CompiledKernel.__getitem__ = runner
    CompiledKernel.run = property(run)


def _function(compiled: object) -> object:
    return getattr(getattr(compiled, "src", None), "fn", None)


def _hook_numbers(left_torch: Callable[[str, int | None], None]) -> None:
    """Ways from a tensor to numbers that torch's operators do not show."""
    import torch

    def seen(kind: type, name: str) -> Callable[..., object]:
        original = getattr(kind, name)

        def read(self: torch.Tensor, *args: object, **kwargs: object) -> object:
            left_torch(f"{kind.__name__}.{name}", _count(self, name))
            return original(self, *args, **kwargs)

        return read

    storages = (torch.UntypedStorage, torch.TypedStorage)
    for kind, names in (
        (torch.Tensor, ("numpy", "tolist", "__array__", "__dlpack__", "__reduce_ex__")),
        *((kind, ("__getitem__", "tolist")) for kind in storages),
    ):
        for name in names:
            setattr(kind, name, seen(kind, name))


def _count(source: object, name: str) -> int:
    """Numbers that a reading of a tensor or a storage may take."""
    if name == "__getitem__":
        return 1
    count = getattr(source, "numel", None) or getattr(source, "size")  # noqa: B009 - a storage's
    return int(count())


def _hook_jiterator(left_torch: Callable[[str], None]) -> None:
    """torch.cuda.jiterator compiles and launches below the operators."""
    import torch

    name = "_cuda_jiterator_compile_and_launch_kernel"
    original = getattr(torch._C, name)

    def launch(*args: object, **kwargs: object) -> object:
        left_torch("torch.cuda.jiterator")
        return original(*args, **kwargs)

    setattr(torch._C, name, launch)


Fresh = Callable[[torch.Tensor], object]
KEPT = 40
"""So many different findings of one kind are reported."""
MOST_PARTS = 10_000
"""Of the operators that one call makes, and of its launches."""


@dataclass
class RecordedCall:
    """One call of forward. `launches` counts the candidate's kernels as they were first seen, those
    of replayed graphs among them, which `replays` has graph by graph."""

    launches: list[int] = field(default_factory=list)
    replays: list[list[int]] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    called: dict[str, Work] = field(default_factory=dict)
    parts: list[tuple[str, ...]] = field(default_factory=list)
    library: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    wrote: list[str] = field(default_factory=list)
    draws: bool = False
    raised: bool = False


class CallRecorder:
    """What was seen since the last trace. Only the hooks and the tracer hold it."""

    def __init__(
        self, device: str, interpret: bool, file: str, leftovers: int | None = None
    ) -> None:
        """`leftovers` seeds what fresh memory holds."""
        # Bound here, before a candidate could put others into these modules.
        self._changes, self._read_process_state = (
            process_state.process_changes,
            process_state.read_process_state,
        )
        self._operators, self._record = operators.Operators, operators.record_operators
        self._background_work, self._system_threads = (
            process_state.background_work,
            process_state.system_threads,
        )
        self._python_threads, self._children = process_state.python_threads, process_state.children
        self._read = _read
        self._waits = (torch.cuda.current_stream, torch.cuda.synchronize)
        self.calling = False
        self._device = device
        self._interpret = interpret
        self._file = file
        self._kernels: list[object] = []
        self._calls: list[RecordedCall] = []
        self._violations: dict[tuple[str, str], int] = {}
        self._ablated: set[int] | None = set()
        self._copied: int | None = None
        self._zero = torch.Tensor.zero_
        self._fresh: Fresh | None = UninitializedMemory(device, leftovers).fill
        self._with_uninitialized_memory = operators.with_uninitialized_memory
        self._inside = 0
        self._forms = LaunchForms()
        self._read_numbers = 0
        self._before: ProcessState | None = None
        self._threads: tuple[int, int] | None = None
        self._streams = process_state.Streams()
        self._graphs = CudaGraphs(torch.cuda.is_current_stream_capturing)
        self._source: str | None = None
        self._is_graph_form = False
        self._current: Operators | None = None
        self._busy = bool(random.SystemRandom().getrandbits(1))

    def watch_device(self) -> None:
        """Streams and graphs."""
        self._streams.watch(torch.cuda.Stream)
        self._streams.watch(torch.cuda.ExternalStream)
        self._graphs.watch(torch.cuda.CUDAGraph, self._recording, self._recorded, self._replayed)
        self._graphs.watch_base(torch.cuda.CUDAGraph.__mro__[1], self._unseen_graph)

    def note(self, rule: str, text: str) -> None:
        """A violation, unless there are many."""
        if len(self._violations) < KEPT:
            self._violations.setdefault((rule, text), len(self._calls) - 1)

    def launched(self, kernel: object) -> bool:
        """Note the launch; True where it is to do nothing."""
        if not is_own(kernel, self._file):
            return False
        kernels = self._kernels
        index = next((i for i, item in enumerate(kernels) if item is kernel), len(kernels))
        if index == len(kernels):
            kernels.append(kernel)
        if self.calling:
            self._streams.meet()
        return not self._graphs.take(index) and self._ran([index])

    def form(self, kernel: object, args: Sequence[object], named: Mapping[str, object]) -> bool:
        """Note in which form a kernel of the candidate's is launched in the interpreter; False
        where it cannot be noted."""
        own = self._interpret and is_own(kernel, self._file)
        return not own or self._forms.add(kernel, args, named)

    def forms(self) -> dict[str, JSON]:
        """The forms of all launches until now."""
        return {
            "forms": self._forms.all(),
            "left_out": self._forms.left_out,
            "untried": self._untried(),
        }

    def _untried(self) -> int:
        """Configurations of autotuners that no launch has taken so far."""
        if not self._interpret:
            return 0

        return sum(not run for run in launch_state.choices.values())

    def left_torch(self, what: str, numbers: int | None = None) -> None:
        """Something computes that torch's operators do not show, or takes `numbers` out of tensors,
        of which a few are bookkeeping. Within a launch Triton does so itself."""
        if not self.calling:
            return
        if self._inside and sys._getframe(2).f_code.co_filename != self._file:
            return
        if numbers is not None:
            self._read_numbers += numbers
            if self._read_numbers <= TINY_ELEMENTS:
                return
            what = f"{what} ({self._read_numbers} numbers)"
        if len(self._calls[-1].operators) < KEPT:
            self._calls[-1].operators.append(what)

    def within(self, step: int) -> int:
        """One step further into the launch of a kernel, or out of it: how deep that is."""
        self._inside += step
        return self._inside

    def _ran(self, kernels: Sequence[int]) -> bool:
        """Note that they run; True where one of them is to do nothing."""
        if self._calls:
            self._calls[-1].launches += kernels
        return bool(kernels) and (self._ablated is None or not self._ablated.isdisjoint(kernels))

    def _replayed(self, kernels: Sequence[int]) -> bool:
        """The same of a graph with these kernels."""
        if self._calls:
            self._calls[-1].replays.append(list(kernels))
        return self._ran(kernels)

    def _recording(self) -> None:
        if not self.calling:
            self.note("side-work", "records a CUDA graph outside of forward, where nobody looks")
        self._begin_run(0)

    def _recorded(self) -> None:
        self._begin_run(1)

    def _begin_run(self, before: int) -> None:
        """The first call of a graph form runs its plain forward to compile it, again to record it,
        and a third time where that fails: runs that cannot know which they are, since all else is
        a fixed text. Of a call past its first recording the runs count together."""
        current = self._current
        if current is not None and self._is_graph_form and len(current.marks) == before:
            current.begin_run()

    def _unseen_graph(self) -> None:
        self.note("side-work", "replays a CUDA graph that was recorded past torch.cuda.CUDAGraph")

    def _compare(self) -> None:
        if self._source is not None and not self._unchanged():
            self.note("global-state", "its own file was written to")
        if self._before is not None:
            for text in self._changes(self._before, self._read_process_state())[:KEPT]:
                self.note("global-state", text)

    def loading(self, work: Callable[[], object]) -> object:
        """What `work`, which runs the candidate's file or builds its module, gives."""
        return work() if self._fresh is None else self._with_uninitialized_memory(work, self._fresh)

    def loaded(self, source: str) -> None:
        """After the candidate's file, which holds `source`, has run and its module was built."""
        self._source = source
        self._is_graph_form = plain_form(source) is not None
        self._compare()
        self._count_helpers("after loading")

    def _unchanged(self) -> bool:
        """Nothing reads it any more, and an honest one has no reason to write there."""
        try:
            return self._read(self._file) == self._source
        except (OSError, UnicodeDecodeError):
            return False

    def _count_helpers(self, when: str) -> None:
        threads, children = self._python_threads(), self._children()
        if threads > 1 or children:
            self.note("side-work", f"{threads} threads, {len(children)} children {when}")

    def call(
        self,
        work: Callable[[], CallResult],
        owners: Mapping[int, str],
        rooms: set[int],
        taken: int = 0,
    ) -> CallResult:
        """What `work` gives, with all that is noted on the way; `owners` names the storages that
        are the caller's, `rooms` are those that outputs are copied to once, `taken` are the
        elements of the largest input."""
        self._calls.append(RecordedCall())
        answers: list[CallResult] = []
        operators = self._operators(
            owners=owners,
            rooms=rooms,
            outside=lambda: not self._inside,
            elements=lambda: max(taken, *(_numel(x) for one in answers for x in one.leaves), 0),
        )
        self._read_numbers = 0
        self._current = operators
        before = random_state(self._device)
        self._busy = not self._busy
        begin = self._streams.delay if self._busy and self._device == "cuda" else None
        self._streams.forget()
        self.calling = True
        try:
            result = self._record(
                lambda: _kept(answers, _after(begin, work)), operators, self._fresh
            )
        except BaseException:
            self._calls[-1].raised = True
            raise
        finally:
            self.calling, self._current = False, None  # it knows the results of the call
        _keep(self._calls[-1], operators)
        if operators.hidden:
            self.note("global-state", operators.hidden)
        self._calls[-1].draws = differs(before, random_state(self._device))
        return cast("CallResult", result)

    def inspect(self, leaves: Sequence[object]) -> None:
        """Right after a call: its outputs, and what still goes on."""
        if self._device == "cuda":
            current, wait_all = self._waits
            late = self._background_work(leaves, self._streams, current().synchronize, wait_all)
            if late:
                self.note("side-work", late)
        for index, leaf in enumerate(leaves):
            text = not_a_result(leaf, self._device)
            if text:
                self.note("deferred", f"output {index} {text}")
        self._compare()
        self._count_helpers("after a call")
        count = self._system_threads()
        if self._threads is None or len(self._calls) <= 2:
            self._threads = (len(self._calls), count)
        elif self._interpret and count > self._threads[1]:
            text = f"{count} threads after a call, {self._threads[1]} after the first two"
            self.note("side-work", text)

    def drain(self) -> dict[str, JSON]:
        """All of it, as the reply says it; then a new record begins."""
        report: dict[str, JSON] = {
            "kernels": [[_name(item), _line(item)] for item in self._kernels],
            "calls": [_call_report(item) for item in self._calls],
            "violations": [[*what, index] for what, index in self._violations.items()],
        }
        self._calls.clear()
        self._violations.clear()
        self._before, self._threads = self._read_process_state(), None
        return report

    def wrote(self) -> list[str]:
        """What of the caller's memory torch's operators wrote to in the last call."""
        return list(self._calls[-1].wrote)

    def copy_instead(self, operands: Sequence[object]) -> None:
        """In the place of a launch: one of its tensors goes to all others of as many elements that
        are not the caller's, where such copies are asked for."""
        if self._copied is None or self._current is None:
            return
        found = [getattr(item, "base", item) for item in operands]
        tensors = [item.detach() for item in found if isinstance(item, torch.Tensor)]
        if self._copied >= len(tensors):
            return
        source = tensors.pop(self._copied)
        for item in tensors:
            like = (item.dtype, item.numel()) == (source.dtype, source.numel())
            if like and item.untyped_storage().data_ptr() not in self._current.owners:
                with contextlib.suppress(RuntimeError), torch.no_grad():
                    item.copy_(source.reshape(item.shape))

    def ablate(self, which: Sequence[int] | None, zeros: bool, copied: int | None = None) -> None:
        """Launches of these kernels (None: all) do nothing from now on, or copy the tensor at the
        place `copied` among their own; memory that nobody wrote to holds torch's own fill (NaN,
        True, the largest number), with `zeros` zeros."""
        self._copied = copied
        self._ablated = None if which is None else set(which)
        self._fresh = self._zero if zeros else None


def _read(path: str) -> str:
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def _numel(leaf: object) -> int:
    return leaf.numel() if isinstance(leaf, torch.Tensor) else 0


def _kept(answers: list[CallResult], answer: CallResult) -> CallResult:
    answers.append(answer)
    return answer


def _after(begin: Callable[[], None] | None, work: Callable[[], CallResult]) -> CallResult:
    if begin is not None:
        begin()
    return work()


def not_a_result(leaf: object, device: str) -> str:
    """Why `leaf` is no plain tensor in memory of `device`; "" where it is one, or no tensor."""
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


def _keep(call: RecordedCall, operators: Operators) -> None:
    compute = list(dict.fromkeys(operators.compute))
    named = [item for item in compute if item in operators.named]
    call.operators += [item for item in compute if item not in operators.named][:KEPT]
    call.operators += named[:KEPT]
    call.named += named[:KEPT]
    call.called.update(operators.called)
    call.parts += operators.parts[:MOST_PARTS]
    call.library += list(dict.fromkeys(operators.library))[:KEPT]
    call.moved += list(dict.fromkeys(operators.moved))[:KEPT]
    call.wrote += list(dict.fromkeys(operators.wrote))


def _call_report(call: RecordedCall) -> JSON:
    return {
        "launches": cast("list[JSON]", call.launches[:MOST_PARTS]),
        "replays": cast("list[JSON]", [kernels[:MOST_PARTS] for kernels in call.replays[:100]]),
        "operators": cast("JSON", call.operators),
        "named": cast("JSON", call.named),
        "called": {name: [work.calls, work.elements] for name, work in call.called.items()},
        "parts": cast("JSON", [list(item) for item in call.parts]),
        "library": cast("JSON", call.library),
        "moved": cast("JSON", call.moved),
        "draws": call.draws,
        "raised": call.raised,
    }


def random_state(device: str) -> list[torch.Tensor]:
    """The generators that a call on `device` may draw from."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state()] if device == "cuda" else states


def differs(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> bool:
    """True where something was drawn in between."""
    return not all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def _name(kernel: object) -> str:
    return str(getattr(getattr(kernel, "fn", None), "__name__", "?"))


def _line(kernel: object) -> int:
    code = getattr(getattr(kernel, "fn", None), "__code__", None)
    return int(getattr(code, "co_firstlineno", 0))
