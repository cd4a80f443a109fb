"""The guard that decides whether a call is one that the kernel was verified for.

The guard of a region with ten parameters takes longer than the launch of a kernel, so the state
of the last call that it accepted is kept. A dictionary with an unchanged version holds what it
held, and one call of the torch compiler checks many tensors at once (type, dispatch keys, dtype,
device, sizes, strides, whether they require a gradient; autocast changes the keys). Where either
is missing or differs, the full guard runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.modules import module as hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from agentkernel.domain.errors import KernelRefused, ProblemError
from agentkernel.domain.problem import DataStructure, ScalarSpec
from agentkernel.domain.region import Kernel
from agentkernel.swap.free_sizes import FreeForms
from agentkernel.swap.kernel import (
    Form,
    Operand,
    contiguous_strides,
    dense_strides,
    same_places,
)
from agentkernel.tools.problem.attributes import (
    INTERNAL,
    MISSING,
    OURS,
    PLAIN,
    by_value,
    class_attributes,
    same,
)
from agentkernel.tools.problem.structures import tensors_of, unflatten_data, value_of, values_of

STATE: Final = "_agentkernel_swap"
"""The attribute that holds a swapped module's state."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
PLAIN_TENSORS = frozenset({torch.Tensor, nn.Parameter, nn.Buffer})


@dataclass(frozen=True, slots=True)
class Nested:
    """The structures of a call's arguments: `positional`, then one for each of `keywords`."""

    positional: tuple[DataStructure, ...]
    keywords: tuple[str, ...]
    named: tuple[DataStructure, ...]

    def inputs(self, values: Sequence[object]) -> Sequence[object] | None:
        """The tensors in `values`; None where they are nested otherwise, or a scalar is another."""
        found: list[object] = []
        for structure, value in zip(self.positional + self.named, values, strict=True):
            if not tensors_of(structure, value, found):
                return None
        return found


@dataclass(frozen=True, slots=True)
class Arguments:
    """How calls bind to the kernel's inputs: a Form for a tensor, a literal for a scalar.

    `positional` are forward's parameters with their defaults, `keywords` those given by name only.
    `open`: forward takes keywords that it does not name, and None under one counts as not given.
    `nested`: how the inputs lie in positional arguments and keywords, where they are not all of
    them. `returns`: how the outputs lie in what is returned, with the `values` of its texts.
    `free`: other sizes than the declared ones at which the kernel stands for the module.
    """

    inputs: tuple[Form | str, ...]
    positional: tuple[tuple[str, object], ...]
    keywords: Mapping[str, object]
    open: bool = False
    nested: Nested | None = None
    returns: DataStructure | None = None
    values: Mapping[str, object] = field(default_factory=dict)
    free: FreeForms | None = None

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Sequence[object] | None:
        """The kernel's inputs in order; None where the call has others."""
        if self.nested is None:
            return self._values(args, kwargs, len(self.inputs), ())
        values = self._values(args, kwargs, len(self.nested.positional), self.nested.keywords)
        return None if values is None else self.nested.inputs(values)

    def returned(self, found: object) -> object:
        """What forward returns where the kernel returned `found`."""
        if self.returns is None:
            return found
        outputs = found if isinstance(found, tuple) else (found,)
        return unflatten_data(self.returns, outputs, self.values)

    def declared(self, given: Sequence[object]) -> bool:
        """Whether the kernel's inputs have the declared shapes."""
        pairs = zip(self.inputs, given, strict=True)
        tensors = [(form, value) for form, value in pairs if isinstance(value, torch.Tensor)]
        return all(value.shape == getattr(form, "shape", None) for form, value in tensors)

    def _values(
        self,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        wanted: int,
        named: Sequence[str],
    ) -> Sequence[object] | None:
        """`wanted` positional arguments, then the keywords `named`; None where there are others."""
        if not kwargs and not named and len(args) == wanted:
            return args
        if len(args) > max(wanted, len(self.positional)):
            return None
        values = list(args)
        left = dict(kwargs)
        for name, default in self.positional[len(args) :]:
            values.append(left.pop(name, default))
        beyond = self.positional[wanted:]
        extra = zip(values[wanted:], (default for _, default in beyond), strict=True)
        if len(values) < wanted or not all(value is default for value, default in extra):
            return None
        if not all(name in left for name in named):
            return None
        values = values[:wanted] + [left.pop(name) for name in named]
        if not all(self._unsaid(name, value) for name, value in left.items()):
            return None
        return values

    def _unsaid(self, name: str, value: object) -> bool:
        """Whether this keyword says no more than its absence."""
        if name in self.keywords:
            return self.keywords[name] is value
        return self.open and value is None


