"""Hooks in Triton's interpreter that refuse in the worker what a GPU would not forgive.

Every address is checked against the tensors of the launch: a store outside is refused, a load
outside gives NaN. Programs can run in another order. Values are rounded as `arithmetic` says.
Works with the interpreters of Triton 3.6 and 3.9.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner

from agentkernel.tools.judge.execution.launches import (
    InterpreterRefused,
    Launched,
    LaunchRefused,
    LaunchState,
    NotCompiled,
    Order,
    OutOfBounds,
    OutOfResources,
    candidate_line,
    is_own,
    launch_state,
    named_as,
)
from agentkernel.tools.judge.interpreter.arithmetic import (
    add_libdevice,
    builder_class,
    install_gpu_rounding,
    is_bf16,
)
from agentkernel.tools.judge.interpreter.type_cache import cache_types, false_hint
from agentkernel.tools.judge.policy.kernel_source import last_word
from agentkernel.tools.judge.policy.names import INTERPRETERS_NAMES

INT_SENTINEL = 0x5A
MASKED_LANE_VALUES = (*(float("nan"),) * 8, 0.0, 0.0, 1.0, -1.0, 0.625, -2.5, 60.0, -100.0)
_draw = random.Random()
LOOP = "interpreter_loop"
OWN_OPTIONS = frozenset({"grid", "warmup", "debug", "pre_run_hooks"})
MOST_OF = {"num_warps": 32, "num_ctas": 16, "num_stages": 32}
SHARED_BYTES = 232_448
"""Of one program on an H100 (CUDA programming guide, compute capability 9.0); no GPU of NVIDIA's
has more. A tile that a dot reads goes through it as a whole."""


@functools.cache
def install_hooks() -> LaunchState:
    """Install every hook, once a process."""
    cache_types()
    _hook_assertions()
    _hook_launches()
    _hook_patches()
    _hook_autotuner()
    _hook_order()
    _hook_loops()
    _hook_memory()
    install_gpu_rounding()
    _hook_dots()
    _hook_others()
    _hook_hints()
    _hook_names()
    add_libdevice()
    return launch_state


@functools.cache
def correct_interpreter() -> None:
    """For a program that is not judged: values and counters as on a GPU, and assertions that hold,
    once a process. Triton's own interpreter multiplies the bit patterns of bf16, counts in Python's
    integers, has none of libdevice and passes over assertions."""
    launch_state.unnamed_dot_allowed = True
    cache_types()
    _hook_assertions()
    _hook_patches()
    _hook_loops()
    install_gpu_rounding()
    add_libdevice()


def _hook_assertions() -> None:
    """They hold, and what a launch has changed in Triton's language is forgotten behind it."""
    run = interpreter.InterpretedFunction.run

    def heeding_run(self: object, *args: object, **kwargs: object) -> object:
        launch_state.patched.clear()
        _heed_assertions(self, kwargs)
        try:
            return run(self, *args, **kwargs)
        finally:
            launch_state.patched.clear()

    interpreter.InterpretedFunction.run = named_as(run, heeding_run)


def _hook_launches() -> None:
    run = interpreter.InterpretedFunction.run
    convert = interpreter._implicit_cvt

    def watched_run(self: object, *args: object, **kwargs: object) -> object:
        if not kwargs.get("warmup"):
            launch_state.kernel = str(self.fn.__name__)  # type: ignore[attr-defined]
            if is_own(self):
                launch_state.launches.append(launch_state.kernel)
            launch_state.starts, launch_state.ends = [], []
            launch_state.traces.launch()
        _require_options(self, kwargs)
        run(self, *args, **kwargs)
        return Launched()

    def watched_convert(argument: object) -> object:
        if hasattr(argument, "data_ptr"):
            storage = interpreter._unwrap_tensor(argument).untyped_storage()
            launch_state.starts.append(storage.data_ptr())
            launch_state.ends.append(storage.data_ptr() + storage.nbytes())
            launch_state.traces.add(
                launch_state.starts[-1], launch_state.ends[-1], _item_bytes(argument)
            )
        return convert(argument)

    def missing(self: object, name: str) -> object:
        if sys._getframe(1).f_code.co_filename.endswith("candidate.py"):
            text = f"{name} of a kernel: what is interpreted has other attributes"
            raise launch_state.refuse(NotCompiled(text))
        raise AttributeError(name)

    interpreter.InterpretedFunction.__getattr__ = missing
    interpreter.InterpretedFunction.run = named_as(run, watched_run)
    interpreter._implicit_cvt = watched_convert


