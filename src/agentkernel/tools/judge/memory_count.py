"""Bytes that a call holds at its peak, counted without storage, and admission to a GPU.

The count runs the captured graph or the module on tensors without storage.

Processes that share a GPU reserve what their plan holds. The ledger is a file beside the GPU
lock's, which these processes lock. Without a shared lock there is no admission to wait for.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import torch
from torch.fx import Node
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from agentkernel.domain.base import Frozen
from agentkernel.domain.problem import ScalarSpec, ShapeSet
from agentkernel.runtime import gpu_lock
from agentkernel.runtime.machine import free_memory
from agentkernel.storage.files import open_append
from agentkernel.tools.judge.reference.oracle import in_float64
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.problem.structures import leaves_of, value_of
from agentkernel.tools.roofline.op_cost import op_name

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.tools.problem.capture import Captured


TEMPORARIES = {
    "aten.mse_loss": 1.0,
    "aten.smooth_l1_loss": 1.0,
    "aten.huber_loss": 1.0,
    "aten.binary_cross_entropy": 1.0,
    "aten.soft_margin_loss": 1.0,
    "aten.logsumexp": 1.0,
    "aten.sort": 2.0,
    "aten.topk": 1.0,
    "aten.median": 1.0,
    "aten.kthvalue": 1.0,
}
"""Operators whose CUDA kernels hold memory that no operator below them shows -> how many times the
bytes of their first operand (ATen/native/Loss.cpp, ReduceOps.cpp, cuda/Sort.cpp)."""
ATTENTION = (
    torch.nn.functional.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention.default,
)
RMS_NORM = (torch.nn.functional.rms_norm, torch.ops.aten.rms_norm.default)


SCANS = (torch.ops.aten.cumsum.default, torch.ops.aten.cumprod.default)
"""On tensors without storage torch makes a scan of a square mask, whose size overflows."""


NOT_COUNTED = (
    RuntimeError,
    TypeError,
    ValueError,
    NotImplementedError,
    AssertionError,
    AttributeError,
    LookupError,
    ArithmeticError,
)
"""What a graph may raise on tensors without storage, at sizes that it was not captured for."""


class Counted(NamedTuple):
    """`peak` and `outputs` in bytes, beyond what was there before the call."""

    peak: int
    outputs: int


class _Counting(TorchDispatchMode):
    """Adds up the storages that are alive after each operator, but for the `resident` ones."""

    def __init__(self, resident: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._resident = {item.untyped_storage()._cdata for item in resident}
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(  # type: ignore[no-untyped-def] # torch's own signature
        self, func, types, args=(), kwargs=None
    ):
        """Run `func`, and see what there is then."""
        kwargs = kwargs or {}
        if func in SCANS:
            found = torch.empty_like(args[0], dtype=kwargs.get("dtype"))
        else:
            found = func(*args, **kwargs)
        for item in tree_leaves(found):
            if isinstance(item, torch.Tensor):
                storage = item.untyped_storage()
                if storage._cdata not in self._resident:
                    entry = (_weak(storage), storage.nbytes())
                    self._live.setdefault(storage._cdata, entry)
        self._live = {key: item for key, item in self._live.items() if not _is_gone(item[0])}
        extra = TEMPORARIES.get(op_name(func), 0.0)
        work = int(extra * args[0].nbytes) if extra and isinstance(args[0], torch.Tensor) else 0
        self.peak = max(self.peak, work + sum(size for _, size in self._live.values()))
        return found


def _weak(storage: torch.UntypedStorage) -> StorageWeakRef:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _is_gone(storage: StorageWeakRef) -> bool:
    return bool(storage.expired())  # type: ignore[no-untyped-call]


class _Fused(TorchFunctionMode):
    """Attention and RMS norm as the one kernel that a GPU has for them: an output, no scores."""

    def __torch_function__(  # type: ignore[no-untyped-def] # torch's own signature
        self, func, types, args=(), kwargs=None
    ):
        """Run `func`, or make what it would return."""
        kwargs = kwargs or {}
        if func in ATTENTION:
            query, value = _argument(args, kwargs, 0, "query"), _argument(args, kwargs, 2, "value")
            return query.new_empty((*query.shape[:-1], value.shape[-1]))
        if func in RMS_NORM:
            return torch.empty_like(_argument(args, kwargs, 0, "input"))
        return func(*args, **kwargs)


def _argument(args, kwargs, place: int, name: str):  # type: ignore[no-untyped-def]
    return args[place] if len(args) > place else kwargs[name]


def count_bytes(call: Callable[[], object], resident: Iterable[torch.Tensor]) -> Counted:
    """What `call` allocates and returns, beside the `resident` tensors that it is given."""
    known = list(resident)
    with torch.no_grad(), _Counting(known) as counting:
        returned = call()
    own = {item.untyped_storage()._cdata for item in known}
    storages = {
        item.untyped_storage()._cdata: item.untyped_storage().nbytes()
        for item in leaves_of(returned)
        if isinstance(item, torch.Tensor)
    }
    return Counted(counting.peak, sum(size for key, size in storages.items() if key not in own))


def meta_inputs(inputs: ShapeSet, *, double: bool = False) -> list[object]:
    """Tensors without storage for `inputs`, floats in fp64 where `double`; scalars as they are."""
    found: list[object] = []
    for spec in inputs.inputs:
        if isinstance(spec, ScalarSpec):
            found.append(value_of(spec.literal))
            continue
        dtype: torch.dtype = getattr(torch, spec.dtype)
        wide = torch.float64 if double and dtype.is_floating_point else dtype
        found.append(torch.empty(spec.shape, dtype=wide, device="meta"))
    return found


def meta_weights(captured: Captured, *, double: bool = False) -> dict[str, torch.Tensor]:
    """Placeholder -> tensor without storage, for parameters, buffers and constants."""
    names = {**captured.parameters, **captured.constants}
    found: dict[str, torch.Tensor] = {}
    for node in captured.graph.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and node.name in names and isinstance(value, torch.Tensor):
            wide = torch.float64 if double and value.dtype.is_floating_point else value.dtype
            shape = [int(size) for size in value.shape]
            found[node.name] = torch.empty(shape, dtype=wide, device="meta")
    return found


def run_graph(
    captured: Captured, values: Mapping[str, object], device: str | torch.device
) -> list[object]:
    """The outputs of forward, in order, for `values` by placeholder; what nobody needs any more
    is let go. Whatever the graph makes of nothing is made on `device`."""
    last = _last_uses(captured)
    known: dict[str, object] = {}
    for node in captured.graph.graph.nodes:
        if node.op == "placeholder":
            known[node.name] = values.get(node.name)
        elif node.op == "output":
            break
        else:
            known[node.name] = run_node(captured, node, known, device)
        for name in last.get(node.name, ()):
            known.pop(name, None)
    return [None if name is None else known[name] for name in captured.outputs]


def graph_values(captured: Captured, inputs: ShapeSet) -> dict[str, object]:
    """Every node of the graph at `inputs`: tensors without storage, numbers. Raises as
    `count_graph` does."""
    given = dict(zip(captured.user_inputs, meta_inputs(inputs), strict=True))
    known: dict[str, object] = {**given, **meta_weights(captured)}
    with torch.no_grad(), _Counting([]):
        for node in captured.graph.graph.nodes:
            if node.op in ("call_function", "get_attr"):
                known[node.name] = run_node(captured, node, known, "meta")
            else:
                known.setdefault(node.name, None)
    return known


def run_node(
    captured: Captured, node: Node, known: Mapping[str, object], device: str | torch.device
) -> object:
    """One node's value, of its arguments' in `known`."""
    if node.op == "get_attr":
        return getattr(captured.graph, str(node.target))
    if node.target is torch.ops.aten._assert_tensor_metadata.default:
        return None  # of the dtype that a cast was captured from, which fp64 is not
    here: Callable[[object], object] = lambda item: (  # noqa: E731
        known[item.name] if isinstance(item, Node) else item
    )
    args, kwargs = tree_map(here, (node.args, dict(node.kwargs)))
    if kwargs.get("device") is not None:
        kwargs["device"] = torch.device(device)
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _last_uses(captured: Captured) -> dict[str, list[str]]:
    """Node -> the values that it is the last to read."""
    kept = {name for name in captured.outputs if name is not None}
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    for node in reversed(captured.graph.graph.nodes):
        if node.op == "output":
            continue
        names = [node.name, *(item.name for item in node.all_input_nodes)]
        for name in names:
            if name not in seen and name not in kept:
                seen.add(name)
                found.setdefault(node.name, []).append(name)
    return found


def count_graph(captured: Captured, inputs: ShapeSet, *, double: bool = False) -> Counted:
    """What eager holds for the captured graph at `inputs`; in fp64 as the judge runs it where
    `double`, attention by its definition then. Raises one of NOT_COUNTED where the graph does not
    run at these sizes."""
    given = dict(zip(captured.user_inputs, meta_inputs(inputs, double=double), strict=True))
    values: dict[str, object] = {**given, **meta_weights(captured, double=double)}
    resident = [item for item in values.values() if isinstance(item, torch.Tensor)]

    def call() -> object:
        if double:
            with in_float64():
                return run_graph(captured, values, "meta")
        with _Fused():
            return run_graph(captured, values, "meta")

    return count_bytes(call, resident)


def count_module(module: nn.Module, inputs: ShapeSet) -> Counted:
    """What eager holds for `module` (on the meta device). Raises whatever its forward raises."""
    given = meta_inputs(inputs)
    state = module.state_dict()
    resident = [item for item in (*given, *state.values()) if isinstance(item, torch.Tensor)]

    def call() -> object:
        with _Fused():
            return module(*given)

    return count_bytes(call, resident)


def bytes_of(values: Sequence[object]) -> int:
    """Bytes of the tensors among `values`."""
    return sum(item.nbytes for item in values if isinstance(item, torch.Tensor))


LEDGER = "memory"
POLL_S = 0.2
COPIES = 5
"""What eager holds, so many times: the candidate's and eager's results and the fp64 oracle, which
counts twice, are there at once where they fit; the baselines' process keeps its own beside them."""
OVERHEAD_BYTES = 3 << 30
"""Contexts of four processes, and what libraries allocate for themselves."""
TIMING_BYTES = 8 << 30
"""Rows and flush regions of timing batches: fifteen calls of a module of few bytes. A batch of one
call says little: what its process does once weighs as much as the call."""


