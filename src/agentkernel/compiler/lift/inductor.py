"""What does TorchInductor write for a graph? (Runs in a process of its own, never in ours.)"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Interpreter, Node

from agentkernel.compiler.lift.attention import written_out_attention
from agentkernel.compiler.lift.bilinear import written_out_bilinear
from agentkernel.compiler.lift.record import GraphRecord, rebuild_graph
from agentkernel.compiler.lift.variants import Variant


class _CodegenDone(BaseException):
    """Ends the compilation once the code is there: nothing of it is loaded or run."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source


@dataclass(frozen=True)
class _Traced:
    """A graph in TorchInductor's operators, and its inputs without storage."""

    graph: GraphModule
    inputs: list[torch.Tensor]
    mode: FakeTensorMode


def inductor_source(
    given: GraphRecord, variant: Variant, device: torch.device, *, pretended: bool
) -> str:
    """The Python module that TorchInductor writes under `variant`, its kernels inside.

    `pretended`: there is no such device, and what a pass over the graph makes must stay fake.
    """
    from torch._guards import TracingContext, tracing
    from torch._inductor import compile_fx, config, graph

    _stop_after_codegen(graph.GraphLowering)
    _leave_attention_alone()
    known = frozenset(config.get_config_copy())
    base = {key: value for key, value in _BASE.items() if key in known}
    with config.patch(base | variant.patch_for(known)), torch.no_grad():
        traced = _traced(given, variant, device)
        _fix_output_strides(traced.graph)
        exact = dict.fromkeys(known & ROUNDED_DIVISION, steps_after_division(traced.graph))
        try:
            with config.patch(exact), tracing(TracingContext(traced.mode)):
                with traced.mode if pretended else nullcontext():
                    changed = compile_fx._recursive_joint_graph_passes(traced.graph)
                compile_fx.compile_fx_inner(
                    traced.graph if changed is None else changed,
                    traced.inputs,
                    static_input_idxs=list(range(len(traced.inputs))),
                    is_inference=True,
                )
        except _CodegenDone as written:
            return written.source
    raise RuntimeError("TorchInductor compiled the graph without writing code")


ROUNDED_DIVISION = frozenset({"eager_numerics.division_rounding", "emulate_divison_rounding"})
"""What versions of torch call a division that rounds as eager's does; Triton's own is off by up to
two ulp."""
DIVISIONS = ("div", "reciprocal")
STEPS = ("round", "floor", "ceil", "trunc", "fmod", "remainder", "sign", "gt", "ge", "lt", "le")
"""Operators that make a whole step of an ulp."""
WHOLE = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool)


def steps_after_division(graph: GraphModule) -> bool:
    """True where what comes of a quotient is rounded to a whole number or compared: an ulp then
    makes another answer."""
    behind: set[Node] = set()
    for node in graph.graph.nodes:
        name = _operator(node)
        follows = any(item in behind for item in node.all_input_nodes)
        if follows and (name in STEPS or _makes_whole(node)):
            return True
        if follows or name in DIVISIONS:
            behind.add(node)
    return False


def _operator(node: Node) -> str:
    """`div` of `aten.div.Tensor`; "" for what is no call of PyTorch's operators."""
    parts = str(node.target).split(".")
    return parts[1] if node.op == "call_function" and len(parts) > 1 else ""


def _makes_whole(node: Node) -> bool:
    """A cast of floating values to integers."""
    if not any(word in str(node.target) for word in ("convert_element_type", "_to_copy")):
        return False
    return getattr(node.meta.get("val"), "dtype", None) in WHOLE


_BASE: Mapping[str, bool | int | str] = {
    "compile_threads": 1,
    "fx_graph_cache": False,
    "triton.unique_kernel_names": True,
    "triton.descriptive_names": "original_aten",
    "triton.cudagraphs": False,
    "size_asserts": True,
    "comprehensive_padding": False,
    "nan_asserts": False,
    "scalar_asserts": False,
    "alignment_asserts": False,
    "assert_indirect_indexing": True,
    "cpp_wrapper": False,
    "memory_planning": False,
    "allow_buffer_reuse": False,
    "inplace_buffers": False,
    "graph_partition": False,
    "benchmark_kernel": False,
}
"""Everywhere: readable names, no memory used twice, and no checks of TorchInductor's own but those
that tell how a library's result is laid out."""


def _stop_after_codegen(lowering: type) -> None:
    def stop(self: object) -> object:
        code = self.codegen()  # type: ignore[attr-defined]
        first = code[0] if isinstance(code, tuple) else code
        raise _CodegenDone(str(getattr(first, "value", first)))

    lowering._compile_to_module = stop  # type: ignore[attr-defined]
    lowering.compile_to_module = stop  # type: ignore[attr-defined]


def _leave_attention_alone() -> None:
    """Attention is what the variant says: no pattern makes a library call of what is written out.
    (Finding the patterns also needs a device.)"""
    from torch._inductor.fx_passes import fuse_attention

    fuse_attention._sfdp_init = lambda *args: None  # type: ignore[assignment]


def _fix_output_strides(graph: GraphModule) -> None:
    """Outputs keep the strides that tracing gave them, whatever suits the kernels."""
    from torch._inductor import compile_fx

    compile_fx.record_original_output_strides(graph)
    output = graph.graph.output_node()
    output.meta["user_visible_output_idxs"] = list(range(len(output.args[0])))  # type: ignore[arg-type]


def _traced(given: GraphRecord, variant: Variant, device: torch.device) -> _Traced:
    from torch._dispatch.python import enable_python_dispatcher
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import preserve_node_meta

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    module = rebuild_graph(given, device)
    with mode:
        inputs = [
            torch.empty_strided(
                form.shape, form.strides, dtype=getattr(torch, form.dtype), device=device
            )
            for _, form in given.inputs
            if form is not None
        ]

        def run(*values: torch.Tensor) -> Sequence[object]:
            result: Sequence[object] = _WrittenOut(module, variant).run(*values)
            return result

        table = select_decomp_table()
        # Node metadata carries which ATen operator each piece came from: kernels are named by it.
        with enable_python_dispatcher(), preserve_node_meta():
            graph = make_fx(run, decomposition_table=table, tracing_mode="real")(*inputs)
    return _Traced(graph, inputs, mode)


class _WrittenOut(Interpreter):
    """Runs the graph; attention as the variant wants it, and what no decomposition knows apart."""

    def __init__(self, module: GraphModule, variant: Variant) -> None:
        super().__init__(module)
        self._written_out = variant.attention == "written_out"

    def call_function(
        self,
        target: Callable[..., object] | str,
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> object:
        """One call; whole attention as products and a softmax."""
        if target is torch.ops.aten.bilinear.default:
            return written_out_bilinear(*args, **kwargs)  # type: ignore[arg-type]
        whole = torch.ops.aten.scaled_dot_product_attention.default
        if target is whole and self._written_out:
            return written_out_attention(*args, **kwargs)  # type: ignore[arg-type]
        return super().call_function(target, args, kwargs)  # type: ignore[arg-type]
