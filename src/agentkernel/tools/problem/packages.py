"""Source files as members of a package: what a dotted name stands for, what a file imports."""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import cloudpickle

from agentkernel.domain.errors import ProblemError, one_line
from agentkernel.domain.problem import Package, PackageFile
from agentkernel.storage.files import read_regular
from agentkernel.storage.source_text import MOST_READ, parse_source

OWN = __name__.partition(".")[0]
EXPORTS = 10
"""A name is not passed on through more modules than these."""
_entered: dict[str, Package] = {}
"""By top-level name: whose modules this process has imported for a problem."""


@dataclass(frozen=True)
class ModuleFile:
    """The file of an importable module, and the dotted name of its package ("" if in none)."""

    path: Path
    package: str


def is_dotted(place: str) -> bool:
    """Whether `place` reads as a module's name: `package.module`, not `file.py`."""
    return not place.endswith(".py") and all(part.isidentifier() for part in place.split("."))


def no_such_file(place: str, otherwise: str = "") -> ProblemError:
    """Why `place`, which is no file, is not read, and what else may be done."""
    if not place or not Path(place).is_dir():
        return ProblemError(
            f"No such file: {place!r}. Expected a Python file with a torch module. "
            f"Next: check the path{otherwise}."
        )
    files = sorted(path for path in Path(place).glob("*.py") if path.is_file())
    likely = [path for path in files if not path.name.startswith("_")]
    inside = [*likely, *files, Path(place, "model.py")][0]
    return ProblemError(
        f"{place!r} is a folder. Expected a Python file with a torch module. "
        f"Next: name one of its files, as {str(inside)!r}."
    )


def module_file(module: str) -> ModuleFile:
    """Where the source of `module` lies, on Python's search path or in the current folder.

    Nothing is imported. Raises ProblemError where there is none.
    """
    importlib.invalidate_caches()
    parts = module.split(".")
    places: Sequence[str] | None = [os.getcwd(), *sys.path]
    spec: ModuleSpec | None = None
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        found = PathFinder.find_spec(name, places)
        if found is None and count == 1:
            found = _hooked(name)
        if found is None:
            raise _no_module(module, name, spec)
        spec, places = found, found.submodule_search_locations or []
    assert spec is not None
    if spec.origin is None or not spec.origin.endswith(".py"):
        what = "a folder without __init__.py" if spec.origin is None else "no Python source"
        raise ProblemError(
            f"The module {module!r} is {what}. Expected one with the source of a torch module. "
            "Next: name a module in it, 'package.module:Class', or a file."
        )
    inside = spec.submodule_search_locations is not None
    return ModuleFile(Path(spec.origin), module if inside else module.rpartition(".")[0])


def exported_from(found: ModuleFile, source: str, name: str) -> tuple[str, str] | None:
    """The module and the name there, where `source` has `name` from a `from ... import` alone."""
    tree = parse_source(source)
    if any(isinstance(node, ast.ClassDef) and node.name == name for node in ast.walk(tree)):
        return None
    for node in reversed(tree.body):
        for item in node.names if isinstance(node, ast.ImportFrom) else ():
            if name == (item.asname or item.name):
                assert isinstance(node, ast.ImportFrom)
                return absolute_name(node, found.package), item.name
    return None


