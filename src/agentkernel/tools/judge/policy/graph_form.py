"""The CUDA-graph form of a source: its plain text, a fixed block, and a forward that calls it.

`with_graph` adds the block to a plain source, `plain_form` takes it off again. A source is in this
form where taking the block off and adding it gives the same syntax tree: then the plain text alone
decides what the policy and the execution proof say of it.
"""

from __future__ import annotations

import ast
import functools
import textwrap
from collections.abc import Sequence

from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.policy.fixed_block import (
    FixedBlock,
    blanked,
    identifiers,
    leaves_alone,
    taken_off,
)

PLAIN_FORWARD = "plain_forward"
LONGEST = 88
BLOCK = '''\
GRAPHS = weakref.WeakKeyDictionary()
GRAPHS_LOCK = threading.Lock()
MOST_GRAPHS, MOST_RECORDINGS = 8, 256


def own_copy(item):
    """A tensor of the same layout and values in memory of its own; anything else as it is."""
    if not isinstance(item, torch.Tensor):
        return item
    made = torch.empty_strided(item.shape, item.stride(), dtype=item.dtype, device=item.device)
    return made.copy_(item)


def whole_of(item):
    """All of the memory in which a tensor lies, as one row."""
    size = item.untyped_storage().nbytes() // item.element_size()
    return item.as_strided((size,), (1,), 0)


class CallGraph:
    """One form of call as a CUDA graph: inputs are copied in, outputs are copied out."""

    def __init__(self, run, arguments, kept):
        caller, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(caller)
        with torch.cuda.stream(side):
            own = [own_copy(item) for item in arguments]
            run(*own)  # compiles what has not run yet
        caller.wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        torch._C._cuda_clearCublasWorkspaces()  # a graph has its own, which no stream shares
        with torch.cuda.stream(side):
            self.graph.capture_begin(capture_error_mode="thread_local")
            try:
                result = run(*own)
            finally:
                self.graph.capture_end()
                torch._C._cuda_clearCublasWorkspaces()
        self.inputs = [item for item in own if isinstance(item, torch.Tensor)]
        outputs, self.structure = torch.utils._pytree.tree_flatten(result)
        self.single = isinstance(result, torch.Tensor)
        self.stream, self.done = None, torch.cuda.Event()
        kept = kept.union(item.untyped_storage().data_ptr() for item in self.inputs)
        memory = [item.untyped_storage().data_ptr() for item in outputs]
        if not kept.isdisjoint(memory):
            raise RuntimeError("an output is a view: a copy would be none")
        self.outputs, self.views, places = [], [], {}
        for item, place in zip(outputs, memory, strict=True):
            alone = memory.count(place) == 1
            if alone and torch.empty_like(item).stride() == item.stride():
                self.views.append((len(self.outputs), None))
                self.outputs.append(item)
                continue
            if place not in places:  # what outputs share is copied once, with what lies between
                places[place] = len(self.outputs)
                self.outputs.append(whole_of(item))
            at = places[place]
            if self.outputs[at].dtype != item.dtype:
                raise RuntimeError("an output is a view of another type: a copy would be none")
            self.views.append((at, (item.shape, item.stride(), item.storage_offset())))

    def __call__(self, arguments):
        stream = torch._C._cuda_getCurrentRawStream(self.inputs[0].get_device())
        if stream != self.stream:
            self.follow(stream)
        given = [item for item in arguments if isinstance(item, torch.Tensor)]
        try:
            for own, item in zip(self.inputs, given, strict=True):
                own.copy_(item)
            self.graph.replay()
            copies = [item.clone() for item in self.outputs]
        finally:
            if stream:
                self.done.record()
        outputs = [
            copies[at] if view is None else copies[at].as_strided(*view) for at, view in self.views
        ]
        if self.single:
            return outputs[0]
        return torch.utils._pytree.tree_unflatten(outputs, self.structure)

    def follow(self, stream):
        """Let the current stream, whose number is given, wait for the last one that replayed."""
        current = torch.cuda.current_stream()
        if self.stream == 0:
            self.done.record(torch.cuda.default_stream())  # it lives on: not recorded at each call
        current.wait_event(self.done)
        for item in self.inputs:
            item.record_stream(current)
        self.stream = stream


class Held:
    """Everything that a module and its parts hold by name, and where its tensors lie."""

    def __init__(self, module):
        self.homes, self.names = [], []
        common = vars(torch.nn.Module()).keys() - {"training"}
        for part in module.modules():
            own = {name: None for name in vars(part) if name not in common}
            for home, names in (
                (vars(part), own),
                (part._parameters, part._parameters),
                (part._buffers, part._buffers),
                (part._modules, part._modules),
            ):
                self.homes += [home] * len(names)
                self.names += names
        self.items = list(map(dict.get, self.homes, self.names))
        self.ids = list(map(id, self.items))
        self.tensors = [item for item in self.items if isinstance(item, torch.Tensor)]
        self.places = self.places_now()

    def places_now(self):
        """Addresses, shapes and strides: where these are others, a graph reads the wrong memory."""
        held = self.tensors
        return (
            [item.data_ptr() for item in held],
            [item.shape for item in held],
            [item.stride() for item in held],
        )

    def unchanged(self):
        """Whether all names stand for the same objects, and tensors lie where they lay."""
        ids = list(map(id, map(dict.get, self.homes, self.names)))
        return ids == self.ids and self.places_now() == self.places


class ModuleGraphs:
    """The graphs of one module, by form of call, while what it holds stays the same."""

    def __init__(self):
        self.lock, self.left = threading.RLock(), MOST_RECORDINGS
        self.calls, self.held = {}, None

    def find(self, module, form, arguments):
        """The graph of this form of call, recorded where it is new; None where there is none."""
        if self.held is None or not self.held.unchanged():
            self.calls.clear()
            self.held = Held(module)
        if form not in self.calls and self.left > 0:
            self.left -= 1
            while len(self.calls) >= MOST_GRAPHS:
                del self.calls[next(iter(self.calls))]
            self.calls[form] = self.record(module, arguments)
        return self.calls.get(form)

    def record(self, module, arguments):
        """A new graph; None where the call cannot be recorded."""
        kept = {item.untyped_storage().data_ptr() for item in self.held.tensors}
        try:
            with torch.inference_mode(False), torch.no_grad():
                return CallGraph(module.plain_forward, arguments, kept)
        except (RuntimeError, AttributeError):
            return None


def form_of(arguments):
    """What tells one graph's calls from another's; empty for a call that no graph stands for."""
    form, tensors = [], 0
    for item in arguments:
        if type(item) in (torch.Tensor, torch.nn.Parameter):
            if not item.is_cuda or item.get_device() != torch.cuda.current_device():
                return ()
            if item.layout is not torch.strided or item.numel() == 0:
                return ()
            form.append((item.shape, item.stride(), item.dtype, item.device))
            tensors += 1
        elif item is None or type(item) in (bool, int, float, str):
            form.append(repr(item))
        else:
            return ()
    form.append(torch.backends.cuda.matmul.fp32_precision)
    form.append(torch.backends.cudnn.conv.fp32_precision)
    form.append((torch.are_deterministic_algorithms_enabled(), torch.get_default_dtype()))
    return tuple(form) if tensors else ()


def graphed(module, *arguments):
    """`module.plain_forward(*arguments)`, by a CUDA graph where one can stand for the launches."""
    plain = torch.compiler.is_compiling() or torch.is_grad_enabled()
    form = () if plain or torch.is_autocast_enabled() else form_of(arguments)
    if form and not torch.cuda.is_current_stream_capturing():
        with GRAPHS_LOCK:
            graphs = GRAPHS.get(module) or GRAPHS.setdefault(module, ModuleGraphs())
        with graphs.lock:
            call = graphs.find(module, form, arguments)
            if call is not None:
                return call(arguments)
    return module.plain_forward(*arguments)
'''
GRAPH_BLOCK = FixedBlock(BLOCK, ("threading", "weakref"))
TELLING = {
    "CUDAGraph",
    "Event",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "graph",
    "graph_pool_handle",
    "graphs",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "stream",
}
"""What a plain text may not name where a graph replays it: it could tell a recording by it."""


