"""How long does a person wait for each slash command that needs no GPU?

    python -m tests.cli.chat.answer_times [--run] [--times 5] [MODULE]

Drives `agentkernel chat MODULE --json` through a pipe, one request after the other, and prints the
milliseconds from a line's last byte to its answer: the first time, then the median and the longest
of the times after it. `--run` lets one round make candidates first (on a CPU: interpreted, slow).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

AGENTKERNEL = (sys.executable, "-c", "from agentkernel.cli.app import main; main()")
LIMIT_MS = 150.0
BEFORE = (
    "/help",
    "/status",
    "/plan",
    "/ideas",
    "/profile",
    "/roofline",
    "/show",
    "/explain",
    "/explain original 15",
    "/tree",
    "/history",
    "/cost",
    "/set",
    "/set budget.rounds {n}",
    "/target",
    "/target h200",
    "/target h100",
    "/precision tf32",
    "/precision strict",
    "/undo",
    "/redo",
    "/fork",
    "/switch 1",
    "/ask-docs softmax of long rows",
    "/export {folder}/export",
    "/wrong",
)
AFTER = (
    "/diff",
    "/diff c1 original",
    "/explain c1",
    "/explain c1 20",
    "/compare c1 original",
    "/compare c1 c2",
    "/reject c1",
    "/keep c1",
    "/save {folder}/fast.py",
)
"""They need a candidate."""


class Chat:
    """A session behind a pipe."""

    def __init__(self, module: Path, folder: Path) -> None:
        words = ("chat", str(module), "--json", "--target", "h100", "--runs", str(folder / "runs"))
        self._process = subprocess.Popen(
            (*AGENTKERNEL, *words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, line: str) -> float:
        """Milliseconds until the answer to `line` was there."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        begin = time.perf_counter()
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        for answer in self._process.stdout:
            if "reply" in json.loads(answer):
                return (time.perf_counter() - begin) * 1e3
        raise SystemExit(f"No answer to {line!r}: the session ended.")

    def close(self) -> None:
        """End the session."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def times(chat: Chat, commands: Sequence[str], folder: Path, count: int) -> dict[str, list[float]]:
    """Milliseconds of each command, `count` times after the first, all of them in turn."""
    found: dict[str, list[float]] = {command: [] for command in commands}
    for number in range(count + 1):
        for command in commands:
            found[command].append(chat.ask(command.format(n=number + 2, folder=folder)))
    return found


def table(found: dict[str, list[float]]) -> str:
    """One line a command."""
    width = max(map(len, found))
    lines = [f"{'command':<{width}} {'first':>8} {'p50':>8} {'max':>8}  ms"]
    for command, (first, *rest) in found.items():
        late = "" if max(rest) <= LIMIT_MS else "  > 150"
        lines.append(f"{command:<{width}} {first:8.1f} {median(rest):8.1f} {max(rest):8.1f}{late}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", nargs="?", type=Path, default=Path("examples/softmax.py"))
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        chat = Chat(given.module, Path(name))
        try:
            print(f"first request, with loading: {chat.ask('/status'):.0f} ms")
            if given.run:
                print(f"/run 1: {chat.ask('/run 1') / 1e3:.0f} s")
            commands = (*BEFORE, *AFTER) if given.run else BEFORE
            print(table(times(chat, commands, Path(name), given.times)))
        finally:
            chat.close()


if __name__ == "__main__":
    main()