@dataclass(frozen=True, slots=True)
class WatchedModule:
    """One module of the region as it was when the kernel was put in: its children, and its own
    attributes and those of its class (`shared`), which the graph has as constants. `inner` modules
    are not called by the kernel."""

    module: nn.Module
    inner: bool
    children: tuple[tuple[str, nn.Module | None], ...]
    own: tuple[tuple[str, object], ...]
    shared: tuple[tuple[str, object], ...] = ()

    @property
    def traceable(self) -> bool:
        """Whether torch.compile guards all that `refusal` compares. What `is` says of an object
        that is no constant it takes for good."""
        values = [value for _, value in (*self.own, *self.shared)]
        return all(map(by_value, values))

    def refusal(self) -> str | None:
        """What about it is not as it was."""
        return "training" if self.module.__dict__["training"] else self.changed()

    def changed(self) -> str | None:
        """As `refusal`, whatever its mode is."""
        own = self.module.__dict__
        if self.inner and (own.get("forward") is not None or any(own[name] for name in HOOKS)):
            return "hooks"
        children = own["_modules"]
        if len(children) != len(self.children):
            return "children"
        for name, child in self.children:
            if children.get(name, MISSING) is not child:
                return "children"
        for name, value in self.own:
            if not same(own.get(name, MISSING), value):
                return "attributes"
        for name, value in self.shared:
            if not same(getattr(self.module, name, MISSING), value):
                return "attributes"
        return None


def arguments_of(kernel: Kernel, module: nn.Module, free: FreeForms | None = None) -> Arguments:
    """The inputs of the kernel's problem, and how `module`'s forward names them."""
    specs = kernel.certificate.problem.shape_sets[0].inputs
    strides = kernel.input_strides or (None,) * len(specs)
    if len(strides) != len(specs):
        raise KernelRefused(
            f"Kernel {kernel.sha256[:10]!r} has {len(specs)} inputs and strides for "
            f"{len(strides)}. Expected one entry an input, or none. Next: cut the model again."
        )
    names = free.dims if free is not None else ((),) * len(specs)
    inputs: list[Form | str] = []
    for spec, stride, dims in zip(specs, strides, names, strict=True):
        if isinstance(spec, ScalarSpec):
            inputs.append(spec.literal)
            continue
        dtype = getattr(torch, spec.dtype)
        inputs.append(Form(dtype, spec.shape, stride or contiguous_strides(spec.shape), dims))
    forms = [item for item in inputs if isinstance(item, Form)]
    if not all(same_places(item, dense_strides(item.shape, item.stride)) for item in forms):
        # Nothing says how a tensor with gaps lies at other sizes.
        free = None
    kinds = inspect.Parameter
    positional, keywords, beyond = [], {}, False
    for item in inspect.signature(module.forward).parameters.values():
        if item.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD):
            positional.append((item.name, item.default))
        elif item.kind is kinds.KEYWORD_ONLY:
            keywords[item.name] = item.default
        elif item.kind is kinds.VAR_KEYWORD:
            beyond = True
    return Arguments(
        tuple(inputs),
        tuple(positional),
        keywords,
        beyond,
        _nested(kernel),
        kernel.returns,
        _values(kernel),
        free,
    )


def _nested(kernel: Kernel) -> Nested | None:
    if kernel.arguments is None:
        return None
    inputs = len(kernel.certificate.problem.shape_sets[0].inputs)
    if kernel.arguments.tensors != inputs or len(kernel.arguments.items) != 2:
        raise KernelRefused(
            f"Kernel {kernel.sha256[:10]!r} has {inputs} inputs, and its arguments "
            f"{kernel.arguments.text!r} hold {kernel.arguments.tensors} tensors. Expected one an "
            "input, in a pair of positional arguments and keywords. Next: cut the model again."
        )
    positional, named = kernel.arguments.items
    return Nested(positional.items, tuple(str(value_of(key)) for key in named.keys), named.items)


def _values(kernel: Kernel) -> dict[str, object]:
    try:
        return {} if kernel.returns is None else values_of(kernel.returns)
    except ProblemError as error:
        raise KernelRefused(f"Kernel {kernel.sha256[:10]!r}: {error}") from error