def package_of(path: Path, source: str, name: str = "") -> Package | None:
    """The package that `source`, the text of `path`, imports from; None where from none. Where that
    is none, the files of its folder that it imports are one without a name.

    `name` is the package's dotted name where it is known; else the folders above the file say it:
    those with an __init__.py, and as many as the dots of its relative imports ask for. Raises
    ProblemError where no package can be called so.
    """
    imports = imports_of(source)
    path = Path(os.path.abspath(path))
    dots = max((level for level, _ in imports), default=0)
    folders = _package_folders(path, dots, len(name.split(".")) if name else 0)
    names = [folder.name for folder in folders]
    tops = {item.partition(".")[0] for level, item in imports if level == 0}
    if not dots and (not names or names[0] not in tops):
        files = _own_files(path, source, partial(_is_neighbour, path.parent), path.parent)
        return Package(name="", root=str(path.parent), files=files) if files else None
    if name and name.split(".") != names:
        raise ProblemError(
            f"The package {name!r} lies in {str(path.parent)!r}, a folder of another name. "
            f"Expected folders called {name.replace('.', '/')!r}. Next: name the file instead."
        )
    odd = next((item for item in names if not item or "." in item), None)
    if odd is not None or len(names) < dots:
        raise ProblemError(
            f"{path.name} has an import with {dots} dot{'s' * (dots != 1)}, and no package can be "
            f"called {odd or str(path.parent)!r}, the folder above. Expected folders without dots "
            "in their names. Next: rename the folder, or import by a full name."
        )
    root = folders[0].parent
    if is_installed(path):
        return Package(name=".".join(names), root=str(root), version=version_of(names[0]))
    start = [root.joinpath(*names[: count + 1]) / "__init__.py" for count in range(len(names))]
    files = _own_files(path, source, {names[0]}.__contains__, root, start)
    return Package(name=".".join(names), root=str(root), files=files)


@contextmanager
def search_path(*folders: Path, last: bool = False) -> Iterator[None]:
    """Let the user's code import what lies in `folders`; with `last` only what nothing else has."""
    entries = [str(folder.resolve()) for folder in folders]
    if last:  # one that is there already keeps its place, then and afterwards
        entries = [entry for entry in entries if entry not in sys.path]
    at = len(sys.path) if last else 0
    sys.path[at:at] = entries
    try:
        yield
    finally:
        for entry in entries:
            sys.path.remove(entry)


def lies_in(module: ModuleType, folder: Path) -> bool:
    """Whether the user's own code in `folder`, or below it, made `module`."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or is_installed(Path(file)):
        return False
    return Path(file).resolve().is_relative_to(folder)


def import_folder(module: ModuleType) -> Path | None:
    """The folder that was on the search path when the user's own `module` was imported; None where
    it is installed or has no file."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or is_installed(Path(file)):
        return None
    path = Path(file).resolve()
    depth = module.__name__.count(".") + (path.stem == "__init__")
    return path.parents[depth] if depth < len(path.parents) else None


@contextmanager
def entered(package: Package, folder: Path) -> Iterator[None]:
    """With the package imported, while a source of it from `folder` is executed.

    Raises ProblemError where its files are gone, or are not those that the problem was read with.
    """
    root = package_root(package)
    _check(package, root)
    fresh = {top for top in _tops(package) if _make_room(top, package, root)}
    entries = [str(root), str(folder.resolve())]
    sys.path.insert(0, entries[0])
    sys.path.append(entries[1])
    try:
        if not package.version:
            _entered.update(dict.fromkeys(fresh, package))
        importlib.invalidate_caches()
        try:
            if package.name:
                importlib.import_module(package.name)
        except (Exception, SystemExit) as error:
            raise ProblemError(
                f"The package {package.name!r} raised {type(error).__name__} when imported: "
                f"{one_line(error)}. Expected a package that imports by itself. "
                f"Next: run python -c 'import {package.name}' in {str(root)!r}."
            ) from error
        yield
        if not package.version:
            pickle_by_value(*(sys.modules[top] for top in _tops(package) if top in sys.modules))
    finally:
        sys.path.remove(entries[0])
        # From behind: the same folder may stand in front.
        del sys.path[len(sys.path) - 1 - sys.path[::-1].index(entries[1])]


def pickle_by_value(*modules: ModuleType) -> None:
    """Let objects of classes from these modules, and from those below them, take their classes
    along: another process, which the user's folder is hidden from, cannot import them."""
    for module in modules:
        if module.__name__.partition(".")[0] != OWN:  # which every worker has
            cloudpickle.register_pickle_by_value(module)


def _make_room(top: str, package: Package, root: Path) -> bool:
    """Forget modules called `top` of another problem; whether the name is free then.

    Raises ProblemError where a module from elsewhere has it.
    """
    before = _entered.get(top)
    if before is not None and before != package:
        for key in [key for key in sys.modules if key == top or key.startswith(f"{top}.")]:
            if _lies_below(key, Path(before.root)):
                _forget(key)
    known = sys.modules.get(top)
    if known is not None and not _holds(known, root / top):
        raise ProblemError(
            f"The package {top!r} in {str(root)!r} has the name of one that is imported already, "
            f"from {getattr(known, '__file__', None)!r}. Expected a name of its own. "
            "Next: rename the folder, or import by another name."
        )
    return known is None


