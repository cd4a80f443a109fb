"""Modules that run a verified kernel, put into a model and taken out again.

The class of a module becomes a subclass of the same name, made once for each class and kernel,
whose forward asks the guard and calls the kernel on the tensors of the module. A call that the
guard refuses, or in which the kernel raises, runs the original forward and is counted. An error
that a GPU reports after the call has returned (CUDA launches are asynchronous) is not caught.
"""

from __future__ import annotations

import contextlib
import copy
import copyreg
import difflib
import inspect
import logging
import types
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple, cast

import torch
from torch import nn

from agentkernel.domain.errors import KernelRefused, ProblemError, one_line
from agentkernel.domain.region import Kernel
from agentkernel.swap.free_sizes import FreeForms
from agentkernel.swap.guard import (
    STATE,
    AcceptedCall,
    Arguments,
    WatchedModule,
    arguments_of,
    inputs_refusal,
    lazy_refusal,
    operands_refusal,
    process_state_refusal,
    remember_call,
    watch_modules,
)
from agentkernel.swap.interpreted import is_interpreted
from agentkernel.swap.kernel import (
    Match,
    Operand,
    build_kernel,
    check_kernel,
    keeps_gradients,
    match_module,
    needs_triton,
    tensor_forms,
    tensor_forms_of,
    tie_operands,
)
from agentkernel.swap.traced import REFUSED, Traced, traced_function

ORIGINAL = "_agentkernel_original"
"""The attribute of a made class that names the one it was made of."""
KERNEL = "_agentkernel_kernel"
"""The attribute of a made class that names its kernel."""
MOST_NAMED = 6
"""Modules that a refusal names."""
MOST_RAISED = 3
MOST_SIZES = 16
"""Sets of sizes whose last call that the guard let through is kept."""
NO_GPU = (
    "No GPU in this process: the original modules run, not the kernels. Expected CUDA or ROCm, or "
    "agentkernel.interpret() first in the program, which runs kernels on the CPU, slowly. "
    "Next: run it where there is one; agentkernel.counts(model) says what ran."
)
NOTHING = (
    "No kernel was put in: no part of the model computes what was verified. Next: Applied.refused "
    "says why, where a module of that class is there."
)
KEPT = (
    "No kernel was put in: the run kept a baseline, and the model is as it was. Next: "
    "'agentkernel show' with the run says why."
)
TRAINING = (
    "The model is in training mode, in which its own modules run: training goes on as before. "
    "Next: for inference call model.eval(), and the kernels run."
)
UNTIMED = (
    "The kernels run at other sizes too, where they were judged and not timed: {sizes}. "
    "Next: time the sizes that you use; declared_sizes=True keeps to the declared ones."
)
NEW_OBJECT: object = vars(copyreg)["__newobj__"]
NO_DEVICE = torch.device("meta")


