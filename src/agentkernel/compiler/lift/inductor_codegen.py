"""TorchInductor's code generation for a graph, and the launch configurations of its kernels.

Runs in TorchInductor's process only. A kernel's decorator names a heuristic and what it knows of
the kernel; the heuristic is asked for tile sizes and grids, and nothing is compiled or run.
Attention stays one call, and bilinear layers are written out as products.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Interpreter, Node

from agentkernel.compiler.lift.attention import whole_attention
from agentkernel.compiler.lift.inductor_code import (
    GraphRecord,
    InductorKernel,
    LaunchConfig,
    Variant,
    rebuild_graph,
)
from agentkernel.compiler.lift.layouts import same_layout, stride_order, strides_in_order


def written_out_bilinear(
    left: torch.Tensor, right: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """`aten.bilinear`: sum over i, j of left[..., i] weight[k, i, j] right[..., j], plus bias[k].

    PyTorch's decompositions leave it whole. left [..., I], right [..., J], weight [K, I, J] ->
    [..., K], as one product [rows, I] [I, K J] and a sum over J.
    """
    outputs, inner, outer = weight.shape
    columns = weight.transpose(0, 1).reshape(inner, outputs * outer)
    rows = torch.matmul(left.reshape(-1, inner), columns).view(-1, outputs, outer)
    summed = (rows * right.reshape(-1, 1, outer)).sum(-1).view(*left.shape[:-1], outputs)
    return summed if bias is None else summed + bias


def without_wrapping(
    target: object, x: torch.Tensor, dim: int, index: torch.Tensor, *values: torch.Tensor,
    alpha: float = 1,
) -> torch.Tensor | None:  # fmt: skip
    """`aten.index_select`, `index_add` or `index_copy` of a vector `index` as `gather`,
    `scatter_add` or `scatter`; None for another `target`, and for numbers.

    PyTorch's decompositions read an index below zero from the end, where these three and eager's
    own raise: of the latter three TorchInductor asserts the index as it is.
    """
    if target not in UNWRAPPED or index.dim() != 1 or not x.dim():
        return None
    shape, place = list(x.shape), dim % x.dim()
    shape[place] = len(index)
    rank = range(x.dim())
    # These three take int64 alone.
    wide = index.long().reshape([-1 if at == place else 1 for at in rank]).expand(shape)
    if not values:
        return x.gather(dim, wide)
    (source,) = values
    if target is torch.ops.aten.index_copy.default:
        return x.scatter(dim, wide, source)
    return x.scatter_add(dim, wide, source if alpha == 1 else source * alpha)


def laid_out(value: object, strides: Sequence[int] | None) -> object:
    """An output as it was captured: a copy in the order of `strides` where it lies otherwise here,
    as a library's result may."""
    if not isinstance(value, torch.Tensor) or strides is None:
        return value
    shape, order = value.shape, stride_order(strides)
    dense = same_layout(shape, strides, strides_in_order(shape, order))
    if same_layout(shape, value.stride(), strides) or not dense:
        return value
    copied = torch.ops.aten.clone.default(
        value.permute(order), memory_format=torch.contiguous_format
    )
    return copied.permute([order.index(dim) for dim in range(len(order))])


VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
"""A library's result may lie here as it did not where the graph was captured: what was a view of it
there is a copy where it can be none."""
UNWRAPPED = (torch.ops.aten.index_select.default, torch.ops.aten.index_add.default,
             torch.ops.aten.index_copy.default)  # fmt: skip
PREFIX = "triton_heuristics"


@dataclass
class _HeuristicCall:
    """What a heuristic passed on instead of tuning."""

    configs: Sequence[object] = ()
    meta: Mapping[str, object] | None = None


def kernels_of(source: str) -> tuple[InductorKernel, ...]:
    """Every Triton kernel that the module `source` defines, with its configurations."""
    found: list[InductorKernel] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = _kernel_text(node.value)
            if text is not None:
                comment = _comment_above(source, node.lineno)
                found.append(_kernel(node.targets[0].id, text, comment))
    return tuple(found)


def _kernel_text(value: ast.expr) -> str | None:
    """The source inside `async_compile.triton(name, source, ...)`."""
    if not isinstance(value, ast.Call) or ast.unparse(value.func) != "async_compile.triton":
        return None
    texts = [ast.literal_eval(item) for item in value.args[1:2]]
    return str(texts[0]) if texts else None


def _comment_above(source: str, line: int) -> str:
    """The comment that ends right above a line: TorchInductor says there what a kernel is for."""
    lines = source.splitlines()[: line - 1]
    first = len(lines)
    while first and lines[first - 1].startswith("#"):
        first -= 1
    return "\n".join(lines[first:])


