"""Triton kernels of a source: which functions they are, and what a model call can reach."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence

LANES = 4
"""What is divided by less is a pair or a third, not a width of vectors."""
RANKS = 8
"""What is compared with a larger number may be a size."""
LARGEST_WALKED = 1 << 14
"""Rows of more elements, walked in tiles, are too long to be interpreted for one question."""
LARGEST, MOST_BITS, MOST_VALUES, CHAIN = 1 << 24, 24, 16, 3
"""Of the numbers that a file computes: larger ones are no sizes that can be asked."""
ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Pow: operator.pow,
}


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


def argument_names(function: ast.AST) -> set[str]:
    """Of a function, or of its arguments alone; those of functions inside it too."""
    return {item.arg for item in ast.walk(function) if isinstance(item, ast.arg)}


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
    """Sizes at which a file may go another way: those that leave the remainder which it asks for
    and those past a place which it asks for, in kernels too; numbers that its functions, kernels
    aside, divide by, and both sides of those that they compare with, written out or by the name of
    a constant."""
    named = _constants(tree)
    inside = {id(node) for _, item in kernel_functions(tree) for node in ast.walk(item)}
    small: list[int] = []
    found = [
        size
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq)
        for size in (
            *_leaving(node.left, node.comparators[0], named),
            *(number + 1 for number in _numbers(node.comparators, named) if number > RANKS),
        )
    ]
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.FloorDiv):
            found += [size for size in _numbers([node.right], named) if size >= LANES]
        elif isinstance(node, ast.Compare):
            # Fewer are ranks, counts of inputs and the like, but where a size is compared.
            sides = [node.left, *node.comparators]
            numbers = _numbers(sides, named)
            small += [size for size in numbers if 0 < size <= RANKS and any(map(_is_size, sides))]
            large = [size for size in numbers if size > RANKS]
            found += [near for size in large for near in (size, size + 1)]
    return list(dict.fromkeys((*found, *small)))


def _is_size(node: ast.expr) -> bool:
    """Whether it is an entry of a shape, or what `size` and the like give."""
    if isinstance(node, ast.Subscript):
        return last_word(node.value) == "shape"
    return isinstance(node, ast.Call) and last_word(node.func) in ("len", "numel", "size")


def _leaving(asked: ast.expr, rest: ast.expr, named: Mapping[str, set[int]]) -> list[int]:
    """The sizes of which `asked`, a remainder or the lowest bits, is `rest`: past one turn."""
    if not isinstance(asked, ast.BinOp) or not isinstance(asked.op, ast.Mod | ast.BitAnd):
        return []
    more = isinstance(asked.op, ast.BitAnd)
    turns = [number + more for number in _numbers([asked.right], named)]
    return [turn + left for turn in turns if turn >= LANES for left in _numbers([rest], named)]


def largest_tile(tree: ast.Module) -> int:
    """The largest number that kernels are launched or configured with by name, or count up to, as
    many times as a kernel walks in a loop of a number of its own; 0 where there is none. Tiles of
    that size together may have been taken for a whole row."""
    named = _constants(tree)
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            found += [item.value for item in node.keywords]
        elif isinstance(node, ast.Call) and last_word(node.func) == "Config":
            found += [x for item in node.args if isinstance(item, ast.Dict) for x in item.values]
        elif isinstance(node, ast.Call) and last_word(node.func) == "arange":
            found += node.args
    tile = max(_numbers(found, named), default=0)
    walked = [tile * count for count in _counted(tree, named)]
    return max((size for size in walked if size <= LARGEST_WALKED), default=tile)


def large_numbers(tree: ast.Module, least: int, most: int) -> list[int]:
    """The numbers of a file, written out or computed from such, from `least` to `most`: offsets may
    be cut to fewer bits there, though no tensor of so many elements was asked."""
    named = _constants(tree)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.BinOp)]
    return sorted({number for number in _numbers(nodes, named) if least <= number <= most})


def _counted(tree: ast.Module, named: Mapping[str, set[int]]) -> list[int]:
    """How often the loops of kernels run, as far as a number says so."""
    loops = [
        node
        for _, item in kernel_functions(tree)
        for node in ast.walk(item)
        if isinstance(node, ast.Call) and last_word(node.func) in ("range", "static_range")
    ]
    ends = [call.args[0] if len(call.args) == 1 else call.args[1] for call in loops if call.args]
    return [count for count in _numbers(ends, named) if count > 1]


def _numbers(nodes: Sequence[ast.expr], named: Mapping[str, set[int]]) -> list[int]:
    return [number for node in nodes for number in sorted(_folded(node, named))]


def _constants(tree: ast.Module) -> dict[str, set[int]]:
    """The numbers that names and attributes are given anywhere, defaults of arguments among
    them."""
    given: list[tuple[str, ast.expr]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            given += [(last_word(item), node.value) for item in node.targets]
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            given.append((last_word(node.target), node.value))
        elif isinstance(node, ast.arguments):
            names = [item.arg for item in (*node.posonlyargs, *node.args)]
            last = names[len(names) - len(node.defaults) :]
            given += list(zip(last, node.defaults, strict=True))
            pairs = zip(node.kwonlyargs, node.kw_defaults, strict=True)
            given += [(item.arg, value) for item, value in pairs if value is not None]
    found: dict[str, set[int]] = {}
    for _ in range(CHAIN):
        for name, value in given:
            if name:
                found.setdefault(name, set()).update(_folded(value, found))
    return found


def _folded(node: ast.expr, named: Mapping[str, set[int]]) -> set[int]:
    """What a number, a name of one or arithmetic with such comes to: every value that it may have,
    as far as they are few and small."""
    if isinstance(node, ast.Constant):
        return {node.value} if type(node.value) is int else set()
    if isinstance(node, ast.Name | ast.Attribute):
        return named.get(last_word(node), set())
    if isinstance(node, ast.Call) and last_word(node.func) in ("min", "max"):
        return set().union(*(_folded(item, named) for item in node.args))
    if not isinstance(node, ast.BinOp) or type(node.op) not in ARITHMETIC:
        return set()
    compute = ARITHMETIC[type(node.op)]
    pairs = [(a, b) for a in _folded(node.left, named) for b in _folded(node.right, named)]
    some = [(a, b) for a, b in pairs if 0 <= a <= LARGEST and 0 < b <= LARGEST]
    powers = isinstance(node.op, ast.LShift | ast.Pow)
    values = {compute(a, b) for a, b in some if not powers or b <= MOST_BITS}
    return {x for x in sorted(values)[:MOST_VALUES] if 0 <= x <= LARGEST}


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
