"""Verified kernels: their source, the tensors they read, and the modules they may replace.

A kernel is imported only where its certificate vouches for the text. A module may be replaced
where its graph, constants and tensor layouts are those that the kernel was verified for.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import torch

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import (
    AgentKernelError,
    KernelRefused,
    ProblemError,
    cause_of,
    one_line,
)
from agentkernel.domain.plain_text import sentence
from agentkernel.domain.problem import ScalarSpec
from agentkernel.domain.region import Kernel, KernelKey
from agentkernel.storage.source_text import check_one_reading, compile_source, read_literal
from agentkernel.swap.free_sizes import FreeForms, free_forms
from agentkernel.swap.interpreted import correct_where_interpreted
from agentkernel.tools.certificate.record import hash_errors, read_certificate
from agentkernel.tools.problem.arguments import called_flat, identifiers
from agentkernel.tools.problem.call_arguments import BoundCall, describe
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.graph_identity import (
    graph_difference,
    signed_module,
    state_forms,
)
from agentkernel.tools.problem.loading import restore_problem
from agentkernel.tools.problem.module_graph import problem_graph
from agentkernel.tools.problem.structures import unflatten_data
from agentkernel.tools.run_store import is_unfinished

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.domain.certificate import Certificate, ModuleGraph


Tensors = dict[str, "torch.Tensor | None"]


@dataclass(frozen=True, slots=True)
class Form:
    """What a kernel was compiled and judged for. Strides in elements. `free` has the name of each
    size that may be another, "" for the others; empty where none may."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    free: tuple[str, ...] = ()

    def at(self, shape: Sequence[int], sizes: dict[str, int]) -> Form | None:
        """The form for a tensor of this shape, whose free sizes go into `sizes`; None where one of
        them is another there, or a size is not free."""
        names = self.free or ("",) * len(self.shape)
        if len(shape) != len(names):
            return None
        for name, declared, size in zip(names, self.shape, shape, strict=True):
            if size != (sizes.setdefault(name, size) if name else declared):
                return None
        if tuple(shape) == self.shape:
            return self
        return replace(self, shape=tuple(shape), stride=dense_strides(shape, self.stride))

    def refusal(self, value: torch.Tensor) -> str | None:
        """In which respect `value` differs: "dtype", "shape", "layout" or "stride"."""
        if value.dtype is not self.dtype:
            return "dtype"
        if value.shape != self.shape:
            return "shape"
        if value.layout is not torch.strided:
            return "layout"
        if value.stride() != self.stride and not same_places(self, value.stride()):
            return "stride"
        return None

    @property
    def label(self) -> str:
        """For people: `float32[4, 8]`, with strides where they are not the usual ones."""
        text = f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"
        usual = same_places(self, contiguous_strides(self.shape))
        return text if usual else f"{text} with strides {list(self.stride)}"


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor of the module, under `name` in `holder` (`_parameters` or `_buffers` of
    `module`), and the kernel's own places that must hold the same object."""

    module: nn.Module
    holder: str
    name: str
    places: tuple[tuple[Tensors, str], ...]
    form: Form

    def current(self) -> torch.Tensor | None:
        """The module's tensor now; None where it has none under that name any more."""
        held: Tensors = self.module.__dict__[self.holder]
        return held.get(self.name)

    def tie(self, value: torch.Tensor) -> None:
        """Let the kernel read `value`: the object itself, never a copy."""
        for tensors, name in self.places:
            tensors[name] = value


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= max(size, 1)
    return tuple(reversed(found))


def dense_strides(shape: Sequence[int], like: Sequence[int]) -> tuple[int, ...]:
    """Strides without gaps of `shape`, whose dimensions lie in memory in the order of those with
    the strides `like`."""
    order = sorted(range(len(shape)), key=lambda dim: (-like[dim], dim))
    found = dict(zip(order, contiguous_strides([shape[dim] for dim in order]), strict=True))
    return tuple(found[dim] for dim in range(len(shape)))


def same_places(form: Form, stride: Sequence[int]) -> bool:
    """Equal strides but for dimensions of one element, where none is taken."""
    pairs = zip(form.shape, form.stride, stride, strict=True)
    return all(size <= 1 or mine == theirs for size, mine, theirs in pairs)


