"""Resources of the MCP server: the files of runs, and the notes of the knowledge base."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError

from agentkernel.domain.errors import AgentKernelError
from agentkernel.domain.plain_text import plain
from agentkernel.mcp_server.answers import clipped
from agentkernel.mcp_server.workspace import Workspace
from agentkernel.storage.files import RUNS_FOLDER

MOST = 200_000
"""Characters of one file: a client asks for it by name, so it gets it whole where it can."""
MOST_RUNS = 50
NOTES = "knowledge/notes"
NOTE_NAME = re.compile(r"\w{1,64}")


class Resources:
    """The resources over one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def register(self, server: MCPServer) -> None:
        """Offer the lists and the templates."""
        for uri, read, mime in (
            ("agentkernel://runs", self.runs, "text/plain"),
            ("agentkernel://runs/{run}/report", self.report, "text/markdown"),
            ("agentkernel://runs/{run}/certificate", self.certificate, "application/json"),
            ("agentkernel://runs/{run}/drop-in", self.drop_in, "text/x-python"),
            ("agentkernel://notes", self.notes, "text/plain"),
            ("agentkernel://notes/{name}", self.note, "text/markdown"),
        ):
            server.resource(uri, mime_type=mime, description=read.__doc__)(read)

    def runs(self) -> str:
        """The names of the workspace's runs, the newest first."""
        names = self.workspace.run_names()[:MOST_RUNS]
        return "\n".join([*names, "Next: agentkernel://runs/RUN/report, or show(run)."])

    def report(self, run: str) -> str:
        """A finished run's report."""
        return self._file(run, "report.md")

    def certificate(self, run: str) -> str:
        """A finished run's signed certificate, as JSON."""
        return self._file(run, "certificate.json")

    def drop_in(self, run: str) -> str:
        """The file with ModelNew that a run handed over."""
        with_name = sorted(self.workspace.runs.glob(f"{self._name(run)}/*_optimized.py"))
        if not with_name:
            raise ResourceNotFoundError(f"Run {run!r} has no drop-in. Next: show({run!r}).")
        return self._file(run, with_name[0].name)

    def notes(self) -> str:
        """The names of the packaged notes on GPUs, Triton and kernels."""
        names = sorted(path.name.removesuffix(".md") for path in _notes().iterdir())
        return "\n".join([*names, "Next: agentkernel://notes/NAME, or search_knowledge(words)."])

    def note(self, name: str) -> str:
        """A note whole."""
        found = _notes() / f"{name}.md"
        if not NOTE_NAME.fullmatch(name) or not found.is_file():
            raise ResourceNotFoundError("No such note. Next: read agentkernel://notes.")
        return found.read_text(encoding="utf-8")

    def _name(self, run: str) -> str:
        try:
            return self.workspace.run_folder(run).name
        except AgentKernelError as error:
            raise ResourceNotFoundError(str(error)) from error

    def _file(self, run: str, name: str) -> str:
        try:
            path = self.workspace.file(f"{RUNS_FOLDER}/{self._name(run)}/{name}")
            text = path.read_text(encoding="utf-8", errors="replace")
        except AgentKernelError as error:
            raise ResourceNotFoundError(str(error)) from error
        return clipped(
            plain(text), MOST, f"the file is {RUNS_FOLDER}/{run}/{name} of the workspace"
        )


def _notes() -> Traversable:
    return files("agentkernel") / NOTES
