"""The launches in a candidate's text: their kernels, their options and what their grids count."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeGuard


class NoChange(Exception):
    """Carries the line that says why there is nothing to change."""


class Term(NamedTuple):
    """How often blocks of one width cover sizes: `places` hold the width. `rounded`: in the form in
    which products of the compiler count, rows before columns."""

    width: int
    places: tuple[ast.expr, ...]
    rounded: bool


def is_launch(node: ast.AST) -> TypeGuard[ast.Call]:
    """`kernel[grid](...)`, by a name."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Subscript)
        and isinstance(node.func.value, ast.Name | ast.Attribute)
    )


def launches_of(tree: ast.AST, kernels: tuple[str, ...] = ()) -> list[ast.Call]:
    """The launches, in the order of the text; those of `kernels` alone where it names some."""
    found = [node for node in ast.walk(tree) if is_launch(node)]
    found.sort(key=lambda call: (call.lineno, call.col_offset))
    return [call for call in found if not kernels or kernel_name(call) in kernels]


def kernel_name(call: ast.Call) -> str:
    """What a launch launches."""
    assert isinstance(call.func, ast.Subscript)
    value = call.func.value
    return value.attr if isinstance(value, ast.Attribute) else ast.unparse(value)


def kernels_meant(named: tuple[str, ...], tree: ast.AST, of: str) -> tuple[str, ...]:
    """The kernels of launches that are called so: by their names, or by words of them. `of`: the
    candidate. Raises NoChange."""
    launched = tuple(dict.fromkeys(map(kernel_name, launches_of(tree))))
    return tuple(dict.fromkeys(_kernel_meant(name, launched, of) for name in named))


def _kernel_meant(name: str, launched: tuple[str, ...], of: str) -> str:
    called = "_".join(re.split(r"[\s_-]+", name.lower()))
    bare = called.removesuffix("_kernel")
    words = set(bare.split("_"))
    for meant in (
        [each for each in launched if each.lower() == called],
        [each for each in launched if each.lower().removesuffix("_kernel") == bare],
        [each for each in launched if words <= set(each.lower().split("_"))],
    ):
        if len(meant) == 1:
            return meant[0]
    if len(launched) == 1 and called == bare:
        return launched[0]
    names = ", ".join(launched) or "none"
    raise NoChange(
        f"Which kernel of {of} is {name!r}? It launches {names}: nothing is changed. Name one of "
        "them."
    )


def option(call: ast.Call, name: str) -> int | None:
    """A number among the options of a launch."""
    for item in call.keywords:
        value = usual(item.value)
        if item.arg == name and isinstance(value, ast.Constant):
            return value.value if isinstance(value.value, int) else None
    return None


def usual(value: ast.expr) -> ast.expr:
    """What a launch has for an option but for sizes that it tells apart."""
    return value.orelse if isinstance(value, ast.IfExp) else value


def blocks_of(call: ast.Call) -> dict[str, int]:
    """The widths of a launch's blocks that are numbers, by their names."""
    named = [item.arg for item in call.keywords if (item.arg or "").startswith("BLOCK")]
    given = {name: option(call, name) for name in named if name is not None}
    return {name: width for name, width in given.items() if width is not None}