def with_graph(plain: str) -> str | None:
    """`plain`, a source whose `ModelNew` has a forward of plain arguments, in its graph form.

    None where it has no such forward, names what the block defines or what tells a recording from
    a call, or binds what the block reads. Raises SyntaxError for what is no Python.
    """
    tree = parse_source(plain)
    model = _model(tree)
    forward = _method(model, "forward")
    if model is None or forward is None or model.decorator_list or forward.decorator_list:
        return None
    names = _arguments(forward.args)
    taken = identifiers(tree) & (GRAPH_BLOCK.names | {PLAIN_FORWARD} | TELLING)
    if names is None or taken or not leaves_alone(plain, tree, GRAPH_BLOCK.reads):
        return None
    lines = plain.split("\n")
    assert forward.end_lineno is not None
    at = forward.lineno - 1
    lines[forward.end_lineno : forward.end_lineno] = ["", *_calling(forward, names, lines)]
    lines[at] = lines[at].replace("def forward", f"def {PLAIN_FORWARD}", 1)
    first = model.lineno - 1
    lines[first:first] = GRAPH_BLOCK.definitions()
    GRAPH_BLOCK.imports_into(lines, tree)
    return "\n".join(lines)


def _calling(forward: ast.FunctionDef, names: Sequence[str], lines: Sequence[str]) -> list[str]:
    """The forward that calls the block, under the signature of the plain one."""
    indent = " " * forward.col_offset
    head = list(lines[forward.lineno - 1 : forward.body[0].lineno - 1])
    if not head:
        head = [f"{indent}def forward({ast.unparse(forward.args)}):"]
    call = f"{indent}    return graphed({', '.join(names)})"
    if len(call) <= LONGEST:
        return [*head, call]
    inner = textwrap.wrap(", ".join(names), LONGEST - len(indent) - 8)
    listed = [f"{indent}        {line}" for line in inner]
    return [*head, f"{indent}    return graphed(", *listed, f"{indent}    )"]


