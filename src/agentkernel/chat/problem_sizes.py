"""Problems derived from a module at other input sizes or in another dtype.

The derived problem is the module's own source with other inputs: what a run judges and times is
still the user's class.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agentkernel.chat.requests import SetShapes, Size
from agentkernel.domain.errors import AgentKernelError, ProblemError, one_line
from agentkernel.domain.problem import DType, InputSpec, Problem, ShapeSet, TensorSpec
from agentkernel.storage.files import make_folder, write_atomic
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.problem.inputs import default_value, describe_inputs
from agentkernel.tools.problem.loading import LoadedProblem, restore_problem

if TYPE_CHECKING:
    from torch import nn


Shape = tuple[int, ...]
FLOATS = ("float16", "bfloat16", "float32", "float64")
CASTS: dict[DType, str] = {
    "float16": "half",
    "bfloat16": "bfloat16",
    "float32": "float",
    "float64": "double",
}
"""The method of a module that turns it to a dtype."""
FROM_FRONT = {"batch": 0, "batches": 0, "rows": 0, "n": 0, "sequences_of_length": 1}
FROM_FRONT |= dict.fromkeys(
    ("sequence", "seq", "sequence_length", "seq_length", "seq_len", "seqlen", "tokens"), 1
)
FROM_FRONT |= {"context_length": 1, "channels": 1}
FROM_BACK = dict.fromkeys(
    ("hidden", "hidden_size", "hidden_dim", "hidden_dimension", "features", "columns", "cols"), 1
)
FROM_BACK |= {"width": 1, "k": 1, "vocab": 1, "vocab_size": 1, "embedding_dimension": 1}
FROM_BACK |= {"head_dim": 1, "head_dimension": 1, "height": 2}
"""Where a dimension of that name stands, where the file has no constant of the name."""
SYNONYMS = {
    "batch": ("batch_size", "batch", "bs", "B", "N"),
    "features": ("features", "in_features", "hidden_size", "dim"),
    "hidden": ("hidden_size", "hidden", "dim", "d_model"),
    "sequence": ("seq_len", "sequence_length", "seq_length"),
}


class Derived(NamedTuple):
    """A problem of other sizes, and in one line what was changed."""

    problem: Problem
    text: str


def reshaped(problem: Problem, wanted: SetShapes, folder: Path, key: str) -> Derived:
    """`problem` at other sizes, its file below `folder`. Raises ProblemError where it has none."""
    source, changed = _with_constants(problem, wanted.sizes)
    if changed and not wanted.shapes:
        return Derived(_filed(problem, source, folder, key), f"constants: {', '.join(changed)}")
    specs = problem.shape_sets[0].inputs
    shapes = _shapes(specs, wanted)
    return _with_inputs(problem, _respecified(specs, shapes), folder, key)


def retyped(problem: Problem, dtype: DType, folder: Path, key: str) -> Derived:
    """`problem` with its floating inputs and parameters in `dtype`."""
    if dtype not in FLOATS:
        raise ProblemError(
            f"Inputs of {dtype} are another computation. Expected one of {', '.join(FLOATS)}. "
            "Next: write the module for it."
        )
    specs = tuple(
        item.evolve(dtype=dtype) if isinstance(item, TensorSpec) and item.dtype in FLOATS else item
        for item in problem.shape_sets[0].inputs
    )
    if specs == problem.shape_sets[0].inputs:
        raise ProblemError(f"The floating inputs are {dtype} already. Next: 'run'.")
    cast = problem if problem.origin == "live" else _cast(problem, dtype)
    return _with_inputs(cast, specs, folder, key)


def restored(problem: Problem, live: object | None = None) -> LoadedProblem:
    """A problem that can be built and fed; `live` is the session's live module with its inputs.

    The user's own module runs here, as it did when the session began. Raises ProblemError.
    """
    if problem.origin != "live":
        return restore_problem(problem)
    module, inputs = _live(live)
    specs = problem.shape_sets[0].inputs
    if _forms(inputs) == [(item.dtype, item.shape) for item in problem.shape_sets[0].tensors]:
        return LoadedProblem(problem, type(module), live=module, live_inputs=inputs)
    import copy

    import torch

    torch.manual_seed(0)
    made = tuple(default_value(item, "cpu") for item in specs)
    floats = {i.dtype for i in specs if isinstance(i, TensorSpec) and i.dtype in FLOATS}
    cast = copy.deepcopy(module)
    if len(floats) == 1:
        cast = cast.to(getattr(torch, floats.pop()))
    return LoadedProblem(problem, type(cast), live=cast, live_inputs=made)


def checked(problem: Problem, live: object | None = None) -> Derived:
    """`problem` where the module takes its inputs.

    Nothing is computed: it is tried on the meta device. Raises ProblemError with the module's own
    words where it does not.
    """
    loaded = restored(problem, live)
    failed = _refusal(loaded)
    described = _described(loaded)
    if failed is None:
        return Derived(described, described.shape_sets[0].label)
    raise ProblemError(
        f"The module does not take {problem.shape_sets[0].label}: {failed}. "
        "Next: other sizes, or change its constructor in the file."
    )


def fitted(
    problem: Problem, before: Problem, folder: Path, key: str, live: object | None = None
) -> Derived:
    """`problem`, checked; a constructor that holds an old size of `before` gets the new one where
    the module takes the inputs then alone. Raises ProblemError."""
    try:
        return checked(problem, live)
    except ProblemError as refused:
        sizes = _renamed(before, problem)
        source = _with_constructor(problem, sizes)
        if source is None:
            raise
        try:
            found = checked(_filed(problem, source, folder, key))
        except AgentKernelError:
            raise refused from None
        told = ", ".join(f"{old} -> {new}" for old, new in sizes.items())
        return Derived(found.problem, f"{found.text}; in the constructor {told}")


def _with_constants(problem: Problem, sizes: Sequence[Size]) -> tuple[str, list[str]]:
    """The source with the constants of these names set anew, and what was set."""
    if problem.origin != "file" or not sizes:
        return problem.source, []
    lines = problem.source.splitlines(keepends=True)
    told = []
    for size in sizes:
        names = {size.name, *SYNONYMS.get(size.name, ())}
        found = [item for item in _constants(problem.source) if item.name in names]
        if not found:
            return problem.source, []
        for item in found[:1]:
            line = lines[item.line - 1]
            lines[item.line - 1] = f"{line[: item.start]}{size.value}{line[item.end :]}"
            told.append(f"{item.name} {item.value} -> {size.value}")
    return "".join(lines), told


class _Constant(NamedTuple):
    name: str
    value: int
    line: int
    start: int
    end: int


def _constants(source: str) -> list[_Constant]:
    """The whole numbers that stand under a name of their own at the top of the file."""
    found = []
    for node in parse_source(source).body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        plain = isinstance(value, ast.Constant) and type(value.value) is int
        if isinstance(target, ast.Name) and plain and value.end_col_offset is not None:
            number = ast.literal_eval(value)
            place = (value.lineno, value.col_offset, value.end_col_offset)
            found.append(_Constant(target.id, number, *place))
    return found


def _shapes(specs: Sequence[InputSpec], wanted: SetShapes) -> tuple[Shape, ...]:
    tensors = [item for item in specs if isinstance(item, TensorSpec)]
    shapes = [item.shape for item in tensors]
    for place, shape in enumerate(wanted.shapes):
        if place >= len(shapes):
            raise ProblemError(
                f"The module takes {len(shapes)} tensors, and {len(wanted.shapes)} shapes are "
                "named. Next: name at most one each."
            )
        shapes[place] = shape
    if len(wanted.shapes) == 1:
        same = [item.shape == tensors[0].shape for item in tensors]
        shapes = [
            wanted.shapes[0] if alike else item for alike, item in zip(same, shapes, strict=True)
        ]
    for size in wanted.sizes:
        shapes = _resized(shapes, size)
    return tuple(shapes)


def _resized(shapes: Sequence[Shape], size: Size) -> list[Shape]:
    """All tensors in which the named dimension has the first one's size get the new one."""
    first = shapes[0] if shapes else ()
    at = _dimension(size.name, len(first))
    if at is None:
        raise ProblemError(
            f"Which dimension is {size.name!r}? The first input has the shape {list(first)}. "
            "Next: name the whole shape, as in 'use shape 64x4096'."
        )
    old = first[at]
    back = at - len(first)
    found = []
    for shape in shapes:
        place = at if size.name in FROM_FRONT else len(shape) + back
        fits = 0 <= place < len(shape) and shape[place] == old
        found.append((*shape[:place], size.value, *shape[place + 1 :]) if fits else shape)
    return found


