"""Counts of the house: how large the code is, and how far it is from its own style.

    python benchmarks/house.py                  the working tree's tracked files
    python benchmarks/house.py --at 37a90bb     a commit's

Standard library and git alone. Each figure:

- lines: newlines of `*.py` under src, and under tests.
- files: `*.py` under src.
- fullest folder: `*.py` that lie directly in one folder under src; not those of DATA, which are
  read as text.
- small modules of one neighbour: modules of less than 100 lines, no `__init__`, that exactly one
  module under src imports, wherever in it; that one, no `__init__` either, is of the same folder.
- function-level imports: import statements of agentkernel inside a function.
- untyped copies: calls of `model_copy` with `update`, on one line or several (a search for the text
  `model_copy(update=` finds fewer); not the one in `Frozen.evolve`, whose names mypy checks.
- functions with more than 7 parameters: named ones, `self` among them. How many lie in DATA, where
  a Triton kernel takes what it takes, is said beside it.
- docstrings that ask: module docstrings with a question mark; not those of DATA.
- retired identifiers: how many of the old names of `benchmarks/retired.txt` a module, class or
  function under src still has. A line is `old -> new`; a dotted old name is the end of a full one
  (`volley.Shot` is `agentkernel.tools.profiler.timing.process.Shot`); `#` begins a comment.
- tracked bytes: sizes of all files that git tracks; of a link its text.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
OWN = "agentkernel"
DATA = ("src/agentkernel/knowledge/kernels/", "src/agentkernel/knowledge/examples/")
RETIRED = "benchmarks/retired.txt"
EVOLVE = "src/agentkernel/domain/base.py"
SMALL_LINES = 100
MANY_PARAMETERS = 7
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Tree(NamedTuple):
    """The texts of Python files and of the retired names by path, and the size of all files."""

    texts: Mapping[str, str]
    total_bytes: int


class Row(NamedTuple):
    """A figure, and what the redesign asks for."""

    counted: str
    found: int
    asked: str
    note: str = ""


class Module(NamedTuple):
    """A module under src: its file, its text and what it parses to."""

    path: str
    text: str
    tree: ast.Module

    @property
    def folder(self) -> str:
        return str(PurePosixPath(self.path).parent)

    @property
    def is_init(self) -> bool:
        return self.path.endswith("/__init__.py")

    @property
    def is_data(self) -> bool:
        return self.path.startswith(DATA)


def working_tree(root: Path) -> Tree:
    """Tracked files of `root` as they are now."""
    names = _git(root, "ls-files", "-z").decode().split("\0")
    paths = [root / name for name in names if name and (root / name).is_symlink()]
    files = [root / name for name in names if name and not (root / name).is_symlink()]
    there = [path for path in files if path.is_file()]
    texts = {
        name: path.read_text(encoding="utf-8")
        for path in there
        if _is_read(name := path.relative_to(root).as_posix())
    }
    return Tree(texts, sum(path.lstat().st_size for path in (*paths, *there)))


def committed(root: Path, commit: str) -> Tree:
    """The files of `commit`."""
    texts = {}
    packed = io.BytesIO(_git(root, "archive", "--format=tar", commit))
    with tarfile.open(fileobj=packed) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None and _is_read(member.name):
                texts[member.name] = content.read().decode("utf-8")
    sizes = _git(root, "ls-tree", "-r", "-l", commit).decode().splitlines()
    return Tree(texts, sum(int(line.split("\t")[0].split()[3]) for line in sizes))


def _is_read(name: str) -> bool:
    return name == RETIRED or (name.startswith(("src/", "tests/")) and name.endswith(".py"))


def _git(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True).stdout


def modules_of(tree: Tree) -> dict[str, Module]:
    """The modules under src by dotted name."""
    found = {}
    for path, text in sorted(tree.texts.items()):
        if path.startswith("src/") and path.endswith(".py"):
            name = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
            found[name.removesuffix(".__init__")] = Module(path, text, ast.parse(text))
    return found


def imported(statement: ast.AST, modules: Mapping[str, Module]) -> set[str]:
    """Which modules of its own package an import statement names."""
    if isinstance(statement, ast.Import):
        names = {alias.name for alias in statement.names}
    elif isinstance(statement, ast.ImportFrom) and statement.module:
        whole = {alias.name: f"{statement.module}.{alias.name}" for alias in statement.names}
        names = {name if name in modules else statement.module for name in whole.values()}
    else:
        return set()
    return {name for name in names if name.split(".")[0] == OWN}


def small_neighbours(modules: Mapping[str, Module]) -> list[str]:
    """Modules under SMALL_LINES lines whose only importer lies beside them."""
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name, module in modules.items():
        for statement in ast.walk(module.tree):
            for found in imported(statement, modules):
                importers[found].add(name)
    small = []
    for name, module in modules.items():
        if module.is_init or module.text.count("\n") >= SMALL_LINES or len(importers[name]) != 1:
            continue
        (only,) = (modules[item] for item in importers[name])
        if only.folder == module.folder and not only.is_init:
            small.append(name)
    return small


def late_imports(modules: Mapping[str, Module]) -> list[str]:
    """A line for each import statement of agentkernel inside a function."""
    found = set()
    for module in modules.values():
        for function in ast.walk(module.tree):
            if isinstance(function, FUNCTIONS):
                for statement in ast.walk(function):
                    if imported(statement, modules):
                        found.add(f"{module.path}:{statement.lineno}")
    return sorted(found)


def untyped_copies(modules: Mapping[str, Module]) -> list[str]:
    """A line for each call of `model_copy(update=...)`, but for the one in EVOLVE."""
    return [
        f"{module.path}:{node.lineno}"
        for module in modules.values()
        if module.path != EVOLVE
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "model_copy"
        and any(keyword.arg == "update" for keyword in node.keywords)
    ]


def long_signatures(modules: Mapping[str, Module]) -> list[str]:
    """A line for each function with more than MANY_PARAMETERS named parameters."""
    return [
        f"{module.path}:{node.lineno}"
        for module in modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, FUNCTIONS)
        and len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]) > MANY_PARAMETERS
    ]


def asking_docstrings(modules: Mapping[str, Module]) -> list[str]:
    """Modules whose docstring has a question mark."""
    return [
        name
        for name, module in modules.items()
        if not module.is_data and "?" in (ast.get_docstring(module.tree) or "")
    ]


def retired_names(text: str) -> list[str]:
    """The old names of `benchmarks/retired.txt`."""
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return [line.split("->")[0].strip() for line in lines if line]


def still_defined(names: list[str], modules: Mapping[str, Module]) -> list[str]:
    """Which of `names` a module, class or function under src has."""
    defined = {f".{name}" for module in modules for name in _definitions(module, modules[module])}
    ends = {full[at:] for full in defined for at, sign in enumerate(full) if sign == "."}
    return [name for name in names if f".{name}" in ends]


def _definitions(name: str, module: Module) -> Iterator[str]:
    """Full dotted names: the module's, its classes', their methods' and its functions'."""
    yield name
    level: list[tuple[str, ast.AST]] = [(name, module.tree)]
    while level:
        outer, node = level.pop()
        for inner in ast.iter_child_nodes(node):
            named = isinstance(inner, (*FUNCTIONS, ast.ClassDef))
            full = f"{outer}.{inner.name}" if named else outer
            if named:
                yield full
            level.append((full, inner))


def counts(tree: Tree) -> tuple[Row, ...]:
    """Every figure of `tree`, in the order of the table."""
    modules = modules_of(tree)
    python = {path: text for path, text in tree.texts.items() if path.endswith(".py")}
    lines = Counter({path.split("/")[0]: 0 for path in python})
    for path, text in python.items():
        lines[path.split("/")[0]] += text.count("\n")
    folders = Counter(module.folder for module in modules.values() if not module.is_data)
    fullest, most = folders.most_common(1)[0] if folders else ("", 0)
    signatures = long_signatures(modules)
    in_data = sum(line.startswith(DATA) for line in signatures)
    retired = retired_names(tree.texts.get(RETIRED, ""))
    return (
        Row("lines of Python under src", lines["src"], "at most 84,000"),
        Row("files under src", len(modules), "at most 430"),
        Row("lines under tests", lines["tests"], "at most 70,000"),
        Row("files in the fullest folder", most, "at most 22", fullest.removeprefix("src/")),
        Row(
            f"modules under {SMALL_LINES} lines whose only importer lies beside them",
            len(small_neighbours(modules)),
            "at most 10",
        ),
        Row("function-level imports of own modules", len(late_imports(modules)), "at most 40"),
        Row("untyped model_copy(update=...)", len(untyped_copies(modules)), "0"),
        Row(
            f"functions with more than {MANY_PARAMETERS} parameters",
            len(signatures),
            "at most 15",
            f"{in_data} in data folders" if in_data else "",
        ),
        Row("module docstrings that ask a question", len(asking_docstrings(modules)), "0"),
        Row(
            "retired identifiers",
            len(still_defined(retired, modules)),
            "0",
            f"of {len(retired)} listed",
        ),
        Row("tracked bytes of the repository", tree.total_bytes, "at most 20 MB"),
    )


def table(rows: tuple[Row, ...], where: str) -> str:
    """The figures as a table of Markdown."""
    lines = [f"| counted | {where} | asked |", "|---|---|---|"]
    for row in rows:
        note = f" ({row.note})" if row.note else ""
        lines.append(f"| {row.counted} | {row.found:,}{note} | {row.asked} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table of the working tree, or of a commit."""
    parser = argparse.ArgumentParser(description="Counts of the house.")
    parser.add_argument("--at", metavar="COMMIT", help="a commit; the working tree")
    at = parser.parse_args().at
    tree = committed(ROOT, at) if at else working_tree(ROOT)
    print(table(counts(tree), f"at {at}" if at else "now"))


if __name__ == "__main__":
    main()