@functools.lru_cache(maxsize=16)
def plain_form(source: str) -> str | None:
    """What `with_graph` makes `source` of, line by line where it was; None for any other text."""
    return taken_off(source, _without_block, with_graph) if PLAIN_FORWARD in source else None


def _without_block(source: str, tree: ast.Module) -> str | None:
    """`source` with empty lines for what `with_graph` adds, as far as it finds that."""
    model = _model(tree)
    forward, plain = _method(model, "forward"), _method(model, PLAIN_FORWARD)
    if forward is None or plain is None:
        return None
    lines = blanked(source, [forward, *GRAPH_BLOCK.of(tree)])
    at = plain.lineno - 1
    lines[at] = lines[at].replace(f"def {PLAIN_FORWARD}", "def forward", 1)
    return "\n".join(lines)


def _model(tree: ast.Module) -> ast.ClassDef | None:
    found = [x for x in tree.body if isinstance(x, ast.ClassDef) and x.name == "ModelNew"]
    return found[0] if len(found) == 1 else None


def _method(model: ast.ClassDef | None, name: str) -> ast.FunctionDef | None:
    body = model.body if model is not None else []
    found = [x for x in body if isinstance(x, ast.FunctionDef) and x.name == name]
    return found[0] if len(found) == 1 else None


def _arguments(arguments: ast.arguments) -> list[str] | None:
    """Their names, self first; None where one is given by keyword alone, or as a star."""
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs:
        return None
    return [item.arg for item in arguments.args]