def tie_operands(
    module: nn.Module, new: nn.Module, kernel: Kernel, names: Sequence[str]
) -> tuple[Operand, ...]:
    """Let `new` share the tensors of `module`, of which `names` are the region's parameters.

    What has no counterpart was no operand and is taken out of `new`, so that a read of it raises.
    Raises KernelRefused where a tensor is missing or is not what the kernel was verified for.
    """
    if len(names) != len(kernel.parameters):
        raise KernelRefused(
            f"Kernel {kernel.sha256[:10]!r} has {len(kernel.parameters)} parameters and this use "
            f"names {len(names)}. Expected as many. Next: cut the model again."
        )
    own = dict(zip(kernel.parameters, names, strict=True))
    strides = dict(zip(kernel.parameters, kernel.parameter_strides, strict=False))
    found = []
    for group in _groups(new):
        known = [name for name in group.names if name in own]
        source = own[known[0]] if known else _same_name(module, group.names)
        if source is None:
            for tensors, name in group.places:
                del tensors[name]
            continue
        shape = tuple(group.value.shape)
        # What is in no state_dict was compared with the verified one, its strides included.
        stride = strides.get(known[0]) if known else _stride(module, source)
        form = Form(group.value.dtype, shape, stride or contiguous_strides(shape))
        operand = _operand(module, source, group, form, kernel)
        found.append(operand)
    return tuple(found)


@dataclass(frozen=True)
class _Group:
    """One tensor of the kernel's module under all its names."""

    value: torch.Tensor
    names: tuple[str, ...]
    places: tuple[tuple[Tensors, str], ...]


def _groups(new: nn.Module) -> Iterator[_Group]:
    found: dict[int, list[tuple[str, Tensors, str]]] = {}
    values: dict[int, torch.Tensor] = {}
    for path, module in new.named_modules(remove_duplicate=False):
        for tensors in (module._parameters, module._buffers):
            for name, value in tensors.items():
                if value is None:
                    continue
                full = f"{path}.{name}" if path else name
                found.setdefault(id(value), []).append((full, tensors, name))
                values[id(value)] = value
    for key, places in found.items():
        yield _Group(
            values[key],
            tuple(full for full, _, _ in places),
            tuple({(id(t), name): (t, name) for _, t, name in places}.values()),
        )


def _same_name(module: nn.Module, names: Sequence[str]) -> str | None:
    return next((name for name in names if _holder(module, name) is not None), None)


@dataclass(frozen=True)
class _Held:
    module: nn.Module
    holder: str
    name: str


def _holder(module: nn.Module, full: str) -> _Held | None:
    path, _, name = full.rpartition(".")
    for part in path.split(".") if path else ():
        child = module._modules.get(part)
        if child is None:
            return None
        module = child
    for holder in ("_parameters", "_buffers"):
        if module.__dict__[holder].get(name) is not None:
            return _Held(module, holder, name)
    return None


def _stride(module: nn.Module, full: str) -> tuple[int, ...] | None:
    held = _holder(module, full)
    value = None if held is None else held.module.__dict__[held.holder][held.name]
    return None if value is None else tuple(value.stride())


def _operand(module: nn.Module, source: str, group: _Group, form: Form, kernel: Kernel) -> Operand:
    held = _holder(module, source)
    label = f"Kernel {kernel.sha256[:10]!r} reads {source!r}"
    if held is None:
        raise KernelRefused(
            f"{label}, which {type(module).__name__} does not have. Expected a parameter or "
            "buffer of that name. Next: cut the model again."
        )
    operand = Operand(held.module, held.holder, held.name, group.places, form)
    value = operand.current()
    if value is None or form.refusal(value) is not None:
        there = (
            "nothing"
            if value is None
            else Form(value.dtype, tuple(value.shape), tuple(value.stride())).label
        )
        raise KernelRefused(
            f"{label}, which is {there}. Expected {form.label}, as it was verified. "
            "Next: cut the model again."
        )
    operand.tie(value)
    return operand


NEXT_OPTIMIZE_MODULE = "Next: optimize this module itself."


class Match(NamedTuple):
    """The state_dict names of a module in the order of `Kernel.parameters`, and the other sizes at
    which the kernel stands for it."""

    parameters: tuple[str, ...]
    free: FreeForms | None


def match_module(module: nn.Module, kernel: Kernel, *, declared_sizes: bool = False) -> Match:
    """What ties `kernel` to `module`; with `declared_sizes` it has no other sizes.

    Raises KernelRefused, with the difference named, where `module` computes something else than
    what the kernel was verified for, on the inputs that it was verified for.
    """
    name = f"Kernel {kernel.sha256[:10]!r} cannot stand for this {type(module).__name__}"
    modes = {item: item.training for item in module.modules()}
    bound = _bound(kernel)
    if (why := _no_such_call(module, bound)) is not None:
        raise KernelRefused(f"{name}: {why}. {NEXT_OPTIMIZE_MODULE}")
    try:
        signed = signed_module(module, bound)
        verified = graph_of(kernel.certificate)
        free = None if declared_sizes else free_forms(kernel, verified, signed, module)
    except (ProblemError, RuntimeError, TypeError, ValueError) as error:
        # Its next step is for who optimizes the module.
        why = cause_of(str(error))
        raise KernelRefused(
            f"{name}: it has no graph on the verified inputs: {one_line(why.rstrip('.'), 500)}. "
            f"{NEXT_OPTIMIZE_MODULE}"
        ) from error
    finally:
        for item, training in modes.items():
            item.training = training
    if verified is None and signed.region.signature != kernel.key.signature:
        raise KernelRefused(
            f"{name}: its graph is {signed.region.signature!r}, verified for "
            f"{kernel.key.signature!r}, and the record says no more. {NEXT_OPTIMIZE_MODULE}"
        )
    words = graph_difference(signed.flat, verified) if verified is not None else None
    if words is not None:
        raise KernelRefused(f"{name}: {words}. {NEXT_OPTIMIZE_MODULE}")
    return Match(signed.flat.parameters, free)


