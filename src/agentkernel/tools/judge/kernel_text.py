"""Which functions of a source are Triton kernels, and which can a call of the model reach?"""

from __future__ import annotations

import ast

LANES = 4
"""What is divided by less is a pair or a third, not a width of vectors."""
RANKS = 8
"""What is compared with a larger number may be a size."""


def functions(tree: ast.AST) -> list[ast.FunctionDef]:
    """Every function definition, nested ones included."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def is_jit(function: ast.FunctionDef) -> bool:
    """True below `@triton.jit`, with or without arguments, alone or among other decorators."""
    for decorator in function.decorator_list:
        item = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(item, ast.Attribute) and item.attr == "jit":
            return True
        if isinstance(item, ast.Name) and item.id == "jit":
            return True
    return False


def kernel_functions(tree: ast.Module) -> list[tuple[str, ast.FunctionDef]]:
    """Kernels under every name that they can be launched by: decorated ones, and functions that
    are wrapped as in `kernel = triton.jit(function)`."""
    plain = {item.name: item for item in functions(tree)}
    found = [(item.name, item) for item in plain.values() if is_jit(item)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            names = [item.id for item in node.targets if isinstance(item, ast.Name)]
            wrapped = [plain[name] for name in _wrapped(node.value) if name in plain]
            found += [(name, item) for name in names for item in wrapped]
    return found


def _wrapped(call: ast.Call) -> list[str]:
    """`autotune(...)(triton.jit(f))` -> ["f"]; [] where nothing is made a kernel."""
    return [
        argument.id
        for node in ast.walk(call)
        if isinstance(node, ast.Call) and last_word(node.func) == "jit"
        for argument in node.args
        if isinstance(argument, ast.Name)
    ]


def last_word(node: ast.AST) -> str:
    """`range` of `tl.range` and of `range`; "" for what is neither."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def reachable(tree: ast.Module, start: str) -> list[ast.FunctionDef]:
    """Functions of the classes and functions that `start`, or the module's own statements, name,
    and what those name in turn. A file may hold the original and its inputs too, unused."""
    homes = {
        item.name: item
        for item in tree.body
        if isinstance(item, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
    }
    loose = [item for item in tree.body if item not in homes.values()]
    seen: set[str] = set()
    wanted = [start, *[name for item in loose for name in _mentioned(item)]]
    while wanted:
        name = wanted.pop()
        if name in homes and name not in seen:
            seen.add(name)
            wanted += _mentioned(homes[name])
    kept = [homes[name] for name in homes if name in seen]
    never = _overridden(tree, start)
    return [f for home in [*kept, *loose] for f in functions(home) if id(f) not in never]


def telling_sizes(tree: ast.Module) -> list[int]:
    """Sizes at which a file may go another way: numbers that its functions, kernels aside, divide
    by, and both sides of those that they compare with."""
    inside = {id(node) for _, item in kernel_functions(tree) for node in ast.walk(item)}
    found: list[int] = []
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.FloorDiv):
            found += [size for size in _numbers([node.right]) if size >= LANES]
        elif isinstance(node, ast.Compare):
            # Fewer are ranks, counts of inputs and the like.
            large = [size for size in _numbers([node.left, *node.comparators]) if size > RANKS]
            found += [near for size in large for near in (size, size + 1)]
    return list(dict.fromkeys(found))


def _numbers(nodes: list[ast.expr]) -> list[int]:
    return [x.value for x in nodes if isinstance(x, ast.Constant) and type(x.value) is int]


def backward_only(tree: ast.Module) -> list[ast.FunctionDef]:
    """The `backward` of the file's autograd functions, and the top-level functions that nothing
    else names: plain torch that differentiates a formula may stand there."""
    found = [
        method
        for kind in tree.body
        if isinstance(kind, ast.ClassDef) and is_autograd_function(kind)
        for method in kind.body
        if isinstance(method, ast.FunctionDef) and method.name == "backward"
    ]
    left = [item for item in tree.body if isinstance(item, ast.FunctionDef) and not is_jit(item)]
    more = bool(found)
    while more:
        inside = {id(node) for item in found for node in ast.walk(item)}
        elsewhere = {
            word for node in ast.walk(tree) if id(node) not in inside for word in _words(node)
        }
        named = {word for item in found for word in _mentioned(item)}
        more = False
        for item in left:
            if item not in found and item.name in named and item.name not in elsewhere:
                found.append(item)
                more = True
    return found


def is_autograd_function(kind: ast.ClassDef) -> bool:
    """True for a class that derives from torch.autograd.Function, written so."""
    return any(ast.unparse(base) == "torch.autograd.Function" for base in kind.bases)


def _overridden(tree: ast.Module, start: str) -> set[int]:
    """Ids of the `forward` of what `start` inherits from, where it has its own and nothing calls
    the inherited one: no base is built, and no attribute `forward` is used."""
    classes = {item.name: item for item in tree.body if isinstance(item, ast.ClassDef)}
    model = classes.get(start)
    bases = [item.id for item in model.bases if isinstance(item, ast.Name)] if model else []
    apart = {
        id(node)
        for item in classes.values()
        if is_autograd_function(item)
        for node in ast.walk(item)
    }
    used = {
        item.attr
        for item in ast.walk(tree)
        if isinstance(item, ast.Attribute) and id(item) not in apart
    }
    called = {last_word(item.func) for item in ast.walk(tree) if isinstance(item, ast.Call)}
    own = {item.name for item in functions(model)} if model else set()
    if "forward" not in own or "forward" in used:
        return set()
    return {
        id(item)
        for base in bases
        if base in classes and base not in called
        for item in functions(classes[base])
        if item.name == "forward"
    }


def _mentioned(node: ast.AST) -> list[str]:
    """Identifiers and attributes, and words in strings: a name may be looked up by its text."""
    return [word for item in ast.walk(node) for word in _words(item)]


def _words(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [node.attr]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    return []