_granted: list[int] = []
"""What this process holds of a device that it shares, in bytes; empty where it shares none."""


class Entry(Frozen):
    """A process and the device memory that it holds, or waits for. `room` is what all that share
    the device may hold together, as the one saw it that entered an empty device."""

    pid: int
    nbytes: int
    room: int | None = None

    @property
    def admitted(self) -> bool:
        return self.room is not None


@contextmanager
def reserved(nbytes: int, capacity: int) -> Iterator[None]:
    """Hold `nbytes` of a device of `capacity` bytes from the first use of it in the block, which
    waits until they are free: who captures and drafts meanwhile keeps nobody from the device. Who
    wants more than there is gets the device alone. What processes of others hold of it is no room.

    First come, first served: one that needs much is not passed by others that need little. What a
    process that died held is free again.
    """
    folder = gpu_lock.lock_folder()
    if folder is None or not gpu_lock.has_other_users():
        yield
        return
    own = Entry(pid=os.getpid(), nbytes=nbytes)
    ledger = folder / LEDGER

    def enter() -> None:
        _change(ledger, lambda entries: [*_without(entries, own.pid), own])
        while (granted := _granted_bytes(ledger, own, capacity)) is None:
            time.sleep(POLL_S)
        _granted.append(granted)

    try:
        with gpu_lock.before_first_use(enter):
            yield
    finally:
        _granted.clear()
        _change(ledger, lambda entries: _without(entries, own.pid))