def _no_such_call(module: nn.Module, bound: BoundCall) -> str | None:
    """Why forward cannot be called on the verified inputs; None where it can, or nobody knows."""
    args, kwargs = bound.inputs, {}
    if bound.structure is not None:
        args, kwargs = unflatten_data(bound.structure, bound.inputs)
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return f"its forward{signature} does not take the verified inputs: {error}"
    return None


def _bound(kernel: Kernel) -> BoundCall:
    """A call on the inputs that the kernel was verified for, without their values."""
    import torch

    specs = kernel.certificate.problem.shape_sets[0].inputs
    strides = kernel.input_strides or (None,) * len(specs)
    inputs: list[object] = []
    for spec, stride in zip(specs, strides, strict=True):
        if isinstance(spec, ScalarSpec):
            inputs.append(read_literal(spec.literal))
            continue
        steps = stride or contiguous_strides(spec.shape)
        dtype = getattr(torch, spec.dtype)
        inputs.append(torch.empty_strided(spec.shape, steps, dtype=dtype, device="meta"))
    names = identifiers([spec.name for spec in specs])
    return BoundCall(tuple(inputs), names, kernel.arguments, kernel.returns)


def graph_of(certificate: Certificate) -> ModuleGraph | None:
    """The graph in the certificate; of an older one, that of the problem whose file it holds."""
    if certificate.graph is not None or certificate.problem.origin == "live":
        return certificate.graph
    try:
        loaded = restore_problem(certificate.problem)
        return problem_graph(loaded, capture(loaded))
    except AgentKernelError:
        return None


def tensor_forms(kernel: Kernel) -> tuple[str, ...] | None:
    """Dtypes, shapes and strides of the verified module's own tensors, sorted; None where the
    certificate does not have them."""
    graph = graph_of(kernel.certificate)
    return None if graph is None else state_forms(graph.text)


def tensor_forms_of(module: nn.Module) -> tuple[str, ...]:
    """As `tensor_forms`, of a module at hand; a tensor under two names counts once."""
    held = {id(value): value for value in module.state_dict(keep_vars=True).values()}
    return tuple(sorted(describe(tuple(held.values()))))


Strides = tuple[tuple[int, ...] | None, ...]


def strides_of(values: Sequence[object]) -> Strides:
    """What `Kernel.input_strides` holds for these inputs: in elements, None for a scalar."""
    import torch

    return tuple(tuple(x.stride()) if isinstance(x, torch.Tensor) else None for x in values)


