"""What does a session have in hand: its tree, its settings, its module, and who works for it?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.agents.protocols import Goals
from agentkernel.chat.changes import SettingsFor
from agentkernel.chat.domain_session import Changes, Node, Place, Tree
from agentkernel.chat.intent import CandidateRef, Intent, IntentContext
from agentkernel.chat.outlook import EstimateCache, ModuleEstimate
from agentkernel.chat.store import SessionStore, load_live_module
from agentkernel.chat.tree import (
    NoSuchCandidate,
    ResolvedCandidate,
    better,
    fastest,
    label,
    resolve,
)
from agentkernel.domain.errors import SettingError, UnknownTarget
from agentkernel.domain.plan import Plan
from agentkernel.domain.problem import Problem
from agentkernel.domain.settings import Settings
from agentkernel.workflows.events import OnEvent, ignore

if TYPE_CHECKING:
    from agentkernel.domain.target import Target
    from agentkernel.tools.problem.problems import LoadedProblem
    from agentkernel.tools.targets import ResolvedTarget
    from agentkernel.workflows.context import RunFactory

Approve = Callable[..., bool]
"""Asked with what waits for a yes: a plan or a candidate."""


@dataclass
class SessionState:
    """The state of one open session. Only `tree` and the caches ever change."""

    folder: Path
    store: SessionStore
    settings_for: SettingsFor
    tree: Tree
    on_event: OnEvent = ignore
    approve: Approve | None = None
    workshop: RunFactory | None = None
    estimates: EstimateCache = field(default_factory=EstimateCache)
    loaded: dict[str, LoadedProblem] = field(default_factory=dict)
    options: tuple[tuple[Intent, ...], ...] = ()
    """The readings of the last sentence that had more than one."""
    compared: tuple[int, int] | None = None
    """The candidates that were compared last, since the session was opened."""
    shown: tuple[int | None, int] | None = None
    """The candidate and the line that were shown last."""
    approved: list[bool] = field(default_factory=list)
    """What was said to the questions of this turn."""
    settings_known: dict[tuple[tuple[str, object], ...], Settings] = field(default_factory=dict)
    targets_known: dict[str | None, str | None] = field(default_factory=dict)
    """What a target is called -> the GPU's own name; None where there is none of that name."""

    @property
    def id(self) -> str:
        """The session's name, which is its folder's."""
        return self.folder.name

    @property
    def runs(self) -> Path:
        """Where the runs of its steps lie: beside it."""
        return self.folder.parent

    @property
    def place(self) -> Place:
        """Where the session stands."""
        return self.tree.place

    @property
    def settings(self) -> Settings:
        """What is in force."""
        return self.settings_of(self.place.changes)

    def settings_of(self, changes: Changes) -> Settings:
        """The settings with these changes. Raises SettingError, UnknownTarget."""
        key = tuple(sorted(changes.items()))
        if key not in self.settings_known:
            made = self.settings_for(changes)
            self.settings_known[key] = made.model_copy(update={"runs": str(self.runs)})
        return self.settings_known[key]

    @property
    def module(self) -> Problem:
        """The problem as it came."""
        return self.store.problem("")

    @property
    def problem(self) -> LoadedProblem:
        """The problem in force, loaded on first use. Raises ProblemError."""
        key = self.place.problem
        if key not in self.loaded:
            from agentkernel.chat.sizes import restored

            self.loaded[key] = restored(self.store.problem(key), self.live())
        return self.loaded[key]

    def live(self) -> object | None:
        """The live module with its inputs; None for a module in a file."""
        if self.module.origin != "live":
            return None
        known = self.loaded.get("")
        return load_live_module(self.folder) if known is None else (known.live, known.live_inputs)

    @property
    def target(self) -> Target:
        """The GPU in force. Raises UnknownTarget."""
        return self.resolved.target

    @property
    def resolved(self) -> ResolvedTarget:
        """The same with what this machine can do for it. Raises UnknownTarget."""
        return self._resolved(self.settings)

    def _resolved(self, settings: Settings) -> ResolvedTarget:
        if self.workshop is not None:
            return self.workshop.resolve(settings)
        from agentkernel.tools.targets import find_target

        return find_target(settings.target)

    @property
    def target_name(self) -> str | None:
        """The name of the GPU in force; None where it is not known here."""
        return self.target_of(self.place.changes)

    def target_of(self, changes: Changes) -> str | None:
        """The name of the GPU under these changes; None where it is not known here."""
        try:
            settings = self.settings_of(changes)
            if settings.target not in self.targets_known:
                self.targets_known[settings.target] = self._resolved(settings).target.name
        except (SettingError, UnknownTarget):
            return None
        return self.targets_known[settings.target]

    @property
    def looked_at(self) -> bool:
        """True where figures and first plan of the module in force are worked out already."""
        try:
            loaded = self.loaded.get(self.place.problem)
            return loaded is not None and self.estimates.holds(
                loaded, self.resolved, self.goals, self.settings
            )
        except (SettingError, UnknownTarget):
            return False

    @property
    def figures(self) -> ModuleEstimate:
        """What bounds the module in force. Raises ProblemError, UnknownTarget."""
        return self.estimates.figures(self.problem, self.target, self.settings.goals.precision)

    @property
    def first_plan(self) -> Plan:
        """What the rules would try on it. Raises ProblemError, UnknownTarget."""
        return self.estimates.first_plan(self.problem, self.resolved, self.goals, self.settings)

    @property
    def asking(self) -> Approve | None:
        """`approve`, with its word written down for the turn."""
        approve = self.approve
        if approve is None:
            return None

        def ask(asked: object) -> bool:
            self.approved.append(approve(asked))
            return self.approved[-1]

        return ask

    @property
    def goals(self) -> Goals:
        """What a run would aim at now."""
        return goals_of(self.settings)

    @property
    def plan(self) -> Plan | None:
        """The newest plan for the sizes and the target in force, None before the first."""
        return self._plan_for(self.place.problem, self.target_name)

    def _plan_for(self, problem: str, target: str | None) -> Plan | None:
        for step in reversed(self.tree.steps):
            if step.problem == problem and self.target_of(step.changes) == target:
                found = self.store.plan(step.number)
                if found is not None:
                    return found
        return None

    def plan_of(self, node: Node) -> Plan | None:
        """The plan that a candidate comes from; a hand-written one's is the newest for its sizes
        and target."""
        step = self.tree.step(node.step)
        own = self.store.plan(node.step)
        if own is not None or step is None:
            return own
        return self._plan_for(step.problem, self.target_of(step.changes))

    @property
    def context(self) -> IntentContext:
        """What a sentence may refer to."""
        from agentkernel.tools.targets import load_targets

        names: list[str] = []
        for target in load_targets().values():
            names += [target.name, *target.aliases]
        return IntentContext(
            targets=(*names, "local"),
            candidates=tuple(item.number for item in self.tree.nodes),
            current=self.place.candidate,
            precision=self.settings.goals.precision,
            waiting="choice" if self.options else "nothing",
        )

    def meant(self, ref: CandidateRef) -> ResolvedCandidate | NoSuchCandidate:
        """The candidate that a reference names, or the module; "better" is one of the two that were
        compared last, in this turn or an earlier one."""
        pair = (self.compared or self._last_compared()) if ref == "better" else None
        if pair is None:
            aimed = self.target_name if ref in ("fastest", "better") else None
            return resolve(self.tree, ref, aimed)
        number = better(self.tree, pair)
        if number is None:
            names = " and ".join(map(label, pair))
            return NoSuchCandidate(
                f"Of {names} none is known to be the better. 'keep c{pair[0]}' names one."
            )
        return ResolvedCandidate(number)

    def _last_compared(self) -> tuple[int, int] | None:
        for turn in reversed(self.store.turns()):
            for reply in reversed(turn.replies):
                if reply.kind == "compared" and len(reply.nodes) == 2:
                    return reply.nodes[0].number, reply.nodes[1].number
        return None

    def node(self, ref: CandidateRef) -> Node | NoSuchCandidate:
        """The candidate that is meant. Where the session stands at the module, "current" is the
        fastest one, else the last."""
        found = self.meant(ref)
        if isinstance(found, NoSuchCandidate):
            return found
        number = found.number
        if number is None and ref == "current":
            number = fastest(self.tree, self.target_name)
            if number is None and self.tree.nodes:
                number = self.tree.nodes[-1].number
        node = self.tree.node(number) if number is not None else None
        if node is not None:
            return node
        if not self.tree.nodes:
            return NoSuchCandidate("There is no candidate yet. 'run' makes the first.")
        return NoSuchCandidate("That is the module itself. Expected a candidate, such as 'c1'.")

    def source(self, number: int | None) -> str:
        """The text of a candidate, or of the module's file."""
        node = self.tree.node(number) if number is not None else None
        return self.module.source if node is None else node.candidate.source

    def file_name(self, number: int | None) -> str:
        """`c3.py`, or the module's own file."""
        if number is not None:
            return f"c{number}.py"
        return Path(self.module.path).name or f"{self.module.name}.py"


def goals_of(chosen: Settings) -> Goals:
    """What these settings aim at."""
    return Goals(
        speedup=chosen.goals.speedup,
        baseline=chosen.goals.baseline,
        objective=chosen.goals.objective,
        max_memory_bytes=chosen.goals.max_memory_bytes,
        precision=chosen.goals.precision,
        policy=chosen.policy,
    )
