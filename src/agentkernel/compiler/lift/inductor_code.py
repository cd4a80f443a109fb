"""What is sent to TorchInductor's process, and the code that comes back.

A graph travels as a record of plain data. A variant is a named set of TorchInductor's settings.
"""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_leaves, tree_map

from agentkernel.compiler.attention_match import (
    HEADS_INSIDE,
    AttentionMatch,
    find_attention,
    served_attention,
)
from agentkernel.compiler.lift.attention_calls import OPERANDS, AttentionForm
from agentkernel.domain.base import Frozen
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.graph_identity import random_op


class LaunchConfig(Frozen):
    """One way to launch a kernel: its constants, and the grid as Python over the arguments.

    `prefix` are statements that the grid's expressions need first.
    """

    constants: tuple[tuple[str, bool | int | str | None], ...]
    num_warps: int
    num_stages: int
    prefix: tuple[str, ...]
    grid: tuple[str, str, str]


class InductorKernel(Frozen):
    """One kernel: the wrapper's variable for it, its module's source, how it may be launched.

    `origins` are the operators of the captured graph that it computes (a part of), `operators` the
    primitive ones that they were taken apart to, both in order.
    """

    variable: str
    source: str
    heuristic: str
    configs: tuple[LaunchConfig, ...]
    origins: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()


class InductorCode(Frozen):
    """What TorchInductor wrote for a graph: the wrapper's source and its kernels.

    `inputs` names the graph's placeholders with a tensor, in the order of the wrapper's arguments.
    """

    variant: str
    source: str
    kernels: tuple[InductorKernel, ...]
    inputs: tuple[str, ...]
    torch_version: str
    pretended: bool
    """Written without a driver, for a device that was only described."""


class NotLifted(Frozen):
    """There is no lifted file, and why."""

    reason: str
    stage: str = "lift"


CALL = "agentkernel::attention.default"
PERMUTE = "aten::permute.default"
OPERATORS = {"getitem": operator.getitem}
"""Python's own functions that a functional graph calls on several results."""


