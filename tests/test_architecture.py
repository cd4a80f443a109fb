"""The page of the architecture names paths, functions, rooms and a contract that exist."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "agentkernel"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PLACES = sorted(set(re.findall(r"`([\w/.-]+\.(?:py|yaml|toml))(?::(\w+))?`", PAGE)))
FOLDERS = sorted(set(re.findall(r"`([\w/]+/)`", PAGE)))


def find(place: str) -> Path:
    return next(
        (base / place for base in (PACKAGE, ROOT) if (base / place).exists()), PACKAGE / place
    )


def test_the_page_names_places() -> None:
    assert len(PLACES) > 40


@pytest.mark.parametrize(("file", "name"), PLACES)
def test_a_place_exists(file: str, name: str) -> None:
    path = find(file)
    assert path.is_file()
    if name:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        named = (ast.FunctionDef, ast.ClassDef)
        assert name in {item.name for item in body if isinstance(item, named)}


@pytest.mark.parametrize("room", sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py")))
def test_each_room_has_its_line(room: str) -> None:
    assert f"| `{room}/` |" in PAGE


def test_the_picture_shows_the_contract() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [line.split(" | ") for line in contract["contracts"][0]["layers"]]
    picture = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    shown: dict[str, list[str]] = {}
    for y, text in re.findall(r'<text x="[\d.]+" y="([\d.]+)"[^>]*>([\w.]+)</text>', picture):
        shown.setdefault(y, []).append(text)
    assert list(shown.values()) == [
        [item.removeprefix("agentkernel.") for item in line] for line in layers
    ]


@pytest.mark.parametrize(("file", "line"), re.findall(r"^- `([\w/.]+\.py)`: (.+)$", PAGE, re.M))
def test_a_files_line_is_its_docstrings_first(file: str, line: str) -> None:
    text = ast.get_docstring(ast.parse((PACKAGE / file).read_text(encoding="utf-8")))
    assert text is not None
    assert text.splitlines()[0] == line


def test_the_functions_that_a_request_passes_through_are_on_the_page() -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                kinds = (item.annotation for item in (*node.args.args, *node.args.kwonlyargs))
                if any(item and "OptimizeRequest" in ast.dump(item) for item in kinds):
                    found.add((path.relative_to(PACKAGE).as_posix(), node.name))
    assert found <= set(PLACES)
    assert len(found) <= 10
