"""The part of a user's file that constructing one of its classes needs, as text."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from agentkernel.storage.source_text import parse_source

Function = ast.FunctionDef | ast.AsyncFunctionDef
Edit = tuple[int, int, str]
"""Byte range of the source and its replacement."""

LOADING_HOOKS = frozenset(
    {
        "_load_from_state_dict",
        "_save_to_state_dict",
        "get_extra_state",
        "load_state_dict",
        "set_extra_state",
        "state_dict",
    }
)
"""Methods that decide what a state_dict holds: kept although no constructor calls them."""
CALLING_DUNDERS = frozenset({"__call__", "__repr__", "__str__"})
INDENT = "    "


@dataclass(frozen=True)
class ClassSlice:
    """The text of one class and of all that its construction needs.

    `imports` are whole lines, `helpers` top-level code, `header` the class line with decorators and
    `body` its statements, indented by four spaces ("" if there are none). `import_roots` names the
    top-level packages imported, `names` what the pieces bind at module level.
    """

    imports: tuple[str, ...]
    helpers: str
    header: str
    body: str
    import_roots: tuple[str, ...]
    names: frozenset[str]


def slice_class(
    source: str,
    class_name: str,
    new_name: str,
    module_classes: frozenset[str],
    executed: frozenset[str],
    whole: frozenset[str] = frozenset(),
) -> ClassSlice:
    """Cut `class_name` out of `source` as `new_name`, with all that its constructor depends on.

    `module_classes` are the file's torch modules: their methods go unless the kept code names them
    or `executed` (qualified names of functions that ran while an instance was built) has them.
    A name that no class statement binds (an alias, an import) becomes the base of `new_name`.
    `whole` are classes that come along with every method.
    """
    return _Slicer(source, class_name, new_name, module_classes, executed, whole).cut()


@dataclass
class _Text:
    """The source as bytes, cut by AST positions (whose columns count UTF-8 bytes)."""

    source: str
    data: bytes = field(init=False)
    starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.data = self.source.encode()
        self.starts = [0]
        for line in self.data.split(b"\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)

    def start(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword) -> int:
        return self.starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def line(self, number: int) -> str:
        return self.data[self.starts[number - 1] : self.starts[number] - 1].decode()

    def cut(self, start: int, end: int, edits: Iterable[Edit]) -> str:
        """The text of a byte range with the edits inside it made."""
        pieces: list[bytes] = []
        at = start
        for first, last, new in sorted(edits):
            if first >= at and last <= end:
                pieces += [self.data[at:first], new.encode()]
                at = last
        return b"".join([*pieces, self.data[at:end]]).decode()


class _Slicer:
    """Closes a class over the names and methods that its construction uses."""

    def __init__(
        self,
        source: str,
        class_name: str,
        new_name: str,
        module_classes: frozenset[str],
        executed: frozenset[str],
        whole: frozenset[str],
    ) -> None:
        self.text = _Text(source)
        self.tree = parse_source(source)
        self.class_name, self.new_name = class_name, new_name
        self.module_classes, self.executed, self.whole = module_classes, executed, whole
        self.bindings = bindings_of(self.tree.body)
        self.root = self._class_statement()
        self.edits: list[Edit] = list(_annotation_edits(self.tree, self.text, self._plain_names()))
        if any(is_future(item) for item in self.tree.body):
            self.edits += _field_edits(self.tree, self.text, self._own_names())
        self.attributes: set[str] = set()
        self.kept: set[ast.stmt] = set()

    def cut(self) -> ClassSlice:
        """Grow the slice until nothing is missing, then render it under the new name."""
        while self._grow():
            pass
        names = {name for name, items in self.bindings.items() if self.kept.intersection(items)}
        needed = self._needed_names()
        renames = {self.class_name: self.new_name} if self.root else {}
        if self.new_name in names and self.new_name != self.class_name:
            renames[self.new_name] = f"{self.new_name}Original"
        self.edits += _rename_edits(self.tree, self.text, renames)
        if self.root and self.class_name != self.new_name:
            self.edits += _mangling_edits(self.root, self.text)
        ordered = [item for item in self.tree.body if item in self.kept and item is not self.root]
        imports = [item for item in ordered if isinstance(item, ast.Import | ast.ImportFrom)]
        helpers = [self._render(item, renames) for item in ordered if item not in imports]
        lines = [line for item in imports for line in _import_lines(item, needed)]
        header, body = self._class_text(renames)
        pieces = [*lines, *helpers, f"{header}\n{body or INDENT + 'pass'}"]
        return ClassSlice(
            imports=tuple(dict.fromkeys(lines)),
            helpers=_join(helpers),
            header=header,
            body=body,
            import_roots=_import_roots(parse_source("\n".join(pieces)).body),
            names=frozenset(renames.get(name, name) for name in names | {self.new_name}),
        )

    def _class_statement(self) -> ast.ClassDef | None:
        items = self.bindings.get(self.class_name, [])
        last = items[-1] if items else None
        return last if isinstance(last, ast.ClassDef) else None

    def _class_text(self, renames: Mapping[str, str]) -> tuple[str, str]:
        if self.root is None:
            return f"class {self.new_name}({self.class_name}):", ""
        return self._header(self.root, self.new_name), self._body(self.root)

    def _plain_names(self) -> frozenset[str]:
        """Names that an annotation may use without drawing anything new into the slice."""
        imported = {
            name
            for name, items in self.bindings.items()
            if any(_import_roots([item]) == ("torch",) for item in items)
        }
        return frozenset(dir(builtins)) | imported

    def _own_names(self) -> frozenset[str]:
        """Names that statements other than imports bind."""
        items = self.bindings.items()
        return frozenset(name for name, found in items if not all(map(_is_import, found)))

    def _needed_names(self) -> set[str]:
        texts = [self._render(item, {}) for item in self.kept if not _is_import(item)]
        needed = {name for text in texts for name in _global_names(text)}
        return needed | self.whole | ({self.class_name} if self.root is None else set())

    def _grow(self) -> bool:
        """One round of the closure; True while it finds something new."""
        before = (len(self.kept), len(self.attributes))
        if self.root is not None:
            self.kept.add(self.root)
        needed = self._needed_names()
        for name in needed:
            self.kept.update(self.bindings.get(name, ()))
        bound = {name for name in needed if not all(map(_is_import, self.bindings.get(name, ())))}
        self.kept.update(item for item in self.tree.body if _mutated_names(item) & bound)
        if not all(name in self.bindings or hasattr(builtins, name) for name in needed):
            self.kept.update(item for item in self.tree.body if _is_star_import(item))
        for item in self.kept:
            self.attributes.update(_attribute_names(self._render(item, {})))
        return before != (len(self.kept), len(self.attributes))

    def _render(self, item: ast.stmt, renames: Mapping[str, str]) -> str:
        if not isinstance(item, ast.ClassDef):
            return self._statement(item)
        header = self._header(item, renames.get(item.name, item.name))
        return f"{header}\n{self._body(item) or INDENT + 'pass'}"

    def _header(self, item: ast.ClassDef, name: str) -> str:
        nodes: list[ast.expr | ast.keyword] = [*item.bases, *item.keywords]
        words = [self.text.cut(self.text.start(n), self.text.end(n), self.edits) for n in nodes]
        marks = [
            f"@{self.text.cut(self.text.start(n), self.text.end(n), self.edits)}"
            for n in item.decorator_list
        ]
        arguments = f"({', '.join(words)})" if words else ""
        return "\n".join([*marks, f"class {name}{arguments}:"])

    def _body(self, item: ast.ClassDef) -> str:
        kept = [statement for statement in item.body if self._is_needed(item, statement)]
        pieces: list[str] = []
        for index, statement in enumerate(kept):
            gap = index and isinstance(statement, Function | ast.ClassDef)
            pieces.append(("\n" if gap else "") + self._member(statement))
        return "\n".join(pieces)

    def _is_needed(self, owner: ast.ClassDef, item: ast.stmt) -> bool:
        """Does constructing or loading `owner` touch this statement of its body?"""
        module = owner.name in self.module_classes
        if _is_docstring(item) or isinstance(item, ast.Pass):
            return False
        if owner.name in self.whole:
            return True
        if isinstance(item, Function):
            name = item.name
            if f"{owner.name}.{name}" in self.executed or name in LOADING_HOOKS:
                return True
            if name == "forward" or (module and name in CALLING_DUNDERS):
                return False
            return _is_dunder(name) or name in self.attributes
        if isinstance(item, ast.Assign | ast.AnnAssign) and module and self._stands_alone(item):
            names = _bound_names(item)
            return any(_is_dunder(name) or name in self.attributes for name in names)
        return True

    def _member(self, item: ast.stmt) -> str:
        """A statement of a class body, indented by four spaces."""
        if not self._stands_alone(item):
            return INDENT + self.text.cut(self.text.start(item), self.text.end(item), self.edits)
        text = self._statement(item)
        prefix = self.text.line(item.lineno)[: item.col_offset]
        if prefix == INDENT:
            return text
        lines = (
            INDENT + line[len(prefix) :] if line.startswith(prefix) else line
            for line in text.split("\n")
        )
        return "\n".join(lines)

    def _stands_alone(self, item: ast.stmt) -> bool:
        first = self.text.line(_first_line(item))[: item.col_offset]
        last = self.text.data[self.text.end(item) :].split(b"\n", 1)[0].strip()
        return not first.strip() and (not last or last.startswith(b"#"))

    def _statement(self, item: ast.stmt) -> str:
        """Whole lines with the comments above, or the exact text where lines are shared."""
        if not self._stands_alone(item):
            return self.text.cut(self.text.start(item), self.text.end(item), self.edits)
        first = _first_line(item)
        while first > 1 and self.text.line(first - 1).strip().startswith("#"):
            first -= 1
        last = item.end_lineno or item.lineno
        return self.text.cut(self.text.starts[first - 1], self.text.starts[last] - 1, self.edits)


def bindings_of(body: Iterable[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """Module-level name -> the statements that bind it, in order."""
    found: dict[str, list[ast.stmt]] = {}
    for item in body:
        if not is_main_guard(item):
            for name in _bound_names(item):
                found.setdefault(name, []).append(item)
    return found


def _bound_names(item: ast.stmt) -> set[str]:
    """Names that a statement binds in its own scope, inside compound statements too."""
    names: set[str] = set()
    pending: list[ast.AST] = [item]
    while pending:
        node = pending.pop()
        if isinstance(node, Function | ast.ClassDef):
            names.add(node.name)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if not isinstance(node, ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))
    return names


def _global_names(text: str) -> set[str]:
    """Names that a piece of module-level code reads from module scope."""
    names: set[str] = set()
    pending = [symtable.symtable(text, "<slice>", "exec")]
    while pending:
        table = pending.pop()
        top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (top or symbol.is_global()):
                names.add(symbol.get_name())
        pending.extend(table.get_children())
    return names


def _attribute_names(text: str) -> set[str]:
    """Attribute names that a piece of code uses, also as strings (getattr and the like)."""
    names: set[str] = set()
    for node in ast.walk(parse_source(text)):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return names


def _annotation_edits(tree: ast.Module, text: _Text, plain: frozenset[str]) -> Iterator[Edit]:
    """Drop annotations inside functions that would draw in more than torch and builtins."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation and _draws(node.annotation, plain):
            name_end = text.start(node) + len(node.arg.encode())
            yield name_end, text.end(node.annotation), ""
        elif isinstance(node, Function):
            if node.returns and _draws(node.returns, plain):
                arrow = text.data.rindex(b"->", 0, text.start(node.returns))
                start = len(text.data[:arrow].rstrip())
                yield start, text.end(node.returns), ""
            for item in ast.walk(node):
                if (
                    isinstance(item, ast.AnnAssign)
                    and item.value
                    and _draws(item.annotation, plain)
                ):
                    yield text.end(item.target), text.end(item.annotation), ""