def imports_of(text: str | bytes) -> Sequence[tuple[int, str]]:
    """(level, dotted name) of each import, those inside functions too; `from a import b` gives
    both `a` and `a.b`, since b may be a module."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(parse_source(text)):
        if isinstance(node, ast.Import):
            found += [(0, item.name) for item in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            found += [(node.level, base)] if base else []
            found += [(node.level, f"{base}.{item.name}".strip(".")) for item in node.names]
    return found


def is_installed(file: Path) -> bool:
    """Whether a package manager put it there; an environment may lie below a user's folder."""
    return "site-packages" in file.parts or "dist-packages" in file.parts


def version_of(package: str) -> str:
    """The installed version of the distribution that has this top-level package; "" where none."""
    if package in sys.stdlib_module_names:
        return ""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        names = sorted(set(_owners().get(package, [])))
        return ",".join(f"{name} {metadata.version(name)}" for name in names)


@cache
def _owners() -> dict[str, list[str]]:
    return dict(metadata.packages_distributions())


def _hooked(name: str) -> ModuleSpec | None:
    """What a finder of another kind knows, such as that of an editable install."""
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def _no_module(module: str, missing: str, parent: ModuleSpec | None) -> ProblemError:
    if parent is None:
        return ProblemError(
            f"No such file or module: {module!r}. Expected a Python file, or a module in the "
            f"current folder or on Python's search path, which has no {missing!r}. "
            "Next: check the spelling, or set PYTHONPATH."
        )
    last = missing.rpartition(".")[2]
    if parent.submodule_search_locations is None:
        return ProblemError(
            f"No such module: {module!r}. Expected a package, and {parent.name!r} is a module. "
            f"Next: write '{parent.name}:{last}' for a class in it."
        )
    known = [item.name for item in pkgutil.iter_modules(parent.submodule_search_locations)]
    near = difflib.get_close_matches(last, known, n=3, cutoff=0.5) or known[:3]
    hint = f", such as {', '.join(repr(f'{parent.name}.{item}') for item in near)}" if near else ""
    return ProblemError(
        f"No such module: {module!r}. Expected one of the package {parent.name!r}{hint}. "
        "Next: check the spelling."
    )


def absolute_name(node: ast.ImportFrom, package: str) -> str:
    """The full name of the module that `from ... import` in a module of `package` names."""
    if not node.level:
        return node.module or ""
    base = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def _package_folders(path: Path, dots: int, known: int) -> list[Path]:
    """The folders of the package of `path`, the top one first."""
    folders: list[Path] = []
    for folder in path.parents:
        if not (folder / "__init__.py").is_file() and len(folders) >= max(dots, known):
            break
        folders.insert(0, folder)
    return folders


def _is_neighbour(folder: Path, top: str) -> bool:
    """Whether `import top` finds a file or folder in `folder`, and not a module known before."""
    if top in sys.stdlib_module_names or is_installed(folder / top):
        return False
    known = sys.modules.get(top)
    if known is not None and top not in _entered and not _holds(known, folder / top):
        return False
    return (folder / f"{top}.py").is_file() or (folder / top).is_dir()


def _own_files(
    path: Path, source: str, is_own: Callable[[str], bool], root: Path, start: Sequence[Path] = ()
) -> tuple[PackageFile, ...]:
    """The other files below `root` that `source` imports, and those that these import; `is_own`
    says of a top-level name whether it is meant."""
    waiting = [item for item in start if item.is_file()]
    waiting += _imported(path, source, is_own, root)
    found: dict[Path, PackageFile] = {}
    while waiting:
        file = waiting.pop(0)
        if file in found or file == path:
            continue
        text = source_bytes(file)
        place = file.relative_to(root).as_posix()
        found[file] = PackageFile(path=place, sha256=hashlib.sha256(text).hexdigest())
        try:
            waiting += _imported(file, text, is_own, root)
        except SyntaxError as error:
            raise ProblemError(
                f"{place} line {error.lineno}: {error.msg}. Expected valid Python, since "
                f"{path.name} imports it. Next: fix the syntax."
            ) from error
    return tuple(sorted(found.values(), key=lambda item: item.path))


