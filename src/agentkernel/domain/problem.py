"""What is to be made faster: a module's source, how it is built, and on which inputs it runs."""

from __future__ import annotations

from typing import Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.structure import DataStructure

DType = Literal[
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"
]
Origin = Literal["file", "class", "live"]


class TensorSpec(Frozen):
    """One tensor input: its parameter name in `forward`, dtype and shape (elements)."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

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
    none are listed.
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
        package = self.package and self.package.model_copy(update={"root": ""})
        bare = self.model_copy(update={"path": "", "package": package})
        return sha256_text(bare.model_dump_json())