def wanted_bytes(loaded: LoadedProblem) -> int:
    """Device memory of a run on `loaded`: a judgement and a timing with every copy that they make
    where there is room, at its largest shape set. Nothing beyond `OVERHEAD_BYTES` and
    `TIMING_BYTES` where the module does not run without storage."""
    return (
        OVERHEAD_BYTES
        + TIMING_BYTES
        + COPIES * max(_eager_bytes(loaded, inputs) for inputs in loaded.problem.shape_sets)
    )


def _eager_bytes(loaded: LoadedProblem, inputs: ShapeSet) -> int:
    try:
        module = loaded.build(seed=0, device="meta")
        counted = count_module(module, inputs)
    except Exception:  # noqa: BLE001 - the user's forward may raise anything
        return 0
    return bytes_of([*meta_inputs(inputs), *module.state_dict().values()]) + counted.peak


def device_free() -> int:
    """Bytes of the current CUDA device that may be taken now: what is free, and where others share
    the device no more than what was reserved and is not the baselines' share or held here."""
    gpu_lock.announce_use()
    free, _ = torch.cuda.mem_get_info()
    if not _granted:
        return free
    baselines = (_granted[-1] - _timing_part(_granted[-1])) // COPIES
    own = _granted[-1] - baselines - torch.cuda.memory_reserved()
    return max(0, min(free, own))


