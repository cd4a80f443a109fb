"""A client reaches files and runs of its workspace, and nothing beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.domain.errors import AgentKernelError, ProblemError, RunNotFound, SettingError
from agentkernel.mcp_server.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "secret.py").write_text("secret")
    inside = tmp_path / "inside"
    (inside / "agentkernel-runs" / "one").mkdir(parents=True)
    (inside / "agentkernel-runs" / "one" / "run.json").write_text("{}")
    (inside / "module.py").write_text("")
    (inside / "link.py").symlink_to(tmp_path / "secret.py")
    (inside / "fine.py").symlink_to(inside / "module.py")
    (inside / "loop.py").symlink_to(inside / "loop.py")
    (inside / "agentkernel-runs" / "away").symlink_to(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    return Workspace(inside)


def test_files_of_the_workspace_are_found(workspace: Workspace) -> None:
    module = workspace.root / "module.py"
    assert workspace.file("module.py") == module
    assert workspace.file(str(module)) == module
    assert workspace.file("fine.py") == module
    assert workspace.file("agentkernel-runs/../module.py") == module
    assert workspace.reference("module.py:Block") == f"{module}:Block"
    assert workspace.run_folder("one").name == "one"


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a\0b",
        "x" * 5000,
        "../secret.py",
        "/etc/passwd",
        "link.py",
        "loop.py",
        ".",
        "no.py",
    ],
)
def test_other_paths_are_refused_in_one_line(workspace: Workspace, name: str) -> None:
    for ask in (workspace.file, workspace.reference):
        with pytest.raises(ProblemError) as caught:
            ask(name)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 600


@pytest.mark.parametrize("run", ["..", "../one", "one/..", "-x", "", "away", "two", "a\nb"])
def test_other_runs_are_refused(workspace: Workspace, run: str) -> None:
    with pytest.raises((RunNotFound, ProblemError)):
        workspace.run_folder(run)


PARTS = st.sampled_from(["..", ".", "~", "module.py", "link.py", "agentkernel-runs", "away", ""])


@given(st.lists(PARTS | st.text(max_size=8), max_size=6).map("/".join))
@settings(max_examples=200, deadline=None)
def test_no_path_leads_out(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    base = tmp_path_factory.getbasetemp() / "confined"
    base.mkdir(exist_ok=True)
    workspace = Workspace(base)
    (base / "module.py").touch()
    try:
        found = workspace.file(name)
    except AgentKernelError:
        return
    assert found.is_relative_to(base.resolve())


def test_a_workspace_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no folder"):
        Workspace(tmp_path / "none")
