"""`agentkernel apply`: a run's kernel in a model, whose outputs are compared with fp64.

Exits 0 where the outputs hold, 3 where they do not or no module of the model computes what was
verified.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from agentkernel.cli.configuration import runs_path
from agentkernel.cli.options import ApplyFlags
from agentkernel.cli.terminal import print_json, print_plain
from agentkernel.domain.base import Frozen
from agentkernel.domain.formatting import error_text
from agentkernel.domain.plain_text import plain_line
from agentkernel.nightly.page.files import refuse_night
from agentkernel.runtime.machine import local_gpu
from agentkernel.tools.problem.loading import check_reference, load_problem
from agentkernel.tools.run_store import find_kernel_run, passed_over

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.swap.end_to_end import EndToEndVerdict
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
        return self.loaded.build_as_written(seed=0, device=device)

    def make_call(self, device: str = "cpu", seed: int = 0) -> ModelCall:
        """The inputs that this seed draws, as forward takes them."""
        from agentkernel.tools.problem.structures import unflatten_data

        inputs = self.loaded.make_inputs(seed=seed, device=device)
        structure = self.loaded.problem.arguments
        return ModelCall(*(unflatten_data(structure, inputs) if structure else (inputs, {})))


class AppliedCheck(Frozen):
    """Where the kernel of the run at `folder` went in, "" is the model itself, why it did not
    elsewhere, and errors against fp64."""

    accepted: bool
    reason: str
    folder: str
    paths: tuple[str, ...]
    refused: dict[str, str]
    error: float | None = None
    eager_error: float | None = None
    kernel_calls: int = 0
    fallbacks: int = 0
    declared_sizes: bool = False
    newer: str = ""
    """The newest run, where that handed no kernel over and 'last' is an older one."""
    note: str = ""
    """That the kernel runs at sizes at which it was not timed; "" where it does not."""


def apply(flags: ApplyFlags) -> None:
    """`agentkernel apply`."""
    refuse_night(flags.run, "in Python, ")
    check_reference(flags.subject.reference)
    runs = runs_path(flags.runs, flags.settings)
    folder = find_kernel_run(runs, flags.run)
    device = "cuda" if local_gpu() is not None else "cpu"
    if device == "cpu":
        # Before torch: Triton is an interpreter, or not, from its import on.
        os.environ["TRITON_INTERPRET"] = "1"
    # What is logged for a program stands in the answer.
    logging.getLogger("agentkernel").setLevel(logging.ERROR)
    subject = flags.subject
    loaded = load_problem(subject.reference, subject.inputs or (), subject.init, subject.kwargs)
    found = check(folder, ProblemModel(loaded), device, declared_sizes=flags.declared_sizes)
    found = found.evolve(newer=passed_over(runs, flags.run, folder))
    if flags.as_json:
        print_json(found)
    else:
        for line in check_lines(found):
            print_plain(plain_line(line))
    raise typer.Exit(0 if found.accepted else 3)


def check(
    folder: Path, model: ProblemModel, device: str, *, declared_sizes: bool = False
) -> AppliedCheck:
    """Put the kernel of a run on every module of the model that computes what was verified, and
    compare the whole model's outputs on `device` with fp64. Raises KernelRefused, RunNotFound."""
    from agentkernel.swap.end_to_end import Oracle, check_end_to_end
    from agentkernel.swap.kernel import kernel_of_run
    from agentkernel.swap.swap import apply_all, apply_equal

    kernel = kernel_of_run(folder / "certificate.json")
    name = kernel.certificate.problem.class_name
    applied = apply_all(model.build(device), kernel, name, declared_sizes=declared_sizes)
    found: EndToEndVerdict | None = None
    if applied.paths:
        kernels = dict.fromkeys(applied.paths, kernel)
        put_in = partial(apply_equal, declared_sizes=declared_sizes)
        found = check_end_to_end(Oracle(model, device), kernels, seeds=SEEDS, put_in=put_in)
    none = f"no module of the model computes what run {folder.name} verified"
    return AppliedCheck(
        accepted=found is not None and found.accepted,
        reason=none if found is None else found.reason,
        folder=str(folder),
        paths=tuple(applied.paths),
        refused=dict(applied.refused),
        error=found.worst_error if found else None,
        eager_error=found.eager_error if found else None,
        kernel_calls=found.kernel_calls if found else 0,
        fallbacks=found.fallbacks if found else 0,
        declared_sizes=declared_sizes,
        note=applied.note,
    )


NEXT_RUN = "next: 'agentkernel runs' lists the runs; give the one of a module inside with --run"


def check_lines(found: AppliedCheck) -> list[str]:
    """What was found, for people, and how it is used in a program. A module around one that has
    the kernel is another module, and no refusal worth a line."""
    refused = [
        f"refused at {path or 'the model itself'}: {why}"
        for path, why in found.refused.items()
        if not any(inside.startswith(f"{path}." if path else "") for inside in found.paths)
    ]
    name = Path(found.folder).name
    newer = [f"run {name}; {found.newer} is newer and has no drop-in"] if found.newer else []
    if not found.paths:
        return [*newer, *refused, f"rejected: {found.reason}", NEXT_RUN]
    places = ", ".join(path or "the model itself" for path in found.paths)
    lines = [
        *newer,
        f"in place at: {places}",
        *refused,
        f"{'accepted' if found.accepted else 'rejected'}: {found.reason}",
        f"error against fp64: {error_text(found.error)} with the kernel, "
        f"{error_text(found.eager_error)} without",
        f"calls: {found.kernel_calls} of the kernel, {found.fallbacks} of the original",
        *([found.note] if found.note else []),
    ]
    more = ", declared_sizes=True" if found.declared_sizes else ""
    use = f"in your program: agentkernel.apply_all(model, {found.folder!r}{more})"
    return [*lines, use] if found.accepted else lines
