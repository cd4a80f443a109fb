"""Launches of the candidate's kernels: state of the current one, their forms, CUDA graphs.

A form is plain data: types of tensors, numbers and constants, as far as Triton compiles another
binary for them.

A kernel that is launched while torch records a CUDA graph does not run then; it runs with each
replay. A graph that is recorded past torch.cuda.CUDAGraph may hold anything: replaying one is
noted.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, cast

from agentkernel.tools.judge.races import LaunchAccesses

if TYPE_CHECKING:
    import torch

    from agentkernel.tools.sandbox.protocol import JSON


ROUNDED = "operands of fp32 are rounded to"
Order = Literal["ascending", "reversed", "shuffled"]


class InterpreterRefused(Exception):
    """Something that the interpreter would wave through and a GPU would not."""


class MissingPrecision(InterpreterRefused):
    """An fp32 dot without input_precision: tf32 on a GPU, exact in the interpreter."""


class LaunchRefused(InterpreterRefused):
    """Options of a launch that no launcher takes."""


class OutOfResources(InterpreterRefused):
    """A tile past the shared memory of every GPU."""


class NotCompiled(InterpreterRefused):
    """Python in a kernel, in a form that is not given to the compiler."""


class OutOfBounds(InterpreterRefused):
    """A store to memory of no tensor of the launch."""


@dataclass
class LaunchState:
    """What the hooks know of the current launch, and have seen since `reset`."""

    order: Order = "ascending"
    unnamed_dot_allowed: bool = False
    casts_as_here: bool = False
    """NaN and what does not fit become the integers that this machine makes of them, not PTX's."""
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    kernel: str = ""
    launches: list[str] = field(default_factory=list)
    refusal: InterpreterRefused | None = None
    loads_outside: list[str] = field(default_factory=list)
    products: set[str] = field(default_factory=set)
    """Products that lose what their operands and result could hold: how, by which line."""
    traces: LaunchAccesses = field(default_factory=LaunchAccesses)
    """What the programs of the current launch have loaded and stored, and since `reset` which
    races that showed."""
    owners: Mapping[int, str] = field(default_factory=dict)
    """Storages that are the caller's, by address, and what they are called."""
    wrote: set[str] = field(default_factory=set)
    """Those that a kernel has stored to."""
    permutation: list[int] | None = None
    other_given: bool = False
    """Whether the load at hand names what its masked lanes hold."""
    choices: dict[str, bool] = field(default_factory=dict)
    """The autotuners' configurations that were to be chosen from, and whether each has run."""
    tuned: set[object] = field(default_factory=set)
    """The tuners' keys that were met."""
    patched: set[frozenset[int]] = field(default_factory=set)
    """Which of triton.language's modules hold the interpreter's operators during this launch."""

    def reset(self, order: Order, owners: Mapping[int, str] = MappingProxyType({})) -> None:
        """Before a call of the candidate."""
        self.order = order
        self.owners = owners
        self.wrote.clear()
        self.traces.races.clear()
        self.launches.clear()
        self.loads_outside.clear()
        self.products.clear()
        self.refusal = None

    def refuse(self, error: InterpreterRefused) -> InterpreterRefused:
        """Remember the first refusal: the interpreter wraps exceptions on their way out."""
        self.refusal = self.refusal or error
        return error


launch_state = LaunchState()


class Launched:
    """What a launch gives where nothing was compiled: on a GPU, the binary."""

    def __getattr__(self, name: str) -> object:
        text = f"{name} of what a launch gives: nothing was compiled"
        raise launch_state.refuse(NotCompiled(text))


def named_as(original: Callable[..., object], hook: Callable[..., object]) -> Callable[..., object]:
    """`hook`, whose text is that of the method in whose place it stands."""
    hook.__module__, hook.__doc__ = original.__module__, original.__doc__
    hook.__name__, hook.__qualname__ = original.__name__, original.__qualname__
    return hook


def candidate_line() -> int:
    """The line of the candidate's file that is running; 0 where none is."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith("candidate.py"):
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return 0


def is_own(kernel: object, file: str = "candidate.py") -> bool:
    """True for a kernel whose Python text lies in the candidate's `file`."""
    code = getattr(getattr(kernel, "fn", None), "__code__", None)
    return str(getattr(code, "co_filename", "")).endswith(file)


Recording = Callable[[], bool]
"""Whether the current stream is recording."""