def _dimension(name: str, rank: int) -> int | None:
    at = FROM_FRONT.get(name)
    if at is None and name in FROM_BACK:
        at = rank - FROM_BACK[name]
    return at if at is not None and 0 <= at < rank else None


def _respecified(specs: Sequence[InputSpec], shapes: Sequence[Shape]) -> tuple[InputSpec, ...]:
    left = list(shapes)
    return tuple(
        item.evolve(shape=left.pop(0)) if isinstance(item, TensorSpec) else item for item in specs
    )


def _with_inputs(problem: Problem, specs: tuple[InputSpec, ...], folder: Path, key: str) -> Derived:
    sized = problem.evolve(shape_sets=(ShapeSet(inputs=specs),))
    label = sized.shape_sets[0].label
    if problem.origin != "file":
        return Derived(sized, label)
    values = ",\n        ".join(_maker(item) for item in specs)
    behind = (
        "\n\nimport torch as _torch  # noqa: E402\n\nget_input_sets = None\n\n\n"
        "def get_inputs():\n"
        '    """Inputs of the sizes that the session asks for."""\n'
        f"    return [\n        {values},\n    ]\n"
    )
    return Derived(_filed(sized, problem.source.rstrip("\n") + behind, folder, key), label)


def _maker(spec: InputSpec) -> str:
    """The expression that makes one input: normal values, whole numbers 0 and 1."""
    if not isinstance(spec, TensorSpec):
        return spec.literal
    shape = ", ".join(str(item) for item in spec.shape)
    dtype = f"_torch.{spec.dtype}"
    if spec.dtype in FLOATS:
        return f"_torch.randn({shape or '()'}, dtype={dtype})"
    comma = "," if len(spec.shape) == 1 else ""
    return f"_torch.randint(0, 2, ({shape}{comma})).to({dtype})"


