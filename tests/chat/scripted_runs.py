"""A runner that makes up results, for the tests of chat and batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agentkernel.domain.errors import AgentKernelError
from agentkernel.workflows.events import OnEvent, RunStarted
from agentkernel.workflows.outcome import Result
from agentkernel.workflows.state import OptimizeRequest


def made_up(run: str, target: str, candidate: str | None, **changes: object) -> Result:
    base = Result(
        status="verified" if candidate else "kept_original",
        reason="made up",
        run=run,
        measured=False,
        candidate=candidate,
        candidate_sha256="0" * 64 if candidate else None,
        certificate=None,
        report=None,
        problem="p",
        target=target,
        estimated_time_us=100.0,
    )
    return base.evolve(**changes)


@dataclass
class ScriptedRuns:
    """Each start writes a drop-in that names its settings; `failures`: problem -> error."""

    folder: Path
    failures: dict[str, Exception] = field(default_factory=dict)
    started: list[OptimizeRequest] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    before_result: Callable[[], None] = lambda: None

    def start(self, request: OptimizeRequest, on_event: OnEvent) -> Result:
        self.started.append(request)
        name = request.problem.problem.name
        run = self.folder / f"run{len(self.started)}"
        run.mkdir()
        (run / "run.json").write_text("{}")
        target = request.settings.target or "h100-sxm"
        on_event(
            RunStarted(
                run=run.name,
                folder=str(run),
                problem=name,
                shapes=(),
                target=target,
                note="",
                measurable=False,
                rounds=1,
                time_limit_s=None,
                resumed=False,
            )
        )
        if name in self.failures:
            raise self.failures[name]
        self.before_result()
        drop_in = run / "out.py"
        drop_in.write_text(f"# {target} {request.settings.goals.precision}\n")
        return made_up(run.name, target, str(drop_in))

    def resume(self, run: str, on_event: OnEvent) -> Result:
        self.resumed.append(run)
        return made_up(Path(run).name, "h100-sxm", None)


class Broken(AgentKernelError):
    """A failure of one problem."""
