"""Torch operators of a call, and which of them compute.

Two logs: torch's own profiler, which sees every thread and runs below Python, and a dispatch
mode, which also knows dtypes and devices. Each must contain the operator that the tracer slips
in after the call, so that a log that was switched off shows.
"""

from __future__ import annotations

import contextlib
import functools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, cast

import torch
from torch.autograd import profiler
from torch.utils._python_dispatch import TorchDispatchMode

from agentkernel.tools.judge.policy.families import PREFIX, Work, family, is_library, parts

TINY_ELEMENTS = 64
"""Arithmetic on tensors up to this size is bookkeeping, and so many numbers may be read."""
SMALL_WORK = 16 * TINY_ELEMENTS
"""Elements that operators on tiny tensors may take in one call, all together; a number is one. So
many may come from Python's numbers."""
CAST_ELEMENTS = 4096
"""A change of dtype up to this size is bookkeeping."""
CAST_WORK = 4 * CAST_ELEMENTS
"""Elements whose dtype such small casts may change in one call, all together."""
SMALL_SHARE, LEAST_WORK = 4, 2 * TINY_ELEMENTS
"""That much is bookkeeping of a module that takes or gives so many times as much; of smaller ones
so many elements are."""
FILLED_PARTS = 16
"""So many parts of tensors may be filled with a number in one call: borders, not rows."""
CANARY = "aten::erfinv"
SILENT = {"prim", "profiler"}
"""Namespaces of questions and marks."""
FREE = {
    "_local_scalar_dense",
    "_to_copy",
    "_unsafe_view",
    "alpha_dropout",
    "arange",
    "clone",
    "copy_",
    "detach_",
    "dropout",
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "eye",
    "feature_dropout",
    "fill_",
    "full",
    "full_like",
    "is_nonzero",
    "item",
    "lift_fresh",
    "new_empty",
    "new_empty_strided",
    "new_full",
    "new_ones",
    "new_zeros",
    "ones",
    "ones_like",
    "record_stream",
    "resize_",
    "result_type",
    "scalar_tensor",
    "set_",
    "zero_",
    "zeros",
    "zeros_like",
}
"""Allocation, filling, copying, questions. Views are known by their schema."""
FRESH = {
    f"{PREFIX}{name}"
    for name in (
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
    )
}
"""What they give has not been written to."""
FROM_NUMBERS = {
    f"{PREFIX}{name}" for name in ("fill_", "full", "lift_fresh", "new_full", "scalar_tensor")
}
"""What they give is one of Python's numbers, or a list of them."""
FILLS = {f"{PREFIX}{name}" for name in ("fill_", "zero_")}
COPIES = {f"{PREFIX}{name}" for name in ("_to_copy", "clone", "contiguous", "copy_")}


@dataclass
class Operators:
    """What one call ran, in order: `compute` and `library` name operators with the elements of
    their largest input, `moved` casts and copies off the device. `hidden`: a log was tampered
    with, and how that showed."""

    compute: list[str] = field(default_factory=list)
    library: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    hidden: str = ""
    named: set[str] = field(default_factory=set)
    """Those of `compute` that are the work of the operators in `called`."""
    called: dict[str, Work] = field(default_factory=dict)
    """Operators, by family, that the call itself made and whose work is in `compute`."""
    parts: list[tuple[str, ...]] = field(default_factory=list)
    """What each operator that the call itself made computes, of the library's too."""
    owners: Mapping[int, str] = field(default_factory=dict)
    """Storages that are the caller's, by address, and what they are called."""
    rooms: set[int] = field(default_factory=set)
    """Storages on the host that the judge has an output copied to, by address: one copy each."""
    outside: Callable[[], bool] = lambda: True
    """Whether no kernel is being launched: Triton's interpreter copies every tensor of a launch."""
    wrote: list[str] = field(default_factory=list)
    """Those that an operator wrote to."""
    elements: Callable[[], int] = lambda: SMALL_SHARE * SMALL_WORK
    """Of the largest tensor that the call took or gave, asked after it."""
    marks: list[list[int]] = field(default_factory=list)
    """Shapes that tell in the logs where another run of forward begins within the call."""
    begin_run: Callable[[], None] = lambda: None
    """While the call is recorded: what follows is another run of forward. Each run is counted by
    itself, and `called` and `parts` have the most that one of them did."""