def _imported(
    path: Path, text: str | bytes, is_own: Callable[[str], bool], root: Path
) -> list[Path]:
    """The files that the imports of `path` mean, where they lie in its own package."""
    found: list[Path] = []
    for level, name in imports_of(text):
        if level == 0 and not is_own(name.partition(".")[0]):
            continue
        place = path.parents[level - 1] if level else root
        found.append(place / "__init__.py")
        for part in name.split(".") if name else ():
            place = place / part
            found += [place / "__init__.py", place.with_suffix(".py")]
    found = [item for item in found if item.is_relative_to(root) and item.is_file()]
    return [item for item in found if is_own(_top(item.relative_to(root)))]


def _top(place: Path) -> str:
    """The top-level module of a file, by its path below the root."""
    return place.parts[0].removesuffix(".py")


def _tops(package: Package) -> set[str]:
    names = {_top(Path(file.path)) for file in package.files}
    return {package.name.partition(".")[0]} if package.name else names


def package_root(package: Package) -> Path:
    """Where the package lies: in its folder, or where Python finds it by now."""
    if not package.name:
        return Path(package.root)
    folders = package.name.split(".")
    if package.root and Path(package.root).joinpath(*folders).is_dir():
        return Path(package.root)
    try:
        found = module_file(package.name).path.parent
    except ProblemError as error:
        raise ProblemError(
            f"The package {package.name!r} of this problem is gone: it was in {package.root!r}. "
            "Expected it there or on Python's search path. Next: put it back, or set PYTHONPATH."
        ) from error
    return found.parents[len(folders) - 1]


def _check(package: Package, root: Path) -> None:
    top = package.name.partition(".")[0]
    if package.version and version_of(top) != package.version:
        raise ProblemError(
            f"The package {top!r} is of version {version_of(top) or 'unknown'}. Expected "
            f"{package.version}, with which the problem was read. Next: install that version, or "
            "optimize again."
        )
    for file in package.files:
        try:
            found = hashlib.sha256((root / file.path).read_bytes()).hexdigest()
        except OSError:
            found = ""
        if found != file.sha256:
            raise ProblemError(
                f"The file {file.path!r} in {str(root)!r} {'has changed' if found else 'is gone'}. "
                f"Expected the text of SHA-256 {file.sha256[:10]}, which the problem imports. "
                "Next: bring that text back, or optimize again."
            )


def _holds(module: object, folder: Path) -> bool:
    """Whether an imported top-level module lies in `folder`, or is that file."""
    places = list(getattr(module, "__path__", ()))
    file = getattr(module, "__file__", None)
    if not places and file:
        places = [str(Path(file).with_suffix(""))]
    return any(Path(item).resolve() == folder.resolve() for item in places)


def _lies_below(module: str, root: Path) -> bool:
    found = sys.modules[module]
    places = [getattr(found, "__file__", None), *getattr(found, "__path__", ())]
    return any(item and Path(item).resolve().is_relative_to(root.resolve()) for item in places)


def _forget(module: str) -> None:
    """Let `module` be imported anew, from its source: bytecode goes by a file's second and size, in
    which a quick edit may not show."""
    cached = getattr(sys.modules.pop(module), "__cached__", None)
    if cached is not None:
        with suppress(OSError):
            Path(cached).unlink(missing_ok=True)


def source_bytes(file: Path) -> bytes:
    """The bytes of a Python file. Raises ProblemError for what cannot be read, or is no UTF-8."""
    try:
        text = read_regular(file, MOST_READ, typed=True)
        text.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(
            f"Cannot read {str(file)!r}: {one_line(error)}. Expected Python source in UTF-8."
        ) from error
    return text


__all__ = [
    "ModuleFile",
    "absolute_name",
    "entered",
    "exported_from",
    "import_folder",
    "imports_of",
    "is_dotted",
    "is_installed",
    "lies_in",
    "module_file",
    "package_of",
    "package_root",
    "pickle_by_value",
    "search_path",
    "source_bytes",
    "version_of",
]