def watch_modules(module: nn.Module) -> tuple[WatchedModule, ...]:
    """The region's module and all below it."""
    return tuple(_watched(item, item is not module) for item in module.modules())


def _watched(module: nn.Module, inner: bool) -> WatchedModule:
    return WatchedModule(
        module,
        inner,
        tuple(module._modules.items()),
        tuple(_own_attributes(module)),
        tuple(class_attributes(module)),
    )


def _own_attributes(module: nn.Module) -> Iterator[tuple[str, object]]:
    for name, value in vars(module).items():
        if name == "training" or name.startswith(OURS):
            continue
        if name not in INTERNAL or type(value) in PLAIN:
            yield name, value


def process_state_refusal(device_type: str, inner: bool) -> str | None:
    """What in PyTorch's own state keeps a kernel from standing for the module."""
    if torch._C._len_torch_dispatch_stack():
        return "mode"
    if torch._C._len_torch_function_stack() and not _only_devices():
        return "mode"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "functorch"
    if forward_ad._current_level >= 0:
        return "forward_ad"
    if torch.is_autocast_enabled(device_type):
        return "autocast"
    if torch._C._get_tracing_state() is not None:
        return "tracing"
    if inner and (hooks._global_forward_hooks or hooks._global_forward_pre_hooks):
        return "hooks"
    return None


def _only_devices() -> bool:
    """`torch.set_default_device` is a mode too, and changes nothing that a kernel does."""
    return all(isinstance(mode, DeviceContext) for mode in _function_modes())


def _function_modes() -> list[object]:
    return list(_get_current_function_mode_stack())  # type: ignore[no-untyped-call]


def inputs_refusal(
    inputs: Sequence[Form | str],
    values: Sequence[Any],
    device: torch.device,
    grad: bool,
    free: FreeForms | None = None,
) -> str | None:
    """In which respect the inputs differ from what was verified, at the sizes of `free` too."""
    sizes: dict[str, int] = {}
    for form, value in zip(inputs, values, strict=True):
        if isinstance(form, str):
            if repr(value) != form:
                return "argument"
            continue
        if type(value) not in PLAIN_TENSORS:
            return "type"
        here = form if free is None else form.at(value.shape, sizes)
        refusal = "shape" if here is None else here.refusal(value)
        if refusal is not None:
            return refusal
        if value.device != device:
            return "device"
        if grad and value.requires_grad:
            return "grad"
    return None if free is None or free.admits(sizes) else "shape"


def operands_refusal(operands: Sequence[Operand], device: torch.device, grad: bool) -> str | None:
    """In which respect the module's tensors differ; those that were replaced are tied anew."""
    for operand in operands:
        value = operand.module.__dict__[operand.holder].get(operand.name)
        if type(value) not in PLAIN_TENSORS:
            return "parameters" if value is None else "type"
        refusal = operand.form.refusal(value)
        if refusal is not None:
            return refusal
        if value.device != device:
            return "device"
        if grad and value.requires_grad:
            return "grad"
        for tensors, name in operand.places:
            if tensors.get(name) is not value:
                operand.tie(value)
    return None


def lazy_refusal(values: Sequence[object], operands: Sequence[Operand]) -> str | None:
    """Whether a tensor's memory does not hold its values: negated or conjugated on reading. Not
    asked while torch.compile traces, which reads such tensors itself."""
    for value in (*values, *(operand.current() for operand in operands)):
        if isinstance(value, torch.Tensor) and (value.is_neg() or value.is_conj()):
            return "lazy"
    return None


Own = dict[str, Any]
_guards = getattr(torch._C._dynamo, "guards", None)
_make_check: Any = getattr(_guards, "TensorGuards", None)
_version: Any = getattr(_guards, "dict_version", None)
_dispatch_modes = torch._C._len_torch_dispatch_stack
_passing_function_modes = torch._C._len_torch_function_stack
_functorch = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._get_tracing_state


