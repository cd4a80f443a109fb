"""Does a batch get through its list whatever one problem does, and go on after a kill?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from agentkernel.bench.batch import Row, Runner, batch_exit_code, read_list, run_batch
from agentkernel.domain.errors import ProblemError
from agentkernel.domain.settings import Settings
from agentkernel.storage.configuration import load_settings
from agentkernel.workflows.events import OnEvent, ignore
from agentkernel.workflows.outcome import Result
from agentkernel.workflows.state import OptimizeRequest
from tests.chat.scripted_runs import Broken, ScriptedRuns, made_up

EXAMPLES = Path(__file__).parents[2] / "examples"


def settings_for(changes: Mapping[str, object]) -> Settings:
    return load_settings(None, (), changes)


@pytest.fixture
def runs(tmp_path: Path) -> ScriptedRuns:
    return ScriptedRuns(tmp_path)


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    for name in ("softmax", "swiglu", "gelu_bias"):
        (tmp_path / f"{name}.py").write_text((EXAMPLES / f"{name}.py").read_text())
    path = tmp_path / "list.yaml"
    path.write_text(
        "target: a100\n"
        "settings: {goals.speedup: 1.5}\n"
        "problems:\n"
        "  - softmax.py\n"
        "  - {file: swiglu.py, target: h200, settings: {goals.precision: bf16}}\n"
        "  - {file: 'gelu_bias.py:Model', inputs: ['x=f32[8,16]'], init: '16'}\n"
    )
    return path


def go(listed: Path, runs: ScriptedRuns, runner: Runner | None = None) -> tuple[Row, ...]:
    return run_batch(
        read_list(listed),
        settings_for,
        listed.parent / "state",
        runner or Runner(runs.start, runs.resume),
        ignore,
        lambda _: None,
    )


def test_every_entry_with_its_own_settings(listed: Path, runs: ScriptedRuns) -> None:
    rows = go(listed, runs)
    assert [row.status for row in rows] == ["verified"] * 3
    settings = [request.settings for request in runs.started]
    assert [item.target for item in settings] == ["a100", "h200", "a100"]
    assert [item.goals.precision for item in settings] == ["strict", "bf16", "strict"]
    assert {item.goals.speedup for item in settings} == {1.5}
    assert runs.started[2].problem.problem.shape_sets[0].label == "x float32[8, 16]"


def test_a_broken_problem_is_a_row(listed: Path, runs: ScriptedRuns) -> None:
    runs.failures = {"softmax": Broken("no luck"), "swiglu": ZeroDivisionError("oops")}
    rows = go(listed, runs)
    assert [row.status for row in rows] == ["failed", "failed", "verified"]
    assert rows[0].error == "no luck"
    assert rows[1].error == "ZeroDivisionError: oops"
    assert batch_exit_code(rows) == 1


def test_a_missing_file_is_a_row(listed: Path, runs: ScriptedRuns) -> None:
    (listed.parent / "swiglu.py").unlink()
    rows = go(listed, runs)
    assert [row.status for row in rows] == ["verified", "failed", "verified"]
    assert rows[1].error is not None
    assert "No such file" in rows[1].error


def test_what_is_done_is_not_done_again(listed: Path, runs: ScriptedRuns) -> None:
    first = go(listed, runs)
    assert go(listed, runs) == first
    assert len(runs.started) == 3


def test_a_changed_problem_is_run_again(listed: Path, runs: ScriptedRuns) -> None:
    go(listed, runs)
    path = listed.parent / "softmax.py"
    path.write_text(path.read_text() + "# changed\n")
    go(listed, runs)
    assert [item.problem.problem.name for item in runs.started[3:]] == ["softmax"]


def test_a_kill_leaves_a_run_to_resume(listed: Path, runs: ScriptedRuns) -> None:
    def killed() -> None:
        raise SystemExit(137)

    runs.before_result = killed
    with pytest.raises(SystemExit):
        go(listed, runs)
    runs.before_result = lambda: None
    rows = go(listed, runs)
    assert runs.resumed == [str(listed.parent / "run1")]
    assert [row.status for row in rows] == ["kept_original", "verified", "verified"]
    assert batch_exit_code(rows) == 3


def test_an_interruption_ends_the_batch(listed: Path, runs: ScriptedRuns) -> None:
    def interrupted(request: OptimizeRequest, on_event: OnEvent) -> Result:
        return made_up("r", "a100", None, interrupted=True)

    rows = go(listed, runs, Runner(interrupted, runs.resume))
    assert [row.status for row in rows] == ["unfinished"]
    assert batch_exit_code(rows) == 130
    assert [row.status for row in go(listed, runs)] == ["verified"] * 3


@pytest.mark.parametrize("text", ["3", "problems: softmax.py", "problems: [{path: x.py}]", "- []"])
def test_lists_that_do_not_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(text)
    with pytest.raises(ProblemError, match=r"list\.yaml"):
        read_list(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("foo: 1", r"list\.yaml has neither 'models:' nor 'problems:'\. Expected 'models:' with"),
        ("models: [", "Cannot read the list .* Expected 'models:' with"),
        (None, "No such file or directory. Expected 'models:' with"),
    ],
)
def test_both_kinds_of_files_are_named_where_it_is_neither(
    text: str | None, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "list.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ProblemError, match=words):
        read_list(path)


def test_a_bare_list_will_do(listed: Path) -> None:
    listed.write_text("- softmax.py\n")
    assert [Path(item.file).name for item in read_list(listed).problems] == ["softmax.py"]
