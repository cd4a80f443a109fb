"""Does the tutorial's notebook run to its end, and does it say what its text promises?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
MOST_CHARACTERS = 60_000


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=500, resources=place).execute()
    said = "".join(
        str(part.get("text", "") or part.get("data", {}).get("text/plain", ""))
        for cell in notebook.cells
        for part in cell.get("outputs", [])
    )
    assert "error" in said
    assert "in place at: ('norm',)" in said
    assert "gradients as the original's: True" in said
    assert "@triton.jit" in said
    assert "Bound by" in said


def test_the_notebook_is_stored_without_what_a_run_printed() -> None:
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)
    assert NOTEBOOK.stat().st_size < MOST_CHARACTERS
