"""What mypy needs to check `Frozen.evolve`.

No annotation says "the fields of the receiver's class, each by name and each optional", so `evolve`
takes `**changes: Any`, and mypy would let through a misspelt field and a value of another type.
For each call this plugin puts in the fields of the class that is asked, as mypy's own plugin does
for `attrs.evolve`. A receiver whose type is a type variable is not looked at: mypy calls no plugin
for it. `plugins` in pyproject.toml names this file.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.expandtype import expand_type_by_instance
from mypy.maptype import map_instance_to_supertype
from mypy.nodes import ARG_NAMED_OPT, Var
from mypy.plugin import MethodSigContext, Plugin
from mypy.types import (
    CallableType,
    FunctionLike,
    Instance,
    Type,
    get_proper_type,
)

BASE = "agentkernel.domain.base.Frozen"
METHOD = "evolve"


class EvolvePlugin(Plugin):
    """Checks the names and the types that `Frozen.evolve` is given."""

    def get_method_signature_hook(
        self, fullname: str
    ) -> Callable[[MethodSigContext], FunctionLike] | None:
        """The name is that of the receiver's class, which may be any below `Frozen`."""
        return evolve_signature if fullname.endswith(f".{METHOD}") else None


def evolve_signature(context: MethodSigContext) -> FunctionLike:
    """Keyword-only, all optional: the fields of the class that the method is called on."""
    declared = context.default_signature
    receiver = get_proper_type(context.type)
    if not isinstance(receiver, Instance) or not isinstance(declared, CallableType):
        return declared
    owner = receiver.type.get_containing_type_info(METHOD)
    if owner is None or owner.fullname != BASE:
        return declared
    fields = model_fields(receiver)
    return declared.copy_modified(
        arg_names=list(fields),
        arg_kinds=[ARG_NAMED_OPT] * len(fields),
        arg_types=list(fields.values()),
        name=f"{METHOD} of {receiver.type.name}",
    )


def model_fields(model: Instance) -> dict[str, Type]:
    """Its fields and their types, those of the outermost base class first."""
    found: dict[str, Type] = {}
    for base in reversed(model.type.mro):
        if not base.has_base(BASE):
            continue
        told = map_instance_to_supertype(model, base)
        for name, symbol in base.names.items():
            node = symbol.node
            if not isinstance(node, Var) or node.is_classvar or node.is_property:
                continue
            if node.is_inferred or node.type is None or name.startswith("_"):
                continue
            found[name] = expand_type_by_instance(node.type, told)
    return found


def plugin(version: str) -> type[Plugin]:
    """Where mypy begins."""
    return EvolvePlugin