@functools.cache
def _options() -> frozenset[str]:
    """The options of a launch that some backend knows."""
    import dataclasses

    from triton.backends.amd.compiler import HIPOptions
    from triton.backends.nvidia.compiler import CUDAOptions

    kinds = (CUDAOptions, HIPOptions)
    return OWN_OPTIONS | {field.name for kind in kinds for field in dataclasses.fields(kind)}


def _require_options(kernel: object, named: dict[str, object]) -> None:
    """As the launcher has it, which the interpreter leaves out: options that are known, a power of
    two of warps and of programs of a cluster, stages that some memory holds."""
    known = set(kernel.arg_names)  # type: ignore[attr-defined]
    for name, value in named.items():
        if name in known or value is None:
            continue
        if name not in _options():
            raise launch_state.refuse(
                LaunchRefused(f"kernel {launch_state.kernel}: no launch takes {name}")
            )
        most = MOST_OF.get(name)
        if most is None:
            continue
        least = 0 if name == "num_stages" else 1
        whole = type(value) is int and least <= value <= most
        if not whole or (name != "num_stages" and value & (value - 1)):  # type: ignore[operator]
            text = f"kernel {launch_state.kernel}: {name}={value!r} is none that a GPU launches"
            raise launch_state.refuse(LaunchRefused(text))


