"""Problems: the source of a module, its constructor arguments, and the inputs it runs on.

Nested inputs and outputs are described by a structure with the tensors left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer

from agentkernel.domain.base import Frozen, sha256_text

Kind = Literal["tensor", "literal", "tuple", "list", "dict", "node"]


@dataclass(frozen=True, slots=True)
class DataStructure:
    """Nested plain data with its tensors left out; they are counted from left to right.

    `literal` is the text of a "literal" (None, bool, int, float or str); of a "node", which is a
    class that torch's pytree knows, it is pytree's own JSON for one level. `keys` are a dict's, as
    literals in their order, one an item. `items` are what it holds.
    """

    kind: Kind
    literal: str = ""
    keys: tuple[str, ...] = ()
    items: tuple[DataStructure, ...] = ()

    @property
    def text(self) -> str:
        """Equal texts are equal structures: `((*, (*, *)), {'mask': None})`, a star a tensor."""
        inner = [item.text for item in self.items]
        if self.kind == "tensor":
            return "*"
        if self.kind == "literal":
            return self.literal
        if self.kind == "dict":
            pairs = zip(self.keys, inner, strict=True)
            return f"{{{', '.join(f'{key}: {item}' for key, item in pairs)}}}"
        if self.kind == "list":
            return f"[{', '.join(inner)}]"
        if self.kind == "node":
            return f"{self.literal}({', '.join(inner)})"
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"

    @property
    def tensors(self) -> int:
        """How many tensors it holds."""
        return (self.kind == "tensor") + sum(item.tensors for item in self.items)


DType = Literal[
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"
]
Origin = Literal["file", "class", "live"]


class TensorSpec(Frozen):
    """One tensor input: its parameter name in `forward`, dtype and shape (elements). Integers are
    drawn `below` a number, and are 0 or 1 where none is named."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    below: int | None = None

    @model_serializer(mode="wrap")
    def _without_none(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """One without a limit is written, and known again, as ever."""
        found: dict[str, object] = handler(self)
        if self.below is None:
            del found["below"]
        return found

    @property
    def label(self) -> str:
        """For people: `x float32[4096, 8192]`."""
        return f"{self.name} {self.dtype}{list(self.shape)}"


class ScalarSpec(Frozen):
    """One Python scalar (or None) passed to `forward`, kept as its literal."""

    name: str
    literal: str

    @property
    def label(self) -> str:
        """For people: `eps=1e-05`."""
        return f"{self.name}={self.literal}"


InputSpec = TensorSpec | ScalarSpec


class ShapeSet(Frozen):
    """The inputs of one call of `forward`, in order; nested ones one by one, from left to right."""

    inputs: tuple[InputSpec, ...]

    @property
    def label(self) -> str:
        """For people: all inputs on one line."""
        return ", ".join(item.label for item in self.inputs)

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """The tensor inputs alone."""
        return tuple(item for item in self.inputs if isinstance(item, TensorSpec))


class PackageFile(Frozen):
    """A file of a package, its path below the package's root, and the SHA-256 of its bytes."""

    path: str
    sha256: str


class Package(Frozen):
    """The package that a source imports from: `from .layers import Norm`.

    `name` is dotted; `root` is the folder that holds its top-level package. `files` are those of
    the package that the source needs beside itself; of an installed package, which has a `version`,
    none are listed. A source in no package, which imports its neighbours (`from layers import
    Norm`), has those of its folder: the name is "".
    """

    name: str
    root: str
    files: tuple[PackageFile, ...] = ()
    version: str = ""


class Problem(Frozen):
    """A PyTorch module to optimise.

    `source` is the whole text of the defining file ("" for a live module, whose pickle lies in the
    run folder). `origin` says how it is built: "file" has `Model`, `get_inputs`, `get_init_inputs`;
    "class" takes `init_source`, a literal argument list such as `4096, bias=False`.
    The first of `shape_sets` is the primary one. `arguments` says how the inputs lie in the pair of
    positional arguments and keywords that `forward` takes, each input a "tensor" in it; None where
    they are the positional arguments. `package` is None where the source stands by itself.
    """

    name: str
    origin: Origin
    path: str
    source: str
    class_name: str
    init_source: str = ""
    shape_sets: tuple[ShapeSet, ...]
    arguments: DataStructure | None = None
    package: Package | None = None

    @model_serializer(mode="wrap")
    def _without_none(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """A plain problem, of positional arguments and one file, reads and hashes as ever."""
        found: dict[str, object] = handler(self)
        for name in ("arguments", "package"):
            if getattr(self, name) is None:
                del found[name]
        return found

    @property
    def sha256(self) -> str:
        """Identity of the problem: everything but where its files lay."""
        package = self.package and self.package.evolve(root="")
        bare = self.evolve(path="", package=package)
        return sha256_text(bare.model_dump_json())
