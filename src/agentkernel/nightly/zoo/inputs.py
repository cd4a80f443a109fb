"""What does a line such as `ids=i64[2,16]<1000` say, and which value does it stand for?"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentkernel.domain.errors import ProblemError
from agentkernel.domain.problem import TensorSpec
from agentkernel.tools.problem.problems import SHORT_DTYPES, InputTree, default_value, parse_input

LIMIT_PATTERN = re.compile(r"^(?P<tensor>.+\])\s*<\s*(?P<below>\S+)\s*$", re.S)
BITS = {"int64": 63, "int32": 31, "int16": 15, "int8": 7, "uint8": 8}
"""Value bits of each integer type, without the sign."""


@dataclass(frozen=True)
class ModelInput:
    """One argument of forward. `below`: integers are drawn from 0 to below - 1."""

    name: str
    spec: InputTree
    below: int | None = None

    def value(self) -> object:
        """A value on the CPU from torch's global generator.

        Floats are normal, integers without `below` and booleans are 0 or 1, scalars as written.
        """
        if self.below is None or not isinstance(self.spec, TensorSpec):
            return default_value(self.spec, "cpu")
        import torch

        dtype = getattr(torch, self.spec.dtype)
        return torch.randint(0, self.below, self.spec.shape, dtype=dtype)


def parse_model_input(text: str) -> ModelInput:
    """Read `name=dtype[shape]`, `name=dtype[shape]<N` for integers, or `name=literal`; nested
    ones too: `state=(f32[2,8], f32[2,8])`.

    Raises ProblemError where it does not read so, has several shape sets or no elements.
    """
    match = LIMIT_PATTERN.match(text)
    name, specs = parse_input(match["tensor"] if match else text)
    if len(specs) != 1:
        raise ProblemError(
            f"Input {text!r} has {len(specs)} shape sets. Expected one: a model is called on one "
            "set of shapes. Next: give each set its own entry under 'models'."
        )
    spec = specs[0]
    if isinstance(spec, TensorSpec) and 0 in spec.shape:
        raise ProblemError(
            f"Input {name!r} has no elements: its shape is {list(spec.shape)}. "
            "Expected sizes of 1 or more. Next: give inputs of the size that you run."
        )
    return ModelInput(name, spec, _below(match["below"], spec, text) if match else None)


def _below(limit: str, spec: InputTree, text: str) -> int:
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
    return int(limit)
