"""Which tile sizes does TorchInductor think of for a kernel, and which grid goes with each?

(Runs in TorchInductor's process.) A kernel's decorator names a heuristic and what it knows about
the kernel; the heuristic is asked, and nothing is compiled or run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agentkernel.compiler.lift.code import InductorKernel, LaunchConfig

PREFIX = "triton_heuristics"


@dataclass
class _HeuristicCall:
    """What a heuristic passed on instead of tuning."""

    configs: Sequence[object] = ()
    meta: Mapping[str, object] | None = None


def kernels_of(source: str) -> tuple[InductorKernel, ...]:
    """Every Triton kernel that the module `source` defines, with its configurations."""
    found: list[InductorKernel] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = _kernel_text(node.value)
            if text is not None:
                comment = _comment_above(source, node.lineno)
                found.append(_kernel(node.targets[0].id, text, comment))
    return tuple(found)


def _kernel_text(value: ast.expr) -> str | None:
    """The source inside `async_compile.triton(name, source, ...)`."""
    if not isinstance(value, ast.Call) or ast.unparse(value.func) != "async_compile.triton":
        return None
    texts = [ast.literal_eval(item) for item in value.args[1:2]]
    return str(texts[0]) if texts else None


def _comment_above(source: str, line: int) -> str:
    """The comment that ends right above a line: TorchInductor says there what a kernel is for."""
    lines = source.splitlines()[: line - 1]
    first = len(lines)
    while first and lines[first - 1].startswith("#"):
        first -= 1
    return "\n".join(lines[first:])


def _origins(comment: str) -> tuple[str, ...]:
    found = re.search(r"Original ATen: \[([^\]]*)\]", comment)
    words = found[1].split(",") if found else []
    return tuple(word.strip().partition(".")[2] for word in words if word.strip())


def _operators(comment: str) -> tuple[str, ...]:
    found = re.findall(r"call_function\[target=torch\.ops\.\w+\.(\w+)", comment)
    return tuple(dict.fromkeys(found))


def _kernel(variable: str, text: str, comment: str) -> InductorKernel:
    tree = ast.parse(text)
    functions = [item for item in tree.body if isinstance(item, ast.FunctionDef)]
    kernel = functions[-1]
    heuristic = next(
        item
        for item in kernel.decorator_list
        if isinstance(item, ast.Call) and ast.unparse(item.func).startswith(PREFIX)
    )
    asked = _ask(text, heuristic, kernel)
    return InductorKernel(
        variable=variable,
        source=text,
        heuristic=ast.unparse(heuristic.func).removeprefix(f"{PREFIX}."),
        configs=tuple(_config(item, asked.meta or {}) for item in asked.configs),
        origins=_origins(comment),
        operators=_operators(comment),
    )


def _ask(text: str, call: ast.Call, kernel: ast.FunctionDef) -> _HeuristicCall:
    from torch._inductor.runtime import triton_heuristics

    asked = _HeuristicCall()

    def note(*args: object, **kwargs: object) -> Callable[[object], object]:
        configs = kwargs.get("configs", args[1] if len(args) > 1 else ())
        meta = kwargs.get("inductor_meta")
        asked.configs = configs if isinstance(configs, Sequence) else ()
        asked.meta = meta if isinstance(meta, Mapping) else None
        return lambda function: function

    before = triton_heuristics.cached_autotune
    triton_heuristics.cached_autotune = note
    try:
        _decorate(text, call, kernel)
    finally:
        triton_heuristics.cached_autotune = before
    return asked


def _decorate(text: str, call: ast.Call, kernel: ast.FunctionDef) -> None:
    """Evaluate the decorator, with an empty function of the same parameters below it."""
    tree = ast.parse(text)
    kept: list[ast.stmt] = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    stub = ast.FunctionDef(
        name=kernel.name,
        args=kernel.args,
        body=[ast.Pass()],
        decorator_list=[call],
    )
    module = ast.fix_missing_locations(ast.Module(body=[*kept, stub], type_ignores=[]))
    namespace: dict[str, object] = {"__file__": "kernel.py", "__name__": "kernel"}
    exec(compile(module, "kernel.py", "exec"), namespace)


def _config(config: object, meta: Mapping[str, object]) -> LaunchConfig:
    from torch._inductor.runtime.triton_heuristics import GridExpr

    constants = dict(config.kwargs)  # type: ignore[attr-defined]
    kwargs = constants | {
        "num_warps": config.num_warps,  # type: ignore[attr-defined]
        "num_stages": config.num_stages,  # type: ignore[attr-defined]
    }
    grid = GridExpr.from_meta(dict(meta), kwargs, mode="python")
    return LaunchConfig(
        constants=tuple(constants.items()),
        num_warps=config.num_warps,  # type: ignore[attr-defined]
        num_stages=config.num_stages,  # type: ignore[attr-defined]
        prefix=tuple(str(line) for line in grid.prefix),
        grid=(str(grid.x_grid), str(grid.y_grid), str(grid.z_grid)),
    )
