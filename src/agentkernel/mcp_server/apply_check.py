"""A verified kernel put into a model, and the model's outputs compared with fp64.

A program of its own: `python -m agentkernel.mcp_server.apply_check --run=FOLDER -- FILE[:CLASS]`.
Exits 0 where the outputs hold, 3 where they do not, 2 for a mistake.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agentkernel.domain.errors import AgentKernelError
from agentkernel.domain.plain_text import plain_line
from agentkernel.runtime.machine import local_gpu

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.tools.problem.loading import LoadedProblem

SEEDS = (0, 1)
"""The interpreter is slow, and the kernel has been judged by itself."""


class ModelCall(NamedTuple):
    """The arguments of one call of the model."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class ProblemModel(NamedTuple):
    """A problem's module as a model that is built and fed."""

    loaded: LoadedProblem

    def build(self, device: str = "cpu") -> nn.Module:
        """It with the same weights each time."""
        return self.loaded.build(seed=0, device=device)

    def make_call(self, device: str = "cpu", seed: int = 0) -> ModelCall:
        """The inputs that this seed draws."""
        return ModelCall(self.loaded.make_inputs(seed=seed, device=device), {})


def _say(text: str) -> None:
    print(plain_line(text))


def check(run: Path, model: ProblemModel, device: str) -> int:
    """Print what was found; the exit code."""
    # After the device is known: Triton is an interpreter, or not, from its import on.
    from agentkernel.swap.end_to_end import Oracle, check_end_to_end
    from agentkernel.swap.kernel import kernel_of_run
    from agentkernel.swap.swap import apply_all

    kernel = kernel_of_run(run / "certificate.json")
    class_name = kernel.certificate.problem.class_name
    applied = apply_all(model.build(device), kernel, class_name)
    for path, why in applied.refused.items():
        _say(f"refused at {path or 'the model itself'}: {why}")
    if not applied.paths:
        _say(f"No module of the model computes what run {run.name} verified.")
        return 3
    _say(f"in place at: {', '.join(path or 'the model itself' for path in applied.paths)}")
    found = check_end_to_end(
        Oracle(model, device), dict.fromkeys(applied.paths, kernel), seeds=SEEDS
    )
    _say(f"{'accepted' if found.accepted else 'rejected'}: {found.reason}")
    _say(f"error against fp64: {found.worst_error} with the kernel, {found.eager_error} without")
    _say(f"calls: {found.kernel_calls} of the kernel, {found.fallbacks} of the original")
    return 0 if found.accepted else 3


def main(words: list[str]) -> int:
    """The exit code of the program."""
    parser = argparse.ArgumentParser(prog="apply_check")
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--input", action="append", default=[])
    parser.add_argument("--init", default="")
    parser.add_argument("--kwargs", default="")
    parser.add_argument("module")
    given = parser.parse_args(words)
    device = "cuda" if local_gpu() is not None else "cpu"
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    from agentkernel.tools.problem.loading import load_problem

    try:
        loaded = load_problem(given.module, given.input, given.init, given.kwargs)
        return check(given.run, ProblemModel(loaded), device)
    except AgentKernelError as error:
        print(plain_line(str(error)), file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
