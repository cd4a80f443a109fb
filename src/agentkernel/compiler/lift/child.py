"""What does TorchInductor's own process do? A variant at a time, a line of JSON for each."""

from __future__ import annotations

import pickle
import sys
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

from agentkernel.compiler.lift.code import InductorCode, NotLifted
from agentkernel.compiler.lift.record import GraphRecord
from agentkernel.compiler.lift.variants import Variant
from agentkernel.domain.errors import one_line
from agentkernel.domain.target import Target
from agentkernel.runtime.processes import end_with_parent


@dataclass(frozen=True)
class Job:
    """A graph, and the settings to write it under."""

    graph: GraphRecord
    variant: Variant


@dataclass(frozen=True)
class Request:
    """What to write, in order, and the GPU to write for where there is none."""

    jobs: tuple[Job, ...]
    target: Target


def main(request_path: str, reply_path: str) -> None:
    """Answer the pickled Request at the first path, line by line at the second."""
    request: Request = pickle.loads(Path(request_path).read_bytes())
    pretended = prepare_process(request.target)
    warnings.simplefilter("ignore")
    with Path(reply_path).open("w", encoding="utf-8") as reply:
        for job in request.jobs:
            answer = generate_code(job.graph, job.variant, pretended)
            reply.write(answer.model_dump_json() + "\n")
            reply.flush()


def prepare_process(target: Target) -> bool:
    """Let TorchInductor write in this process; True where it has to pretend that `target` is here.
    Never undone: what runs code of a GPU or is judged belongs to another process."""
    if torch.cuda.is_available():
        return False
    from agentkernel.compiler.lift import bindings, stand_in

    stand_in.stand_in_for_driver(target)
    stand_in.skip_passes_that_need_a_device()
    stand_in.take_the_first_template()
    bindings.send_bindings_to_aten()
    return True


def generate_code(
    graph: GraphRecord, variant: Variant, pretended: bool
) -> InductorCode | NotLifted:
    """What TorchInductor writes, in a process made ready by `prepare_process`, which says
    `pretended`."""
    from agentkernel.compiler.lift.heuristics import kernels_of
    from agentkernel.compiler.lift.inductor import inductor_source

    try:
        device = torch.device("cuda", 0)
        source = inductor_source(graph, variant, device, pretended=pretended)
        kernels = kernels_of(source)
    except Exception as error:  # noqa: BLE001 - whatever TorchInductor raises is its answer
        traceback.print_exc()
        return NotLifted(reason=_reason(error, pretended), stage="generate")
    return InductorCode(
        variant=variant.name,
        source=source,
        kernels=kernels,
        inputs=tuple(name for name, form in graph.inputs if form is not None),
        torch_version=torch.__version__,
        pretended=pretended,
    )


def _reason(error: Exception, pretended: bool) -> str:
    """Why TorchInductor wrote nothing. An operator that torch can only run, not infer the shapes
    of, is named: it asks for the GPU that is pretended."""
    if pretended and isinstance(error, NotImplementedError) and "Could not run" in str(error):
        called = [
            value
            for frame, _ in traceback.walk_tb(error.__traceback__)
            if isinstance(value := frame.f_locals.get("func"), torch._ops.OpOverload)
        ]
        name = str(called[-1]) if called else "an operator"
        return (
            f"TorchInductor cannot write {name} without a GPU: its shapes are known by running it"
        )
    return f"{type(error).__name__}: {one_line(error, 300)}"


if __name__ == "__main__":
    from agentkernel.compiler.lift import child

    # The request was pickled with this module's name, not as __main__.
    end_with_parent(int(sys.argv[3]))
    child.main(sys.argv[1], sys.argv[2])