def timing_room() -> int:
    """Bytes of the current CUDA device for the rows and flush regions of timing batches: a quarter
    of what is free, and where others share the device what was reserved for them."""
    gpu_lock.announce_use()
    free, _ = torch.cuda.mem_get_info()
    return min(_timing_part(_granted[-1]), free // 2) if _granted else free // 4


def _timing_part(granted: int) -> int:
    """What of so many reserved bytes is for timing batches: half, where a device has fewer than a
    run wants."""
    return min(TIMING_BYTES, granted // 2)


def ran_out(text: str | None) -> bool:
    """True where the reason of a failure is a device without room."""
    return text is not None and "out of memory" in text.lower()


def _granted_bytes(ledger: Path, own: Entry, capacity: int) -> int | None:
    """Enter where nobody who came earlier waits, and the rest is enough; None where not."""

    def enter(entries: list[Entry]) -> list[Entry]:
        alive = [item for item in entries if _lives(item.pid)]
        place = next(i for i, item in enumerate(alive) if item.pid == own.pid)
        rooms = [item.room for item in alive if item.room is not None]
        room = min(rooms) if rooms else min(capacity, free_memory() or capacity)
        granted = min(own.nbytes, room)
        held = sum(item.nbytes for item in alive if item.admitted)
        if all(item.admitted for item in alive[:place]) and held + granted <= room:
            alive[place] = own.evolve(nbytes=granted, room=room)
        return alive

    found = (item for item in _change(ledger, enter) if item.pid == own.pid and item.admitted)
    return next((item.nbytes for item in found), None)


def _without(entries: list[Entry], pid: int) -> list[Entry]:
    return [item for item in entries if item.pid != pid]


def _change(ledger: Path, change: Callable[[list[Entry]], list[Entry]]) -> list[Entry]:
    """The entries after `change`, which nobody else sees half done."""
    with open_append(ledger) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        entries = change(_read(file))
        file.seek(0)
        file.truncate()
        file.write(json.dumps([item.model_dump() for item in entries]).encode())
    return entries


def _read(file: IO[bytes]) -> list[Entry]:
    file.seek(0)
    text = file.read()
    return [Entry.model_validate(item) for item in json.loads(text)] if text else []


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
