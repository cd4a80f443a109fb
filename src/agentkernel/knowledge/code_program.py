"""Which classes, functions and imports does a source define, and which class is its module?"""

from __future__ import annotations

import ast

from agentkernel.knowledge.code_values import Arguments, Value, literal

MOST_BASES = 24


class Program:
    """The classes, functions, imports and constants of one file."""

    def __init__(self, tree: ast.Module) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, ast.FunctionDef] = {}
        self.imports: dict[str, str] = {
            "torch": "torch",
            "nn": "torch.nn",
            "F": "torch.nn.functional",
        }
        self.constants: dict[str, ast.expr] = {}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
            elif isinstance(node, ast.FunctionDef):
                self.functions[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.constants[node.targets[0].id] = node.value
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for item in node.names:
            if isinstance(node, ast.ImportFrom):
                self.imports[item.asname or item.name] = f"{node.module}.{item.name}"
            elif item.asname:
                self.imports[item.asname] = item.name
            else:
                self.imports[item.name.split(".")[0]] = item.name.split(".")[0]

    def entry(self, wanted: str | None) -> str | None:
        """The class to read."""
        able = [name for name in self.classes if self.find_method(name, "forward")]
        for name in (wanted, "ModelNew" if wanted == "ModelNew" else "Model"):
            if name in able:
                return name
        used = {
            node.id
            for name in able
            for node in ast.walk(self.classes[name])
            if isinstance(node, ast.Name) and node.id != name
        }
        return next(
            (name for name in reversed(able) if name not in used), able[-1] if able else None
        )

    def find_method(self, name: str, method: str, depth: int = 0) -> ast.FunctionDef | None:
        """The method of a class or of its bases in the file."""
        node = self.classes.get(name)
        if node is None or depth > MOST_BASES:
            return None
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == method:
                return item
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id != name:
                found = self.find_method(base.id, method, depth + 1)
                if found:
                    return found
        return None

    def constructor_arguments(self) -> Arguments:
        """The literals of `get_init_inputs`: `[a, b]`, or `[[a, b], {name: value}]`."""
        function = self.functions.get("get_init_inputs")
        last = function.body[-1] if function and function.body else None
        if not isinstance(last, ast.Return) or not isinstance(last.value, ast.List):
            return Arguments([], {})
        items = last.value.elts
        named: dict[str, Value] = {}
        if len(items) == 2 and isinstance(items[0], ast.List) and isinstance(items[1], ast.Dict):
            for key, value in zip(items[1].keys, items[1].values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    named[key.value] = literal(value)
            items = items[0].elts
        return Arguments([literal(item) for item in items], named)
