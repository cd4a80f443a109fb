"""The files that a problem imports: what is sent of it, and how it is put together there."""

from __future__ import annotations

import os
from pathlib import Path

from agentkernel.domain.errors import ProblemError
from agentkernel.domain.problem import Problem
from agentkernel.tools.problem.loading import LoadedProblem, restore_problem
from agentkernel.tools.problem.packages import imports_of, source_bytes


def files_of(problem: Problem) -> dict[str, str]:
    """The text of each file that the problem's source imports from its own folders, itself
    included, by its path below their root; none of an installed package.

    Raises ProblemError for a live module, which only a pickle holds.
    """
    if problem.origin == "live":
        raise ProblemError(
            f"{problem.class_name} is a live module, which only a pickle holds, and none is sent "
            "to another machine. Expected a file or FILE:CLASS. Next: name its file."
        )
    package = problem.package
    if not problem.path or (package is not None and package.version):
        return {}
    path, root = Path(os.path.abspath(problem.path)), _root(problem)
    found: dict[Path, str] = {}
    waiting = _imported(path, problem.source, root)
    waiting += [root / file.path for file in package.files] if package is not None else []
    waiting += [path]
    while waiting:
        file = waiting.pop()
        if file in found or not file.is_file():
            continue
        found[file] = source_bytes(file).decode()
        try:
            waiting += _imported(file, found[file], root)
        except SyntaxError as error:
            raise ProblemError(
                f"{file.name} line {error.lineno}: {error.msg}. Expected valid Python, since "
                f"{path.name} imports it. Next: fix the syntax."
            ) from error
    return {file.relative_to(root).as_posix(): text for file, text in sorted(found.items())}


def restored(problem: Problem, folder: Path) -> LoadedProblem:
    """The problem on this machine, its files below `folder`. Raises ProblemError."""
    root = _root(problem)
    place = folder / Path(os.path.abspath(problem.path)).relative_to(root)
    package = problem.package
    if package is not None:
        package = package.evolve(root="" if package.version else str(folder))
    return restore_problem(problem.evolve(path=str(place), package=package))


def _root(problem: Problem) -> Path:
    """The folder from which the imports of its own files are found."""
    path = Path(os.path.abspath(problem.path))
    package = problem.package
    if package is None or not path.is_relative_to(package.root):
        return path.parent
    return Path(package.root)


def _imported(path: Path, text: str, root: Path) -> list[Path]:
    """The files below `root` that the imports of `path` may mean; not all of them are there."""
    found: list[Path] = []
    for level, name in imports_of(text):
        bases = list(path.parents[level - 1 : level]) if level else [root, path.parent]
        for base in bases:
            place = base
            found.append(place / "__init__.py")
            for part in name.split(".") if name else ():
                place = place / part
                found += [place / "__init__.py", place.with_suffix(".py")]
    return [item for item in found if item.is_relative_to(root)]
