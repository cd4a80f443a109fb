"""The forms in which a candidate's kernels were launched, in plain data: types of tensors, numbers
and constants, as far as Triton compiles another binary for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from agentkernel.tools.sandbox.protocol import JSON

MOST = 24
"""Forms of all kernels together that are kept; the others are counted."""
PLAIN = (bool, int, float, str, type(None))
OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg"}
LEFT_OUT = {"grid", "warmup", "debug", *OPTIONS}


class UnknownForm(Exception):
    """An argument that is no tensor, number, constant or kernel."""


class LaunchForms:
    """What `launches` noted: each form once."""

    def __init__(self) -> None:
        self._known: dict[str, JSON] = {}
        self.left_out = 0
        self._constant: dict[int, set[str]] = {}

    def add(self, kernel: object, args: Sequence[object], named: Mapping[str, object]) -> bool:
        """One launch of `kernel`, which the candidate's file defines; False where its form is not
        kept, so that nobody will see whether it compiles."""
        names = list(cast("list[str]", getattr(kernel, "arg_names", [])))
        given = dict(zip(names, args, strict=False)) | {
            key: value for key, value in named.items() if key not in LEFT_OUT
        }
        if id(kernel) not in self._constant:
            self._constant[id(kernel)] = _constants(kernel)
        constant = self._constant[id(kernel)]
        try:
            words = [
                [name, describe_argument(value, name in constant)] for name, value in given.items()
            ]
        except UnknownForm:
            self.left_out += 1
            return False
        form: JSON = [kernel_name(kernel), cast("JSON", words)]
        key = repr(form)
        if key in self._known:
            return True
        if len(self._known) == MOST:
            self.left_out += 1
            return False
        self._known[key] = form
        return True

    def all(self) -> list[JSON]:
        """The forms, in the order in which they came."""
        return list(self._known.values())


def kernel_name(kernel: object) -> list[JSON]:
    """Where a kernel's text begins, and what the text calls it."""
    code = getattr(getattr(kernel, "fn", None), "__code__", None)
    return [str(getattr(code, "co_name", "")), int(getattr(code, "co_firstlineno", 0))]


def _constants(kernel: object) -> set[str]:
    from triton.runtime.jit import _normalize_ty

    notes = getattr(getattr(kernel, "fn", None), "__annotations__", {})
    return {name for name, kind in notes.items() if _normalize_ty(kind) == "constexpr"}


def describe_argument(value: object, constant: bool) -> JSON:
    """One argument: ["tensor", dtype], ["number", value] with a number that stands for all that
    Triton treats alike, ["constant", value], ["dtype", name] or ["kernel", name, line]. Raises
    Unknown."""
    import torch
    import triton.language as tl

    if isinstance(value, torch.Tensor):
        return ["tensor", str(value.dtype).removeprefix("torch.")]
    if isinstance(value, tl.constexpr):
        value, constant = value.value, True
    if isinstance(value, tl.dtype):
        return ["dtype", value.name]
    if type(value) in PLAIN:
        return ["constant" if constant else "number", cast("JSON", _typical(value, constant))]
    if hasattr(value, "fn") and kernel_name(value)[1]:
        return ["kernel", *kernel_name(value)]
    raise UnknownForm(type(value).__name__)


def _typical(value: object, constant: bool) -> object:
    if constant or type(value) is not int or value == 1:
        return value
    wide = 1 << 40 if not -(1 << 31) <= value < 1 << 31 else 0
    return wide + (16 if value % 16 == 0 else 17)
