"""Inputs of a problem: written as text, described from values, made by default."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast, get_args

from agentkernel.domain.errors import ProblemError
from agentkernel.domain.problem import DType, InputSpec, ScalarSpec, TensorSpec
from agentkernel.storage.source_text import parse_expression
from agentkernel.tools.problem.structures import value_of

if TYPE_CHECKING:
    pass


SHORT_DTYPES: dict[str, DType] = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "b1": "bool",
}
BITS = {"int64": 63, "int32": 31, "int16": 15, "int8": 7, "uint8": 8}
"""Value bits of each integer type, without the sign."""
LIMIT_PATTERN = re.compile(r"^(?P<tensor>[\w.]+\[[^\]]*\])\s*<\s*(?P<below>\S+)\s*$", re.S)
INPUT_PATTERN = re.compile(r"^(?P<name>[A-Za-z_]\w*)=(?P<value>.+)$", re.S)
TENSOR_PATTERN = re.compile(r"^(?:torch\.)?(?P<dtype>[a-z]+\d*)\[(?P<shape>[\d,\s]*)\]$")
InputTree = InputSpec | tuple["InputTree", ...] | list["InputTree"] | dict[object, "InputTree"]
"""An input, or tuples, lists and dicts of some."""


def default_value(spec: InputTree, device: str) -> object:
    """A plain value for `spec`: normal for floats, {0, 1} for booleans and for integers without a
    limit, else from 0 on below that."""
    import torch

    if isinstance(spec, tuple | list):
        values = [default_value(item, device) for item in spec]
        return tuple(values) if isinstance(spec, tuple) else values
    if isinstance(spec, dict):
        return {key: default_value(item, device) for key, item in spec.items()}
    if isinstance(spec, ScalarSpec):
        return value_of(spec.literal)
    dtype = getattr(torch, spec.dtype)
    if dtype.is_floating_point:
        return torch.randn(spec.shape, dtype=dtype, device=device)
    return torch.randint(0, spec.below or 2, spec.shape, device=device).to(dtype)


def describe_inputs(values: Sequence[object], names: Sequence[str]) -> tuple[InputSpec, ...]:
    """Specs of actual inputs; raises ProblemError for what is neither tensor nor plain scalar."""
    import torch

    specs: list[InputSpec] = []
    for index, value in enumerate(values):
        name = names[index] if index < len(names) else f"input_{index}"
        if isinstance(value, TensorSpec | ScalarSpec):
            specs.append(value.evolve(name=name))
        elif isinstance(value, torch.Tensor):
            dtype = str(value.dtype).removeprefix("torch.")
            if dtype not in get_args(DType):
                raise ProblemError(
                    f"Input {name!r} has dtype {dtype}. Expected one of "
                    f"{', '.join(get_args(DType))}. Next: convert it in get_inputs()."
                )
            known = cast("DType", dtype)
            specs.append(TensorSpec(name=name, dtype=known, shape=tuple(value.shape)))
        elif value is None or isinstance(value, bool | int | float | str):
            specs.append(ScalarSpec(name=name, literal=repr(value)))
        else:
            raise ProblemError(
                f"Input {name!r} is a {type(value).__name__}. Expected a tensor, a number, a "
                "string or None. Next: pass its tensors one by one."
            )
    return tuple(specs)


def check_elements(specs: Sequence[InputSpec]) -> None:
    """Raise ProblemError where no tensor has an element: there is nothing to compute or compare."""
    tensors = [spec for spec in specs if isinstance(spec, TensorSpec)]
    if tensors and all(0 in spec.shape for spec in tensors):
        raise ProblemError(
            f"Input {tensors[0].name!r} has no elements: its shape is {list(tensors[0].shape)}. "
            "Expected sizes of 1 or more. Next: give inputs of the size that you run."
        )


def parse_input(text: str) -> tuple[str, tuple[InputTree, ...]]:
    """`x=f32[4096,8192];f32[128,512]` -> its name and one value a shape set.

    A value is `dtype[shape]`, `dtype[shape]<N` for integers below N, a literal, or tuples, lists
    and dicts of them: `state=(f32[8,64], f32[8,64])`. Raises ProblemError.
    """
    match = INPUT_PATTERN.match(text)
    if match is None:
        raise ProblemError(
            f"--input {text!r} does not read as name=dtype[shape]. Expected e.g. "
            f"'x=f32[4096,8192]'. Known dtypes: {', '.join(SHORT_DTYPES)}."
        )
    name = match["name"]
    return name, tuple(_parse_value(name, item.strip(), text) for item in match["value"].split(";"))


def _parse_value(name: str, item: str, text: str) -> InputTree:
    limited = LIMIT_PATTERN.match(item)
    if limited is not None:
        return _limited(_parse_value(name, limited["tensor"], text), limited["below"], text)
    tensor = TENSOR_PATTERN.match(item)
    if tensor is not None:
        shape = tuple(int(part) for part in tensor["shape"].split(",") if part.strip())
        return _tensor_spec(name, tensor["dtype"], shape, text)
    try:
        return _value_of_node(name, parse_expression(item), text)
    except (ValueError, SyntaxError) as error:
        raise ProblemError(
            f"--input {text!r} has {item!r}. Expected dtype[shape] such as f32[4096,8192], with "
            "<N behind it for integers below N, or a Python literal. "
            f"Known dtypes: {', '.join(SHORT_DTYPES)}."
        ) from error


def _value_of_node(name: str, node: ast.expr, text: str) -> InputTree:
    """Raises ValueError for what is neither `dtype[shape]`, literal, tuple, list nor dict."""
    if isinstance(node, ast.Tuple):
        return tuple(_value_of_node(name, item, text) for item in node.elts)
    if isinstance(node, ast.List):
        return [_value_of_node(name, item, text) for item in node.elts]
    if isinstance(node, ast.Dict):
        keys = [ast.literal_eval(key or "") for key in node.keys]
        values = [_value_of_node(name, item, text) for item in node.values]
        return dict(zip(keys, values, strict=True))
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt) and not node.ops[1:]:
        spec = _value_of_node(name, node.left, text)
        return _limited(spec, ast.unparse(node.comparators[0]), text)
    if isinstance(node, ast.Subscript):
        sizes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        shape = tuple(int(ast.literal_eval(size)) for size in sizes)
        return _tensor_spec(name, ast.unparse(node.value).removeprefix("torch."), shape, text)
    ast.literal_eval(node)
    return ScalarSpec(name=name, literal=ast.unparse(node))


def _tensor_spec(name: str, word: str, shape: tuple[int, ...], text: str) -> TensorSpec:
    dtype = SHORT_DTYPES.get(word, word)
    if dtype not in get_args(DType):
        raise ProblemError(
            f"--input {text!r} has dtype {word!r}. Known: {', '.join(SHORT_DTYPES)}, or in full, "
            "float32. Next: write e.g. 'x=f32[4096,8192]'."
        )
    return TensorSpec.model_validate({"name": name, "dtype": dtype, "shape": shape})


def _limited(spec: InputTree, limit: str, text: str) -> TensorSpec:
    """The integers of `spec`, below a limit."""
    integers = ", ".join(short for short, name in SHORT_DTYPES.items() if name in BITS)
    if not isinstance(spec, TensorSpec) or spec.dtype not in BITS:
        dtype = spec.dtype if isinstance(spec, TensorSpec) else "no dtype"
        raise ProblemError(
            f"Input {text!r} ends in '<{limit}' and has {dtype}. Expected that of integers alone: "
            f"{integers}. Next: leave '<{limit}' out, or write e.g. 'ids=i64[2,16]<1000'."
        )
    most = 2 ** BITS[spec.dtype]
    if not limit.isdecimal() or not 1 <= int(limit) <= most:
        raise ProblemError(
            f"Input {text!r} has the limit {limit!r}. Expected a whole number from 1 to {most}. "
            "Next: write e.g. 'ids=i64[2,16]<1000'."
        )
    return spec.evolve(below=int(limit))


def parse_kwargs(text: str) -> dict[str, object]:
    """`alpha=0.5, flip=True` -> keyword arguments; literals only."""
    try:
        args, kwargs = parse_init(text)
    except ProblemError:
        args, kwargs = (text,), {}
    if args:
        raise ProblemError(
            f"--kwargs {text!r} is not a list of names with literals. Expected e.g. 'alpha=0.5'."
        )
    return kwargs


def parse_init(text: str) -> tuple[tuple[object, ...], dict[str, object]]:
    """`4096, bias=False` -> positional and keyword arguments; literals only."""
    try:
        call = parse_expression(f"f({text})")
        if not isinstance(call, ast.Call):
            raise ValueError(text)
        args = tuple(ast.literal_eval(item) for item in call.args)
        kwargs = {str(item.arg): ast.literal_eval(item.value) for item in call.keywords}
    except (ValueError, SyntaxError) as error:
        raise ProblemError(
            f"--init {text!r} is not a list of literals. Expected e.g. '4096, bias=False'."
        ) from error
    return args, kwargs