def parameter_strides(module: nn.Module, names: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """What `Kernel.parameter_strides` holds for a module's own tensors, in elements."""
    held: dict[str, torch.Tensor] = {}
    held.update(module.named_parameters(remove_duplicate=False))
    held.update(module.named_buffers(remove_duplicate=False))
    return tuple(tuple(held[name].stride()) for name in names)


def kernel_of_run(certificate: Path) -> Kernel:
    """The drop-in of the run that wrote `certificate`.

    Raises RunNotFound for a certificate that is missing or edited, KernelRefused where it has no
    drop-in, or no record of what its module computes.
    """
    found = read_certificate(certificate)
    if found.status == "failed":
        raise KernelRefused(
            sentence(f"Run {found.run!r} failed, it has no kernel: {cause_of(found.reason)}")
            + " Next: agentkernel runs"
        )
    if found.candidate_source is None or found.candidate_sha256 is None:
        if is_unfinished(certificate.parent):
            raise KernelRefused(
                f"Run {found.run!r} is unfinished: there is no kernel to put in yet. "
                f"Expected one that has ended. Next: agentkernel resume {found.run}"
            )
        raise KernelRefused(
            f"Run {found.run!r} kept a baseline: there is no kernel to put in. "
            "Expected one that found a drop-in. Next: use the module as it is."
        )
    profile, verdict = found.profile, found.verdict
    gpu = profile.measured_on if profile is not None else None
    graph = graph_of(found)
    if graph is None:
        raise KernelRefused(
            f"Run {found.run!r} does not say what its module computes: no other module can be "
            "compared with it. Expected a record of the graph. Next: optimize the module again."
        )
    return Kernel(
        key=KernelKey(
            signature=graph.signature,
            gpu=gpu or f"estimated:{found.target}",
            torch=found.versions.torch,
            triton=found.versions.triton,
            precision=verdict.precision if verdict is not None else "strict",
        ),
        sha256=found.candidate_sha256,
        source=found.candidate_source,
        parameters=graph.parameters,
        input_strides=graph.input_strides,
        arguments=found.problem.arguments,
        parameter_strides=graph.parameter_strides,
        certificate=found,
        run=found.run,
        created=found.created,
        basis=found.basis,
    )


NEXT_OPTIMIZE_REGION = "Next: optimize the region again."
TRITON = re.compile(r"^\s*(?:import|from)\s+triton\b", re.M)
_classes: dict[str, type[nn.Module]] = {}
"""By SHA-256: uses of one kernel share its compiled binaries."""


def kernel_class(kernel: Kernel) -> type[nn.Module]:
    """`ModelNew` of a kernel whose text is the one that its certificate was given for.

    Raises KernelRefused for a kernel that is withdrawn, changed or not accepted.
    """
    check_kernel(kernel)
    if kernel.sha256 not in _classes:
        _classes[kernel.sha256] = _import(kernel)
    return _classes[kernel.sha256]


def build_kernel(kernel: Kernel) -> nn.Module:
    """A `ModelNew` of the kernel's text in eval mode, with the constructor's arguments that its
    problem names, called on the flat list of inputs. Raises KernelRefused."""
    made = kernel_class(kernel)
    problem = kernel.certificate.problem
    try:
        if problem.origin == "live":
            return called_flat(made().eval(), problem.arguments)
        loaded = restore_problem(problem)
        new = made(*loaded.init_args, **loaded.init_kwargs).eval()
        return called_flat(new, problem.arguments)
    except (TypeError, AgentKernelError) as error:
        raise KernelRefused(
            f"Kernel {kernel.sha256[:10]!r} cannot be built: {one_line(error)}. Expected a "
            f"drop-in that takes the arguments of {problem.class_name}. {NEXT_OPTIMIZE_REGION}"
        ) from error


def check_kernel(kernel: Kernel) -> None:
    """Raise KernelRefused where nothing proves this text. Nothing is imported."""
    name = f"Kernel {kernel.sha256[:10]!r}"
    if kernel.withdrawn is not None:
        raise KernelRefused(
            f"{name} is withdrawn: {one_line(kernel.withdrawn)}. {NEXT_OPTIMIZE_REGION}"
        )
    if sha256_text(kernel.source) != kernel.sha256:
        raise KernelRefused(f"{name} has changed since it was verified. {NEXT_OPTIMIZE_REGION}")
    certificate = kernel.certificate
    if certificate.verdict is None or not certificate.verdict.accepted:
        raise KernelRefused(f"{name} was not accepted by the judge. {NEXT_OPTIMIZE_REGION}")
    wrong = hash_errors(certificate)
    if certificate.candidate_sha256 != kernel.sha256 or wrong:
        text = ", ".join(wrong) or f"candidate {str(certificate.candidate_sha256)[:10]!r}"
        raise KernelRefused(
            f"{name} has the certificate of another text ({text}). {NEXT_OPTIMIZE_REGION}"
        )


def keeps_gradients(kernel: Kernel) -> bool:
    """Whether the judge compared the kernel's gradients with those of the original."""
    verdict = kernel.certificate.verdict
    return verdict is not None and verdict.gradients is True


def needs_triton(source: str) -> bool:
    """Whether the text launches kernels, which need a GPU or Triton's interpreter."""
    return TRITON.search(source) is not None


def _import(kernel: Kernel) -> type[nn.Module]:
    try:
        name = f"agentkernel_kernel_{kernel.sha256[:16]}"
        return cast("type[nn.Module]", execute_module(kernel.source, name).ModelNew)
    except Exception as error:
        raise KernelRefused(
            f"Kernel {kernel.sha256[:10]!r} raised {type(error).__name__} when imported: "
            f"{one_line(error)}. Expected torch and triton as in its key. {NEXT_OPTIMIZE_REGION}"
        ) from error


def execute_module(text: str, name: str) -> types.ModuleType:
    """`text` as the module `name`: the very text, from no file and no bytecode beside one, and the
    one that `inspect` finds, which Triton asks for a kernel's lines. Raises SyntaxError for a text
    with more than one reading, and whatever running it raises."""
    check_one_reading(text)
    filename = f"<{name}>"
    code = compile_source(text, filename)
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    namespace = sys.modules[name] = types.ModuleType(name)
    namespace.__file__ = filename
    if needs_triton(text):
        correct_where_interpreted()
    try:
        exec(code, namespace.__dict__)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return namespace
