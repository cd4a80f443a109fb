"""How does a conversation about one module become runs, with a way back from each?"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.settings import Settings
from agentkernel.errors import RunNotFound, UserError
from agentkernel.tools.atomic import make_folder, write_atomic
from agentkernel.tools.problems import LoadedProblem
from agentkernel.workflows.dialogue import HELP, Change, Command, NotUnderstood, understand
from agentkernel.workflows.events import OnEvent
from agentkernel.workflows.outcome import Result
from agentkernel.workflows.state import OptimizeRequest

Start = Callable[[OptimizeRequest, OnEvent], Result]
SettingsFor = Callable[[Mapping[str, object]], Settings]
EXTRA_ROUNDS = 3


class Step(Frozen):
    """One run of the conversation. `parent` is the step it came from; changes add up along it."""

    id: int
    parent: int | None
    text: str
    changes: dict[str, str | int | float]
    result: Result


class Thread(Frozen):
    """The tree of steps with the one that holds now; the file is `.chat/NAME-HASH.json`."""

    steps: tuple[Step, ...] = ()
    current: int | None = None
    kept: str | None = None


class Reply(Frozen):
    """The answer to one line: text, and a new run's result where there was one."""

    text: str = ""
    result: Result | None = None
    ended: bool = False


@dataclass
class Conversation:
    """Answers line after line; `settings_for` puts dotted keys over the user's own settings."""

    problem: LoadedProblem
    settings_for: SettingsFor
    start: Start
    on_event: OnEvent
    folder: Path
    thread: Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = self._read()

    @property
    def path(self) -> Path:
        """Where the thread is kept."""
        problem = self.problem.problem
        return self.folder / f"{problem.name}-{problem.sha256[:8]}.json"

    @property
    def step(self) -> Step | None:
        """The step that holds now."""
        return next((item for item in self.thread.steps if item.id == self.thread.current), None)

    def answer(self, text: str) -> Reply:
        """Do what the line asks for; a user's mistake is an answer, not the end."""
        request = understand(text)
        try:
            match request:
                case Change():
                    return self._run(text, request.settings)
                case Command():
                    return self._command(request, text)
                case NotUnderstood():
                    return Reply(text=f"Not understood: {request.text!r}. 'help' lists the words.")
        except UserError as error:
            return Reply(text=str(error))

    def _command(self, command: Command, text: str) -> Reply:
        match command.word:
            case "quit":
                return Reply(ended=True)
            case "help":
                return Reply(text=HELP)
            case "go":
                return self._run(text, {})
            case "again":
                return self._again(text)
            case "undo":
                return self._undo()
            case "diff":
                return Reply(text=self._diff())
            case "show":
                return self._show()
            case "history":
                return Reply(text=self._history())
            case "keep":
                return Reply(text=self._keep(command.argument))

    def _run(self, text: str, settings: Mapping[str, str | int | float]) -> Reply:
        parent = self.step
        changes = {**(parent.changes if parent else {}), **settings}
        flags = ("chat", *((f"parent={parent.result.run}",) if parent else ()), text)
        request = OptimizeRequest(self.problem, self.settings_for(changes), None, flags)
        result = self.start(request, self.on_event)
        step = Step(
            id=len(self.thread.steps) + 1,
            parent=parent.id if parent else None,
            text=text,
            changes=changes,
            result=result,
        )
        self._write(steps=(*self.thread.steps, step), current=step.id)
        return Reply(result=result)

    def _again(self, text: str) -> Reply:
        now = self.settings_for(self.step.changes if self.step else {})
        return self._run(
            text, {"seed": now.seed + 1, "budget.rounds": now.budget.rounds + EXTRA_ROUNDS}
        )

    def _undo(self) -> Reply:
        if self.step is None:
            return Reply(text="Nothing to undo.")
        self._write(current=self.step.parent)
        if self.step is None:
            return Reply(text="Back at the original module; nothing is kept from here.")
        return Reply(text=f"Back at step {self.step.id}: {describe(self.step)}")

    def _show(self) -> Reply:
        if self.step is None:
            return Reply(text="No run yet. 'go' starts one.")
        return Reply(text=describe(self.step), result=self.step.result)

    def _diff(self) -> str:
        """Against the parent's drop-in, else against the module itself."""
        if self.step is None or self.step.result.candidate is None:
            return "No drop-in here, so there is no difference to show."
        parent = next((item for item in self.thread.steps if item.id == self.step.parent), None)
        old, old_name = self.problem.problem.source, self.problem.problem.path or "the module"
        if parent is not None and parent.result.candidate is not None:
            old, old_name = _text(parent.result.candidate), f"step {parent.id}"
        lines = difflib.unified_diff(
            old.splitlines(),
            _text(self.step.result.candidate).splitlines(),
            old_name,
            f"step {self.step.id}",
            lineterm="",
        )
        return "\n".join(lines) or f"The same as {old_name}."

    def _history(self) -> str:
        lines = [
            f"{'*' if item.id == self.thread.current else ' '} {item.id} (from "
            f"{item.parent or 'the module'}) {describe(item)}"
            for item in self.thread.steps
        ]
        return "\n".join(lines) or "No run yet. 'go' starts one."

    def _keep(self, argument: str) -> str:
        if self.step is None or self.step.result.candidate is None:
            return "No drop-in to keep: the original stays."
        name = f"{self.problem.problem.name}_optimized.py"
        beside = Path(self.problem.problem.path).parent / name
        path = Path(argument).expanduser() if argument else beside
        if path.is_dir():
            path = path / name
        make_folder(path.parent)
        write_atomic(path, _text(self.step.result.candidate))
        self._write(kept=str(path))
        return f"Kept step {self.step.id} as {path}"

    def _write(self, **changes: object) -> None:
        self.thread = self.thread.model_copy(update=changes)
        make_folder(self.folder)
        write_atomic(self.path, self.thread.model_dump_json(indent=1))

    def _read(self) -> Thread:
        """The thread of an earlier conversation about the same module, else an empty one."""
        try:
            return Thread.model_validate_json(self.path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ValidationError):
            return Thread()


def describe(step: Step) -> str:
    """One line: what was asked, for which GPU, what came of it."""
    result = step.result
    speed = ""
    if result.measured and result.speedup_vs_eager is not None:
        speed = f", {result.speedup_vs_eager:.2f}x eager (measured)"
    elif result.estimated_time_us is not None:
        speed = f", {result.estimated_time_us:.1f} us (estimated)"
    return f"{step.text!r} for {result.target}: {result.status}{speed}"


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise RunNotFound(
            f"Cannot read the drop-in {path!r}: {error.strerror}. Next: 'go' makes it again."
        ) from error
