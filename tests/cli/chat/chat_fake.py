"""A session without agents: it keeps its turns in a file, and says what it was asked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from agentkernel.chat.figures import EstimateCache
from agentkernel.chat.replies import (
    DiffOf,
    EditRequested,
    PositionChanged,
    Reply,
    SessionEnded,
    StepRan,
    TextReply,
    TreeShown,
)
from agentkernel.chat.requests import Intent, IntentContext
from agentkernel.chat.tree import Changes, Node, Place, Step, Tree
from agentkernel.cli.chat.sessions import Approve, SettingsFor
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import RunNotFound
from agentkernel.domain.plan import Hypothesis, Plan
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.workflows.events import Event, Finished, NodeStarted, Noted, OnEvent, RunStarted
from agentkernel.workflows.outcome import Result

STEP_S = 60.0
SOURCE = "class ModelNew:\n    pass\n"


class Asked(Frozen):
    """What is to be approved."""

    kind: Literal["plan", "candidate"] = "candidate"
    round: int = 1
    hypothesis: Hypothesis = Hypothesis(strategy="one fused kernel", reason="fewer \x1bbytes")
    plan: Plan | None = None
    candidate: Candidate | None = Candidate(source=SOURCE, coder="c", round=1)


@dataclass(frozen=True)
class Turn:
    """A turn as it is kept."""

    text: str
    replies: tuple[Reply, ...]


def started(name: str) -> RunStarted:
    return RunStarted(
        run=name,
        folder=f"/tmp/{name}",
        problem="small",
        shapes=("x float32[24, 40]",),
        target="h100-sxm",
        note="no local GPU",
        measurable=False,
        rounds=3,
        time_limit_s=None,
        resumed=False,
    )


def result(name: str, *, interrupted: bool = False) -> Result:
    return Result(
        status="kept_original",
        reason="nothing was faster",
        run=name,
        measured=False,
        candidate=None,
        candidate_sha256=None,
        certificate=None,
        report=None,
        problem="small",
        target="h100-sxm",
        interrupted=interrupted,
    )


class FakeSession:
    """As `Session`: `run` makes a candidate, `slow` one that takes long, `ask` one that is to be
    approved, `crash` is a bug, `lost` a user's mistake, `edit` wants an editor."""

    def __init__(self, folder: Path, on_event: OnEvent, approve: Approve | None) -> None:
        self.folder, self.on_event, self.approve = folder, on_event, approve
        self.tree = Tree()
        self.turns: list[str] = []
        self.offered: list[str] = []
        self.changes: Changes = {}
        self.closed = False

    @classmethod
    def begin(
        cls,
        problem: LoadedProblem,
        settings_for: SettingsFor,
        *,
        on_event: OnEvent,
        approve: Approve | None,
        estimates: EstimateCache | None,
    ) -> FakeSession:
        name = f"{problem.problem.name}-chat-20260101-120000-abcd"
        folder = Path(settings_for({}).runs) / name
        folder.mkdir(parents=True)
        session = cls(folder, on_event, approve)
        session.save()
        return session

    @classmethod
    def reopen(
        cls,
        folder: Path,
        settings_for: SettingsFor | None,
        *,
        on_event: OnEvent,
        approve: Approve | None,
        estimates: EstimateCache | None,
    ) -> FakeSession:
        session = cls(folder, on_event, approve)
        kept = json.loads(session.path.read_text())
        session.turns = kept["turns"]
        session.tree = Tree.model_validate(kept["tree"])
        if session.turns[-1:] == ["cut off"]:
            session.step("cut off")
        return session

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def path(self) -> Path:
        return self.folder / "session.sqlite"

    @property
    def context(self) -> IntentContext:
        return IntentContext(candidates=tuple(node.number for node in self.tree.nodes))

    def say(self, text: str) -> tuple[Reply, ...]:
        replies: dict[str, Callable[[], tuple[Reply, ...]]] = {
            "run": lambda: (self.step(text),),
            "slow": lambda: (self.step(text, seconds=STEP_S),),
            "ask": lambda: (self.approved(text),),
            "late": lambda: (self.approved(text, after=0.5),),
            "crash": self.crash,
            "lost": self.lose,
            "edit": lambda: (EditRequested(number=None, text=SOURCE, line=2),),
            "show": lambda: (DiffOf(old="module", new="c1", text="+ \x1b[31mred"),),
        }
        made = replies.get(text, lambda: (TextReply(text=f"heard {text!r}"[:200]),))()
        self.done(text)
        return made

    def do(self, intent: Intent, text: str = "") -> Reply:
        self.done(text)
        if intent.name == "quit":
            return SessionEnded(text="Bye.")
        if intent.name == "tree":
            return TreeShown(tree=self.tree)
        if intent.name == "run":
            return self.step(text)
        if intent.name == "edit":
            return EditRequested(number=None, text=SOURCE, line=2)
        return TextReply(text=intent.model_dump_json())

    def offer(self, source: str, base: int | None, origin: Literal["edited", "pasted"]) -> Reply:
        self.offered.append(source)
        self.done(f"{origin} {base}")
        if "(" in source.splitlines()[-1]:
            return TextReply(text="It is no Python.", ok=False)
        return TextReply(text=f"judged {len(source)} characters, {origin} from {base}")

    def set(self, changes: Changes, text: str) -> Reply:
        self.changes = {**self.changes, **changes}
        self.done(text)
        return PositionChanged(place=self.tree.place, text=f"set {json.dumps(changes)}")

    def step(self, text: str, seconds: float = 0.0) -> Reply:
        number = len(self.tree.nodes) + 1
        name = f"small-{number}"
        interrupted = False
        events: tuple[Event, ...] = (
            started(name),
            NodeStarted(node="draft", round=1, spent_s=0.0),
            Noted(text="a note with \x1b[2J in it"),
        )
        for event in events:
            self.on_event(event)
        try:
            time.sleep(seconds)
        except KeyboardInterrupt:
            interrupted = True
        ended = result(name, interrupted=interrupted)
        self.on_event(Finished(result=ended))
        node = Node(
            number=number, step=number, candidate=Candidate(source=SOURCE, coder="c", round=1)
        )
        step = Step(number=number, text=text, state="stopped" if interrupted else "done")
        place = Place(candidate=number)
        self.tree = Tree(
            nodes=(*self.tree.nodes, node),
            steps=(*self.tree.steps, step),
            places=(*self.tree.places, place),
            at=len(self.tree.places),
        )
        return StepRan(
            step=number, made=(number,), place=place, result=ended, text=f"made c{number}"
        )

    def approved(self, text: str, after: float = 0.0) -> Reply:
        assert self.approve is not None
        time.sleep(after)
        return self.step(text) if self.approve(Asked()) else TextReply(text="not approved")

    def crash(self) -> tuple[Reply, ...]:
        raise RuntimeError("a bug\nof two lines")

    def lose(self) -> tuple[Reply, ...]:
        raise RunNotFound("No candidate c9. Known: none. Next: run.")

    def done(self, text: str) -> None:
        self.turns.append(text)
        self.save()

    def save(self) -> None:
        kept = {"turns": self.turns, "tree": self.tree.model_dump(mode="json")}
        self.path.write_text(json.dumps(kept))

    def transcript(self) -> tuple[Turn, ...]:
        replies: tuple[Reply, ...] = (TextReply(text="the step was finished"),)
        return tuple(Turn(text, replies) for text in self.turns)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closed = True
        (self.folder / "closed").touch()
