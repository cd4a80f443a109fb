"""Library calls of TorchInductor's wrapper in PyTorch's own words."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agentkernel.compiler.lift.wrapper_steps import (
    LibraryCallStep,
    Unliftable,
    literal,
    numbers,
)

Text = Callable[[ast.expr], str]
PRODUCTS = {"mm": "mm", "bmm": "bmm", "addmm": "addmm", "bias_addmm": "addmm",
            "baddbmm": "baddbmm"}  # fmt: skip
"""`extern_kernels.NAME` -> `torch.NAME`."""
OPERATOR = re.compile(r"torch\.ops\.aten\.(?P<name>\w+)\.(?P<overload>\w+)")


@dataclass(frozen=True)
class LibraryCall:
    """`text` computes; `out` is the wrapper's name for a result that has its memory already."""

    title: str
    text: str
    out: str | None


def library_call(call: LibraryCallStep, text: Text) -> LibraryCall:
    """The call in torch's words: a product or a convolution as people write it, another operator by
    its full name, which the policy allows where the module itself calls it. Raises
    Unliftable for what is no operator of PyTorch's, and for one that writes to what it is given."""
    space, _, name = call.function.rpartition(".")
    keywords = dict(call.keywords)
    if space == "extern_kernels" and name in PRODUCTS:
        return _product(PRODUCTS[name], call, keywords, text)
    if name == "convolution" or call.function.endswith("aten.convolution.default"):
        return _convolution(call, keywords, text)
    operator = OPERATOR.fullmatch(call.function)
    if operator is None or "out" in keywords or call.target is None:
        raise Unliftable(f"{call.function} stays with PyTorch, and no file can say how")
    args = [text(item) for item in call.args]
    args += [f"{key}={text(value)}" for key, value in call.keywords]
    written = f"torch.ops.aten.{operator['name']}.{operator['overload']}({', '.join(args)})"
    return LibraryCall(operator["name"].strip("_"), written, None)


def _product(
    name: str, call: LibraryCallStep, keywords: Mapping[str, ast.expr], text: Text
) -> LibraryCall:
    args = [text(item) for item in call.args]
    out = keywords.get("out")
    scales = [
        f"{key}={text(keywords[key])}"
        for key in ("beta", "alpha")
        if key in keywords and text(keywords[key]) not in ("1", "1.0")
    ]
    return LibraryCall(
        title=name,
        text=f"torch.{name}({', '.join([*args, *scales])})",
        out=ast.unparse(out) if out is not None else None,
    )


def _convolution(
    call: LibraryCallStep, keywords: Mapping[str, ast.expr], text: Text
) -> LibraryCall:
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "transposed",
             "output_padding", "groups")  # fmt: skip
    given = dict(zip(names, call.args, strict=False)) | dict(keywords)
    missing = [name for name in names if name not in given and name != "bias"]
    if missing:
        raise Unliftable(f"a convolution does not say its {missing[0]}")
    dimensions = len(numbers(given["stride"]))
    tensors = [text(given[name]) for name in ("input", "weight")]
    bias = text(given["bias"]) if "bias" in given else "None"
    tensors += [f"bias={bias}"] if bias != "None" else []
    transposed = bool(literal(given["transposed"]))
    usual = {"stride": 1, "padding": 0, "dilation": 1}
    options = [f"{key}={text(given[key])}" for key, value in usual.items()
               if set(numbers(given[key])) != {value}]  # fmt: skip
    if transposed and any(numbers(given["output_padding"])):
        options.append(f"output_padding={text(given['output_padding'])}")
    if text(given["groups"]) != "1":
        options.append(f"groups={text(given['groups'])}")
    name = f"conv_transpose{dimensions}d" if transposed else f"conv{dimensions}d"
    return LibraryCall(
        title="convolved",
        text=f"torch.nn.functional.{name}({', '.join([*tensors, *options])})",
        out=None,
    )
