"""The worker by itself: what it prints, when it ends, and one worker a session."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.agents.instruments import InstrumentSettings
from agentkernel.remote import wire
from agentkernel.remote.problem_files import files_of
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.profiler import ProfileSettings

SESSION = "fedcba9876543210" * 2
START = """
import sys
from agentkernel.remote import wire
wire.SILENCE_S = float(sys.argv[1])
from agentkernel.cli.app import main
main(["remote-worker", sys.argv[2]])
"""


@contextlib.contextmanager
def worker(
    cache: Path, silence_s: float = 60.0, session: str = SESSION
) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", START, str(silence_s), session],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    ) as process:
        try:
            yield process
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.wait(30)
        finally:
            process.kill()


def said(process: subprocess.Popen[bytes]) -> wire.FromWorker:
    assert process.stdout is not None
    return wire.FROM_WORKER.validate_json(process.stdout.readline())


def ask(process: subprocess.Popen[bytes], value: wire.ToWorker | str) -> None:
    assert process.stdin is not None
    text = value if isinstance(value, str) else value.model_dump_json()
    process.stdin.write(text.encode() + b"\n")
    process.stdin.flush()


def test_it_says_hello_and_ends_with_its_stdin(tmp_path: Path) -> None:
    with worker(tmp_path) as process:
        hello = said(process)
        assert isinstance(hello, wire.Hello)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0
    # Nobody said that the session is over: what was finished stays for a while.
    assert (tmp_path / "agentkernel" / "remote" / SESSION).is_dir()


def test_it_ends_after_a_silence(tmp_path: Path) -> None:
    with worker(tmp_path, silence_s=1.0) as process:
        assert isinstance(said(process), wire.Hello)
        assert process.wait(30) == 0


@pytest.mark.slow
def test_the_next_worker_of_a_session_ends_the_one_before(tmp_path: Path) -> None:
    with worker(tmp_path) as first:
        assert isinstance(said(first), wire.Hello)
        with worker(tmp_path) as second:
            assert isinstance(said(second), wire.Hello)
            assert first.wait(30) == 0
            ask(second, wire.Bye())
            assert second.wait(30) == 0
    assert not (tmp_path / "agentkernel" / "remote" / SESSION).exists()


@pytest.mark.slow
def test_what_nobody_ended_is_cleared_away_unless_it_is_held(tmp_path: Path) -> None:
    base = tmp_path / "agentkernel" / "remote"
    old, held, new = (base / (digit * 32) for digit in "abc")
    for path in (old, held, new):
        (path / "texts").mkdir(parents=True)
        (path / "lock").touch()
    for path in (old, held):
        os.utime(path, (0, 0))
    with (held / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with worker(tmp_path) as process:
            said(process)
    assert sorted(base.iterdir()) == sorted([held, new, base / SESSION])


def test_no_session_leads_elsewhere(tmp_path: Path) -> None:
    with worker(tmp_path, session="../../etc") as process:
        refused = said(process)
    assert isinstance(refused, wire.Refused)
    assert refused.error == "SettingError"
    assert list(tmp_path.iterdir()) == []


def test_what_a_module_prints_and_what_is_no_line_break_nothing(laptop: Path) -> None:
    with (laptop / "neighbour.py").open("a") as file:
        file.write("print('{}')\nimport os\nos.write(1, b'noise')\n")
    loaded = load_problem("scaled.py")
    settings = InstrumentSettings(judging=JudgeSettings(), profiling=ProfileSettings())
    subject = wire.Subject(
        problem=loaded.problem, files=files_of(loaded.problem), target="h100", settings=settings
    )
    about = json.loads(subject.model_dump_json())
    question = json.loads(wire.Plain(kind="most sampled").model_dump_json())
    with worker(laptop) as process:
        said(process)
        ask(process, "noise")
        ask(process, wire.Asked(id="1", question=question, subject=about))
        assert said(process) == wire.Answered(id="1", answer=0)
        ask(process, wire.Asked(id="2", question={"kind": "unheard of"}, subject=about))
        refused = said(process)
        assert isinstance(refused, wire.Refused)
        assert refused.id == "2"
        ask(process, wire.Texts(texts={"0" * 64: "another text"}))
        refused = said(process)
        assert isinstance(refused, wire.Refused)
        assert "without its hash" in refused.text


@pytest.mark.parametrize(
    "value",
    [
        {"a": ["x" * 300, {"b": "y" * 300, "c": 1}], "d": None, "e": "short"},
        ["x" * 300, "x" * 300],
        "x" * 300,
        3,
    ],
)
def test_long_texts_go_by_their_hash(value: object) -> None:
    texts: dict[str, str] = {}
    packed = wire.packed(value, texts)  # type: ignore[arg-type]
    assert "xxx" not in json.dumps(packed)
    assert wire.hashes(packed) == set(texts)
    assert wire.unpacked(packed, texts) == value
