"""Practises in a process of its own, slowly enough for a test to kill it between two steps."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from agentkernel.training.rl.train import train_rl
from agentkernel.training.settings import with_model
from tests.training.rl.stand_in import LikesLetters, settings


def main(data: str, model: str, out: str, wait_s: str) -> None:
    """A step takes at least `wait_s`."""

    def show(done: int, total: int | None, words: str) -> None:
        print(f"step {done} {words}", flush=True)
        time.sleep(float(wait_s))

    train_rl(
        Path(data),
        with_model(settings(), model),
        Path(out),
        environment=LikesLetters(),
        say=print,
        show=show,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
