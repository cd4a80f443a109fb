"""A line that drops is opened again; nothing that was started there outlives it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agentkernel.agents.instruments import InstrumentSettings
from agentkernel.cli.app import run
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import RemoteUnavailable
from agentkernel.domain.verdict import Verdict
from agentkernel.remote import wire
from agentkernel.remote.address import parse_address
from agentkernel.remote.instruments import RemoteInstruments, resolve_target
from agentkernel.remote.line import RemoteLine, SshProcess
from agentkernel.remote.problem_files import files_of
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.profiler import ProfileSettings
from tests.remote.sshd import Sshd, descendants, wait_until

SETTINGS = JudgeSettings(seed=7, seeds=1, policy="mixed")
SESSION = "0123456789abcdef" * 2
HALF = "execution proof"
"""A stage in the middle of a judgement."""


class Wish:
    """Kills something as a stage begins."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.pids: list[int] = []

    def __call__(self, host: str, text: str) -> None:
        self.told.append(text)
        if text == HALF and self.pids:
            kill(self.pids)
            self.pids = []


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def candidate() -> Candidate:
    return Candidate(source=Path("kernel.py").read_text(), coder="file", round=1)


def instruments(line: RemoteLine) -> RemoteInstruments:
    settings = InstrumentSettings(judging=SETTINGS, profiling=ProfileSettings())
    resolved = resolve_target(line, "h100")
    return RemoteInstruments(line, load_problem("scaled.py"), "h100", resolved, settings)


def here() -> Verdict:
    loaded = load_problem("scaled.py")
    return judge(loaded, capture(loaded), candidate().source, SETTINGS).evolve(seconds=0.0)


@pytest.fixture
def quiet(daemon: Sshd) -> Iterator[None]:
    """Nothing is left of the test on the other machine."""
    yield
    wait_until(lambda: not descendants(daemon.process.pid), 30.0)


@pytest.mark.usefixtures("laptop", "quiet")
def test_a_line_killed_in_mid_judgement_is_opened_again(daemon: Sshd) -> None:
    wish = Wish()
    before = set(daemon.cache.iterdir()) if daemon.cache.exists() else set()
    with RemoteLine(parse_address(daemon.url()), wish) as line:
        tools = instruments(line)
        first = daemon.workers()
        wish.pids = daemon.connections()
        assert wish.pids
        found = tools.judge(candidate(), SETTINGS)
        assert wish.pids == []
        assert not set(first) & set(daemon.workers())
        assert any(text.startswith("the line was lost") for text in wish.told)
        assert wish.told.count(HALF) == 2
        assert tools.judge(candidate(), SETTINGS).accepted  # the line holds
    assert found.evolve(seconds=0.0) == here()
    assert set(daemon.cache.iterdir()) == before


@pytest.mark.slow
@pytest.mark.usefixtures("laptop")
def test_a_machine_that_is_away_for_a_while_is_asked_again(daemon: Sshd) -> None:
    def tell(host: str, text: str) -> None:
        told.append(text)
        if text == HALF and len(away) == 0:
            pids = daemon.connections()
            daemon.stop()
            kill(pids)
            away.append(threading.Timer(4.0, daemon.start))
            away[0].start()

    told: list[str] = []
    away: list[threading.Timer] = []
    with RemoteLine(parse_address(daemon.url()), tell) as line:
        found = instruments(line).judge(candidate(), SETTINGS)
    away[0].join()
    assert found.accepted
    assert told.count(HALF) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("laptop", "quiet")
def test_a_worker_that_is_killed_is_one_clear_line(daemon: Sshd) -> None:
    wish = Wish()
    with RemoteLine(parse_address(daemon.url()), wish) as line:
        tools = instruments(line)
        wish.pids = daemon.workers()
        with pytest.raises(RemoteUnavailable, match=r"worker on .* was ended by signal 9"):
            tools.judge(candidate(), SETTINGS)


def answer_of(line: SshProcess, asked: wire.Asked, texts: dict[str, str]) -> list[str]:
    """All that is said until the answer, which is the last."""
    line.send(asked)
    said: list[str] = []
    while True:
        with contextlib.suppress(queue.Empty):
            text = line.next_line(60.0)
            assert text is not None, line.ended()
            value = wire.FROM_WORKER.validate_json(text)
            said.append(value.model_dump_json())
            if isinstance(value, wire.Missing):
                line.send(wire.Texts(texts={item: texts[item] for item in value.sha256}))
                line.send(asked)
            if isinstance(value, wire.Answered | wire.Refused):
                return said


@pytest.mark.slow
@pytest.mark.usefixtures("laptop", "quiet")
def test_what_was_finished_is_not_done_again_and_texts_are_sent_once(daemon: Sshd) -> None:
    address, loaded = parse_address(daemon.url()), load_problem("scaled.py")
    subject = wire.Subject(
        problem=loaded.problem,
        files=files_of(loaded.problem),
        target="h100",
        settings=InstrumentSettings(judging=SETTINGS, profiling=ProfileSettings()),
    )
    texts: dict[str, str] = {}
    question = wire.Judge(candidate=candidate(), settings=SETTINGS)
    asked = wire.Asked(
        id="1-a",
        question=wire.packed(json.loads(question.model_dump_json()), texts),
        subject=wire.packed(json.loads(subject.model_dump_json()), texts),
    )
    assert set(texts.values()) == {candidate().source, Path("scaled.py").read_text()}
    with closing(SshProcess(address, SESSION)) as line:
        first = answer_of(line, asked, texts)
        pid = line.pid
        kill([pid])
    assert sum('"missing"' in text for text in first) == 1
    with closing(SshProcess(address, SESSION)) as line:
        again = answer_of(line, asked, {})
        other = answer_of(line, asked.evolve(id="2-a"), {})
        line.send(wire.Bye())
    assert again[1:] == first[-1:]  # after the hello: with the same seconds
    assert any('"stage"' in text for text in other)
    assert not (daemon.cache / SESSION).exists()


OPTIMIZE = """
import sys
from agentkernel.cli.app import main
main(["judge", "scaled.py", "--candidate", "kernel.py", "--remote", sys.argv[1]])
"""


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
@pytest.mark.usefixtures("laptop", "quiet")
def test_nothing_stays_there_after_the_laptop_is_gone(daemon: Sshd, number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OPTIMIZE, daemon.url()], stderr=subprocess.PIPE, text=True
    ) as laptop:
        assert laptop.stderr is not None
        while HALF not in laptop.stderr.readline():
            assert laptop.poll() is None
        there = descendants(daemon.process.pid)
        assert len(there) > 3  # sshd, a shell, the worker, the sandbox
        laptop.send_signal(number)
        laptop.wait(30)
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in there), 30.0)


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
def test_a_run_whose_worker_died_goes_on_there(
    daemon: Sshd, laptop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["optimize", "scaled.py", "--rounds", "1", "--runs", "runs", "-c", "judge.seeds=1"]
    words += ["-c", "knowledge.limit=0", "--remote", daemon.url()]
    with subprocess.Popen(
        [sys.executable, "-m", "agentkernel", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as started:  # fmt: skip
        assert started.stdout is not None
        assert started.stderr is not None
        while HALF not in started.stdout.readline():
            assert started.poll() is None
        kill(daemon.workers())
        assert started.wait(60) == 4
        assert "was ended by signal 9" in started.stderr.read()
    assert run(["resume", "--runs", "runs"]) == 0
    folder = next((laptop / "runs").glob("scaled-*"))
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["host"].endswith("@127.0.0.1, no GPU")
    assert certificate["verdict"]["accepted"]