def _cast(problem: Problem, dtype: DType) -> Problem:
    """With a constructor that turns the module to `dtype` when it is done.

    The line stands in the constructor itself, which a drop-in copies. Where it cannot stand there,
    a function around the constructor has it: the problem is right then, and may get no drop-in.
    """
    name = problem.class_name
    source = _cast_inside(problem.source.rstrip("\n"), name, dtype)
    if source is not None:
        return problem.evolve(source=f"{source}\n")
    behind = (
        "\n\nimport torch as _torch  # noqa: E402\n\n"
        f"_as_given_{dtype} = {name}.__init__\n\n\n"
        f"def _in_{dtype}(self, *args, **kwargs):\n"
        f"    _as_given_{dtype}(self, *args, **kwargs)\n"
        f"    self.to(_torch.{dtype})\n\n\n"
        f"{name}.__init__ = _in_{dtype}\n"
    )
    return problem.evolve(source=problem.source.rstrip("\n") + behind)


def _cast_inside(source: str, name: str, dtype: DType) -> str | None:
    """The text with the cast as the last line of the constructor of `name`; None where that has no
    line of its own, returns early, or has an attribute of the method's name."""
    tree, lines = parse_source(source), source.split("\n")
    kinds = [item for item in tree.body if isinstance(item, ast.ClassDef) and item.name == name]
    if not kinds or f"self.{CASTS[dtype]} =" in source or f"def {CASTS[dtype]}(" in source:
        return None
    line = f"self.{CASTS[dtype]}()"
    makers = [
        item
        for item in kinds[-1].body
        if isinstance(item, ast.FunctionDef) and item.name == "__init__"
    ]
    last = makers[-1].body[-1] if makers else kinds[-1].body[-1]
    indent = lines[last.lineno - 1][: last.col_offset]
    if indent.strip():
        return None
    end = last.end_lineno or last.lineno
    if not makers:
        lines[end:end] = [
            f"{indent}def __init__(self, *args, **kwargs):",
            f"{indent}    super().__init__(*args, **kwargs)",
            f"{indent}    {line}",
        ]
    else:
        first = makers[-1].args.args[:1]
        if _returns(makers[-1]) or [item.arg for item in first] != ["self"]:
            return None
        casts = {f"self.{method}()" for method in CASTS.values()}
        again = isinstance(last, ast.Expr) and ast.unparse(last) in casts
        lines[last.lineno - 1 if again else end : end] = [indent + line]
    found = "\n".join(lines)
    try:
        parse_source(found)
    except SyntaxError:
        return None
    return found


