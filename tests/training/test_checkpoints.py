from __future__ import annotations

import json
from pathlib import Path

from agentkernel.training.checkpoints import (
    MARKER,
    drop_incomplete,
    drop_older,
    last_complete,
    mark_complete,
    read_checkpoint,
    resume_point,
)


def _make(places: Path, step: int, whole: bool = True) -> Path:
    folder = places / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"w" * step)
    (folder / "optimizer").write_bytes(b"o" * 10)
    if whole:
        mark_complete(folder, tokens=step * 100, seconds=1.5)
    return folder


def test_the_last_whole_one_is_that_of_the_latest_step(tmp_path: Path) -> None:
    for step in (5, 20, 100):
        _make(tmp_path, step)
    half = _make(tmp_path, 120, whole=False)
    assert last_complete(tmp_path) == tmp_path / "checkpoint-100"
    found = read_checkpoint(tmp_path / "checkpoint-100")
    assert found is not None
    assert (found.step, found.tokens, found.seconds) == (100, 10_000, 1.5)
    assert drop_incomplete(tmp_path) == (half,)
    assert not half.exists()


def test_what_a_kill_or_a_disk_cut_short_is_not_whole(tmp_path: Path) -> None:
    short, lost, more, torn, moved = (_make(tmp_path, step) for step in (1, 2, 3, 4, 5))
    (short / "optimizer").write_bytes(b"o")
    (lost / "weights").unlink()
    (more / "another").write_text("x")
    (torn / MARKER).write_text('{"step": 4, "fi')
    moved.rename(tmp_path / "checkpoint-50")
    assert last_complete(tmp_path) is None
    assert len(drop_incomplete(tmp_path)) == 5


def test_older_ones_go_and_the_two_latest_stay(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10):
        _make(tmp_path, step)
    (tmp_path / "runs").mkdir()
    drop_older(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint-10",
        "checkpoint-3",
        "runs",
    ]
    assert last_complete(tmp_path / "nowhere") is None


def test_a_checkpoint_with_flipped_bytes_is_left_out_for_the_one_before(tmp_path: Path) -> None:
    for step in (5, 20, 100):
        _make(tmp_path, step)
    (tmp_path / "checkpoint-100" / "weights").write_bytes(b"w" * 99 + b"v")
    (tmp_path / "checkpoint-20" / "optimizer").write_bytes(b"p" + b"o" * 9)
    said: list[str] = []
    last, whole = resume_point(tmp_path, said.append)
    assert last == tmp_path / "checkpoint-5"
    assert whole is not None
    assert whole.step == 5
    assert said == [
        "left out checkpoint-100: weights is not as it was written",
        "left out checkpoint-20: optimizer is not as it was written",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-5"]


def test_a_checkpoint_of_an_older_version_goes_by_its_sizes(tmp_path: Path) -> None:
    folder = _make(tmp_path, 7)
    marker = json.loads((folder / MARKER).read_text())
    del marker["sha256"]
    (folder / MARKER).write_text(json.dumps(marker))
    assert resume_point(tmp_path, print)[0] == folder
