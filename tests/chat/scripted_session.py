"""A run factory for sessions: scripted candidates, and whatever file the settings give."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agentkernel.agents.models.provider import ModelProvider
from agentkernel.chat.session import Session
from agentkernel.chat.tree import Changes
from agentkernel.domain.settings import Settings
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.targets import ResolvedTarget
from agentkernel.workflows.deps import Deps
from agentkernel.workflows.events import Event, OnEvent, ignore
from tests.workflows import fakes

SCRIPTS = (
    fakes.Script("rows", speedup=1.6, compiled=1.5),
    fakes.Script("wrong", failure=fakes.mismatch("all"), repaired=False),
    fakes.Script("slow", speedup=0.8, compiled=1.5),
)
GIVEN = "import torch\n\n\nclass ModelNew:\n    '''given'''\n"


@dataclass
class SessionShop(fakes.FakeWorkshop):
    """A given file is right and as fast as it says in a comment (`# speedup 1.9`, or that at so
    many warps: `# fast at 8 warps`), or 1.2."""

    @contextmanager
    def equip(
        self,
        loaded: LoadedProblem,
        settings: Settings,
        resolved: ResolvedTarget,
        desk: ModelProvider,
    ) -> Iterator[Deps]:
        coder = self.coder
        if settings.coder.startswith("file:"):
            self.coder = fakes.ScriptedCoder((given_script(settings.coder),), self.delay_s)
            self.coder.name = settings.coder
        try:
            with super().equip(loaded, settings, resolved, desk) as kit:
                yield kit
        finally:
            self.coder = coder


def given_script(coder: str) -> fakes.Script:
    source = Path(coder.removeprefix("file:")).read_text()
    warps = re.search(r"# fast at (\d+) warps", source)
    fast = warps is not None and f"num_warps={warps[1]}" in source
    speedup = 1.9 if fast or "# speedup 1.9" in source else 1.2
    failure = fakes.mismatch("all") if "# wrong" in source else None
    return fakes.Script("given", failure, repaired=False, speedup=speedup, source=source)


def shop(delay_s: float = 0.0) -> SessionShop:
    return SessionShop(SCRIPTS, delay_s=delay_s)


def settings_for(runs: Path, *overrides: str):  # type: ignore[no-untyped-def]
    def made(changes: Changes) -> Settings:
        from agentkernel.storage.configuration import load_settings

        return load_settings(fakes._empty(runs), (f"runs={runs}", *overrides), changes)

    return made


def begin(folder: Path, shop: SessionShop, on_event: OnEvent = ignore) -> Session:
    """A new session on `x + 1`, all of it below `folder`."""
    runs, problem = folder / "runs", fakes.small_problem(folder)
    return Session.begin(problem, settings_for(runs), on_event=on_event, workshop=shop)


def main(folder: Path, delay_s: float) -> None:
    """Begin or reopen the one session below `folder`, say "run", print every event."""

    def say(event: Event) -> None:
        print(event.kind, flush=True)

    runs = folder / "runs"
    known = [item.parent for item in runs.glob("*-chat-*/session.sqlite")]
    if known:
        made = settings_for(runs)
        session = Session.reopen(known[0], made, on_event=say, workshop=shop(delay_s))
    else:
        session = begin(folder, shop(delay_s), say)
    with session:
        session.say("show the tree")
        print("turn", flush=True)
        session.say("run again")
        print("turn", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
