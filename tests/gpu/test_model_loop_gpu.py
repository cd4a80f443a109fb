"""The whole loop with a model on a GPU, where nobody times while a model writes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentkernel.agents.models.local import LocalModel
from agentkernel.cli.app import run as agentkernel
from agentkernel.runtime import gpu_lock
from agentkernel.runtime.gpu_lock import GpuLock
from tests.training.tiny_models import make_model
from tests.workflows.model_story import FAST, PROBLEM, TWO, Author, Ended, read_end, serve

pytestmark = pytest.mark.gpu

ROOM = 1 << 15
"""Tokens: the tiny tokenizer makes many of a prompt."""
WORDS = ("-c", "profile.max_autotune=false", "-c", "judge.seeds=1", "--json")


def optimized(folder: Path, coder: str, *more: str) -> Ended:
    path = folder / "problem.py"
    path.write_text(PROBLEM)
    runs = folder / "runs"
    words = ["optimize", str(path), "--coder", coder, "--runs", str(runs), *WORDS, *more]
    return read_end(agentkernel(words), runs)


def test_a_scripted_endpoint_is_measured_and_never_slower(tmp_path: Path) -> None:
    """Two launches first, then one, each judged and timed beside eager and torch.compile."""
    with serve(Author((), TWO, FAST)) as server:
        coder = f"chat:openai:scripted@{server.url}"
        end = optimized(tmp_path, coder, "--speedup", "9", "--rounds", "3")
    assert [item.accepted for item in end.verdicts[:2]] == [True, True]
    assert not end.verdicts[0].interpreted
    profiles = end.of_kind("profile")
    assert len(profiles) >= 2
    assert all(item["measured"] for item in profiles)
    first, second = (float(str(item["time_us"])) for item in profiles[:2])
    assert second < 0.75 * first, "half the bytes"
    assert end.result.measured
    if end.result.candidate is not None:
        assert end.handed_over() == FAST


def test_a_run_that_was_measured_is_replayed_without_its_endpoint(tmp_path: Path) -> None:
    """The times come out otherwise, and the prompts hold them."""
    goal = ("--speedup", "9", "--rounds", "3")
    with serve(Author((), TWO, FAST)) as server:
        coder = f"chat:openai:scripted@{server.url}"
        first = optimized(tmp_path, coder, *goal)
    again = optimized(tmp_path, coder, *goal, "--replay", first.folder.name)
    assert again.folder != first.folder
    assert again.sources() == first.sources()


class Noted(GpuLock):
    """A gate that writes down who was inside of it, and when."""

    spans: list[tuple[str, float, float]]

    @contextmanager
    def hold(self, kind: gpu_lock.Hold) -> Iterator[None]:
        with super().hold(kind):
            begin = time.monotonic()
            try:
                yield
            finally:
                self.spans.append((kind, begin, time.monotonic()))


def test_a_local_model_beside_the_compiler_writes_while_nobody_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random weights write nothing that is Python: the compiler's candidate stays the answer."""
    base = make_model(tmp_path / "tiny", window=ROOM)
    writing: list[tuple[float, float]] = []
    held: list[int] = []
    write = LocalModel._write

    def noted(self: LocalModel, *args: object, **kwargs: object) -> object:
        begin = time.monotonic()
        try:
            return write(self, *args, **kwargs)  # type: ignore[arg-type]
        finally:
            writing.append((begin, time.monotonic()))
            held.append(self.memory_bytes)

    monkeypatch.setattr(LocalModel, "_write", noted)
    doors = Noted(tmp_path)
    doors.spans = []
    monkeypatch.setattr(gpu_lock, "_current_lock", lambda: doors)
    coder = f"team:local:{base}"
    how = ("--speedup", "9", "--rounds", "3", "-c", "models.max_tokens=64")
    end = optimized(tmp_path, coder, *how)
    assert end.result.measured
    assert end.exchanges, "the model had its turn"
    assert all(item.reply.gpu_seconds > 0 for item in end.exchanges)
    assert min(held) > 0, "its memory is counted"
    timing = [(begin, over) for kind, begin, over in doors.spans if kind == "timing"]
    assert timing
    for begin, over in writing:
        assert not any(start < over and begin < stop for start, stop in timing)
    drafted = {str(item["coder"]) for item in end.of_kind("candidate_drafted")}
    assert "compiler" in drafted
    assert json.loads(end.result.model_dump_json())["tokens"] > 0
