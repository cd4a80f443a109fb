"""Calls with the shapes of their operands, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import strategies as st

from agentkernel.compiler.fusion import LibraryStep
from tests.compiler.families import functional
from tests.compiler.forms import compiled_graph, written
from tests.compiler.sandboxed_drop_in import Sandboxed

Call = Callable[..., object]
Sizes = tuple[int, int, int]
SIZE = st.sampled_from((2, 3, 5, 7, 9, 17, 33))
SIZES = st.tuples(SIZE, SIZE, SIZE)
FLOATS = st.sampled_from((torch.float32, torch.float16, torch.bfloat16))
FORMS = st.sampled_from(("looped", "single", "persistent"))


def operands(shapes: str, sizes: Sizes, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """One tensor for each shape such as `2*a b 3` over the sizes a, b and c, between commas; of
    whole numbers below the first size where an `i` stands before it."""
    torch.manual_seed(sum(sizes))
    names = dict(zip("abc", sizes, strict=True))
    found = []
    for text in shapes.split(","):
        shape = [eval(size, names) for size in text.removeprefix("i").split()]
        whole = text.startswith("i")
        made = torch.randint(sizes[0], shape) if whole else torch.randn(shape).to(dtype)
        found.append(made)
    return found


def no_library_call(call: Call, shapes: str) -> bool:
    """Whether kernels and own products are all that a call becomes."""
    found = compiled_graph(functional(call), operands(shapes, (5, 7, 3)))
    calls = [step.node.op for step in found.partition.steps if isinstance(step, LibraryStep)]
    return all(op == "product" for op in calls)


def check_case(
    box: Sandboxed, case: tuple[Call, str], sizes: Sizes, dtype: torch.dtype, form: str
) -> None:
    """Its drop-in against fp64."""
    call, shapes = case
    inputs = operands(shapes, sizes, dtype)
    box.check(written(functional(call), inputs, form), functional(call), inputs)
