"""One rank of several trainings, in a process that a launcher started: a file says which."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentkernel.domain.errors import AgentKernelError
from agentkernel.training import distributed
from agentkernel.training.settings import load_training, with_model
from agentkernel.training.sft import trainer
from agentkernel.training.sft.train import HeldOutJudging, train_sft


@dataclass(frozen=True)
class Job:
    """One training; `rank` gets the `signal` once it has done `step` steps."""

    data: str
    out: str
    overrides: tuple[str, ...] = ()
    model: str | None = None
    evaluations: int = 1
    rank: int | None = None
    signal: int = signal.SIGTERM
    step: int = 0


def command_for(place: Path, *jobs: Job) -> list[str]:
    """What a launcher starts for them."""
    file = place / "jobs.json"
    file.write_text(json.dumps([asdict(job) for job in jobs]))
    return [sys.executable, "-m", "tests.training.training_ranks", str(file)]


def in_a_process(words: list[str], count: int) -> list[str]:
    """What launches them, to be started by itself."""
    program = (
        "import sys; from agentkernel.training.distributed import launch; "
        f"sys.exit(launch({words!r}, {count}))"
    )
    return [sys.executable, "-c", program]


def main(file: str) -> None:
    """The first rank leaves what was said beside each folder; a mistake ends all, in its words."""
    with distributed.process_group():
        for values in json.loads(Path(file).read_text()):
            job = Job(**values)
            said: list[str] = []
            try:
                _train(job, said)
            except AgentKernelError as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                raise SystemExit(error.exit_code) from error
            if distributed.current_ranks().first:
                Path(f"{job.out}.said").write_text("\n".join(said))


def _train(job: Job, said: list[str]) -> None:
    plain = trainer.TrainingCallback

    class Signalled(plain):  # type: ignore[valid-type,misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> Any:
            if job.rank == distributed.current_ranks().rank and job.step == state.global_step:
                os.kill(os.getpid(), job.signal)
            return super().on_step_end(args, state, control, **others)

    trainer.TrainingCallback = Signalled  # type: ignore[misc]
    try:
        train_sft(
            Path(job.data),
            with_model(load_training("tiny", job.overrides), job.model),
            Path(job.out),
            judging=HeldOutJudging("h100", 1, job.evaluations),
            say=said.append,
        )
    finally:
        trainer.TrainingCallback = plain  # type: ignore[misc]


if __name__ == "__main__":
    main(sys.argv[1])
