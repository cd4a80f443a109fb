"""Expressions that the policy asks about: texts made, types asked, counts kept, names read."""

from __future__ import annotations

import ast
import builtins
import string
from collections.abc import Container, Iterator, Sequence
from typing import TypeGuard

from agentkernel.tools.judge.policy.definitions import FUNCTIONS
from agentkernel.tools.judge.policy.kernel_source import argument_names, last_word

TEXT_BUILTINS = {"format", "print", "repr", "str"}
CONVOLUTIONS_ROUND = "torch.backends.cudnn.conv.fp32_precision == 'tf32'"


def stored(tree: ast.AST) -> set[str]:
    """Names that are given a value, or taken away."""
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }


def reads_name(node: ast.AST, names: Container[str]) -> TypeGuard[ast.Name]:
    """Whether it reads one of `names`."""
    return isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load)


def own_type(tree: ast.Module) -> set[int]:
    """What stands in functions for which `type` is a name of their own."""
    kinds = (*FUNCTIONS, ast.Lambda)
    return {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, kinds) and "type" in argument_names(function.args)
        for node in ast.walk(function)
    }


def classes_asked(node: ast.AST) -> set[int]:
    """The classes that `isinstance` and `issubclass` are asked for, where they are plain names."""
    if not isinstance(node, ast.Call) or last_word(node.func) not in ("isinstance", "issubclass"):
        return set()
    inside = list(ast.walk(node.args[1])) if len(node.args) == 2 else []
    plain = not any(isinstance(item, ast.Call | ast.NamedExpr | ast.Lambda) for item in inside)
    return {id(item) for item in inside if isinstance(item, ast.Name)} if plain else set()


def asks_type(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether it is `type(x)` of one value that is no type itself, as far as it says so."""
    plain = isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords
    if not plain or last_word(node.func) != "type":  # type: ignore[attr-defined]
        return False
    value = node.args[0]  # type: ignore[attr-defined]
    inner = isinstance(value, ast.Call) and last_word(value.func) == "type"
    return not inner and not isinstance(value, ast.Starred)


def made_text(node: ast.AST) -> Iterator[ast.expr]:
    """What is turned into text here: by an f-string, `str`, `format`, `%` and the like."""
    if isinstance(node, ast.FormattedValue):
        yield node.value
    elif isinstance(node, ast.Call):
        by_name = isinstance(node.func, ast.Name) and node.func.id in TEXT_BUILTINS
        if by_name or (isinstance(node.func, ast.Attribute) and node.func.attr == "format"):
            yield from (*node.args, *(item.value for item in node.keywords))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        written = isinstance(node.left, ast.JoinedStr) or isinstance(constant_value(node.left), str)
        yield from [node.right] if written else []


def shown_items(node: ast.expr) -> Iterator[ast.expr]:
    """The value itself, or what a display of several holds."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        for item in node.elts:
            yield from shown_items(item)
    elif isinstance(node, ast.IfExp):
        yield from (*shown_items(node.body), *shown_items(node.orelse))
    elif isinstance(node, ast.Starred | ast.NamedExpr):
        yield from shown_items(node.value)
    else:
        yield node


def kept_counts(tree: ast.AST) -> set[int]:
    """What is kept under a name, in a tuple or as a key, or compared with what no constant is: a
    count of writes says there that weights have changed, and not how often before."""
    found: set[int] = set()
    for node in ast.walk(tree):
        values: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            both = [node.left, *node.comparators]
            values = [] if any(isinstance(item, ast.Constant) for item in both) else both
        elif isinstance(node, ast.Tuple):
            values = node.elts
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.Return) and node.value is not None:
            values = [node.value]
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
            values = [node.elt]
        found |= {id(item) for item in values}
    return found


