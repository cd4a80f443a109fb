"""Are a model's outputs right with its kernels in Triton's interpreter? A process of its own."""

from __future__ import annotations

import os
import sys
import warnings

from agentkernel.domain.errors import AgentKernelError, one_line
from agentkernel.nightly.scheduler.jobs import EndToEndJob
from agentkernel.runtime.processes import end_with_parent

SEEDS = (0, 1)
"""The interpreter is slow, and every kernel has been judged by itself."""


def main(line: str) -> int:
    """The verdict on the WholeJob that comes in, as JSON; 1 where there is none. It ends with the
    process that holds the other end of the pipe `line`."""
    end_with_parent(int(line))
    warnings.simplefilter("ignore")
    job = EndToEndJob.model_validate_json(sys.stdin.readline())
    from agentkernel.nightly.zoo.load import flat_outputs, load_model
    from agentkernel.swap.whole import check_end_to_end

    try:
        loaded = load_model(job.part.zoo, job.part.model)
        parameters = {path: job.parameters[path] for path in job.kernels}
        verdict = check_end_to_end(
            loaded, job.kernels, parameters, "cpu", seeds=SEEDS, flat=flat_outputs
        )
    except AgentKernelError as error:
        print(one_line(error), file=sys.stderr)
        return 1
    print(verdict.model_dump_json(), flush=True)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    # No thread of a library may keep it from ending.
    os._exit(code)
