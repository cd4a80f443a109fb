"""What the interpreter's hooks know of the launch at hand, and what they have refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from agentkernel.tools.judge.traces import LaunchAccesses

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
    products: list[str] = field(default_factory=list)
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