def in_grid(tree: ast.AST, call: ast.Call, name: str) -> tuple[ast.expr, ...]:
    """The widths in a launch's grid that are the block `name`'s; none where the grid does not count
    in it.

    A block of K is in no grid. One that a program's place is multiplied with has a term; the terms
    are told apart by their widths, and equal ones by the order in which products count: rows, then
    columns. Raises NoChange.
    """
    assert isinstance(call.func, ast.Subscript)
    grid, widths = call.func.slice, blocks_of(call)
    by_name = any(isinstance(part, ast.Constant) and part.value == name for part in ast.walk(grid))
    if any(ast.unparse(item).endswith("_planes") for item in call.args):
        raise NoChange(
            f"{kernel_name(call)} reads operands that were split in blocks of this width before: "
            "nothing is changed. '/edit' opens it."
        )
    if name.endswith("_K") or by_name:
        return ()
    blocks = {key: width for key, width in widths.items() if not key.endswith("_K")}
    text = _text_of(tree, kernel_name(call))
    known = _counted(text) if text is not None else None
    terms = [term for factor in _factors(grid) if (term := _term(factor)) is not None]
    terms = [term for term in terms if term.width in blocks.values()]
    if text is not None and name in _held_whole(text):
        raise NoChange(
            f"{kernel_name(call)} was written for one {name} that holds all of it: nothing is "
            "changed. '/edit' opens it."
        )
    if len(blocks) == 1 and len(terms) == 1:
        return terms[0].places
    if not terms and (_is_one(grid) or (known is not None and name not in known)):
        return ()
    counted = [key for key in blocks if known is None or key in known]
    if name not in counted and len(terms) == len(counted):
        return ()
    own = [term for term in terms if term.width == blocks[name]]
    alike = [key for key in counted if blocks[key] == blocks[name]]
    if name in counted and len(alike) == len(own) == 1:
        return own[0].places
    in_order = [term.width for term in terms] == [blocks[key] for key in sorted(counted)]
    if name in counted and in_order and all(term.rounded for term in terms):
        return terms[sorted(counted).index(name)].places
    raise NoChange(
        f"Which part of the grid of {kernel_name(call)} counts in {name} cannot be told: nothing "
        "is changed. '/edit' opens it."
    )


def divides_k(call: ast.Call, width: int) -> tuple[ast.expr, str] | None:
    """What a launch has for EVEN_K, which leaves out the mask of K, and the text that holds with
    BLOCK_K of `width`; None where it has none. Raises NoChange where it is another form."""
    given = {item.arg: item.value for item in call.keywords}
    match given.get("EVEN_K"), given.get("K"):
        case None, _:
            return None
        case ast.Constant() as place, ast.Constant(value=int(size)):
            return place, str(size % width == 0)
        case ast.Compare(left=ast.BinOp(op=ast.Mod(), right=ast.Constant() as place)), _:
            return place, str(width)
    raise NoChange(
        f"Whether a BLOCK_K of {width} divides K in {kernel_name(call)} cannot be told: nothing is "
        "changed. '/edit' opens it."
    )


def _factors(grid: ast.expr) -> Iterator[ast.expr]:
    """What is multiplied in the axes of a grid, in the order of the text."""
    match grid:
        case ast.Tuple(elts=parts):
            for part in parts:
                yield from _factors(part)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            yield from _factors(left)
            yield from _factors(right)
        case ast.Call(func=ast.Name(id="min"), args=args):
            for part in args:
                yield from _factors(part)
        case _:
            yield grid


def _term(factor: ast.expr) -> Term | None:
    """A factor that counts blocks of one width, or adds up such counts; None for any other."""
    match factor:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            one, other = _term(left), _term(right)
            if one is None or other is None or one.width != other.width:
                return None
            return Term(one.width, (*one.places, *other.places), one.rounded and other.rounded)
        case ast.UnaryOp(
            op=ast.USub(),
            operand=ast.BinOp(
                left=ast.UnaryOp(op=ast.USub()),
                op=ast.FloorDiv(),
                right=ast.Constant(value=int(width)) as place,
            ),
        ):
            return Term(width, (place,), True)
        case ast.Call(
            func=ast.Attribute(attr="cdiv"), args=[_, ast.Constant(value=int(width)) as place]
        ):
            return Term(width, (place,), False)
        case _:
            return None


def _is_one(grid: ast.expr) -> bool:
    """Whether it is a single program."""
    parts = grid.elts if isinstance(grid, ast.Tuple) else [grid]
    return all(isinstance(part, ast.Constant) and part.value == 1 for part in parts)


def _text_of(tree: ast.AST, kernel: str) -> ast.FunctionDef | None:
    """A kernel's own text, None where it is not here."""
    texts = [
        part for part in ast.walk(tree) if isinstance(part, ast.FunctionDef) and part.name == kernel
    ]
    return texts[0] if len(texts) == 1 else None