def _item_bytes(argument: object) -> int:
    """Of a tensor, or of one that is launched as if it were of another type."""
    tensor = interpreter._unwrap_tensor(argument)
    wrapped = tensor is not argument
    bits = argument.dtype.primitive_bitwidth if wrapped else 8 * tensor.element_size()  # type: ignore[attr-defined]
    return max(1, int(bits) // 8)


def _heed_assertions(kernel: object, kwargs: dict[str, object]) -> None:
    """As on a GPU, assertions hold under `@triton.jit(debug=True)` and nowhere else."""
    decorated = kernel.kwargs.get("debug")  # type: ignore[attr-defined]
    debug = bool(kwargs.get("debug", decorated))
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(
        debug=debug, sanitize_overflow=False
    )


class _NoPatches:
    """What was changed is the launch's to restore."""

    def restore(self) -> None:
        """Nothing."""


def _hook_patches() -> None:
    """Each call of a kernel's helper puts the interpreter's operators into triton.language anew, a
    third of a launch's time: once a launch is enough."""
    patch = interpreter._patch_lang

    def patch_once(function: object) -> object:
        names = function.__globals__  # type: ignore[attr-defined]
        spaces = frozenset(id(x) for x in names.values() if x is tl or x is tl.core)
        if spaces in launch_state.patched:
            return _NoPatches()
        scope = patch(function)
        # Triton 3.6 makes an int of an array of one element, which NumPy 2.5 refuses.
        tl.core.tensor.__index__ = _as_index
        launch_state.patched.add(spaces)
        return scope

    interpreter._patch_lang = patch_once
    look_through = interpreter._patch_builtin
    kinds = (tl, tl.core, tl.math, tl.core.tensor, tl.core.tensor_descriptor_base)
    names = {id(kind): _builtin_names(kind) for kind in kinds}

    def patch_builtin(kind: object, builder: object, scope: object) -> None:
        # As Triton's own, which looks through all members of `kind` for each launch.
        if id(kind) not in names:
            look_through(kind, builder, scope)
            return
        for name in names[id(kind)]:
            member = getattr(kind, name)
            if tl.core.is_builtin(member):
                interpreter._patch_attr(kind, name, member, builder, scope)

    interpreter._patch_builtin = patch_builtin


def _builtin_names(kind: object) -> list[str]:
    return [name for name, item in inspect.getmembers(kind) if tl.core.is_builtin(item)]


def _as_index(value: tl.tensor) -> int:
    return int(value.handle.data.item())


def _hook_autotuner() -> None:
    """Nothing can be timed here: the configurations that the candidate leaves after its own pruning
    take turns in no order that it knows, so that each computes some judged output. At the first
    launch of a key another one runs before on the same memory, as when they are timed, by the
    candidate's own stopwatch where it has one; its own model of times is asked, too."""
    run = Autotuner.run
    draw = random.SystemRandom()

    def take_turns(self: object, *args: object, **kwargs: object) -> object:
        every = self.configs  # type: ignore[attr-defined]
        if len(every) < 2:
            return run(self, *args, **kwargs)
        left = _pruned(self, every, args, kwargs)
        names = {f"{id(self)} {config}": config for config in left}
        for name in names:
            launch_state.choices.setdefault(name, False)
        chosen = draw.choice(
            [name for name in names if not launch_state.choices[name]] or list(names)
        )
        launch_state.choices[chosen] = True
        given = dict(zip(self.arg_names, args, strict=False)) | kwargs  # type: ignore[attr-defined]
        key = (id(self), *(repr(given.get(name)) for name in self.keys))  # type: ignore[attr-defined]
        try:
            if key not in launch_state.tuned and len(left) > 1:
                launch_state.tuned.add(key)
                other = next(config for name, config in names.items() if name != chosen)
                self.configs = [other]  # type: ignore[attr-defined]
                bound = given | other.all_kwargs()  # type: ignore[attr-defined]

                def timed() -> None:
                    self.pre_hook(bound)  # type: ignore[attr-defined]
                    run(self, *args, **kwargs)
                    self.post_hook(bound, exception=None)  # type: ignore[attr-defined]

                with contextlib.suppress(Exception):  # it may ask for a GPU
                    _estimated(self, left, given)
                _stopwatch(self)(timed)
                self.pre_hook(bound, reset_only=True)  # type: ignore[attr-defined]
            self.configs = [names[chosen]]  # type: ignore[attr-defined]
            return run(self, *args, **kwargs)
        finally:
            self.configs = every  # type: ignore[attr-defined]

    Autotuner.run = named_as(run, take_turns)


def _estimated(tuner: object, left: Sequence[object], given: dict[str, object]) -> None:
    """Ask the candidate's model of times, where it has one."""
    for config in left if tuner.perf_model else ():  # type: ignore[attr-defined]
        tuner.perf_model(**given | config.all_kwargs())  # type: ignore[attr-defined]


def _stopwatch(tuner: object) -> Callable[[Callable[[], None]], object]:
    """What times a call: the candidate's own function, else the call alone."""
    own = tuner._do_bench  # type: ignore[attr-defined]
    file = str(getattr(getattr(own, "__code__", None), "co_filename", ""))
    if not file.endswith("candidate.py"):
        return lambda timed: timed()
    return lambda timed: own(timed, quantiles=(0.5, 0.2, 0.8))


def _pruned(
    tuner: object, every: list[object], args: tuple[object, ...], kwargs: dict[str, object]
) -> list[object]:
    prune = tuner.early_config_prune  # type: ignore[attr-defined]
    if prune is None:
        return every
    named = dict(zip(tuner.arg_names, args, strict=False))  # type: ignore[attr-defined]
    left = list(prune(every, named, **kwargs))
    return left or every


def _hook_order() -> None:
    set_dim, set_idx = builder_class().set_grid_dim, builder_class().set_grid_idx  # type: ignore[attr-defined]

    def set_grid_dim(self: object, nx: int, ny: int, nz: int) -> None:
        set_dim(self, nx, ny, nz)
        launch_state.permutation = _permutation(nx * ny * nz, launch_state.order)

    def set_grid_idx(self: object, x: int, y: int, z: int) -> None:
        _, ny, nz = self.grid_dim  # type: ignore[attr-defined]
        index = (x * ny + y) * nz + z
        if launch_state.permutation is not None:
            index = launch_state.permutation[index]
            x, y, z = index // (ny * nz), index // nz % ny, index % nz
        launch_state.traces.begin(index)
        set_idx(self, x, y, z)

    builder_class().set_grid_dim = set_grid_dim  # type: ignore[attr-defined]
    builder_class().set_grid_idx = set_grid_idx  # type: ignore[attr-defined]


def _hook_loops() -> None:
    """Triton counts a loop in tensors, the interpreter in Python's integers, which have no `to` and
    make no mask."""

    class Loops(interpreter.ASTTransformer):  # type: ignore[misc]
        """Gives the loops over `range` and `tl.range` their own kind of counter."""

        def visit_For(self, node: ast.For) -> ast.AST:  # noqa: N802 - ast's own name
            """`for k in range(n)` becomes `for k in interpreter_loop(range, n)`."""
            self.generic_visit(node)
            call = node.iter
            if isinstance(call, ast.Call) and last_word(call.func) == "range":
                name = ast.Name(id=LOOP, ctx=ast.Load())
                node.iter = ast.Call(
                    func=name, args=[call.func, *call.args], keywords=call.keywords
                )
            return node

    setattr(interpreter, LOOP, _counted)  # whose names every kernel has
    interpreter.FunctionRewriter.ast_transformer = Loops()


def _counted(
    kind: Callable[..., Iterable[object]], *bounds: object, **named: object
) -> Iterator[object]:
    """The counter of a loop, as wide as the widest of its bounds."""
    wide = any(getattr(getattr(item, "dtype", None), "name", "") == "int64" for item in bounds)
    semantic = interpreter.interpreter_semantic
    step = bounds[2] if len(bounds) > 2 else named.get("step")
    if isinstance(step, tl.tensor) and int(step.handle.data.item()) < 0:
        # Compiled, a step that is no constant counts up: the loop never runs.
        raise launch_state.refuse(InterpreterRefused(f"{_where()}: a loop's step is below zero"))
    for value in kind(*bounds, **named):
        if type(value) is not int:
            yield value
            continue
        counter = semantic.to_tensor(value, False)
        yield semantic.cast(counter, tl.int64) if wide else counter


@contextlib.contextmanager
def hidden_arrays() -> Iterator[None]:
    """While a kernel runs in a form that nobody compiles: the arrays behind its tensors, which only
    Python has, are not for the candidate's own lines."""

    def read(self: tl.tensor) -> object:
        if sys._getframe(1).f_code.co_filename.endswith("candidate.py"):
            text = (
                f"kernel {launch_state.kernel} line {candidate_line()} reads the array of a tensor"
            )
            raise launch_state.refuse(NotCompiled(f"{text}, in a form that was not compiled"))
        return self.__dict__["handle"]

    def write(self: tl.tensor, value: object) -> None:
        self.__dict__["handle"] = value

    tl.tensor.handle = property(read, write)
    try:
        yield
    finally:
        del tl.tensor.handle


def _permutation(count: int, order: Order) -> list[int] | None:
    if order == "ascending":
        return None
    indices = list(range(count))[::-1]
    if order == "shuffled":
        random.Random(count).shuffle(indices)
    return indices


def _hook_memory() -> None:
    builder = builder_class()
    load, store = builder.create_masked_load, builder.create_masked_store  # type: ignore[attr-defined]
    rmw, cas = builder.create_atomic_rmw, builder.create_atomic_cas  # type: ignore[attr-defined]
    barrier = builder.create_barrier  # type: ignore[attr-defined]

    def masked_load(
        self: object, ptrs: object, mask: object, other: object, *a: object, **k: object
    ) -> object:
        inside = _inside(ptrs, mask)
        if other is None and not launch_state.other_given and inside is None:
            # What these lanes hold is undefined: not the interpreter's zeros.
            wanted = _mask(ptrs, mask)
            if not wanted.all():
                if len(launch_state.traces.programs) > 1 or launch_state.traces.released:
                    launch_state.traces.load(_wanted(ptrs, mask), _where, _lanes(ptrs, mask))
                return _poison(load(self, ptrs, mask, other, *a, **k), ~wanted)
        if inside is None:
            if len(launch_state.traces.programs) > 1 or launch_state.traces.released:
                launch_state.traces.load(_wanted(ptrs, mask), _where, _lanes(ptrs, mask))
            return load(self, ptrs, mask, other, *a, **k)
        launch_state.loads_outside.append(f"{launch_state.kernel} line {candidate_line()}")
        legal = interpreter.TensorHandle(inside & _mask(ptrs, mask), tl.int1)
        result = load(self, ptrs, legal, other, *a, **k)
        return _poison(result, _mask(ptrs, mask) & ~inside)

    def masked_store(self: object, ptrs: object, value: object, mask: object, *a: object) -> object:
        _require_inside(ptrs, mask, "store")
        _note_store(ptrs, value, mask)
        return store(self, ptrs, value, mask, *a)

    def atomic_rmw(
        self: object, op: object, ptr: object, val: object, mask: object, *a: object
    ) -> object:
        _require_inside(ptr, mask, "atomic")
        if is_bf16(val):
            raise launch_state.refuse(
                InterpreterRefused("atomics on bfloat16 cannot be interpreted")
            )
        _note_atomic(ptr, mask)
        return rmw(self, op, ptr, val, mask, *a)

    def atomic_cas(self: object, ptr: object, *a: object) -> object:
        _require_inside(ptr, None, "atomic")
        _note_atomic(ptr, None)
        return cas(self, ptr, *a)

    def create_barrier(self: object) -> object:
        launch_state.traces.settle()
        return barrier(self)

    builder.create_barrier = create_barrier  # type: ignore[attr-defined]
    builder.create_masked_load = masked_load  # type: ignore[attr-defined]
    builder.create_masked_store = masked_store  # type: ignore[attr-defined]
    builder.create_atomic_rmw = atomic_rmw  # type: ignore[attr-defined]
    builder.create_atomic_cas = atomic_cas  # type: ignore[attr-defined]


def _hook_others() -> None:
    """A tensor of one element is as true as its value in the interpreter, so that Triton's `load`
    takes an `other` of zero for none: whether there was one is noted."""
    kind = type(interpreter.interpreter_semantic)
    load = kind.load

    def noted(
        self: object, ptr: object, mask: object, other: object, *a: object, **k: object
    ) -> object:
        launch_state.other_given = other is not None
        try:
            return load(self, ptr, mask, other, *a, **k)
        finally:
            launch_state.other_given = False

    kind.load = named_as(load, noted)


def _hook_dots() -> None:
    """After `install_gpu_rounding`, which multiplies itself."""
    builder = builder_class()
    dot = builder.create_dot  # type: ignore[attr-defined]

    def create_dot(self: object, a: object, b: object, *rest: object, **named: object) -> object:
        for tile in (a, b):
            size = tile.data.size * max(1, tile.dtype.scalar.primitive_bitwidth // 8)  # type: ignore[attr-defined]
            if size > SHARED_BYTES:
                text = (
                    f"kernel {launch_state.kernel} line {candidate_line()}: a tile of {size} bytes"
                )
                raise launch_state.refuse(
                    OutOfResources(f"{text} in a dot; a GPU has {SHARED_BYTES}")
                )
        return dot(self, a, b, *rest, **named)

    builder.create_dot = create_dot  # type: ignore[attr-defined]


def _hook_hints() -> None:
    """A hint that is false is wrong on a GPU alone."""
    kind = interpreter.TensorHandle
    set_attr = kind.set_attr

    def checked(self: object, name: str, values: list[object]) -> None:
        data, dtype = self.data, self.dtype.scalar  # type: ignore[attr-defined]
        step = max(1, dtype.element_ty.primitive_bitwidth // 8) if dtype.is_ptr() else 1
        said = false_hint(name, np.asarray(data), values, step)
        if said is not None:
            raise launch_state.refuse(InterpreterRefused(f"{_where()}: {said} does not hold"))
        set_attr(self, name, values)

    kind.set_attr = checked


def _hook_names() -> None:
    """Triton puts all names of its interpreter into a file whose kernels it rewrites, which tell
    the file where it runs; here those alone that rewritten kernels read."""

    rewritten = interpreter.FunctionRewriter._compile_and_exec

    def compile_and_exec(self: object, tree: ast.Module) -> object:
        names = self.fn.__globals__  # type: ignore[attr-defined]
        before = {*names, *INTERPRETERS_NAMES}
        try:
            return rewritten(self, tree)
        finally:
            for name in names.keys() - before:
                del names[name]

    interpreter.FunctionRewriter._compile_and_exec = compile_and_exec


def _where() -> str:
    return f"kernel {launch_state.kernel} line {candidate_line()}"


def _wanted(ptrs: object, mask: object) -> npt.NDArray[np.uint64]:
    """The addresses that the mask leaves."""
    addresses: npt.NDArray[np.uint64] = np.asarray(ptrs.data)[_mask(ptrs, mask)]  # type: ignore[attr-defined]
    return addresses


def _lanes(ptrs: object, mask: object) -> npt.NDArray[np.int64] | None:
    """Which elements of the tile the mask leaves; None for all."""
    return None if mask is None else np.flatnonzero(_mask(ptrs, mask))


def _note_store(ptrs: object, value: object, mask: object) -> None:
    size = max(1, ptrs.get_element_ty().primitive_bitwidth // 8)  # type: ignore[attr-defined]
    places = _wanted(ptrs, mask)
    if places.size > 1 and not bool((places[1:] > places[:-1]).all()):
        stored = np.broadcast_to(np.asarray(value.data), ptrs.data.shape)  # type: ignore[attr-defined]
        if _meet(places, stored[_mask(ptrs, mask)]):
            text = f"{_where()}: lanes of one store write different values to one address"
            if text not in launch_state.traces.races:
                launch_state.traces.races.append(text)
    _note_written(launch_state.traces.store(places, size, _lanes(ptrs, mask)))


def _meet(places: npt.NDArray[np.uint64], stored: npt.NDArray[np.generic]) -> bool:
    """Whether two of the values that differ go to the same place."""
    order = np.argsort(places, kind="stable")
    at, values = places[order], stored[order]
    unlike = (values[1:] != values[:-1]) & (
        (values[1:] == values[1:]) | (values[:-1] == values[:-1])
    )
    return bool(((at[1:] == at[:-1]) & unlike).any())


def _note_atomic(ptrs: object, mask: object) -> None:
    places = _wanted(ptrs, mask)
    launch_state.traces.atomic(places)
    _note_written(launch_state.traces.storage_of(places))


def _note_written(storage: int | None) -> None:
    if storage is not None and storage in launch_state.owners:
        launch_state.wrote.add(launch_state.owners[storage])


def _mask(ptrs: object, mask: object) -> npt.NDArray[np.bool_]:
    data = ptrs.data  # type: ignore[attr-defined]
    if mask is None:
        return np.ones(data.shape, dtype=bool)
    return np.broadcast_to(np.asarray(mask.data, dtype=np.bool_), data.shape)  # type: ignore[attr-defined]


def _inside(ptrs: object, mask: object) -> npt.NDArray[np.bool_] | None:
    """Which addresses lie in a tensor of the launch; None where all that are asked for do."""
    addresses = np.asarray(ptrs.data)  # type: ignore[attr-defined]
    wanted = addresses[_mask(ptrs, mask)]
    if wanted.size == 0:
        return None
    size = max(1, ptrs.get_element_ty().primitive_bitwidth // 8)  # type: ignore[attr-defined]
    low, high = int(wanted.min()), int(wanted.max()) + size
    for start, end in zip(launch_state.starts, launch_state.ends, strict=True):
        if start <= low and high <= end:
            return None
    inside = np.zeros(addresses.shape, dtype=bool)
    for start, end in zip(launch_state.starts, launch_state.ends, strict=True):
        if end - size >= start:
            inside |= (addresses >= np.uint64(start)) & (addresses <= np.uint64(end - size))
    return None if bool(inside[_mask(ptrs, mask)].all()) else inside


def _require_inside(ptrs: object, mask: object, what: str) -> None:
    if _inside(ptrs, mask) is not None:
        raise launch_state.refuse(
            OutOfBounds(
                f"kernel {launch_state.kernel} line {candidate_line()}: "
                f"{what} outside of every tensor"
            )
        )


def seed_masked_lanes(seed: int | None) -> None:
    """Draw what masked lanes hold from `seed` on, so that a judgement can be had again."""
    _draw.seed(seed)


def _poison(handle: object, where: npt.NDArray[np.bool_]) -> object:
    """NaN in every second load, other values in the rest: what is undefined says nothing of where
    it runs, and shows in some program."""
    data = np.array(handle.data)  # type: ignore[attr-defined]
    undefined = MASKED_LANE_VALUES[_draw.randrange(len(MASKED_LANE_VALUES))]
    if is_bf16(handle):
        data[where] = np.float32(undefined).view(np.uint32) >> 16
    elif data.dtype.kind == "f":
        data[where] = undefined
    else:
        data[where] = INT_SENTINEL if undefined != undefined else abs(int(undefined))
    return interpreter.TensorHandle(data, handle.dtype)  # type: ignore[attr-defined]