def _field_edits(tree: ast.Module, text: _Text, own: frozenset[str]) -> Iterator[Edit]:
    """Make texts of annotations in class bodies that name what the file itself defines, as
    `from __future__ import annotations`, which no slice keeps, does of all."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for item in (statement for node in classes for statement in node.body):
        if isinstance(item, ast.AnnAssign):
            words = [node.id for node in ast.walk(item.annotation) if isinstance(node, ast.Name)]
            if own.intersection(words):
                start, end = text.start(item.annotation), text.end(item.annotation)
                yield start, end, repr(ast.unparse(item.annotation))


def _draws(annotation: ast.expr, plain: frozenset[str]) -> bool:
    nodes = list(ast.walk(annotation))
    strings = any(isinstance(n, ast.Constant) and isinstance(n.value, str) for n in nodes)
    return strings or any(isinstance(n, ast.Name) and n.id not in plain for n in nodes)


def _rename_edits(tree: ast.Module, text: _Text, renames: Mapping[str, str]) -> Iterator[Edit]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in renames:
            yield text.start(node), text.end(node), renames[node.id]


def _mangling_edits(root: ast.ClassDef, text: _Text) -> Iterator[Edit]:
    """Write private names out as the old class mangled them: they may name parameters."""
    prefix = f"_{root.name.lstrip('_')}"
    for node in ast.walk(root):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            end = text.end(node)
            yield end - len(node.attr.encode()), end, prefix + node.attr
        elif isinstance(node, Function) and _is_private(node.name):
            start = text.data.index(b"def", text.start(node)) + 3
            start = text.data.index(node.name.encode(), start)
            yield start, start + len(node.name.encode()), prefix + node.name


def _import_lines(item: ast.Import | ast.ImportFrom, needed: set[str]) -> list[str]:
    lines: list[str] = []
    for alias in item.names:
        bound = (alias.asname or alias.name).split(".")[0]
        if bound in needed or alias.name == "*":
            suffix = f" as {alias.asname}" if alias.asname else ""
            if isinstance(item, ast.Import):
                lines.append(f"import {alias.name}{suffix}")
            else:
                origin = "." * item.level + (item.module or "")
                lines.append(f"from {origin} import {alias.name}{suffix}")
    return lines


def _import_roots(items: Iterable[ast.stmt]) -> tuple[str, ...]:
    roots: set[str] = set()
    for item in items:
        for node in ast.walk(item):
            if isinstance(node, ast.Import):
                roots.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                roots.add("." * node.level + (node.module or "").split(".")[0])
    return tuple(sorted(roots))


def _mutated_names(item: ast.stmt) -> set[str]:
    """Variables that a module-level statement changes in place: `TABLE["a"] = 1`, `x.append(2)`."""
    if isinstance(item, Function | ast.ClassDef) or is_main_guard(item):
        return set()
    names: set[str] = set()
    for node in ast.walk(item):
        target: ast.AST | None = None
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            target = node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            target = node.value.func
        if isinstance(target, ast.Attribute | ast.Subscript):
            while isinstance(target, ast.Attribute | ast.Subscript):
                target = target.value
            names.update({target.id} if isinstance(target, ast.Name) else ())
    return names


def _join(pieces: Iterable[str]) -> str:
    """Top-level pieces: definitions apart by two blank lines, constants close together."""
    text, after_tall = "", False
    for piece in pieces:
        tall = piece.lstrip().startswith(("def ", "class ", "@", "async ", "#"))
        text += ("\n\n\n" if tall or after_tall else "\n") + piece
        after_tall = tall
    return text.strip("\n")


def _first_line(item: ast.stmt) -> int:
    marks = item.decorator_list if isinstance(item, Function | ast.ClassDef) else []
    return min([item.lineno, *(mark.lineno for mark in marks)])


def _is_import(item: ast.stmt) -> bool:
    return isinstance(item, ast.Import | ast.ImportFrom)


def is_future(item: ast.stmt) -> bool:
    """Whether a statement is `from __future__ import annotations`."""
    if not isinstance(item, ast.ImportFrom) or item.module != "__future__":
        return False
    return any(alias.name == "annotations" for alias in item.names)


def _is_star_import(item: ast.stmt) -> bool:
    return isinstance(item, ast.ImportFrom) and item.names[0].name == "*"


def is_main_guard(item: ast.stmt) -> bool:
    """Whether a statement is `if __name__ == "__main__":`."""
    return isinstance(item, ast.If) and "__name__" in ast.dump(item.test)


def _is_docstring(item: ast.stmt) -> bool:
    return (
        isinstance(item, ast.Expr)
        and isinstance(item.value, ast.Constant)
        and isinstance(item.value.value, str)
    )


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_private(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


__all__ = ["ClassSlice", "bindings_of", "is_future", "is_main_guard", "slice_class"]
