"""Does the root show the map, and does every file of the package keep to the house's shape?"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "agentkernel"
ROOMS = ("agents", "tools", "knowledge", "workflows", "configs")
MODULES = sorted(
    path for path in PACKAGE.rglob("*.py") if "knowledge/kernels" not in path.as_posix()
)


@pytest.mark.parametrize("room", ROOMS)
def test_root_links_lead_into_the_package(room: str) -> None:
    link = ROOT / room
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    assert link.resolve() == (PACKAGE / room).resolve()


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in MODULES}
    assert [str(item) for item in folders if not (item / "__init__.py").is_file()] == []


def test_every_module_says_which_question_it_answers() -> None:
    silent = [path for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert [str(path.relative_to(PACKAGE)) for path in silent] == []


def test_nothing_is_named_utils() -> None:
    assert [path.name for path in MODULES if path.stem in ("utils", "util", "misc")] == []
