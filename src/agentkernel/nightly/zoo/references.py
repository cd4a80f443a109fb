"""What does `package.module:Name` or `file.py:Name` stand for, and what would change it?"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from agentkernel.domain.errors import ProblemError, one_line
from agentkernel.storage.source_text import describe_syntax_error, parse_source
from agentkernel.tools.problem.packages import imports_of, is_installed, source_bytes, version_of


@dataclass(frozen=True)
class Reference:
    """A name in a file (`file`), or in a module that Python finds (`module`)."""

    name: str
    module: str = ""
    file: Path | None = None


def parse_reference(text: str, folder: Path) -> Reference:
    """Read `package.module:Name`, or `path/to/file.py:Name` relative to `folder`.

    Nothing is imported. Raises ProblemError where it reads as neither or the file is not there.
    """
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name.isidentifier():
        raise ProblemError(
            f"{text!r} names no class or function. Expected 'package.module:Name' or "
            "'file.py:Name'. Next: write it so."
        )
    if place.endswith(".py"):
        # Unlike Path.resolve this names a loop of links too.
        file = Path(os.path.realpath(folder / place))
        if not file.is_file():
            raise ProblemError(
                f"No such file: {place!r}. Expected a Python file below {str(folder)!r}, where the "
                "zoo is. Next: check the path."
            )
        return Reference(name, file=file)
    if not all(part.isidentifier() for part in place.split(".")):
        raise ProblemError(
            f"{text!r} has no module name before the colon. Expected 'package.module:Name' or "
            "'file.py:Name'. Next: write it so; a file ends in '.py'."
        )
    return Reference(name, module=place)


def find(reference: Reference, folder: Path) -> object:
    """Import what `reference` names, with `folder` on the search path: the user's own code.

    Raises ProblemError where it does not import, or has no such name.
    """
    with search_path(folder, *([reference.file.parent] if reference.file else [])):
        module = _execute(reference.file) if reference.file else _import(reference.module)
        try:
            return getattr(module, reference.name)
        except AttributeError as error:
            place = reference.module or str(reference.file)
            known = [key for key in vars(module) if not key.startswith("_")]
            near = difflib.get_close_matches(reference.name, known, n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ProblemError(
                f"{place} has no {reference.name!r}.{hint} Expected a class or function of that "
                "name. Next: check its spelling."
            ) from error
        except Exception as error:
            # A package that loads its names when they are asked for.
            raise _not_imported(f"{reference.module}:{reference.name}", error) from error


def defining_sha(reference: Reference, folder: Path) -> str:
    """Hex SHA-256 over what would change the thing that `reference` names.

    Own code: the text of its file and of every file beside it that they import. Installed
    packages: the versions of those that the file imports, and of the one that it belongs to.
    Call it after `find`.
    """
    with search_path(folder, *([reference.file.parent] if reference.file else [])):
        file = reference.file or _module_file(reference.module)
        texts, packages = _walk(file) if file else ({}, set())
    if reference.module:
        packages.add(reference.module.partition(".")[0])
    digest = hashlib.sha256()
    for text in texts.values():
        digest.update(hashlib.sha256(text).digest())
    for package in sorted(packages):
        digest.update(f"{package}={version_of(package)};".encode())
    return digest.hexdigest()


@contextmanager
def search_path(*folders: Path) -> Iterator[None]:
    """Let the user's code import what lies in `folders`."""
    entries = [str(folder.resolve()) for folder in folders]
    sys.path[:0] = entries
    try:
        yield
    finally:
        for entry in entries:
            sys.path.remove(entry)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        top = name.partition(".")[0]
        missing = error.name or name
        hint = (
            f"install the package that has {missing!r}, or name a file: 'path/to/file.py:Name'"
            if missing.partition(".")[0] != top or not _exists(top)
            else f"check which modules {top!r} has"
        )
        raise ProblemError(
            f"No module named {missing!r} for {name!r}. Expected one that Python can import. "
            f"Next: {hint}."
        ) from error
    except (Exception, SystemExit) as error:
        raise _not_imported(name, error) from error


def _execute(file: Path) -> ModuleType:
    """Run a file as a module of its own name; a second model from the same text shares it.

    cloudpickle takes what it defines along by value: another process knows no such module.
    """
    import cloudpickle

    text = source_bytes(file)
    try:
        parse_source(text, str(file))
    except SyntaxError as error:
        raise ProblemError(
            f"{file.name} {describe_syntax_error(error)}. Expected valid Python. "
            "Next: mend the syntax."
        ) from error
    digest = hashlib.sha256(str(file).encode() + text).hexdigest()[:12]
    name = f"agentkernel_zoo_{file.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = set(sys.modules)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _not_imported(file.name, error) from error
    for key in set(sys.modules) - before:
        if _lies_in(sys.modules[key], file.parent):
            cloudpickle.register_pickle_by_value(sys.modules[key])
    return module


def _lies_in(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or is_installed(Path(file)):
        return False
    return Path(file).resolve().is_relative_to(folder)


def _not_imported(name: str, error: BaseException) -> ProblemError:
    return ProblemError(
        f"{name} raised {type(error).__name__} when imported: {one_line(error)}. "
        "Expected code that imports by itself. Next: import it in Python."
    )


def _exists(module: str) -> bool:
    return module in sys.modules or importlib.util.find_spec(module) is not None


def _module_file(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _walk(file: Path) -> tuple[dict[Path, bytes], set[str]]:
    """The texts of `file` and of its neighbours that it imports, and the other packages' names.

    Files of an installed package are not followed: its version says what they are.
    """
    texts: dict[Path, bytes] = {}
    packages = {"torch"}
    waiting = [file]
    while waiting:
        path = waiting.pop(0)
        if path in texts:
            continue
        texts[path] = source_bytes(path)
        for level, name in _imports(texts[path]):
            beside = [] if is_installed(path) else _beside(path, level, name)
            waiting.extend(beside)
            if not beside and level == 0:
                packages.add(name.partition(".")[0])
    return texts, packages


def _imports(text: bytes) -> Sequence[tuple[int, str]]:
    """None of a neighbour of the file that no Python could import either."""
    try:
        return imports_of(text)
    except SyntaxError:
        return ()


def _beside(path: Path, level: int, name: str) -> list[Path]:
    """The file that an import means, where it lies in the folder of `path` or of its package."""
    folder = path.parents[max(level, 1) - 1]
    place = folder.joinpath(*name.split("."))
    return [item for item in (place.with_suffix(".py"), place / "__init__.py") if item.is_file()]


__all__ = ["Reference", "defining_sha", "find", "parse_reference", "search_path"]