class CudaGraphs:
    """Kernels by graph, as numbers of whoever asks."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._kernels: weakref.WeakKeyDictionary[object, list[int]] = weakref.WeakKeyDictionary()
        self._open: list[int] | None = None

    def take(self, kernel: int) -> bool:
        """Note `kernel` as part of the graph that is being recorded; False where none is."""
        if self._open is None or not self._recording():
            return False
        self._open.append(kernel)
        return True

    def watch(
        self,
        kind: type[torch.cuda.CUDAGraph],
        begun: Callable[[], None],
        ended: Callable[[], None],
        replayed: Callable[[Sequence[int]], bool],
    ) -> None:
        """From now on `begun` and `ended` hear of each recording, and `replayed` of each replay
        with the kernels of the graph; where it says so, nothing is replayed."""
        begin, end, replay = kind.capture_begin, kind.capture_end, kind.replay

        def capture_begin(graph: object, *args: object, **kwargs: object) -> object:
            begun()
            self._open = self._kernels[graph] = []
            return begin(graph, *args, **kwargs)  # type: ignore[arg-type]

        def capture_end(graph: object) -> object:
            self._open = None
            try:
                return end(graph)  # type: ignore[arg-type]
            finally:
                ended()

        def replay_graph(graph: object) -> object:
            return None if replayed(self._kernels.get(graph, ())) else replay(graph)  # type: ignore[arg-type]

        kind.capture_begin = capture_begin  # type: ignore[assignment, method-assign]
        kind.capture_end = capture_end  # type: ignore[assignment, method-assign]
        kind.replay = replay_graph  # type: ignore[assignment, method-assign]

    def watch_base(self, base: type, unseen: Callable[[], None]) -> None:
        """`unseen` hears of each replay, by whatever way, of a graph that `watch` has not seen
        recorded. `base`: what torch.cuda.CUDAGraph is made from and hands its calls to."""
        replay = base.replay  # type: ignore[attr-defined]

        def replay_graph(graph: object) -> object:
            if graph not in self._kernels:
                unseen()
            return replay(graph)

        # A type of C++ may refuse to be written to.
        with contextlib.suppress(TypeError, AttributeError):
            base.replay = replay_graph  # type: ignore[attr-defined]


MOST = 24
"""Forms of all kernels together that are kept; the others are counted."""
PLAIN = (bool, int, float, str, type(None))
OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg"}
LEFT_OUT = {"grid", "warmup", "debug", *OPTIONS}


class UnknownForm(Exception):
    """An argument that is no tensor, number, constant or kernel."""


class LaunchForms:
    """What `launches` noted: each form once."""

    def __init__(self) -> None:
        self._known: dict[str, JSON] = {}
        self.left_out = 0
        self._constant: dict[int, set[str]] = {}

    def add(self, kernel: object, args: Sequence[object], named: Mapping[str, object]) -> bool:
        """One launch of `kernel`, which the candidate's file defines; False where its form is not
        kept, so that nobody will see whether it compiles."""
        names = list(cast("list[str]", getattr(kernel, "arg_names", [])))
        given = dict(zip(names, args, strict=False)) | {
            key: value for key, value in named.items() if key not in LEFT_OUT
        }
        if id(kernel) not in self._constant:
            self._constant[id(kernel)] = _constants(kernel)
        constant = self._constant[id(kernel)]
        try:
            words = [
                [name, describe_argument(value, name in constant)] for name, value in given.items()
            ]
        except UnknownForm:
            self.left_out += 1
            return False
        form: JSON = [kernel_name(kernel), cast("JSON", words)]
        key = repr(form)
        if key in self._known:
            return True
        if len(self._known) == MOST:
            self.left_out += 1
            return False
        self._known[key] = form
        return True

    def all(self) -> list[JSON]:
        """The forms, in the order in which they came."""
        return list(self._known.values())


def kernel_name(kernel: object) -> list[JSON]:
    """Where a kernel's text begins, and what the text calls it."""
    code = getattr(getattr(kernel, "fn", None), "__code__", None)
    return [str(getattr(code, "co_name", "")), int(getattr(code, "co_firstlineno", 0))]


def _constants(kernel: object) -> set[str]:
    from triton.runtime.jit import _normalize_ty

    notes = getattr(getattr(kernel, "fn", None), "__annotations__", {})
    return {name for name, kind in notes.items() if _normalize_ty(kind) == "constexpr"}


def describe_argument(value: object, constant: bool) -> JSON:
    """One argument: ["tensor", dtype], ["number", value] with a number that stands for all that
    Triton treats alike, ["constant", value], ["dtype", name] or ["kernel", name, line]. Raises
    Unknown."""
    import torch
    import triton.language as tl

    if isinstance(value, torch.Tensor):
        return ["tensor", str(value.dtype).removeprefix("torch.")]
    if isinstance(value, tl.constexpr):
        value, constant = value.value, True
    if isinstance(value, tl.dtype):
        return ["dtype", value.name]
    if type(value) in PLAIN:
        return ["constant" if constant else "number", cast("JSON", _typical(value, constant))]
    if hasattr(value, "fn") and kernel_name(value)[1]:
        return ["kernel", *kernel_name(value)]
    raise UnknownForm(type(value).__name__)


def _typical(value: object, constant: bool) -> object:
    if constant or type(value) is not int or value == 1:
        return value
    wide = 1 << 40 if not -(1 << 31) <= value < 1 << 31 else 0
    return wide + (16 if value % 16 == 0 else 17)
