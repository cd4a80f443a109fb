"""What is a submodule as a problem, where its calls take or return nested data?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentkernel.domain.errors import ProblemError
from agentkernel.domain.structure import DataStructure
from agentkernel.tools.problem.regions_arguments import BoundCall
from agentkernel.tools.problem.structures import FlatData, flatten_data, unflatten_data, values_of
from agentkernel.tools.problem.tools_arguments import flat_class

if TYPE_CHECKING:
    from torch import nn


def flat_module(module: nn.Module, bound: BoundCall) -> nn.Module:
    """`module` for calls on `bound.inputs`, by position, that return a tensor or a flat tuple.

    The same object where it is that already; else one of a class made for this call, which shares
    all tensors and children, and whose state_dict has the same names.
    """
    if not bound.nested:
        return module
    own = object.__new__(_flat_class(type(module), bound))
    own.__dict__.update(vars(module))
    return own


def returned(output: object) -> FlatData | None:
    """What a call returned, taken apart; None for what is no nested data of tensors and None."""
    apart = flatten_data(output, nodes=True)
    if not isinstance(apart, FlatData) or not apart.places or not _tensors_only(apart.structure):
        return None
    return apart


def is_flat(structure: DataStructure) -> bool:
    """Whether a problem can return this as it is: a tensor, or a tuple or list of some and None."""
    return structure.kind == "tensor" or (
        structure.kind in ("tuple", "list")
        and all(item.kind in ("tensor", "literal") for item in structure.items)
    )


def _tensors_only(structure: DataStructure) -> bool:
    if structure.kind == "literal":
        return structure.literal == "None"
    return all(map(_tensors_only, structure.items))


def _flat_class(original: type[nn.Module], bound: BoundCall) -> type[nn.Module]:
    """The subclass of `original` for this call. Its name stays; cloudpickle takes it by value."""
    structure = bound.structure
    values = {} if structure is None else values_of(structure)

    def call(self: nn.Module, given: Sequence[object]) -> object:
        if structure is None:
            found = original.forward(self, *given)
        else:
            args, kwargs = unflatten_data(structure, given, values)
            found = original.forward(self, *args, **kwargs)
        if bound.returns is None:
            return found
        apart = returned(found)
        if apart is None:
            raise ProblemError(
                f"{original.__name__} returned a {type(found).__name__}. Expected tensors in "
                "tuples, lists and dicts. Next: cut the model again."
            )
        return apart.tensors if len(apart.places) > 1 else apart.tensors[0]

    return flat_class(original, bound.names, call, {"extra_repr": _repr_of(original, bound)})


def _repr_of(original: type[nn.Module], bound: BoundCall) -> object:
    """The structure is part of what the module is: problems of two structures are two."""
    words = [item.text for item in (bound.structure, bound.returns) if item is not None]

    def extra_repr(self: nn.Module) -> str:
        return ", ".join([word for word in (original.extra_repr(self), *words) if word])

    return extra_repr


__all__ = ["flat_module", "is_flat", "returned"]
