"""Launch forms of a drop-in: kernel by kernel, by Triton or past its launcher, or a CUDA graph."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence

import torch

from agentkernel.compiler.drop_in.wrapper import DropInSource
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.policy.direct_form import with_direct_launches
from agentkernel.tools.judge.policy.graph_form import with_graph
from agentkernel.tools.judge.policy.names import TORCH_PLAIN
from agentkernel.tools.problem.capture import Captured

GRAPH = "CUDA graph"
"""What the graph form of a variant is called beside the plain one."""
DIRECT = "direct launches"
"""What the form that goes past Triton's launcher is called."""
WORTH = 0.97
"""Another form is taken where it needs at most so much of the plain form's time: of equal ones
the plain one is simpler."""
SLOW_LAUNCH_US = 100.0
"""More than the processor time of one launch by Triton with 12 to 25 arguments on a host under load
(60 us, H200): what this leaves is measured."""
LAUNCH_US = 14.0
"""Processor time of one launch from Python. Python's part of Triton's launcher takes 9 to 10 us, a
call of a library through torch 5 to 40; what is left out here is made up for by measuring."""
REPLAY_US = 20.0
"""Of one replay: what tells calls apart is read and compared, the graph is launched, an event is
recorded."""
COPY_US = 5.0
"""Of one copy into or out of the graph's memory."""
LOOPED = 16
"""Turns of a loop over launches, of which there are as many as steps through time: some do."""
COPIED_GB_PER_S = 2000.0
"""Bytes that a copy moves in a second: it reads and writes each, at 4.3 TB/s together (H200)."""


def worthwhile(launches: int, copies: int, copied_bytes: int) -> bool:
    """Whether replaying a graph may beat `launches` launches from Python.

    Plain, the processor needs `launches` times LAUNCH_US for a call. As a graph it needs REPLAY_US
    and COPY_US for each of the `copies` of inputs and outputs, and the device spends
    `copied_bytes` / COPIED_GB_PER_S that no launch overlaps. Of a module that is bound by the
    device the copies are a loss and nothing is won: what this leaves is measured.
    """
    saved_us = launches * LAUNCH_US - REPLAY_US - copies * COPY_US
    return saved_us > copied_bytes / COPIED_GB_PER_S * 1e-3


def graph_form(source: DropInSource, captured: Captured) -> DropInSource | None:
    """The graph form of `source`, a plain drop-in for the graph `captured`.

    None where replaying it is not worth the copies, and where it would not be the same: forward
    writes to buffers or inputs, returns views of inputs, or makes a tensor of Python's numbers,
    which cannot be recorded.
    """
    if captured.mutated_buffers or captured.mutated_inputs or captured.literals:
        return None
    if any(base in captured.user_inputs for base, _ in captured.views.values()):
        return None
    if any(item is not None for item in captured.returned_inputs):
        return None
    tensors = _tensors(captured)
    moved = sum(map(_bytes, tensors))
    if not worthwhile(launch_count(source.text), len(tensors), moved):
        return None
    text = with_graph(source.text)
    return None if text is None else DropInSource(text, source.kernels, source.schedule)


def direct_form(source: DropInSource, time_us: float) -> DropInSource | None:
    """The form of `source`, a plain drop-in that takes `time_us`, whose launches go past Triton's
    launcher; None where its kernels take longer than the slowest launches."""
    if launch_count(source.text) * SLOW_LAUNCH_US < time_us:
        return None
    text = with_direct_launches(source.text)
    return None if text is None else DropInSource(text, source.kernels, source.schedule)


def form_label(label: str, form: str) -> str:
    """What the `form` (GRAPH or DIRECT) of the variant of this label is called."""
    return f"{label}, {form}"


def plain_label(label: str) -> str:
    """The label of the variant of which a form may be meant."""
    return label.removesuffix(f", {GRAPH}").removesuffix(f", {DIRECT}")


def _tensors(captured: Captured) -> list[torch.Tensor]:
    """What a call takes and gives."""
    values = {node.name: node.meta.get("val") for node in captured.graph.graph.nodes}
    names: Sequence[str] = (*captured.user_inputs, *(x for x in captured.outputs if x is not None))
    found = [values[name] for name in names]
    return [item for item in found if isinstance(item, torch.Tensor)]


def _bytes(tensor: torch.Tensor) -> int:
    """At the sizes that the graph was captured with."""
    sizes = (x if isinstance(x, int) else int(x.node.hint or 1) for x in tensor.shape)
    return math.prod(sizes) * tensor.dtype.itemsize


def launches_in_a_loop(source: DropInSource) -> bool:
    """Whether a loop launches: by Python that takes so long that its kernels' time does not
    show."""
    nodes = (node for forward in _forwards(source.text) for node in ast.walk(forward))
    return any(_launches(node) for node in nodes if isinstance(node, ast.For))


def launch_count(text: str) -> int:
    """Launches in the forward of a drop-in's `ModelNew`: its kernels, and calls of a library; those
    in a loop count LOOPED times."""
    return sum(map(_launches, _forwards(text)))


def _forwards(text: str) -> Iterator[ast.FunctionDef]:
    models = (x for x in parse_source(text).body if isinstance(x, ast.ClassDef))
    return (
        method
        for model in models
        if model.name == "ModelNew"
        for method in model.body
        if isinstance(method, ast.FunctionDef) and method.name == "forward"
    )


def _launches(node: ast.AST) -> int:
    own = isinstance(node, ast.Call) and (
        isinstance(node.func, ast.Subscript) or _is_library(node.func)
    )
    inside = sum(map(_launches, ast.iter_child_nodes(node)))
    return own + inside * (LOOPED if isinstance(node, ast.For) else 1)


def _is_library(function: ast.expr) -> bool:
    words: list[str] = []
    while isinstance(function, ast.Attribute):
        words.append(function.attr)
        function = function.value
    named = isinstance(function, ast.Name) and function.id == "torch"
    return named and words[-1] not in TORCH_PLAIN
