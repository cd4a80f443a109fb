"""Library products with bias and activation in their epilogue, as cuBLASLt has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentkernel.compiler.axes import contiguous_strides
from agentkernel.compiler.drop_in.forward import Forward
from agentkernel.compiler.expressions import Symbols, tensor_text
from agentkernel.compiler.fusion import LibraryStep, Output, Partition, Region, Step
from agentkernel.compiler.ir import Node, roots_of, same
from agentkernel.compiler.products.step import is_transposed
from agentkernel.compiler.providers.protocol import (
    LAUNCH_US,
    AnySchedule,
    Setting,
    product_us,
)

Activation = Literal["", "relu", "gelu_tanh"]


@dataclass(frozen=True, eq=False)
class LinearStep:
    """activation(a @ b + bias), one call: `product` is a[..., M, K] @ b[K, N], `bias` [N]."""

    product: Node
    bias: Node
    activation: Activation
    result: Node

    @property
    def reads(self) -> tuple[Node, ...]:
        """What it reads, below all views."""
        return roots_of((*self.product.args, self.bias))


class Linear:
    """Provider of products with a library's own epilogue."""

    own = False

    def schedules(self, step: LinearStep, setting: Setting) -> Sequence[AnySchedule]:
        """One, without constants."""
        return ({},)

    def write(
        self, step: LinearStep, schedule: AnySchedule, forward: Forward, outputs: Sequence[Output]
    ) -> None:
        """Write the call. The result is contiguous: the library makes it."""
        name = forward.names.unique(forward.result_name(step.result, outputs))
        forward.lines.append(f"{name} = {_call(step, forward)}")
        forward.buffers[step.result] = name

    def work_us(self, step: LinearStep, symbols: Symbols) -> float:
        """Its multiplications."""
        return LAUNCH_US + product_us(step.product, symbols)

    def pattern(self, step: LinearStep) -> str:
        """The product with what follows it."""
        return "_".join(["linear", *([step.activation] if step.activation else [])])


def _call(step: LinearStep, forward: Forward) -> str:
    buffers, symbols = forward.buffers, forward.symbols
    a, b = step.product.args
    left, bias = tensor_text(a, buffers, symbols), tensor_text(step.bias, buffers, symbols)
    weight = tensor_text(b.args[0], buffers, symbols) if is_transposed(b) else ""
    if not step.activation and weight:
        return f"torch.nn.functional.linear({left}, {weight}, {bias})"
    right = f"{weight}.t()" if weight else tensor_text(b, buffers, symbols)
    flat = len(a.shape) == 2
    rows = left if flat else f"{left}.reshape(-1, {symbols.wrapper(a.shape[-1])})"
    if step.activation:
        gelu = ", use_gelu=True" if step.activation == "gelu_tanh" else ""
        call = f"torch.ops.aten._addmm_activation.default({bias}, {rows}, {right}{gelu})"
    else:
        call = f"torch.addmm({bias}, {rows}, {right})"
    return call if flat else f"{call}.reshape({forward.shape_text(step.result.shape)})"


def with_linear_steps(partition: Partition) -> Partition:
    """Each library product that a bias (and an activation) alone follows as one call."""
    made: dict[Step, LinearStep] = {}
    for step in partition.steps:
        if isinstance(step, LibraryStep) and step.node.op == "product":
            region = partition.only_region(step.node)
            found = region and _linear(step.node, region, partition.outputs)
            if region and found:
                made[region] = found
    taken = {item.product for item in made.values()}
    steps = tuple(
        made.get(step, step)
        for step in partition.steps
        if not (isinstance(step, LibraryStep) and step.node in taken)
    )
    return Partition(steps, partition.outputs)  # type: ignore[arg-type]


def _linear(product: Node, region: Region, outputs: Sequence[Output]) -> LinearStep | None:
    """The step, where the region adds a bias to each row and stores that once, contiguously."""
    if len(product.args[1].shape) != 2 or len(region.stores) != 1 or region.reduces:
        return None
    store = region.stores[0]
    result = store.node
    plain = all(map(same, store.strides, contiguous_strides(result.shape)))
    kept = [output for output in outputs if output.node is result]
    if (
        not plain
        or result.dtype != product.dtype
        or len(result.shape) != len(product.shape)
        or not all(map(same, result.shape, product.shape))
        or any(not all(map(same, item.strides, store.strides)) for item in kept)
    ):
        return None
    value = _below_casts(result)
    activation: Activation = ""
    if value.kind == "pointwise" and value.op in ("relu", "gelu_tanh"):
        activation = "relu" if value.op == "relu" else "gelu_tanh"
        value = _below_casts(value.args[0])
    if value.kind != "pointwise" or value.op != "add":
        return None
    terms = [_below_casts(arg) for arg in value.args]
    if product not in terms:
        return None
    bias = terms[1 - terms.index(product)]
    is_row = bias.kind == "input" and len(bias.shape) == 1 and bias.dtype == product.dtype
    if not is_row or not same(bias.shape[0], product.shape[-1]):
        return None
    return LinearStep(product, bias, activation, result)


def _below_casts(node: Node) -> Node:
    """The value below changes of its float type."""
    while (
        node.kind == "pointwise"
        and node.op in ("cast", "copy")
        and node.args[0].dtype.is_floating_point
        and node.dtype.is_floating_point
    ):
        node = node.args[0]
    return node