Arguments = tuple[Sequence[object], Mapping[str, object]]
Operator = torch._ops.OpOverload


class Event(Protocol):
    """One event of torch's profiler."""

    name: str
    input_shapes: object
    cpu_children: Sequence[Event]
    cpu_parent: Event | None


def is_free(name: str) -> bool:
    """True for an operator (without "aten::") that allocates, copies or looks."""
    return name in FREE or _is_view(name)


def is_foreign(name: str) -> bool:
    """True for an operator of another namespace than torch's own: one of a library's, or one that
    was registered. None of them is known to be free."""
    space, colons, _ = name.partition("::")
    return bool(colons) and space not in {"aten", *SILENT} and space in _spaces()


def _spaces() -> set[str]:
    """The namespaces that have operators by now."""
    return {name.partition("::")[0] for name in torch._C._dispatch_get_all_op_names()}


@functools.cache
def _is_view(name: str) -> bool:
    """Every overload that takes a tensor first returns an alias of it and writes to none."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return False
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
    schemas = [item for item in schemas if _takes_tensor(item)]
    return bool(schemas) and all(_returns_alias(schema) for schema in schemas)


def _takes_tensor(schema: torch._C.FunctionSchema) -> bool:
    arguments = schema.arguments
    out = any(item.is_out for item in arguments)
    return not out and bool(arguments) and str(arguments[0].type) == "Tensor"


def _returns_alias(schema: torch._C.FunctionSchema) -> bool:
    aliases = [item.alias_info for item in schema.returns]
    return bool(aliases) and all(item is not None and not item.is_write for item in aliases)


def elements(shapes: object) -> int:
    """Elements of the largest shape in the profiler's nested lists."""
    if not isinstance(shapes, list | tuple) or not shapes:
        return 0
    if all(isinstance(size, int) for size in shapes):
        count = 1
        for size in shapes:
            count *= size
        return count
    return max(elements(item) for item in shapes)


def sort_events(
    events: Iterable[Event], found: Operators, canary: Sequence[int] | None = None
) -> bool:
    """Sort the profiler's events, in order of time, into `found`; True where the operator slipped
    in, on a tensor of shape `canary`, is among them. An operator that only calls others is left to
    them; what a library operator calls is the library's."""
    seen = False
    tally = _Tally(found)
    for event in events:
        if event.name == CANARY and any(item in found.marks for item in _lists(event.input_shapes)):
            tally.close()
            tally = _Tally(found)
            continue
        if "Torch-Compiled" in event.name or "CompiledFunction" in event.name:
            found.compute.append(f"{event.name} (compiled)")
            continue
        if event.name == CANARY and canary in _lists(event.input_shapes):
            seen = True
            continue
        own = event.name.startswith(PREFIX)
        if not (own or is_foreign(event.name)) or any(map(is_library, _callers(event))):
            continue
        if not own:
            found.compute.append(event.name)
            continue
        name = event.name.removeprefix(PREFIX)
        if is_library(name):
            if not any(_own_name(child) == name for child in event.cpu_children):
                found.library.append(name)
                tally.note(event)
        elif not is_free(name) and not _only_calls(event):
            tally.note(event)
            tally.add(event, name)
    tally.close()
    return seen


