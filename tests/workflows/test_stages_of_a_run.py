"""Does a run say where its seconds went, all of them, and keep that among its records?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.runtime.stages import recording
from agentkernel.tools.run_store import read_run
from agentkernel.workflows.events import Event, Finished, StagesTimed
from agentkernel.workflows.optimize import run
from agentkernel.workflows.state import OptimizeRequest
from tests.workflows.fakes import FakeWorkshop, Script, settings, small_problem


def test_the_stages_add_up_and_are_kept(tmp_path: Path) -> None:
    seen: list[Event] = []
    shop = FakeWorkshop((Script("a", speedup=2.0),), delay_s=0.05)
    request = OptimizeRequest(small_problem(tmp_path), settings(tmp_path / "runs"))
    with recording() as clock:
        clock.add("load", 3.0)
        result = run(request, seen.append, workshop=shop)
    *_, told, last = seen
    assert isinstance(told, StagesTimed)
    assert isinstance(last, Finished)
    seconds = {item.stage: item.seconds for item in told.stages if not item.overlapped}
    assert sum(seconds.values()) == pytest.approx(told.wall_s, rel=0.02)
    assert seconds["load"] == 3.0
    assert min(seconds[name] for name in ("draft", "judge", "profile")) >= 0.05
    assert {"retrieve", "plan", "decide", "finish"} <= set(seconds)
    store = read_run(tmp_path / "runs", result.run)
    kept = [text for text in store.records.events() if '"kind":"stages_timed"' in text]
    assert [StagesTimed.model_validate_json(text) for text in kept] == [told]
    store.close()
