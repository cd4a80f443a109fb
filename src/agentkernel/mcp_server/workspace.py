"""The workspace: the one folder in which a client may name files and runs."""

from __future__ import annotations

import re
from pathlib import Path

from agentkernel.domain.errors import ProblemError, RunNotFound, SettingError
from agentkernel.domain.plain_text import plain_line
from agentkernel.storage.files import RUNS_FOLDER

MOST_SHOWN = 80
LONGEST_PATH = 1024
RUN_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,127}")
CLASS_NAME = re.compile(r"[A-Za-z_]\w*")


class Workspace:
    """A folder, and the resolution of names into paths inside of it."""

    def __init__(self, folder: Path) -> None:
        """Raises SettingError where there is no such folder."""
        if not folder.is_dir():
            raise SettingError(
                f"--workspace {str(folder)!r} is no folder. Expected the project's folder. "
                "Next: check the path."
            )
        self.root = folder.resolve()

    @property
    def runs(self) -> Path:
        """Where runs are kept."""
        return self.root / RUNS_FOLDER

    def file(self, name: str) -> Path:
        """The file called `name`, links and '..' resolved. Raises ProblemError."""
        shown = repr(plain_line(name[:MOST_SHOWN]))
        if not name.strip() or "\0" in name or len(name) > LONGEST_PATH:
            raise ProblemError(f"{shown} is no path. Expected a file of the workspace.")
        try:
            found = (self.root / name).resolve()
            inside = found.is_relative_to(self.root)
            there = inside and found.is_file()
        except (OSError, RuntimeError) as error:
            raise ProblemError(f"Cannot use {shown}: {type(error).__name__}.") from error
        if not inside:
            raise ProblemError(
                f"{shown} lies outside of the workspace. Expected a file inside of "
                f"{str(self.root)!r}. Next: copy it there, or start the server with --workspace."
            )
        if not there:
            raise ProblemError(
                f"No file {shown} in the workspace {str(self.root)!r}. Next: check the path."
            )
        return found

    def reference(self, name: str) -> str:
        """FILE[:CLASS] with the file's resolved path. Raises ProblemError."""
        file, colon, cls = name.rpartition(":")
        if colon and CLASS_NAME.fullmatch(cls):
            return f"{self.file(file)}:{cls}"
        return str(self.file(name))

    def run_folder(self, run: str) -> Path:
        """The folder of the run with this whole name. Raises RunNotFound, ProblemError."""
        if not RUN_NAME.fullmatch(run):
            raise RunNotFound(
                f"{plain_line(run[:MOST_SHOWN])!r} is no name of a run. Expected one such as "
                "'layernorm-20260101-120000-ab12'. Next: read agentkernel://runs."
            )
        if not (self.runs / run / "run.json").is_file():
            raise RunNotFound(f"No run {run!r} here. Next: read agentkernel://runs.")
        return self.file(f"{RUNS_FOLDER}/{run}/run.json").parent

    def run_names(self) -> list[str]:
        """The names of the runs, the newest first."""
        found = sorted(self.runs.glob("*/run.json"), key=lambda path: -path.stat().st_mtime)
        return [path.parent.name for path in found]

    def last_run(self) -> str:
        """The name of the newest run. Raises RunNotFound."""
        names = self.run_names()
        if not names:
            raise RunNotFound("No runs here yet. Next: optimize(module).")
        return self.run_folder(names[0]).name
