"""Code outside the kernels in words: imports, layers, guards, allocations and launches."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from agentkernel.chat.explain.source import (
    FunctionNode,
    Kernel,
    Launch,
    TritonFile,
    code,
    dotted,
    first_line,
    functions,
    unpacked,
)

Noted = tuple[ast.stmt, str]
ROOM = {
    "torch.empty": "room for a result of shape {0}; what is in it is undefined",
    "torch.empty_like": "room for a result like {0}; what is in it is undefined",
    "torch.empty_strided": "room for a result of shape {0} with strides {1}; undefined content",
    "torch.zeros": "zeros of shape {0}",
    "torch.zeros_like": "zeros in the shape of {0}",
    "torch.ones": "ones of shape {0}",
    "torch.full": "a tensor of shape {0} filled with {1}",
    "torch.randn": "normal random values of shape {0}",
    "torch.rand": "uniform random values of shape {0}",
}
METHODS = {
    ".contiguous": "{0} without gaps in memory, copied only if it has some",
    ".numel": "the number of elements of {0}",
    ".size": "a size of {0}",
    ".stride": "a stride of {0}, in elements",
    ".view": "{0} seen in another shape, not copied",
    ".reshape": "{0} in another shape",
    ".t": "{0} transposed, not copied",
    ".transpose": "{0} with two axes swapped, not copied",
    ".permute": "{0} with its axes in another order, not copied",
    ".to": "{0} converted",
    ".float": "{0} in float32",
    ".item": "the number in {0}, which waits for the GPU",
}
FREE = frozenset(
    {"torch.empty", "torch.empty_like", "torch.empty_strided", "torch.as_strided", "torch.device",
     "torch.finfo", "torch.iinfo", "torch.no_grad", "torch.tensor", "torch.is_grad_enabled",
     "torch.inference_mode", "torch.autograd.function.once_differentiable"}
)  # fmt: skip
"""Of torch, what computes nothing on the GPU."""
COMPUTING = frozenset(
    {".sum", ".mean", ".amax", ".amin", ".argmax", ".argmin", ".softmax", ".log_softmax", ".matmul",
     ".mm", ".bmm", ".addmm", ".exp", ".log", ".sqrt", ".rsqrt", ".pow", ".abs", ".clamp",
     ".clamp_min", ".relu", ".sigmoid", ".tanh", ".cumsum", ".norm", ".var", ".std", ".gather",
     ".index_select", ".scatter_add", ".index_add", ".repeat_interleave", ".masked_fill",
     ".logsumexp", ".sort", ".topk"}
)  # fmt: skip
"""Methods of tensors that launch kernels of torch."""
NAMED_FUNCTIONS = {
    "forward": "the module's computation",
    "__init__": "builds the module",
    "get_inputs": "example inputs for forward",
    "get_init_inputs": "the arguments that the module is built with",
    "backward": "the gradients",
}


def host_notes(file: TritonFile) -> list[Noted]:
    """Every statement outside the kernels, in the order of the file."""
    return list(_body(file.tree.body, file, ""))


def _body(body: list[ast.stmt], file: TritonFile, owner: str) -> Iterator[Noted]:
    for statement in body:
        if isinstance(statement, FunctionNode) and statement.name in file.kernels and not owner:
            continue
        yield statement, _statement(statement, file, owner)
        inside = statement.name if isinstance(statement, ast.ClassDef) else owner
        for name in ("body", "orelse", "finalbody"):
            block = getattr(statement, name, None)
            if isinstance(block, list):
                yield from _body(block, file, inside)
        for handler in getattr(statement, "handlers", ()):
            yield from _body(handler.body, file, inside)


def _statement(statement: ast.stmt, file: TritonFile, owner: str) -> str:
    match statement:
        case ast.Import() | ast.ImportFrom():
            return _import(statement)
        case ast.ClassDef():
            return _class(statement)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return _function(statement, owner)
        case ast.Assign():
            return _assign(statement, file)
        case ast.AnnAssign():
            value = "" if statement.value is None else f": {host_words(statement.value, file)}"
            return f"{code(statement.target)}{value}"
        case ast.AugAssign():
            return f"changes {code(statement.target)} in place: {code(statement)}"
        case ast.Return():
            back = "nothing" if statement.value is None else host_words(statement.value, file)
            result = "the result of the " if back.startswith("library call") else ""
            return f"gives back {result}{back}"
        case ast.Raise():
            return f"refuses: raises {'' if statement.exc is None else code(statement.exc)}"
        case ast.If():
            return f"only if {code(statement.test)}" + _guard(statement)
        case ast.For():
            return f"loop: {code(statement.target)} goes over {code(statement.iter)}"
        case ast.While():
            return f"repeats while {code(statement.test)}"
        case ast.With():
            return f"under {', '.join(code(item.context_expr) for item in statement.items)}"
        case ast.Delete():
            gone = ", ".join(code(target) for target in statement.targets)
            return f"lets go of {gone}, so that its memory can be used again"
        case ast.Expr():
            return _expression(statement.value, file)
        case ast.Assert():
            return f"insists that {code(statement.test)}"
        case ast.Try():
            return "tries what follows; the except lines say what happens if it fails"
        case ast.Pass():
            return "does nothing"
    return f"{type(statement).__name__.lower()}: {code(statement)}"


def _assign(statement: ast.Assign, file: TritonFile) -> str:
    target = statement.targets[0]
    if len(statement.targets) == 1 and isinstance(target, ast.Tuple):
        parts = unpacked(target, statement.value)
        if parts:
            return "; ".join(f"{name}: {host_words(part, file)}" for name, part in parts.items())
    names = " = ".join(code(target).strip("()") for target in statement.targets)
    return f"{names}: {host_words(statement.value, file)}"


def _import(statement: ast.Import | ast.ImportFrom) -> str:
    names = ", ".join(
        f"{item.name} as {item.asname}" if item.asname else item.name for item in statement.names
    )
    if isinstance(statement, ast.ImportFrom):
        return f"makes {names} of {'.' * statement.level}{statement.module or ''} available here"
    return f"makes {names} available here"


def _class(statement: ast.ClassDef) -> str:
    bases = ", ".join(code(base) for base in statement.bases)
    of = f", made from {bases}" if bases else ""
    told = first_line(statement)
    about = f": {told}" if told else ""
    if statement.name == "ModelNew":
        return f"ModelNew: the drop-in that replaces the module{of}{about}"
    if statement.name == "Model":
        return f"Model: the module as it was in PyTorch{of}{about}"
    return f"{statement.name}: a class{of}{about}"


def _function(statement: FunctionNode, owner: str) -> str:
    every = (*statement.args.posonlyargs, *statement.args.args, *statement.args.kwonlyargs)
    names = [item.arg for item in every if item.arg not in ("self", "cls", "ctx")]
    takes = f" from {', '.join(names)}" if names else ""
    what = NAMED_FUNCTIONS.get(statement.name, "a function")
    told = first_line(statement)
    of = f"{owner}." if owner else ""
    return f"{of}{statement.name}: {what}{takes}{f': {told}' if told else ''}"


def _guard(statement: ast.If) -> str:
    first = statement.body[0] if statement.body else None
    if isinstance(first, ast.Raise):
        return ": inputs that the drop-in was not made for are refused"
    if isinstance(first, ast.Return):
        return ": nothing more to do then"
    return ""


def _expression(value: ast.expr, file: TritonFile) -> str:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return f"docstring: {' '.join(value.value.split())}"
    if isinstance(value, ast.Call) and code(value).startswith("super().__init__("):
        return "sets up what nn.Module (or the class above) needs"
    return host_words(value, file)


def host_words(node: ast.expr, file: TritonFile) -> str:
    """What a value outside the kernels is."""
    if isinstance(node, ast.Call):
        launch = launch_of(node, file)
        return launch_words(launch, file) if launch is not None else _call(node, file)
    if isinstance(node, ast.Subscript) and code(node).endswith(".shape[-1]"):
        return f"the size of the last dimension of {code(node)[: -len('.shape[-1]')]}"
    if isinstance(node, ast.Subscript) and ".shape[" in code(node):
        tensor, _, place = code(node).rpartition(".shape[")
        if place.rstrip("]").isdigit():
            return f"the size of dimension {place.rstrip(']')} of {tensor}"
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        return f"the sizes of {code(node.value)}"
    if isinstance(node, ast.Dict):
        keys = [str(key.value) for key in node.keys if isinstance(key, ast.Constant)]
        return f"a dictionary with {', '.join(keys) or 'no entries'}"
    if isinstance(node, ast.Lambda):
        return f"computed at each launch: {code(node.body)}"
    if isinstance(node, ast.Tuple):
        return ", ".join(host_words(item, file) for item in node.elts)
    if isinstance(node, ast.Constant):
        return f"the constant {code(node)}"
    return code(node)


def _call(node: ast.Call, file: TritonFile) -> str:
    called = file.called(node.func)
    library = library_call(node, file)
    if called in ROOM:
        arguments = [code(item, 60) for item in node.args]
        if called in ("torch.empty", "torch.zeros", "torch.ones", "torch.randn", "torch.rand"):
            arguments = [_shape(node)]
        try:
            return ROOM[called].format(*arguments)
        except IndexError:
            return code(node)
    if called == "nn.Parameter":
        return f"a parameter of the module: {code(node.args[0]) if node.args else 'empty'}"
    if called.startswith("nn.") and "." not in called[3:]:
        given = ", ".join(code(item) for item in (*node.args, *node.keywords))
        return f"a layer {called[3:]} of torch with ({given}), its parameters used below"
    if called == "triton.cdiv" and len(node.args) == 2:
        return f"how many blocks of {code(node.args[1])} cover {code(node.args[0])}"
    if called == "triton.next_power_of_2" and node.args:
        return f"the next power of two from {code(node.args[0])} on"
    if library:
        return f"library call {library}: {code(node)}"
    if called in METHODS and isinstance(node.func, ast.Attribute):
        return METHODS[called].format(code(node.func.value, 60))
    return f"the result of {code(node)}"


def _shape(node: ast.Call) -> str:
    sizes = ", ".join(code(item, 60) for item in node.args)
    return sizes if len(node.args) == 1 else f"({sizes})"


def library_call(node: ast.Call, file: TritonFile) -> str:
    """The name of a torch computation (`torch.mm`, `F.linear`, a layer), "" for anything else."""
    called = file.called(node.func)
    if called in file.layers:
        return f"{called}, made as {file.layers[called]}"
    if called in FREE or called in ROOM or called in ("torch.manual_seed",):
        return ""
    if called.startswith(("torch.", "F.")):
        return called
    return called if called in COMPUTING else ""


def launch_of(node: ast.expr, file: TritonFile) -> Launch | None:
    """The launch that a call is, None where it is none."""
    return file.launches.get(node)


def launch_words(launch: Launch, file: TritonFile) -> str:
    """`launches softmax_kernel: rows x 4 programs, num_warps = 8`."""
    options = [f"{name} = {value}" for name, value in launch.options.items()]
    fixed = file.kernels[launch.kernel].constants
    constants = [f"{name} = {value}" for name, value in launch.arguments.items() if name in fixed]
    told = ", ".join([*constants, *options])
    with_ = f", {told}" if told else ""
    grid = " x ".join(launch.grid)
    programs = "program" if grid == "1" else "programs"
    return f"launches {launch.kernel} with {grid} {programs}{with_}"


def forward_steps(file: TritonFile) -> list[tuple[int, str]]:
    """Launches and library calls of the drop-in's `forward` (else of the whole host code), in
    order, with their lines."""
    found: list[tuple[int, str]] = []
    for function in _forwards(file):
        for node in sorted(_steps(function), key=_ends):
            if isinstance(node, ast.BinOp):
                found.append((node.lineno, f"library call of a matrix product: {code(node)}"))
                continue
            launch = launch_of(node, file)
            if launch is not None:
                found.append((node.lineno, launch_words(launch, file)))
                continue
            library = library_call(node, file)
            if library:
                found.append((node.lineno, f"library call {library}: {code(node)}"))
    return found


def _steps(function: FunctionNode) -> Iterator[ast.Call | ast.BinOp]:
    for node in ast.walk(function):
        product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
        if isinstance(node, ast.Call | ast.BinOp) and (product or isinstance(node, ast.Call)):
            yield node


def _ends(node: ast.expr) -> tuple[int, int]:
    """Where a call ends: what stands inside another runs before it."""
    return (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)


def _forwards(file: TritonFile) -> list[FunctionNode]:
    """The drop-in's `forward` and the functions that launch a kernel, in the order of the file."""
    classes = [node for node in file.tree.body if isinstance(node, ast.ClassDef)]
    chosen = next((node for node in classes if node.name == "ModelNew"), None)
    found: list[FunctionNode] = []
    if chosen is not None:
        found = [
            node
            for node in chosen.body
            if isinstance(node, FunctionNode) and node.name != "__init__"
        ]
    elif not any(kernel.launches for kernel in file.kernels.values()):
        found = [node for node in functions(file.tree) if node.name == "forward"]
    inside = {item for node in found for item in ast.walk(node)}
    holders = _holders(file)
    for call in file.launches:
        if call not in inside:
            more = [node for node in holders[call] if node not in inside]
            inside |= {item for node in more for item in ast.walk(node)}
            found += more
    return sorted(found, key=lambda node: node.lineno)


def _holders(file: TritonFile) -> dict[ast.expr, list[FunctionNode]]:
    """Launch -> the functions around it."""
    found: dict[ast.expr, list[FunctionNode]] = {call: [] for call in file.launches}
    for function in functions(file.tree):
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and node in found:
                found[node].append(function)
    return found


def argument_notes(launch: Launch, kernel: Kernel, line: int) -> str:
    """Which parameters the code on one line of a launch becomes, "" where it holds none."""
    parts: list[str] = []
    for name, value in zip(kernel.parameters, launch.call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        if value.lineno <= line <= (value.end_lineno or value.lineno):
            parts.append(f"{code(value, 60)} as {name}")
    parts += [
        f"{item.arg or '**'} = {code(item.value, 60)}"
        for item in launch.call.keywords
        if item.value.lineno <= line <= (item.value.end_lineno or item.value.lineno)
    ]
    return f"passed to {launch.kernel}: {', '.join(parts)}" if parts else ""


__all__ = [
    "argument_notes",
    "dotted",
    "forward_steps",
    "host_notes",
    "host_words",
    "launch_of",
    "launch_words",
]
