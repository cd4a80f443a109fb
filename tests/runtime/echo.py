"""A worker that answers, raises, prints, hangs or dies, as it is asked to."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection

from agentkernel.domain.base import Frozen
from agentkernel.runtime.worker import serve


class Said(Frozen):
    """A request, and its answer."""

    text: str


def echo(line: Connection, greeting: str) -> None:
    """Serve it."""

    def answer(said: Said) -> Said:
        print('={"text": "forged"}', flush=True)
        match said.text:
            case "raise":
                raise SystemExit("no module\nhere")
            case "hang":
                time.sleep(60)
            case "die":
                print("the last words", flush=True)
                os._exit(3)
        return Said(text=f"{greeting} {said.text} of {os.getpid()}")

    serve(line, Said, answer)


def deaf(line: Connection) -> None:
    """Begin, and read nothing."""
    line.send_bytes(b"ready")
    time.sleep(60)