def _origins(comment: str) -> tuple[str, ...]:
    found = re.search(r"Original ATen: \[([^\]]*)\]", comment)
    words = found[1].split(",") if found else []
    return tuple(word.strip().partition(".")[2] for word in words if word.strip())


def _operators(comment: str) -> tuple[str, ...]:
    found = re.findall(r"call_function\[target=torch\.ops\.\w+\.(\w+)", comment)
    return tuple(dict.fromkeys(found))


def _kernel(variable: str, text: str, comment: str) -> InductorKernel:
    tree = ast.parse(text)
    functions = [item for item in tree.body if isinstance(item, ast.FunctionDef)]
    kernel = functions[-1]
    heuristic = next(
        item
        for item in kernel.decorator_list
        if isinstance(item, ast.Call) and ast.unparse(item.func).startswith(PREFIX)
    )
    asked = _ask(text, heuristic, kernel)
    return InductorKernel(
        variable=variable,
        source=text,
        heuristic=ast.unparse(heuristic.func).removeprefix(f"{PREFIX}."),
        configs=tuple(_config(item, asked.meta or {}) for item in asked.configs),
        origins=_origins(comment),
        operators=_operators(comment),
    )


def _ask(text: str, call: ast.Call, kernel: ast.FunctionDef) -> _HeuristicCall:
    from torch._inductor.runtime import triton_heuristics

    asked = _HeuristicCall()

    def note(*args: object, **kwargs: object) -> Callable[[object], object]:
        configs = kwargs.get("configs", args[1] if len(args) > 1 else ())
        meta = kwargs.get("inductor_meta")
        asked.configs = configs if isinstance(configs, Sequence) else ()
        asked.meta = meta if isinstance(meta, Mapping) else None
        return lambda function: function

    before = triton_heuristics.cached_autotune
    triton_heuristics.cached_autotune = note
    try:
        _decorate(text, call, kernel)
    finally:
        triton_heuristics.cached_autotune = before
    return asked


def _decorate(text: str, call: ast.Call, kernel: ast.FunctionDef) -> None:
    """Evaluate the decorator, with an empty function of the same parameters below it."""
    tree = ast.parse(text)
    kept: list[ast.stmt] = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    stub = ast.FunctionDef(
        name=kernel.name,
        args=kernel.args,
        body=[ast.Pass()],
        decorator_list=[call],
    )
    module = ast.fix_missing_locations(ast.Module(body=[*kept, stub], type_ignores=[]))
    namespace: dict[str, object] = {"__file__": "kernel.py", "__name__": "kernel"}
    exec(compile(module, "kernel.py", "exec"), namespace)


def _config(config: object, meta: Mapping[str, object]) -> LaunchConfig:
    from torch._inductor.runtime.triton_heuristics import GridExpr

    constants = dict(config.kwargs)  # type: ignore[attr-defined]
    kwargs = constants | {
        "num_warps": config.num_warps,  # type: ignore[attr-defined]
        "num_stages": config.num_stages,  # type: ignore[attr-defined]
    }
    grid = GridExpr.from_meta(dict(meta), kwargs, mode="python")
    return LaunchConfig(
        constants=tuple(constants.items()),
        num_warps=config.num_warps,  # type: ignore[attr-defined]
        num_stages=config.num_stages,  # type: ignore[attr-defined]
        prefix=tuple(str(line) for line in grid.prefix),
        grid=(str(grid.x_grid), str(grid.y_grid), str(grid.z_grid)),
    )


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
    """No pattern makes a library call of attention that is written out: finding the patterns needs
    a device."""
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
            results = _WrittenOut(module).run(*values)
            pairs = zip(results, given.output_strides, strict=True)
            return [laid_out(value, strides) for value, strides in pairs]

        table = select_decomp_table()
        # Node metadata carries which ATen operator each piece came from: kernels are named by it.
        with enable_python_dispatcher(), preserve_node_meta():
            graph = make_fx(run, decomposition_table=table, tracing_mode="real")(*inputs)
    return _Traced(graph, inputs, mode)


class _WrittenOut(Interpreter):
    """Runs the graph; attention stays whole, and what no decomposition knows is taken apart."""

    def call_function(
        self,
        target: Callable[..., object] | str,
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> object:
        """One call."""
        if target is torch.ops.aten.bilinear.default:
            return written_out_bilinear(*args, **kwargs)  # type: ignore[arg-type]
        if target is torch.ops.aten.scaled_dot_product_attention.default:
            return whole_attention(*args, **kwargs)  # type: ignore[arg-type]
        if target in VIEWS:
            return torch.ops.aten.reshape.default(*args, **kwargs)
        if target in UNWRAPPED:
            found = without_wrapping(target, *args, **kwargs)  # type: ignore[arg-type]
            if found is not None:
                return found
        return super().call_function(target, args, kwargs)  # type: ignore[arg-type]