def strings_given(tree: ast.AST) -> dict[str, list[str] | None]:
    """The strings that a name is given; None for one that is given anything else, too."""
    found: dict[str, list[str] | None] = {}
    plain: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AugAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        added = not isinstance(node, ast.AugAssign) or isinstance(node.op, ast.Add)
        value = constant_value(node.value)
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(value, str) and added:
                plain.add(id(target))
                known = found.setdefault(target.id, [])
                if known is not None:
                    known.append(value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            if id(node) not in plain:
                found[node.id] = None
        elif isinstance(node, ast.arg):
            found[node.arg] = None
    return found


def texts_of(node: ast.expr, strings: dict[str, list[str] | None]) -> Sequence[str] | None:
    """The strings that it may be; None where nobody knows."""
    value = constant_value(node)
    if isinstance(value, str):
        return [value]
    return strings.get(node.id) if isinstance(node, ast.Name) else None


def plain_fields(text: str) -> bool:
    """Whether the fields of a format string, and of their own formats, are names and numbers."""
    try:
        fields = [(name, spec) for _, name, spec, _ in string.Formatter().parse(text)]
    except ValueError:
        return True  # it raises wherever it is used
    return all(
        name is None or (not set(name) & set(".[") and plain_fields(spec or ""))
        for name, spec in fields
    )


def only_raises(node: ast.If) -> bool:
    """Whether nothing but an exception hangs on the condition."""
    return not node.orelse and len(node.body) == 1 and isinstance(node.body[0], ast.Raise)


def constant_value(node: ast.AST) -> object:
    """The value of a constant; None for anything else."""
    return node.value if isinstance(node, ast.Constant) else None


def told_devices(tree: ast.Module) -> Iterator[ast.AST]:
    """What tells on which device a tensor lies: its device compared with anything but another
    tensor's, looked up, or turned into text, and the type or number of a device anywhere but among
    the arguments of a call."""
    given = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_device(node.value, set())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    handed = {
        id(item)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        for item in (*node.args, *(word.value for word in node.keywords))
    }
    for node in ast.walk(tree):
        asked: list[ast.expr] = []
        if isinstance(node, ast.Attribute) and node.attr in ("type", "index"):
            asked = [] if id(node) in handed else [node.value]
        elif isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
            equal = all(
                isinstance(item, ast.Eq | ast.NotEq | ast.Is | ast.IsNot) for item in node.ops
            )
            asked = [] if equal and all(_is_device(item, given) for item in asked) else asked
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            asked = node.args if hasattr(builtins, node.func.id) else []
        elif isinstance(node, ast.Call) and last_word(node.func) == "get" and node.args:
            table = node.func.value if isinstance(node.func, ast.Attribute) else None
            asked = node.args[:1] if isinstance(table, ast.Dict) else []
        elif isinstance(node, ast.Subscript):
            asked = [node.slice] if isinstance(node.value, ast.Dict) else []
        elif isinstance(node, ast.FormattedValue):
            asked = [node.value]
        elif isinstance(node, ast.Match):
            asked = [node.subject]
        if any(_is_device(x, given) for item in asked for x in shown_items(item)):
            yield node


def _is_device(node: ast.AST, named: Container[str]) -> bool:
    """Whether it is `x.device` of what is no call, or a name that was given such."""
    if isinstance(node, ast.Name):
        return node.id in named
    return isinstance(node, ast.Attribute) and node.attr == "device" and _is_plain(node.value)


def _is_plain(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return isinstance(node, ast.Name)


def is_rounding_of_a_gpu(node: ast.AST) -> bool:
    """Whether the node is `x.is_cuda and ` PyTorch's flag for convolutions. The interpreter's
    worker has that flag off and a GPU's tensors are on a GPU: the device decides nothing there that
    the flag alone does not."""
    return (
        isinstance(node, ast.BoolOp)
        and isinstance(node.op, ast.And)
        and len(node.values) == 2
        and isinstance(node.values[0], ast.Attribute)
        and isinstance(node.values[0].value, ast.Name)
        and ast.unparse(node.values[1]) == CONVOLUTIONS_ROUND
    )


def is_torch_alone(tree: ast.AST) -> bool:
    """Whether nothing but an import of torch gives the name `torch` to anything."""
    fields = ("arg", "asname", "name", "rest")
    return "torch" not in stored(tree) and not any(
        getattr(node, field, None) == "torch"
        for node in ast.walk(tree)
        for field in fields
        if not (isinstance(node, ast.alias) and field == "name")
    )


def places_of_reads(tree: ast.Module) -> dict[str, list[int | None]]:
    """Name -> the function around each place that reads it: None where it is not called right away,
    or not by a function of the file itself, but by one inside it."""
    found: dict[str, list[int | None]] = {}

    def visit(node: ast.AST, home: int | None, called: bool) -> None:
        name = getattr(node, "attr", None) or getattr(node, "id", None)
        if isinstance(node, ast.Attribute | ast.Name):
            found.setdefault(str(name), []).append(home if called else None)
        inner = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if inner:
            home = id(node) if home is None else -1
        for child in ast.iter_child_nodes(node):
            visit(child, home, isinstance(node, ast.Call) and child is node.func)

    visit(tree, None, False)
    return found


def is_inherited(name: str) -> bool:
    """Whether some class of torch.nn has an attribute of this name."""
    from torch import nn

    classes = [item for item in vars(nn).values() if isinstance(item, type)]
    return any(hasattr(item, name) for item in classes)


def is_named_result(words: list[str]) -> bool:
    """Whether `torch.return_types.max(...)` or the like is called: it holds what it is given."""
    import torch

    named = len(words) == 3 and words[1] == "return_types"
    kind = getattr(torch.return_types, words[2], None) if named else None
    return isinstance(kind, type) and issubclass(kind, tuple)


def is_matmul(node: ast.AST) -> bool:
    """Whether it is a product by `@`."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
