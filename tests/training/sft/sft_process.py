"""Trains in a process of its own, slowly enough for a test to kill it between two steps."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from agentkernel.training.settings import load_training
from agentkernel.training.sft.train import train_sft


def main(data: str, out: str, *overrides: str) -> None:
    """A step takes at least a tenth of a second."""

    def show(done: int, total: int | None, words: str) -> None:
        print(f"step {done}", flush=True)
        time.sleep(0.1)

    train_sft(Path(data), load_training("tiny", overrides), Path(out), say=print, show=show)


if __name__ == "__main__":
    main(*sys.argv[1:])