@dataclass(frozen=True, slots=True)
class AcceptedCall:
    """What a call had that the guard let through.

    `held` are the dictionaries of children and operands, `empty` those that have to stay empty
    (children of leaves, hooks of inner modules); `own` and `inside` are versions. `check` takes
    the tensors among the inputs, at `places`, and then `operands`. `shared` are classes'.
    """

    modules: tuple[nn.Module, ...]
    own: list[int]
    held: tuple[Own, ...]
    inside: list[int]
    empty: tuple[Own, ...]
    scalars: tuple[tuple[int, object], ...]
    places: tuple[int, ...]
    operands: tuple[torch.Tensor, ...]
    check: Callable[..., bool]
    gpu: int | None
    only_without_grad: bool
    shared: tuple[tuple[nn.Module, str, object], ...] = ()

    def holds(self, given: Sequence[Any]) -> bool:
        """Whether the guard would let a call with the inputs `given` through as well."""
        if (
            _dispatch_modes()
            or _passing_function_modes()
            or _functorch() is not None
            or forward_ad._current_level >= 0
            or _tracing() is not None
            or any(self.empty)
            or (self.only_without_grad and torch.is_grad_enabled())
            or (self.gpu is not None and torch._C._cuda_getDevice() != self.gpu)
        ):
            return False
        if len(self.modules) > 1 and (
            hooks._global_forward_hooks or hooks._global_forward_pre_hooks
        ):
            return False
        # `__dict__` is read anew: it may be another one.
        if [_version(module.__dict__) for module in self.modules] != self.own:
            return False
        if [_version(held) for held in self.held] != self.inside:
            return False
        for module, name, value in self.shared:
            if getattr(module, name, None) is not value:
                return False
        for place, value in self.scalars:
            if given[place] is not value:
                return False
        return self.check(*[given[place] for place in self.places], *self.operands)


def remember_call(
    watched: Sequence[WatchedModule],
    operands: Sequence[Operand],
    given: Sequence[object],
    device: torch.device,
    gradients: bool = False,
) -> AcceptedCall | None:
    """What the call with the inputs `given`, which the guard has just let through, had; None where
    this torch or this Python cannot tell quickly whether the next one has it too."""
    if _make_check is None or not TELLS:
        return None
    places = tuple(i for i, value in enumerate(given) if isinstance(value, torch.Tensor))
    values = tuple(value for value in given if isinstance(value, torch.Tensor))
    tensors = tuple(value for item in operands if (value := item.current()) is not None)
    if len(tensors) != len(operands):
        return None
    try:
        made = _make_check(*values, *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    except (RuntimeError, TypeError, SystemError):
        return None
    held, empty = _dictionaries(watched, operands)
    modules = tuple(item.module for item in watched)
    return AcceptedCall(
        modules=modules,
        own=[_version(module.__dict__) for module in modules],
        held=held,
        inside=[_version(item) for item in held],
        empty=empty,
        scalars=tuple((i, value) for i, value in enumerate(given) if i not in places),
        places=places,
        operands=tensors,
        check=made.check,
        gpu=device.index if device.type == "cuda" else None,
        only_without_grad=not gradients
        and any(value.requires_grad for value in (*values, *tensors)),
        shared=tuple((item.module, *named) for item in watched for named in item.shared),
    )


def _dictionaries(
    watched: Sequence[WatchedModule], operands: Sequence[Operand]
) -> tuple[tuple[Own, ...], tuple[Own, ...]]:
    """Those whose version counts and those that have to be empty, each once."""
    held: dict[int, Own] = {}
    empty: list[Own] = []
    for item in watched:
        own = item.module.__dict__
        children = own["_modules"]
        if item.children:
            held[id(children)] = children
        else:
            empty.append(children)
        if item.inner:
            empty.extend(own[name] for name in HOOKS)
    for operand in operands:
        tensors = operand.module.__dict__[operand.holder]
        held[id(tensors)] = tensors
    return tuple(held.values()), tuple(empty)


class _Probe:
    """An object with attributes."""

    value = 0


def _versions_tell() -> bool:
    """Whether this Python changes a dictionary's version with every kind of change to it."""
    if _version is None:
        return False
    item = _Probe()
    own = vars(item)
    seen = {_version(own)}
    for number in range(20):
        # Often enough that the interpreter has its quick way of setting an attribute.
        item.value = number
        seen.add(_version(own))
    own["value"] = -1
    seen.add(_version(own))
    setattr(item, "more", 1)  # noqa: B010 - one of the ways
    seen.add(_version(own))
    del item.more  # type: ignore[attr-defined]
    seen.add(_version(own))
    return len(seen) == 24


TELLS = _versions_tell()
"""Whether dictionaries' versions can be relied on here."""
