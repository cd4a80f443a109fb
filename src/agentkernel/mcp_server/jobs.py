"""Jobs: commands at work in processes of their own, whose folders outlive the server.

A job's processes hold a lock on a file of its folder, so that another server can tell whether it
is still at work; its exit code is written when it ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentkernel.domain.errors import RunBusy, RunNotFound
from agentkernel.domain.plain_text import plain_line
from agentkernel.mcp_server.workspace import MOST_SHOWN, RUN_NAME, Workspace
from agentkernel.storage.files import open_append, write_atomic

FOLDER = ".agentkernel-jobs"
TOKEN_VARIABLE = "AGENTKERNEL_MCP_TOKEN"
MOST_RUNNING = 4
"""Jobs at work at once in one workspace: each loads torch, and judges on all cores."""
MOST_KEPT = 100
MOST_READ = 2**20
"""Characters of what a job wrote that are read."""
INTERRUPTED = 130
UNDECIDED = 4
JUDGING = ("judge", "profile", "verify")
LIGHT = ("search_knowledge", "show")
"""Tools that only look something up: they wait for nobody, and nobody waits for them."""
SCRIPT = (
    'd=$1; shift; ( "$@" >"$d/stdout" 2>"$d/stderr" </dev/null; echo $? >"$d/exit.new"; '
    'mv "$d/exit.new" "$d/exit" ) &'
)
"""The command is nobody's child, so that it goes on without the server."""

State = Literal["running", "done", "failed", "cancelled"]


@dataclass(frozen=True)
class Job:
    """One command and the folder that it writes to."""

    id: str
    tool: str
    folder: Path

    def text(self, stream: Literal["stdout", "stderr"] = "stdout") -> str:
        """What the command has written so far."""
        with (
            suppress(OSError),
            (self.folder / stream).open(encoding="utf-8", errors="replace") as f,
        ):
            return f.read(MOST_READ)
        return ""

    def events(self) -> list[dict[str, object]]:
        """The JSON objects among the lines written so far, one a line."""
        found = []
        for line in self.text().splitlines():
            with suppress(ValueError):
                value = json.loads(line)
                if isinstance(value, dict):
                    found.append(value)
        return found

    @property
    def exit_code(self) -> int | None:
        """None while it is at work, and where it was killed."""
        try:
            return int((self.folder / "exit").read_text())
        except (OSError, ValueError):
            return None

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked that it ends."""
        return (self.folder / "cancelled").exists()

    def state(self) -> State:
        """Exit code 3 is an answer too: rejected, or a baseline kept; and 4 where a judgement says
        that this machine cannot decide it."""
        locked = self._locked()
        code = self.exit_code
        if code is None:
            return "running" if locked else "cancelled" if self.cancelled else "failed"
        undecided = code == UNDECIDED and self.tool in JUDGING and self.text().strip()
        if code in (0, 3) or undecided:
            return "done"
        return "cancelled" if self.cancelled or code == INTERRUPTED else "failed"

    def seconds(self) -> float:
        """Wall time since it began, or of the whole command."""
        try:
            ended = (self.folder / "exit").stat().st_mtime
        except OSError:
            ended = time.time()
        return max(0.0, ended - (self.folder / "job.json").stat().st_mtime)

    def cancel(self) -> None:
        """Interrupt it as Ctrl-C does; asked again, kill it."""
        if self.state() != "running":
            return
        asked_before = self.cancelled
        write_atomic(self.folder / "cancelled", "")
        group = json.loads((self.folder / "job.json").read_text())["group"]
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL if asked_before else signal.SIGTERM)

    def run_name(self) -> str | None:
        """The name of the run that an `optimize` has begun."""
        names = (item.get("run") for item in self.events() if item.get("kind") == "run_started")
        return next((name for name in names if isinstance(name, str)), None)

    def _locked(self) -> bool:
        with suppress(FileNotFoundError), (self.folder / "lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


class Jobs:
    """The jobs of one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.folder = workspace.root / FOLDER

    def start(
        self, tool: str, command: Sequence[str], files: Mapping[str, str] | None = None
    ) -> Job:
        """Start `python -m COMMAND`; "{job}" in its words is the job's folder, with `files`.

        Raises RunBusy where as many as may are at work, but for a tool that only looks up.
        """
        known = self.all()
        at_work = [job for job in known if job.state() == "running"]
        busy = [job.id for job in at_work if job.tool not in LIGHT]
        if len(busy) >= MOST_RUNNING and tool not in LIGHT:
            raise RunBusy(
                f"{len(busy)} jobs are at work, the most at once: {', '.join(busy)}. "
                "Next: wait for one with result, or cancel one."
            )
        for old in [job for job in known if job not in at_work][: -MOST_KEPT or None]:
            shutil.rmtree(old.folder, ignore_errors=True)
        name = f"{tool}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        job = Job(name, tool, self.folder / name)
        job.folder.mkdir(parents=True)
        write_atomic(self.folder / ".gitignore", "*\n")
        for file, text in (files or {}).items():
            write_atomic(job.folder / file, text.encode("utf-8", "replace"))
        self._spawn(job, [word.replace("{job}", str(job.folder)) for word in command])
        return job

    def _spawn(self, job: Job, command: Sequence[str]) -> None:
        words = [sys.executable, "-P", "-m", *command]
        environment = {key: value for key, value in os.environ.items() if key != TOKEN_VARIABLE}
        with open_append(job.folder / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            shell = subprocess.Popen(
                ["/bin/sh", "-c", SCRIPT, "sh", str(job.folder), *words],
                cwd=self.workspace.root,
                env=environment | {"COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[lock.fileno()],
            )
            shell.wait()
        write_atomic(job.folder / "job.json", json.dumps({"tool": job.tool, "group": shell.pid}))

    def find(self, run_id: str) -> Job:
        """The job with this id. Raises RunNotFound."""
        job = Job(run_id, run_id.partition("-")[0], self.folder / run_id)
        if not RUN_NAME.fullmatch(run_id) or not (job.folder / "job.json").is_file():
            raise RunNotFound(
                f"No run_id {plain_line(run_id[:MOST_SHOWN])!r} here. Expected one that a tool "
                "gave. Next: status without a run_id lists them."
            )
        return job

    def all(self) -> list[Job]:
        """All that are known, the oldest first."""
        folders = [path.parent for path in self.folder.glob("*/job.json")]
        folders.sort(key=lambda path: (path / "job.json").stat().st_mtime)
        return [Job(path.name, path.name.partition("-")[0], path) for path in folders]