@dataclass
class Swap:
    """A module's kernel and what became of its calls. `off` says why it is not used any more;
    `remember_call` is the last call that the guard let through, `traced` what torch.compile reads;
    where there is none, it traces the guard itself, if that is `traceable`. `gradients`: the
    kernel's were judged, and a call that requires some runs it. `by_sizes` are such calls by the
    shapes of their inputs, where sizes are free; `raised_elsewhere` counts calls at other sizes
    than the declared ones."""

    kernel: Kernel
    names: tuple[str, ...]
    new: nn.Module
    arguments: Arguments
    operands: tuple[Operand, ...]
    watched: tuple[WatchedModule, ...]
    on_cpu: bool
    gradients: bool = False
    traceable: bool = True
    called: int = 0
    raised: int = 0
    off: str | None = None
    passed: AcceptedCall | None = None
    traced: Traced | None = None
    by_sizes: dict[tuple[object, ...], AcceptedCall] = field(default_factory=dict)
    raised_elsewhere: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def inputs(
        self, owner: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> Sequence[object] | str:
        """The kernel's inputs, or in one word why the original has to run."""
        if self.off is not None:
            return "off"
        if self.watched[0].module is not owner:
            return "replica"
        given = self.arguments.bind(args, kwargs)
        if given is None:
            return "arguments"
        if self.passed is not None and self.passed.holds(given):
            return given
        free = self.arguments.free
        sizes = () if free is None else _shapes(given)
        if sizes in self.by_sizes and self.by_sizes[sizes].holds(given):
            self.passed = self.by_sizes[sizes]
            return given
        device = self._device(given)
        if device.type == "cuda":
            if device.index != torch.cuda.current_device():
                return "device"
        elif device.type != "cpu" or not self.on_cpu:
            return "device"
        refusal = (
            process_state_refusal(device.type, len(self.watched) > 1)
            or self._refusal(given, device, free)
            or lazy_refusal(given, self.operands)
        )
        if refusal is not None:
            return refusal
        self.passed = remember_call(self.watched, self.operands, given, device, self.gradients)
        if free is not None and self.passed is not None:
            if len(self.by_sizes) >= MOST_SIZES:
                self.by_sizes.clear()
            self.by_sizes[sizes] = self.passed
        return given

    def traced_inputs(
        self, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> Sequence[object] | None:
        """As `inputs`, at the declared sizes, in the words that torch.compile can trace; it guards
        what is read here."""
        asked = self.off is None and self.traceable
        given = self.arguments.bind(args, kwargs) if asked else None
        if given is None:
            return None
        device = self._device(given)
        if device.type != "cuda" and not self.on_cpu:
            return None
        if torch.is_autocast_enabled(device.type) or self._refusal(given, device) is not None:
            return None
        if torch.is_grad_enabled() and self._records(given):
            return None
        return given

    def _records(self, given: Sequence[object]) -> bool:
        """Whether autograd would record this call."""
        tensors = (*given, *(item.current() for item in self.operands))
        return any(isinstance(item, torch.Tensor) and item.requires_grad for item in tensors)

    def _refusal(
        self, given: Sequence[object], device: torch.device, free: FreeForms | None = None
    ) -> str | None:
        for item in self.watched:
            refusal = item.refusal()
            if refusal is not None:
                return refusal
        grad = torch.is_grad_enabled() and not self.gradients
        inputs = self.arguments.inputs
        return inputs_refusal(inputs, given, device, grad, free) or operands_refusal(
            self.operands, device, grad
        )

    def _device(self, given: Sequence[object]) -> torch.device:
        """Of the first tensor that goes in: all others must be there too."""
        for value in given:
            if isinstance(value, torch.Tensor):
                return value.device
        return NO_DEVICE

    def refused(self, reason: str) -> None:
        """The original runs: count why."""
        self.reasons[reason] += 1

    def failed(self, error: Exception, given: Sequence[object]) -> None:
        """The kernel raised; after `MOST_RAISED` times it is not asked again, or not at other sizes
        than the declared ones where it raised at those."""
        self.reasons["raised"] += 1
        if not self.arguments.declared(given):
            self.raised_elsewhere += 1
            if self.raised_elsewhere >= MOST_RAISED:
                self.arguments = replace(self.arguments, free=None)
                self.passed = None
            return
        self.raised += 1
        if self.raised >= MOST_RAISED:
            self.traced = None
            self.off = f"raised {self.raised} times: {type(error).__name__}: {one_line(error, 200)}"


def _shapes(given: Sequence[object]) -> tuple[object, ...]:
    return tuple(item.shape for item in given if isinstance(item, torch.Tensor))


def make_swap(
    module: nn.Module, kernel: Kernel, names: Sequence[str], free: FreeForms | None = None
) -> Swap:
    """All that `module` needs to run `kernel`, at the sizes of `free` too; the module itself is not
    changed.

    Raises KernelRefused where text, certificate, arguments or tensors do not fit.
    """
    if isinstance(module, torch.jit.ScriptModule) or "forward" in vars(module):
        what = "a script" if isinstance(module, torch.jit.ScriptModule) else "a forward of its own"
        raise KernelRefused(
            f"{type(module).__name__} is an instance with {what}: no kernel can stand for it. "
            "Expected a module whose class has the forward. Next: leave it out."
        )
    new = build_kernel(kernel)
    arguments, watched = arguments_of(kernel, module, free), watch_modules(module)
    operands = tie_operands(module, new, kernel, names)
    on_cpu = not needs_triton(kernel.source) or is_interpreted()
    return Swap(
        kernel=kernel,
        names=tuple(names),
        new=new,
        arguments=arguments,
        operands=operands,
        watched=watched,
        on_cpu=on_cpu,
        gradients=keeps_gradients(kernel),
        traceable=all(item.traceable for item in watched),
        traced=traced_function(module, kernel, new, arguments, operands, watched, on_cpu),
    )


def swap_in(module: nn.Module, swap: Swap) -> None:
    """From now on `module` runs the kernel, in the place of one that it may have had."""
    module.__class__ = swapped_class(original_class(module), swap.kernel.sha256)
    module.__dict__[STATE] = swap


def swap_out(module: nn.Module) -> bool:
    """Give `module` its class and attributes back; False where it has no kernel."""
    found = module.__dict__.pop(STATE, None) is not None
    module.__class__ = original_class(module)
    return found


def swap_of(module: nn.Module) -> Swap | None:
    """The module's kernel, where it has one."""
    found = module.__dict__.get(STATE)
    return found if isinstance(found, Swap) else None


def original_class(module: nn.Module) -> type[nn.Module]:
    """The class that `module` has when no kernel is in."""
    found: type[nn.Module] = vars(type(module)).get(ORIGINAL, type(module))
    return found


def swapped_class(original: type[nn.Module], sha256: str) -> type[nn.Module]:
    """The subclass of `original` that runs the kernel of that SHA-256; made once."""
    for known in type.__subclasses__(original):
        own = vars(known)
        if own.get(ORIGINAL) is original and own.get(KERNEL) == sha256:
            return known
    made = types.new_class(original.__name__, (original,), {}, lambda own: own.update(
        {
            "__module__": original.__module__,
            "__qualname__": original.__qualname__,
            "__doc__": original.__doc__,
            "__reduce_ex__": _reduce,
            "__deepcopy__": _deepcopy,
            "forward": _forward_of(original, sha256),
            STATE: None,
            ORIGINAL: original,
            KERNEL: sha256,
        }
    ))  # fmt: skip
    return cast("type[nn.Module]", made)


def _forward_of(original: type[nn.Module], sha256: str) -> object:
    plain = original.forward

    def forward(self: nn.Module, *args: object, **kwargs: object) -> object:
        swap = cast("Swap | None", getattr(self, STATE))
        if swap is None:
            return plain(self, *args, **kwargs)
        # Asked first: torch 2.11's tracer takes `is_exporting` for true whenever it traces.
        if torch.compiler.is_dynamo_compiling():
            if swap.traced is not None:
                answer = swap.traced(self, *args, **kwargs)
                return plain(self, *args, **kwargs) if answer is REFUSED else answer
            traced = swap.traced_inputs(args, kwargs)
            if traced is None:
                return plain(self, *args, **kwargs)
            return swap.arguments.returned(swap.new.forward(*traced))
        if torch.compiler.is_exporting():
            return plain(self, *args, **kwargs)
        given = swap.inputs(self, args, kwargs)
        if isinstance(given, str):
            swap.refused(given)
            return plain(self, *args, **kwargs)
        try:
            found = swap.arguments.returned(swap.new.forward(*given))
        except Exception as error:  # noqa: BLE001 - whatever a kernel raises, the original answers
            swap.failed(error, given)
            return plain(self, *args, **kwargs)
        swap.called += 1
        return found

    # Dynamo keeps at most eight graphs for one code object, whatever function has it.
    code = forward.__code__
    forward.__code__ = code.replace(co_name=f"forward_{sha256[:10]}")
    setattr(forward, "__signature__", inspect.signature(plain))  # noqa: B010 - no declared field
    forward.__doc__ = plain.__doc__
    return forward


def _reduce(self: nn.Module, protocol: int) -> object:
    """Pickled as the original class: what is saved loads anywhere."""
    twin = object.__new__(original_class(self))
    twin.__dict__.update({key: value for key, value in vars(self).items() if key != STATE})
    made = twin.__reduce_ex__(protocol)
    if isinstance(made, tuple) and made[0] is NEW_OBJECT:
        # Pickle refuses this function for a class that is not the object's own.
        return (made[1][0].__new__, *made[1:])
    return made


def _deepcopy(self: nn.Module, memo: dict[int, object]) -> nn.Module:
    """A copy with a kernel of its own on its own tensors, where the kernel stands for it."""
    swap = swap_of(self)
    with _bare(self):
        made = copy.deepcopy(self, memo)
    if swap is not None and not any(item.changed() for item in swap.watched):
        # A copy of another kind (on meta, in another dtype) has no place for the kernel.
        with contextlib.suppress(KernelRefused):
            swap_in(made, make_swap(made, swap.kernel, swap.names, swap.arguments.free))
    return made


@contextlib.contextmanager
def _bare(module: nn.Module) -> Iterator[None]:
    kind, swap = type(module), module.__dict__.pop(STATE, None)
    module.__class__ = original_class(module)
    try:
        yield
    finally:
        module.__class__ = kind
        if swap is not None:
            module.__dict__[STATE] = swap


def _match(module: nn.Module, kernel: Kernel, declared_sizes: bool) -> Match:
    """As `match_module`: kernels that run in the module already are no part of what it computes."""
    with contextlib.ExitStack() as stack:
        for item in module.modules():
            if swap_of(item) is not None:
                stack.enter_context(_bare(item))
        return match_module(module, kernel, declared_sizes=declared_sizes)


@dataclass(frozen=True)
class Applied:
    """What `apply` did: the paths that now run a kernel, and the kernels' SHA-256 by path.

    `refused`: by path, why a module of the verified class did not get the kernel of `apply_all`.
    `note`: one line where no kernel was put in, where the kernels cannot run in this process or
    mode, so that the originals do, or where they run at sizes at which nobody timed them.
    """

    kernels: Mapping[str, str]
    refused: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """Names of the swapped submodules ("" for the model itself)."""
        return tuple(self.kernels)


@dataclass(frozen=True)
class CallCounts:
    """How often a swapped module ran its `kernel` and how often the original (`fallback`), by
    reason; `off` says why the kernel is not asked any more."""

    kernel: int
    fallback: int
    reasons: Mapping[str, int]
    off: str | None = None


def apply(
    model: nn.Module,
    kernels: Mapping[str, Kernel],
    parameters: Mapping[str, tuple[str, ...]] | None = None,
    free: Mapping[str, FreeForms] | None = None,
) -> Applied:
    """Swap `kernels` in at their paths, all of them or none. Of the modules nothing is compared but
    arguments and tensors: they are those that were cut and verified, or `apply_equal` compares.

    `parameters` gives, by path, this use's own names in the order of `Kernel.parameters`, which
    stand where it says nothing; `free` the other sizes than the declared ones at which a kernel
    runs. A kernel that is at a path already is replaced; others stay. Raises ProblemError for a
    path that the model does not have, KernelRefused for a kernel that may not run there.
    """
    own, sizes = parameters or {}, free or {}
    planned: list[tuple[nn.Module, Swap]] = []
    taken: dict[int, str] = {}
    for path, kernel in kernels.items():
        module = _submodule(model, path)
        first = taken.setdefault(id(module), path)
        if first != path:
            raise ProblemError(
                f"{path!r} is the same module as {first!r}. Expected one kernel for it. "
                "Next: give one of the two paths."
            )
        names = own.get(path, kernel.parameters)
        planned.append((module, make_swap(module, kernel, names, sizes.get(path))))
    for module, swap in planned:
        swap_in(module, swap)
    training = any(module.training for module, _ in planned)
    note = _note([swap for _, swap in planned], training=training)
    if note:
        _warn_once(note)
    return Applied({path: kernel.sha256 for path, kernel in kernels.items()}, note=note)


def _note(swaps: Sequence[Swap], *, training: bool) -> str:
    """`Applied.note`."""
    if not all(swap.on_cpu for swap in swaps) and not torch.cuda.is_available():
        return NO_GPU
    timed = {
        f"{swap.kernel.basis} at {item.label}"
        for swap in swaps
        if swap.arguments.free is not None
        for item in swap.kernel.certificate.problem.shape_sets
    }
    untimed = UNTIMED.format(sizes=", ".join(sorted(timed))) if timed else ""
    return " ".join(filter(None, (TRAINING if training else "", untimed)))


@cache
def _warn_once(text: str) -> None:
    logging.getLogger("agentkernel").warning(text)


def apply_equal(
    model: nn.Module,
    kernels: Mapping[str, Kernel],
    parameters: Mapping[str, tuple[str, ...]] | None = None,
    *,
    declared_sizes: bool = False,
) -> Applied:
    """As `apply`, on modules that compute what was verified: the same graph and constants. Where
    the certificate and the module's graph say the same for other sizes, the kernels run at those
    too, unless `declared_sizes`.

    Where `parameters` says nothing, a module's names are those that its own graph gives. Raises
    what `apply` raises, and KernelRefused with the difference in words.
    """
    own, free = dict(parameters or {}), {}
    for path, kernel in kernels.items():
        check_kernel(kernel)
        match = _match(_submodule(model, path), kernel, declared_sizes)
        own.setdefault(path, match.parameters)
        if match.free is not None:
            free[path] = match.free
    return apply(model, kernels, own, free)


def apply_all(
    model: nn.Module, kernel: Kernel, class_name: str, *, declared_sizes: bool = False
) -> Applied:
    """Swap `kernel` in at every module of `model` that computes what was verified; `declared_sizes`
    is that of `apply_equal`.

    Modules with other tensors than the verified one are passed over, those of `class_name` with a
    reason in `Applied.refused`. Nothing is looked for inside of a module that got the kernel.
    Raises KernelRefused where nothing proves the kernel's text.
    """
    check_kernel(kernel)
    found = _equal_modules(model, kernel, class_name, declared_sizes=declared_sizes)
    kernels = dict.fromkeys(found.parameters, kernel)
    applied = apply(model, kernels, found.parameters, found.free)
    return replace(applied if kernels else with_nothing(applied), refused=found.refused)


def with_nothing(applied: Applied, note: str = NOTHING) -> Applied:
    """`applied`, of no kernel, which says so: whoever asked for some believes that they run."""
    _warn_once(note)
    return replace(applied, note=note)


def apply_whole(
    model: nn.Module, kernel: Kernel, class_name: str, *, declared_sizes: bool = False
) -> Applied:
    """As `apply_equal` with `kernel` for `model` itself; where that computes something else, the
    refusal names the equal modules inside, which `apply_all` takes."""
    check_kernel(kernel)
    try:
        return apply_equal(model, {"": kernel}, declared_sizes=declared_sizes)
    except KernelRefused as error:
        inside = tuple(_equal_modules(model, kernel, class_name, declared_sizes=True).parameters)
        if not inside:
            raise
        more = f" and {len(inside) - MOST_NAMED} more" if len(inside) > MOST_NAMED else ""
        raise KernelRefused(
            f"Kernel {kernel.sha256[:10]!r} cannot stand for this whole {type(model).__name__}. "
            f"Equal modules inside: {', '.join(inside[:MOST_NAMED])}{more}. "
            "Next: agentkernel.apply_all(model, ...) puts it in there."
        ) from error


class _EqualModules(NamedTuple):
    """Tensor names and free sizes by path of those that compute what was verified, and why others
    do not."""

    parameters: dict[str, tuple[str, ...]]
    free: dict[str, FreeForms]
    refused: dict[str, str]


def _equal_modules(
    model: nn.Module, kernel: Kernel, class_name: str, *, declared_sizes: bool
) -> _EqualModules:
    forms = tensor_forms(kernel)
    found = _EqualModules({}, {}, {})
    for path, module in model.named_modules():
        inside = any(path.startswith(f"{above}." if above else "") for above in found.parameters)
        named = original_class(module).__name__ == class_name
        if inside or not (named or tensor_forms_of(module) == forms):
            continue
        try:
            match = _match(module, kernel, declared_sizes)
            make_swap(module, kernel, match.parameters)
        except KernelRefused as error:
            if named:
                found.refused[path] = one_line(error)
            continue
        found.parameters[path] = match.parameters
        if match.free is not None:
            found.free[path] = match.free
    return found


def restore(model: nn.Module) -> int:
    """Take all kernels out: every module has its own class and attributes again. Returns how many
    modules had one. Raises ProblemError for what is no model."""
    _require_model(model)
    return sum(swap_out(module) for module in list(model.modules()))


def without_kernels(model: nn.Module) -> nn.Module:
    """`model` as it was before any kernel was put in: itself where none is in, else a copy. Judged
    as it stands, a kernel would be held against itself. Raises ProblemError where no copy of it can
    be made."""
    if not any(swap_of(module) is not None for module in model.modules()):
        return model
    try:
        made = copy.deepcopy(model)
    except RuntimeError as error:  # a tensor that was computed, among its attributes
        raise ProblemError(
            f"The model runs a kernel and cannot be copied: {one_line(error)}. "
            "Next: agentkernel.restore(model) first."
        ) from error
    restore(made)
    return made


def counts(model: nn.Module) -> dict[str, CallCounts]:
    """What the swapped modules' calls ran since their kernels were put in, by path. Calls inside of
    torch.compile's graphs are not counted. Raises ProblemError for what is no model."""
    _require_model(model)
    found = {}
    for path, module in model.named_modules():
        swap = swap_of(module)
        if swap is not None:
            fallback = sum(swap.reasons.values())
            found[path] = CallCounts(swap.called, fallback, dict(swap.reasons), swap.off)
    return found


def _require_model(given: object) -> None:
    if not isinstance(given, nn.Module):
        raise ProblemError(
            f"The model is {one_line(repr(given), 40)}, a {type(given).__name__}. Expected the "
            "torch.nn.Module that kernels were put into. Next: give the model that apply() was "
            "called with."
        )


def _submodule(model: nn.Module, path: str) -> nn.Module:
    try:
        return model.get_submodule(path)
    except AttributeError as error:
        known = [name for name, _ in model.named_modules(remove_duplicate=False) if name]
        near = difflib.get_close_matches(path, known, 1)
        hint = f"the nearest is {near[0]!r}" if near else f"it has {len(known)} submodules"
        raise ProblemError(
            f"{type(model).__name__} has no submodule {path!r}. Expected a name of "
            f"named_modules(); {hint}. Next: correct the path."
        ) from error