@dataclass(frozen=True)
class TensorForm:
    """A placeholder: what it holds, without its values."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class NodeRecord:
    """One call. `target` is `aten::add.Tensor` or a name in OPERATORS; arguments that are values of
    the graph are `Ref`s."""

    name: str
    target: str
    args: tuple[object, ...]
    kwargs: dict[str, object]


@dataclass(frozen=True)
class Ref:
    """The value of the node so called."""

    name: str


@dataclass(frozen=True)
class Named:
    """`torch.NAME`: a dtype, a layout, a memory format. They are never pickled themselves: pickle
    would look for them in every module that is loaded, and name the first one that knows torch."""

    name: str


@dataclass(frozen=True)
class Device:
    """The one device."""


@dataclass(frozen=True)
class GraphRecord:
    """A functional graph of fixed sizes: inputs in order, calls in order, tensors that come out and
    their strides."""

    inputs: tuple[tuple[str, TensorForm | None], ...]
    calls: tuple[NodeRecord, ...]
    outputs: tuple[Ref, ...]
    output_strides: tuple[tuple[int, ...] | None, ...]

    def dumps(self) -> bytes:
        """For the other process."""
        return pickle.dumps(self)


class Unrecordable(Exception):
    """A graph with something that no record holds; the text says what."""


def record_graph(captured: Captured) -> GraphRecord:
    """The record of a specialised `captured`. Raises Unrecordable for nested graphs and the like.

    Inputs without a tensor (scalars) are recorded as None: their value is in the graph.
    """
    drawn = random_op(captured)
    if drawn is not None:
        # TorchInductor draws others than eager, which the judge would refuse.
        raise Unrecordable(f"{drawn} draws random numbers")
    inputs: list[tuple[str, TensorForm | None]] = []
    calls: list[NodeRecord] = []
    returned: list[Node] = []
    whole, inner = _written_out(captured.graph.graph)
    for node in captured.graph.graph.nodes:
        if node in inner:
            continue
        if node in whole:
            calls += _one_call(whole[node])
        elif node.op == "placeholder":
            inputs.append((node.name, _form(node)))
        elif node.op == "call_function":
            args, kwargs = tree_map(_plain, (node.args, dict(node.kwargs)))
            calls.append(NodeRecord(node.name, _target(node), tuple(args), dict(kwargs)))
        elif node.op == "output":
            returned = [item for item in tree_leaves(node.args[0]) if isinstance(item, Node)]
        elif isinstance(getattr(captured.graph, str(node.target), None), GraphModule):
            raise Unrecordable("which branch depends on data (torch.cond, or a loop like it)")
        else:
            raise Unrecordable(f"the graph holds {node.op} {node.target}")
    forms = [_form(node) for node in returned]
    strides = tuple(None if form is None else form.strides for form in forms)
    return GraphRecord(
        tuple(inputs), tuple(calls), tuple(Ref(node.name) for node in returned), strides
    )


def _written_out(graph: Graph) -> tuple[dict[Node, AttentionMatch], set[Node]]:
    """Attention that the module writes out, by result, and the nodes that one call makes needless.
    Raises Unrecordable for what would stay written out."""
    found = {item.result: item for item in find_attention(graph) if item.inner}
    if found.keys() - served_attention(graph).by_result.keys():
        raise Unrecordable("attention would be written out, its scores in memory")
    return found, {node for item in found.values() for node in item.inner}


def _one_call(match: AttentionMatch) -> Iterator[NodeRecord]:
    """The operator of `attention.py` in place of attention that is written out."""
    name, flat = match.result.name, match.result.meta["val"].dim() == 3
    read: list[Ref | None] = []
    given = (match.query, match.key, match.value, match.mask, match.bias)
    for label, node, order in zip(OPERANDS, given, _orders(match), strict=True):
        ref = None if node is None else Ref(node.name)
        if ref is not None and order is not None:
            yield NodeRecord(f"{name}_{label}_turned", PERMUTE, (ref, order), {})
            ref = Ref(f"{name}_{label}_turned")
        if ref is not None and flat and label in OPERANDS[:3]:
            yield NodeRecord(f"{name}_{label}", "aten::unsqueeze.default", (ref, 0), {})
            ref = Ref(f"{name}_{label}")
        read.append(ref)
    inside = match.heads_inside[3]
    called = f"{name}_heads" if inside or flat else name
    yield NodeRecord(called, CALL, (*read, _form_of(match).model_dump_json()), {})
    if inside:
        yield NodeRecord(name, PERMUTE, (Ref(called), HEADS_INSIDE), {})
    elif flat:
        yield NodeRecord(name, "aten::squeeze.dim", (Ref(called), 0), {})


def _orders(match: AttentionMatch) -> tuple[tuple[int, ...] | None, ...]:
    """How the dimensions of q, k, v, mask and bias are to be turned."""
    inside = [HEADS_INSIDE if item else None for item in match.heads_inside[:3]]
    rank = match.key.meta["val"].dim()
    turned = (*range(rank - 2), rank - 1, rank - 2)
    return (inside[0], turned if match.key_turned else inside[1], inside[2], None, None)


def _form_of(match: AttentionMatch) -> AttentionForm:
    query, value = match.query.meta["val"], match.value.meta["val"]
    return AttentionForm(
        dtype=str(query.dtype).removeprefix("torch."),
        head_dim=query.shape[-1],
        value_dim=value.shape[-1],
        scale=None if match.scale is None else float(match.scale),
        causal=match.causal,
        grouped=match.grouped,
        mask_kind=match.mask_kind,
        empty_rows=match.empty_rows,
        fill=match.fill,
    )


def _plain(item: object) -> object:
    if isinstance(item, Node):
        return Ref(item.name)
    if isinstance(item, torch.dtype | torch.layout | torch.memory_format):
        return Named(str(item).removeprefix("torch."))
    if isinstance(item, torch.device):
        return Device()
    if item is None or isinstance(item, bool | int | float | str):
        return item
    raise Unrecordable(f"the graph holds {str(item)[:80]}")


def _form(node: Node) -> TensorForm | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    dtype = str(value.dtype).removeprefix("torch.")
    return TensorForm(tuple(value.shape), tuple(value.stride()), dtype)


def _target(node: Node) -> str:
    if isinstance(node.target, torch._ops.OpOverload):
        if node.target.namespace not in ("aten", "prims"):
            raise Unrecordable(f"the operator {node.target} is none of PyTorch's own")
        return f"{node.target.namespace}::{node.target._opname}.{node.target._overloadname}"
    name = getattr(node.target, "__name__", str(node.target))
    if OPERATORS.get(name) is not node.target:
        raise Unrecordable(f"the graph calls {name}")
    return name


def rebuild_graph(given: GraphRecord, device: torch.device) -> GraphModule:
    """The graph again, every device in it replaced by `device`; one placeholder a tensor input."""
    graph = Graph()
    made: dict[str, Node] = {}
    for name, form in given.inputs:
        if form is not None:
            made[name] = graph.placeholder(name)
    here: Callable[[object], object] = lambda item: _here(item, made, device)  # noqa: E731
    for call in given.calls:
        args, kwargs = tree_map(here, (call.args, call.kwargs))
        made[call.name] = graph.call_function(_resolved(call.target), args, kwargs)
    graph.output(tree_map(here, given.outputs))
    return GraphModule(torch.nn.Module(), graph)


def _here(item: object, made: dict[str, Node], device: torch.device) -> object:
    if isinstance(item, Ref):
        return made[item.name]
    if isinstance(item, Named):
        return getattr(torch, item.name)
    return device if isinstance(item, Device) else item


def _resolved(target: str) -> Callable[..., object]:
    if target in OPERATORS:
        return OPERATORS[target]
    space, _, name = target.partition("::")
    packet, _, overload = name.partition(".")
    found: Callable[..., object] = getattr(
        getattr(getattr(torch.ops, space), packet), overload or "default"
    )
    return found


class Variant(Frozen):
    """One named patch of `torch._inductor.config`. `why` says when it may win."""

    name: str
    why: str
    patch: tuple[tuple[str, bool | int | str], ...] = ()

    def patch_for(self, known: frozenset[str]) -> dict[str, bool | int | str]:
        """The patch without what this torch does not know: names move between versions."""
        return {key: value for key, value in self.patch if key in known}


def _variant(name: str, why: str, **patch: bool | int | str) -> Variant:
    settings = tuple((key.replace("__", "."), value) for key, value in patch.items())
    return Variant(name=name, why=why, patch=settings)


VARIANTS = (
    _variant("default", "what torch.compile gives"),
    _variant(
        "pointwise_configs",
        "several tile sizes for kernels without a reduction, to be measured",
        max_autotune_pointwise=True,
    ),
    _variant(
        "coordinate_descent",
        "one starting point a kernel, from which tiles and warps are walked one step at a time",
        coordinate_descent_tuning=True,
    ),
    _variant(
        "multi_kernel",
        "rows in registers or looped over, both written and one chosen",
        triton__multi_kernel=1,
    ),
    _variant("looped", "rows are looped over, however short", triton__persistent_reductions=False),
    _variant(
        "cooperative",
        "few long rows: the programs of a row meet at a barrier instead of in a second kernel",
        triton__cooperative_reductions=True,
    ),
    _variant(
        "channels_last",
        "convolutions and what stands between them with channels innermost",
        layout_optimization=True,
        force_layout_optimization=True,
    ),
    _variant("channels_first", "convolutions as they were written", layout_optimization=False),
    _variant(
        "fusion",
        "what feeds a matrix product, and what follows it, in one kernel with it",
        epilogue_fusion=True,
        prologue_fusion=True,
        aggressive_fusion=True,
    ),
    _variant(
        "padded",
        "odd leading dimensions padded to the alignment of loads",
        shape_padding=True,
        force_shape_pad=True,
    ),
    _variant("combo", "independent small kernels in one launch", combo_kernels=True),
    _variant(
        "gemm_triton",
        "matrix products as Triton templates, with the epilogue in registers",
        max_autotune_gemm=True,
        max_autotune_gemm_backends="TRITON",
        max_autotune_conv_backends="TRITON",
    ),
)
"""Each is tried on its own; "default" first."""


def find_variant(name: str) -> Variant:
    """The variant called `name`; KeyError for one that is not there."""
    return {variant.name: variant for variant in VARIANTS}[name]


ALWAYS = ("default", "pointwise_configs", "combo")
BY_KIND: dict[str, tuple[str, ...]] = {
    "reduction": ("multi_kernel", "looped", "cooperative"),
    "convolution": ("channels_last", "channels_first", "fusion", "gemm_triton"),
    "matmul": ("fusion", "padded", "gemm_triton"),
    "attention": ("multi_kernel",),
}
"""Kind of operator (`tools.op_cost`) -> the variants that may write something else for it."""


def variants_for(kinds: Iterable[str]) -> tuple[Variant, ...]:
    """The variants worth asking for a graph with operators of these kinds, in their usual order.

    What is only a starting point for the same launches ("coordinate_descent") is left out: the
    search walks the launch configurations of the winner anyway.
    """
    wanted = {*ALWAYS, *(name for kind in kinds for name in BY_KIND.get(kind, ()))}
    return tuple(variant for variant in VARIANTS if variant.name in wanted)