class _Tally:
    """The operators of one call that compute, and which of them the call itself made."""

    def __init__(self, found: Operators) -> None:
        self._found = found
        self._made: dict[int, Event] = {}
        self._large: dict[int, Event] = {}
        self._small: dict[int, Event] = {}
        self._names: dict[str, None] = {}
        self._elements = 0

    def note(self, event: Event) -> None:
        """Some of its work is done here, by a library or not."""
        outer = _outermost(event)
        if elements(outer.input_shapes) > TINY_ELEMENTS:
            self._made[id(outer)] = outer

    def add(self, event: Event, name: str) -> None:
        """An operator that computes, and is no library's."""
        count = elements(event.input_shapes)
        if count > TINY_ELEMENTS:
            self._say(f"{name} ({count} elements)")
            self._large[id(_outermost(event))] = _outermost(event)
        else:
            self._elements += max(1, count)
            self._names[name] = None
            self._small[id(_outermost(event))] = _outermost(event)

    def close(self) -> None:
        """After the last one of a run: what is more than bookkeeping goes to the record, as far as
        no other run did as much."""
        found, small = self._found, self._elements
        if small > min(SMALL_WORK, max(LEAST_WORK, found.elements() // SMALL_SHARE)):
            which = ", ".join(list(self._names)[:3])
            self._say(f"many operators on a few elements each ({which}: {small} elements)")
            self._large |= self._small
        called: dict[str, Work] = {}
        for event in self._large.values():
            name = family(event.name)
            known = called.get(name, Work(0, 0))
            total = (known.elements or 0) + all_elements(event.input_shapes)
            called[name] = Work(known.calls + 1, total)
        for name, work in called.items():
            most = found.called.get(name, Work(0, 0))
            elements = max(work.elements or 0, most.elements or 0)
            found.called[name] = Work(max(work.calls, most.calls), elements)
        done = Counter(_parts_of(event) for event in self._made.values())
        found.parts += (done - Counter(found.parts)).elements()

    def _say(self, text: str) -> None:
        self._found.compute.append(text)
        self._found.named.add(text)


def _outermost(event: Event) -> Event:
    """The operator of torch's own that the call made, and that came to call this one."""
    outer, parent = event, event.cpu_parent
    while parent is not None:
        outer = parent if parent.name.startswith(PREFIX) else outer
        parent = parent.cpu_parent
    return outer


def _parts_of(event: Event) -> tuple[str, ...]:
    """What it computes: a third tensor of a product is a bias, a fourth of attention a mask."""
    shapes = [bool(item) for item in _lists(event.input_shapes)]
    given = [word for word, at in (("bias", 2), ("mask", 3)) if any(shapes[at : at + 1])]
    return parts(_own_name(event), given)


def all_elements(shapes: object) -> int:
    """Elements of all shapes in the profiler's nested lists together."""
    items = _lists(shapes)
    if items and all(isinstance(size, int) for size in items):
        return math.prod(cast("list[int]", items))
    return sum(map(all_elements, items))


class RawEvent(Protocol):
    """One event of torch's profiler, as it was logged."""

    def name(self) -> str:
        """Of the operator, with its namespace."""

    def shapes(self) -> object:
        """Those of its inputs."""


def only_free(events: Iterable[RawEvent], canary: Sequence[int]) -> bool:
    """True where every operator of the log is free by itself, whatever calls it, and the one that
    was slipped in is there: then `sort_events` has nothing to find."""
    seen = False
    for event in events:
        name = event.name()
        if name == CANARY and canary in _lists(event.shapes()):
            seen = True
        elif name.startswith(PREFIX):
            if not is_free(name.removeprefix(PREFIX)):
                return False
        elif "Compiled" in name or is_foreign(name):
            return False
    return seen


def _own_name(event: Event) -> str:
    return event.name.removeprefix(PREFIX)


def _callers(event: Event) -> Iterator[str]:
    parent = event.cpu_parent
    while parent is not None:
        if parent.name != event.name:
            yield _own_name(parent)
        parent = parent.cpu_parent


def _only_calls(event: Event) -> bool:
    """True where the work is done by operators that it calls."""
    inner = [item for item in event.cpu_children if item.name.startswith(PREFIX)]
    return any(not is_free(_own_name(item)) for item in inner)


class DispatchLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Hands every operator below autograd to `note` after it ran."""

    def __init__(self, note: Callable[[Operator, Arguments, object], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._note = note

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Not by torch's wrapper, which imports all of torch._dynamo for the first operator and
        costs more than `note` for each."""
        return False

    def __torch_dispatch__(  # type: ignore[no-untyped-def] # torch's own signature
        self, func, types, args=(), kwargs=None
    ):
        """Run `func` as it is."""
        result = func(*args, **(kwargs or {}))
        self._note(func, (args, kwargs or {}), result)
        return result


@functools.cache
def _written(operator: Operator) -> tuple[tuple[int, str], ...]:
    """The arguments that it writes to, by position and name. `record_stream` notes a stream for the
    allocator; its schema calls that a write."""
    if operator._schema.name == "aten::record_stream":
        return ()
    return tuple(
        (position, str(item.name))
        for position, item in enumerate(operator._schema.arguments)
        if item.alias_info is not None and item.alias_info.is_write
    )


def written_storages(operator: Operator, given: Arguments) -> Iterator[int]:
    """The addresses of the storages that this call of it wrote to."""
    args, kwargs = given
    for position, name in _written(operator):
        value = args[position] if position < len(args) else kwargs.get(name)
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, torch.Tensor) and item.layout is torch.strided:
                yield item.untyped_storage().data_ptr()


class Moved(NamedTuple):
    """What a copy did beyond copying: `text` for what is no bookkeeping, else "", the elements
    whose dtype it changed, and the address that it went to where that is on the host."""

    text: str
    cast: int
    host: int = 0


def moved_data(name: str, args: Sequence[object], result: object) -> Moved:
    """A cast, or a way off the device."""
    if name == "aten::_to_copy":
        source, target = args[0], result
    elif name == "aten::copy_" and len(args) > 1:
        source, target = args[1], args[0]
    else:
        return Moved("", 0)
    if not isinstance(source, torch.Tensor) or not isinstance(target, torch.Tensor):
        return Moved("", 0)
    count = source.numel()
    if source.is_cuda and not target.is_cuda and count > TINY_ELEMENTS:
        text = f"copy to the host ({count} elements)"
        return Moved(text, 0, target.untyped_storage().data_ptr())
    if source.dtype == target.dtype:
        return Moved("", 0)
    text = f"cast from {source.dtype} to {target.dtype} ({count} elements)"
    return Moved(text if count > CAST_ELEMENTS else "", count)


def _is_part(value: object) -> bool:
    """Whether it is a tensor that leaves some of its storage out."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return value.numel() > 1 and value.nbytes < value.untyped_storage().nbytes()


def _negates(name: str, args: Sequence[object], result: object) -> bool:
    """Whether a copy reads one of torch's lazy negations or conjugations and writes numbers."""
    source, target = (args[1], args[0]) if name == "aten::copy_" else (args[0], result)
    if not isinstance(source, torch.Tensor) or not isinstance(target, torch.Tensor):
        return False
    return (source.is_neg(), source.is_conj()) != (target.is_neg(), target.is_conj())


class _Sums:
    """What is free by itself and adds up in the course of one call."""

    def __init__(self, found: Operators) -> None:
        self._found = found
        self._read = self._made = self._cast = self._filled = 0

    def begin_run(self, shape: list[int]) -> None:
        """Count from nothing on, where `shape` marks that another run begins."""
        if shape in self._found.marks:
            self._read = self._made = self._cast = self._filled = 0

    def add(self, name: str, args: Sequence[object], result: object) -> None:
        """Count one operator's part."""
        found = self._found
        if is_foreign(name) and name not in found.compute:
            found.compute.append(name)
        elif name == "aten::_local_scalar_dense":
            self._read += 1
            if self._read == TINY_ELEMENTS + 1:
                found.compute.append(f"more than {TINY_ELEMENTS} numbers read one by one")
        elif name in FROM_NUMBERS:
            listed = name == "aten::lift_fresh" and isinstance(result, torch.Tensor)
            self._made += max(1, result.numel()) if listed else 1  # type: ignore[attr-defined]
            if self._made > SMALL_WORK and not any("Python's" in item for item in found.compute):
                found.compute.append(f"a tensor of Python's numbers ({self._made} elements)")
        if name in FILLS and _is_part(args[0]):
            self._filled += 1
            if self._filled == FILLED_PARTS + 1:
                found.compute.append(f"more than {FILLED_PARTS} parts of tensors filled")
        if name in COPIES and _negates(name, args, result):
            found.compute.append(f"{name.removeprefix(PREFIX)} that negates or conjugates")
        moved = moved_data(name, args, result)
        if moved.host and moved.host in found.rooms:
            found.rooms.remove(moved.host)
        elif moved.text:
            found.moved.append(moved.text)
        elif moved.cast:
            self._cast += moved.cast
            if self._cast > CAST_WORK:
                found.moved.append(f"many casts of a few elements each ({self._cast} elements)")


def record_operators(
    call: Callable[[], object],
    found: Operators,
    fresh: Callable[[torch.Tensor], object] | None = None,
    *,
    _profile: type[profiler.profile] = profiler.profile,
    _mode: type[DispatchLog] = DispatchLog,
    _canary: Callable[[torch.Tensor], torch.Tensor] = torch.erfinv,
) -> object:
    """What `call()` returns; `found` is filled in. `fresh` gets all memory that an operator gave
    unwritten. What is used is bound before any candidate is loaded, so that replacing it in its
    module changes nothing here."""
    seen: list[list[int]] = []
    mark = [random.SystemRandom().randrange(2, 1 << 12), 1, 3]
    sums = _Sums(found)

    def begin_run() -> None:
        found.marks.append([random.SystemRandom().randrange(2, 1 << 12), 1, 5])
        _canary(torch.zeros(found.marks[-1]))

    def note(operator: Operator, given: Arguments, result: object) -> None:
        name, args = str(operator._schema.name), given[0]
        if fresh is not None and name in FRESH:
            fresh(cast("torch.Tensor", result))
        if name == CANARY:
            seen.append(list(cast("torch.Tensor", args[0]).shape))
            sums.begin_run(seen[-1])
        if found.owners and _written(operator) and found.outside():
            places = written_storages(operator, given)
            found.wrote.extend(found.owners[item] for item in places if item in found.owners)
        sums.add(name, args, result)

    log = _profiler(_profile)
    found.begin_run = begin_run
    answer: list[object] = []
    try:
        with log if log is not None else contextlib.nullcontext(), _mode(note):
            answer.append(call())
            _canary(torch.zeros(mark))
    except RuntimeError as error:
        if not answer:
            raise
        found.hidden = f"a log of operators was ended by the call: {str(error)[:120]}"
        return answer[0]
    if log is not None:
        raw = log.kineto_results
        in_profile = raw is not None and only_free(raw.events(), mark)
        if not in_profile:
            # Which operator calls which costs as much as a small call itself.
            events = cast("Sequence[Event]", log.function_events or ())
            in_profile = sort_events(events, found, mark)
    else:
        in_profile = True
    if mark not in seen or not in_profile:
        found.hidden = "a log of operators was switched off during the call"
    return answer[0]


def with_uninitialized_memory(
    call: Callable[[], object],
    fresh: Callable[[torch.Tensor], object],
    *,
    _mode: type[DispatchLog] = DispatchLog,
) -> object:
    """What `call()` returns; `fresh` gets all memory that an operator gave unwritten."""

    def note(operator: Operator, given: Arguments, result: object) -> None:
        if str(operator._schema.name) in FRESH:
            fresh(cast("torch.Tensor", result))

    with _mode(note):
        return call()


def _lists(shapes: object) -> list[object]:
    return list(shapes) if isinstance(shapes, list | tuple) else []


def _profiler(kind: type[profiler.profile]) -> profiler.profile | None:
    """A profiler of all threads; None where this torch has none."""
    try:
        from torch._C._profiler import _ExperimentalConfig

        config = _ExperimentalConfig(profile_all_threads=True)
        return kind(record_shapes=True, experimental_config=config)
    except (ImportError, TypeError):
        return None


__all__ = [
    "Operators",
    "elements",
    "is_free",
    "is_library",
    "record_operators",
    "sort_events",
    "with_uninitialized_memory",
]
