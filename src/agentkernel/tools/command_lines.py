"""Commands that are printed for a shell: complete, quoted, and right from where the user stands."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path

from agentkernel.domain.problem import Problem, ScalarSpec, ShapeSet, TensorSpec
from agentkernel.storage.files import RUNS_FOLDER
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.problem.inputs import SHORT_DTYPES
from agentkernel.tools.problem.structures import unflatten_data

PROGRAM = "agentkernel"


def on_problem(command: str, problem: Problem, *options: str) -> str | None:
    """`agentkernel COMMAND FILE:CLASS --input ... --init ... OPTIONS` for a problem; None for a
    live module, which no shell has."""
    if problem.origin == "live" or not problem.path:
        return None
    return shlex.join([PROGRAM, command, *problem_words(problem), *options])


def resume(folder: Path, usual: Path = Path(RUNS_FOLDER)) -> str:
    """The command that goes on with the run or session in `folder`: by its name where that lies in
    the `usual` one, which is looked into for names, else by its folder."""
    named = folder.parent.resolve() == usual.resolve()
    return shlex.join([PROGRAM, "resume", folder.name if named else str(_from_here(folder))])


def problem_words(problem: Problem) -> list[str]:
    """The words by which a command loads `problem` again from its file."""
    path = str(_from_here(Path(problem.path)))
    if problem.origin == "file":
        return [path if problem.class_name == "Model" else f"{path}:{problem.class_name}"]
    sets = [_texts(problem, inputs) for inputs in problem.shape_sets]
    words = [f"{path}:{problem.class_name}"]
    for name, first in sets[0].items():
        every = [found.get(name, first) for found in sets]
        words += ["--input", f"{name}={first if len(set(every)) == 1 else ';'.join(every)}"]
    return [*words, "--init", problem.init_source] if problem.init_source else words


def _from_here(path: Path) -> Path:
    """As it is typed from the working folder; absolute where it lies elsewhere."""
    try:
        return path.resolve().relative_to(Path.cwd().resolve())
    except (ValueError, OSError):
        return path


def _texts(problem: Problem, inputs: ShapeSet) -> dict[str, str]:
    """What stands behind `name=` for each argument of forward."""
    if problem.arguments is None:
        return {item.name: _text(item) for item in inputs.inputs}
    placed, named = unflatten_data(problem.arguments, inputs.inputs)
    names = [*_parameters(problem), *(f"input_{place}" for place in range(len(placed)))]
    return {
        **{name: _text(value) for name, value in zip(names, placed, strict=False)},
        **{name: _text(value) for name, value in named.items()},
    }


def _text(value: object) -> str:
    if isinstance(value, TensorSpec):
        short = {name: word for word, name in SHORT_DTYPES.items()}
        limit = "" if value.below is None else f"<{value.below}"
        sizes = ",".join(map(str, value.shape))
        return f"{short.get(value.dtype, value.dtype)}[{sizes}]{limit}"
    if isinstance(value, ScalarSpec):
        return value.literal
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple | list):
        inner = ", ".join(map(_text, value))
        last = "," if isinstance(value, tuple) and len(value) == 1 else ""
        return f"({inner}{last})" if isinstance(value, tuple) else f"[{inner}]"
    return repr(value)


def _parameters(problem: Problem) -> Iterator[str]:
    """The names of forward's parameters that have a position, as the source has them."""
    tree = parse_source(problem.source)
    for kind in ast.walk(tree):
        if isinstance(kind, ast.ClassDef) and kind.name == problem.class_name:
            for item in kind.body:
                if isinstance(item, ast.FunctionDef) and item.name == "forward":
                    places = [*item.args.posonlyargs, *item.args.args]
                    yield from (place.arg for place in places[1:])


__all__ = ["on_problem", "problem_words", "resume"]
