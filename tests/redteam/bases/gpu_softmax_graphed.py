import threading
import weakref

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=mask, other=-float("inf"))
    weight = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * cols + col, weight / tl.sum(weight, axis=0), mask=mask)


def launch(x, out):
    rows, cols = x.shape
    softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols), num_warps=4)


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


class ModelNew(nn.Module):
    def plain_forward(self, x):
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        launch(x.contiguous(), out)
        return out

    def forward(self, x):
        return graphed(self, x)
