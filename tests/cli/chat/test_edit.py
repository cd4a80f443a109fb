"""Is what somebody wrote in an editor never lost, and never read without an end?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentkernel.cli.chat.input import Edited, NotEdited, new_file, read_back


def test_a_new_file_never_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    first, second = (new_file(tmp_path, 1, text) for text in ("one", "two"))
    first.unlink()
    third = new_file(tmp_path, 1, "three")
    assert second.read_text() == "two"
    assert third.name == "c1-3.py"
    (tmp_path / "c1-notes.py").write_text("somebody's own")
    assert new_file(tmp_path, 1, "four").name == "c1-4.py"


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_only_a_file_is_read_back(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "c1-1.py"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/null")
        case _:
            path.mkdir()
    back = read_back(path, "before")
    assert isinstance(back, NotEdited)
    assert "is a file no more" in back.reason


def test_what_was_changed_is_read_back(tmp_path: Path) -> None:
    path = new_file(tmp_path, 1, "one")
    path.write_text("two")
    assert read_back(path, "one") == Edited("two", path)
