"""How do the verified kernels get into a model, out of it again, and how often did they run?"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from agentkernel.domain.errors import KernelRefused, ProblemError, one_line
from agentkernel.domain.region import Kernel
from agentkernel.swap.equal import matching_parameters, tensor_forms, tensor_forms_of
from agentkernel.swap.source import check_kernel
from agentkernel.swap.swap import Swap, make_swap, original_class, swap_in, swap_of, swap_out

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Applied:
    """What `apply` did: the paths that now run a kernel, and the kernels' SHA-256 by path.

    `refused`: by path, why a module of the verified class did not get the kernel of `apply_all`.
    """

    kernels: Mapping[str, str]
    refused: Mapping[str, str] = field(default_factory=dict)

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
) -> Applied:
    """Swap `kernels` in at their paths, all of them or none. Of the modules nothing is compared but
    arguments and tensors: they are those that were cut and verified, or `apply_equal` compares.

    `parameters` gives, by path, this use's own names in the order of `Kernel.parameters`, which
    stand where it says nothing. A kernel that is at a path already is replaced; others stay. Raises
    ProblemError for a path that the model does not have, KernelRefused for a kernel that may not
    run there.
    """
    own = parameters or {}
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
        planned.append((module, make_swap(module, kernel, own.get(path, kernel.parameters))))
    for module, swap in planned:
        swap_in(module, swap)
    return Applied({path: kernel.sha256 for path, kernel in kernels.items()})


def apply_equal(
    model: nn.Module,
    kernels: Mapping[str, Kernel],
    parameters: Mapping[str, tuple[str, ...]] | None = None,
) -> Applied:
    """As `apply`, on modules that compute what was verified: the same graph and constants.

    Where `parameters` says nothing, a module's names are those that its own graph gives. Raises
    what `apply` raises, and KernelRefused with the difference in words.
    """
    own = dict(parameters or {})
    for path, kernel in kernels.items():
        check_kernel(kernel)
        names = matching_parameters(_submodule(model, path), kernel)
        own.setdefault(path, names)
    return apply(model, kernels, own)


def apply_all(model: nn.Module, kernel: Kernel, class_name: str) -> Applied:
    """Swap `kernel` in at every module of `model` that computes what was verified.

    Modules with other tensors than the verified one are passed over, those of `class_name` with a
    reason in `Applied.refused`. Nothing is looked for inside of a module that got the kernel.
    Raises KernelRefused where nothing proves the kernel's text.
    """
    check_kernel(kernel)
    forms = tensor_forms(kernel)
    kernels: dict[str, Kernel] = {}
    parameters: dict[str, tuple[str, ...]] = {}
    refused: dict[str, str] = {}
    for path, module in model.named_modules():
        inside = any(path.startswith(f"{above}." if above else "") for above in kernels)
        named = original_class(module).__name__ == class_name
        if inside or not (named or tensor_forms_of(module) == forms):
            continue
        try:
            parameters[path] = matching_parameters(module, kernel)
            make_swap(module, kernel, parameters[path])
        except KernelRefused as error:
            if named:
                refused[path] = one_line(error)
            continue
        kernels[path] = kernel
    return replace(apply(model, kernels, parameters), refused=refused)


def restore(model: nn.Module) -> int:
    """Take all kernels out: every module has its own class and attributes again. Returns how many
    modules had one."""
    return sum(swap_out(module) for module in list(model.modules()))


def counts(model: nn.Module) -> dict[str, CallCounts]:
    """What the swapped modules' calls ran since their kernels were put in, by path. Calls inside of
    torch.compile's graphs are not counted."""
    found = {}
    for path, module in model.named_modules():
        swap = swap_of(module)
        if swap is not None:
            fallback = sum(swap.reasons.values())
            found[path] = CallCounts(swap.called, fallback, dict(swap.reasons), swap.off)
    return found


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


__all__ = ["Applied", "CallCounts", "apply", "apply_all", "apply_equal", "counts", "restore"]