def _multiplied(text: ast.FunctionDef, is_factor: Callable[[ast.expr], bool]) -> frozenset[str]:
    """The names that a kernel multiplies with such a factor."""
    found = set[str]()
    for part in ast.walk(text):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult):
            for one, other in ((part.left, part.right), (part.right, part.left)):
                if isinstance(other, ast.Name) and is_factor(one):
                    found.add(other.id)
    return frozenset(found)


def _counted(text: ast.FunctionDef) -> frozenset[str]:
    """The names that a kernel multiplies with the place of a program."""
    places = _places(text)
    return _multiplied(text, lambda factor: _is_place(factor, places))


def _held_whole(text: ast.FunctionDef) -> frozenset[str]:
    """The names that a kernel multiplies with a place that is always 0: of the only tile."""
    zeros = _zeros(text)
    return _multiplied(text, lambda factor: isinstance(factor, ast.Name) and factor.id in zeros)


class Row(NamedTuple):
    """What a program holds whole in one block: so many columns, and whether it masks the rest."""

    columns: int
    masked: bool


def row_of(tree: ast.AST, call: ast.Call, name: str) -> Row | None:
    """The row that the block `name` holds whole: it is the range of all columns and nothing else.
    None where it is more than that, or the length of the row cannot be told."""
    text = _text_of(tree, kernel_name(call))
    width = option(call, name)
    if text is None or width is None:
        return None
    columns = {
        part.targets[0].id
        for part in ast.walk(text)
        if isinstance(part, ast.Assign)
        and isinstance(part.targets[0], ast.Name)
        and _is_range(part.value, name)
    }
    used = [part for part in ast.walk(text) if isinstance(part, ast.Name) and part.id == name]
    if len(columns) != 1 or len(used) != 1:
        return None
    bounds = [
        part.comparators[0]
        for part in ast.walk(text)
        if isinstance(part, ast.Compare)
        and isinstance(part.left, ast.Name)
        and part.left.id in columns
        and isinstance(part.ops[0], ast.Lt)
    ]
    for bound in bounds:
        known = option(call, bound.id) if isinstance(bound, ast.Name) else None
        if known is not None:
            return Row(known, masked=True)
    lengths = [item for item in _counted(text) if option(call, item) == width]
    return Row(width, masked=False) if lengths and not bounds else None


def _is_range(value: ast.expr, name: str) -> bool:
    """`tl.arange(0, NAME)`, whatever axes it is given."""
    bare = value.value if isinstance(value, ast.Subscript) else value
    match bare:
        case ast.Call(
            func=ast.Attribute(attr="arange"), args=[ast.Constant(value=0), ast.Name(id=used)]
        ):
            return used == name
        case _:
            return False


def _places(text: ast.FunctionDef) -> frozenset[str]:
    """The names in a kernel that hang on the place of a program."""
    given: list[tuple[list[ast.expr], ast.expr]] = []
    for part in ast.walk(text):
        match part:
            case ast.Assign(targets=targets, value=value):
                given.append((targets, value))
            case ast.AugAssign(target=target, value=value) | ast.For(target=target, iter=value):
                given.append(([target], value))
    found: frozenset[str] = frozenset()
    while True:
        more = set(found)
        for targets, value in given:
            if _is_place(value, found):
                names = [name for target in targets for name in ast.walk(target)]
                more |= {name.id for name in names if isinstance(name, ast.Name)}
        if more == found:
            return found
        found = frozenset(more)


def _zeros(text: ast.FunctionDef) -> frozenset[str]:
    """The names in a kernel that are 0."""
    return frozenset(
        target.id
        for part in ast.walk(text)
        if isinstance(part, ast.Assign) and ast.unparse(part.value) == "0"
        for target in part.targets
        if isinstance(target, ast.Name)
    )


def _is_place(value: ast.expr, places: frozenset[str]) -> bool:
    return any(
        (isinstance(part, ast.Attribute) and part.attr == "program_id")
        or (isinstance(part, ast.Name) and part.id in places)
        for part in ast.walk(value)
    )