def _returns(node: ast.AST) -> bool:
    """Whether a function returns before its end; what is defined in it returns for itself."""
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    return any(
        isinstance(item, ast.Return) or (not isinstance(item, inner) and _returns(item))
        for item in ast.iter_child_nodes(node)
    )


def _with_constructor(problem: Problem, sizes: dict[int, int]) -> str | None:
    """The source with other sizes in what `get_init_inputs` gives; None where it holds none."""
    if problem.origin != "file" or not sizes:
        return None
    loaded = restore_problem(problem)
    old = (*loaded.init_args, *loaded.init_kwargs.values())
    if not any(type(item) is int and item in sizes for item in old):
        return None
    table = ", ".join(f"{before}: {after}" for before, after in sizes.items())
    behind = (
        "\n\n_init_as_given = get_init_inputs\n\n\n"
        "def get_init_inputs():\n"
        '    """The constructor\'s arguments, with the sizes that follow the inputs."""\n'
        f"    return _resized(_init_as_given(), {{{table}}})\n\n\n"
        "def _resized(value, sizes):\n"
        "    if isinstance(value, list | tuple):\n"
        "        return [_resized(item, sizes) for item in value]\n"
        "    if isinstance(value, dict):\n"
        "        return {key: _resized(item, sizes) for key, item in value.items()}\n"
        "    return sizes.get(value, value) if type(value) is int else value\n"
    )
    return problem.source.rstrip("\n") + behind


def _renamed(before: Problem, after: Problem) -> dict[int, int]:
    """Old size -> new one, for those that became one new size only."""
    pairs: dict[int, set[int]] = {}
    for old, new in zip(before.shape_sets[0].tensors, after.shape_sets[0].tensors, strict=False):
        for one, other in zip(old.shape, new.shape, strict=False):
            pairs.setdefault(one, set()).add(other)
    return {
        one: min(others) for one, others in pairs.items() if len(others) == 1 and one not in others
    }


def _filed(problem: Problem, source: str, folder: Path, key: str) -> Problem:
    """With its source in a file of the session's folder."""
    stem = Path(problem.path).stem or problem.name
    path = folder / "problems" / key / f"{stem}.py"
    make_folder(path.parent)
    write_atomic(path, source)
    return problem.evolve(source=source, path=str(path))


def _described(loaded: LoadedProblem) -> Problem:
    """The problem with the shapes that its inputs really have."""
    import torch

    problem = loaded.problem
    if problem.origin != "file":
        return problem
    with torch.device("meta"):
        values = loaded.make_inputs(0, seed=0, device="meta")
    names = [item.name for item in problem.shape_sets[0].inputs]
    specs = ShapeSet(inputs=describe_inputs(values, names))
    return problem.evolve(shape_sets=(specs,))


def _refusal(loaded: LoadedProblem) -> str | None:
    """Why the module does not take its inputs, None where it does."""
    import torch

    try:
        module = loaded.build(seed=0, device="meta")
        values = loaded.make_inputs(0, seed=0, device="meta")
        with torch.no_grad():
            module(*(item.to("meta") if hasattr(item, "to") else item for item in values))
    except NotImplementedError:
        return None  # an op without a meta kernel: the run will see
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's own module may raise anything
        return one_line(error, 160)
    return None


def _live(live: object | None) -> tuple[nn.Module, tuple[object, ...]]:
    module, inputs = live  # type: ignore[misc]
    return module, tuple(inputs)


def _forms(inputs: Sequence[object]) -> list[tuple[DType, Shape]]:
    """Dtype and shape of each tensor."""
    specs = describe_inputs(inputs, ())
    return [(item.dtype, item.shape) for item in specs if isinstance(item, TensorSpec)]
