"""Does a checkpoint of somebody else run no code?"""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as parts

from agentkernel.domain.errors import TrainingError
from agentkernel.training.checkpoints import VARIABLE, mark_complete, refuse_code, resume_point


class Trap:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.mark,)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")


def checkpoint(places: Path, metadata: bytes) -> Path:
    folder = places / "checkpoint-1"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / ".metadata").write_bytes(metadata)
    mark_complete(folder, tokens=1, seconds=1.0)
    return folder


def test_metadata_that_names_a_function_is_refused_unread(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    checkpoint(tmp_path / "places", pickle.dumps(Trap(mark)))
    with pytest.raises(TrainingError, match="it names") as raised:
        resume_point(tmp_path / "places", print)
    assert "\n" not in str(raised.value)
    assert not mark.exists()


def test_what_torch_writes_is_gone_on_from(tmp_path: Path) -> None:
    values = {"model": {"weight": torch.ones(2), "half": torch.ones(1, dtype=torch.bfloat16)}}
    parts.save(values | {"lr": 0.1}, checkpoint_id=tmp_path / "parts", no_dist=True)
    metadata = (tmp_path / "parts" / ".metadata").read_bytes()
    folder = checkpoint(tmp_path / "places", metadata)
    assert resume_point(tmp_path / "places", print)[0] == folder
    like = {"model": {name: torch.zeros_like(item) for name, item in values["model"].items()}}
    read = like | {"lr": 0.0}
    parts.load(read, checkpoint_id=tmp_path / "parts", no_dist=True)
    assert read["lr"] == 0.1
    assert torch.equal(like["model"]["weight"], torch.ones(2))


def test_no_other_file_of_it_runs_code(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    refuse_code(tmp_path)
    assert os.environ[VARIABLE] == "1"
    file = io.BytesIO()
    torch.save(Trap(mark), file)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(file, weights_only=False)
    assert not mark.exists()


def test_a_broken_one_is_one_line(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(b"\x80\x04broken")
    with pytest.raises(TrainingError, match="no checkpoint's"):
        refuse_code(tmp_path)
