"""Every figure of benchmarks/house.py, on a small house: the working tree, and a commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import house
import pytest

FILES = {
    "src/agentkernel/__init__.py": "",
    "src/agentkernel/room/__init__.py": '"""Rooms."""\n',
    "src/agentkernel/room/big.py": '''"""What is big?"""

from agentkernel.room.small import Volley, shot


def wide(a, b, c, d, e, *, f, g, h):
    from agentkernel.room import other

    return other


def seven(a, b, c, d, e, f, g):
    return a.model_copy(
        update={"b": b},
    ), b.model_copy()
''',
    "src/agentkernel/room/small.py": "class Volley:\n    def fire(self):\n        import json\n\n\n"
    "def shot():\n    return lambda: Volley\n",
    "src/agentkernel/room/other.py": "from agentkernel.room import small\n" + "\n" * 120,
    "src/agentkernel/knowledge/kernels/one.py": '"""One?"""\n\n\n'
    "def kernel(a, b, c, d, e, f, g, h):\n    pass\n",
    "src/agentkernel/notes.md": "a note\n",
    "tests/test_small.py": "def test_it():\n    assert True\n",
    "benchmarks/retired.txt": "# old -> new\nsmall.Volley -> Batch\nshot -> hit\nfired -> x\n",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with FILES committed, one of them changed since."""
    root = tmp_path_factory.mktemp("house")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "link").symlink_to("src")
    git = ("git", "-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "house")):
        subprocess.run([*git, *words], cwd=root, check=True)
    with (root / "tests/test_small.py").open("a") as more:
        more.write("# more\n")
    (root / "untracked.py").write_text("x = 1\n")
    return root


def figures(tree: house.Tree) -> dict[str, int]:
    return {row.counted: row.found for row in house.counts(tree)}


def test_a_commit_is_counted(root: Path) -> None:
    assert figures(house.committed(root, "HEAD")) == {
        "lines of Python under src": sum(
            text.count("\n") for name, text in FILES.items() if name.startswith("src/")
        )
        - 1,
        "files under src": 6,
        "lines under tests": 2,
        "files in the fullest folder": 4,
        "modules under 100 lines whose only importer lies beside them": 0,
        "function-level imports of own modules": 1,
        "untyped model_copy(update=...)": 1,
        "functions with more than 7 parameters": 2,
        "module docstrings that ask a question": 1,
        "retired identifiers": 2,
        "tracked bytes of the repository": sum(map(len, FILES.values())) + len("src"),
    }


def test_the_working_tree_is_counted_as_it_is(root: Path) -> None:
    committed, now = (
        figures(tree) for tree in (house.committed(root, "HEAD"), house.working_tree(root))
    )
    assert now.pop("lines under tests") == committed.pop("lines under tests") + 1
    key = "tracked bytes of the repository"
    assert now.pop(key) == committed.pop(key) + len("# more\n")
    assert now == committed


def test_a_small_module_belongs_to_its_only_neighbour() -> None:
    texts = {name: text for name, text in FILES.items() if name != "src/agentkernel/room/other.py"}
    modules = house.modules_of(house.Tree(texts, 0))
    assert house.small_neighbours(modules) == ["agentkernel.room.small"]


def test_without_a_list_nothing_is_retired() -> None:
    assert house.retired_names("") == []
    assert house.still_defined([], house.modules_of(house.Tree(FILES, 0))) == []


def test_a_dotted_name_is_the_end_of_a_full_one() -> None:
    modules = house.modules_of(house.Tree(FILES, 0))
    names = ["Volley.fire", "room.small", "olley", "other.Volley", "room"]
    assert house.still_defined(names, modules) == ["Volley.fire", "room.small", "room"]
