"""A judgement, a profile and a run on another machine, through a real sshd."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentkernel.cli.app import run
from agentkernel.domain.certificate import Certificate
from agentkernel.domain.verdict import Verdict
from tests.remote.sshd import Sshd, wait_until

JUDGE = ["judge", "scaled.py", "--candidate", "kernel.py", "--seed", "7", "--json", "-c"]
SEEDS = "judge.seeds=1"
SPY = """
import os
import pathlib

pathlib.Path(os.environ["XDG_CACHE_HOME"], "seen").write_text(" ".join(os.environ))
"""


def verdict(capsys: pytest.CaptureFixture[str], words: list[str]) -> Verdict:
    assert run(words) == 0, capsys.readouterr()
    return Verdict.model_validate_json(capsys.readouterr().out)


def no_time(found: Verdict) -> Verdict:
    return found.evolve(seconds=0.0)


def test_a_judgement_there_is_the_judgement_here(
    daemon: Sshd, laptop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = verdict(capsys, [*JUDGE, SEEDS])
    assert run([*JUDGE, SEEDS, "--remote", daemon.url()]) == 0
    out = capsys.readouterr()
    assert no_time(Verdict.model_validate_json(out.out)) == no_time(here)
    assert "127.0.0.1: judge\n" in out.err
    assert list(daemon.cache.iterdir()) == []
    wait_until(lambda: not daemon.workers() and not daemon.connections(), 10.0)


@pytest.mark.slow
def test_a_refused_kernel_is_refused_there(
    daemon: Sshd, laptop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (laptop / "kernel.py").read_text().replace("* 2.0", "* 2.01")
    (laptop / "kernel.py").write_text(text)
    assert run([*JUDGE, SEEDS, "--remote", daemon.url()]) == 3
    found = Verdict.model_validate_json(capsys.readouterr().out)
    assert found.gate == "correctness"


def test_a_module_that_raises_there_is_the_users_mistake(
    daemon: Sshd, laptop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (laptop / "neighbour.py").write_text(
        "import os\nSLOPE = 2.0\nassert 'XDG_CACHE_HOME' not in os.environ, 'not here'\n"
    )
    assert run([*JUDGE, SEEDS, "--remote", daemon.url()]) == 2
    told = json.loads(capsys.readouterr().out)
    assert told["kind"] == "ProblemError"
    assert "127.0.0.1: scaled.py raised AssertionError" in told["error"]


@pytest.mark.slow
def test_no_variable_of_the_environment_goes_along(
    daemon: Sshd,
    laptop: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("XDG_CACHE_HOME", str(laptop))
    with (laptop / "neighbour.py").open("a") as file:
        file.write(SPY)
    assert run(["profile", *JUDGE[1:4], "--json", "-c", SEEDS, "--remote", daemon.url()]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["profile"]["estimate"]["time_us"] > 0
    seen = (daemon.folder / "cache" / "seen").read_text().split()
    assert "XDG_CACHE_HOME" in seen
    assert "OPENAI_API_KEY" in os.environ
    assert "OPENAI_API_KEY" not in seen


@pytest.mark.slow
def test_a_run_names_the_machine_and_verifies_here(
    daemon: Sshd, laptop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["optimize", "scaled.py", "--rounds", "1", "--runs", "runs", "-c", SEEDS]
    words += ["-c", "knowledge.limit=0", "--remote", daemon.url()]
    assert run(words) == 0
    told = capsys.readouterr().out
    assert "127.0.0.1: search\n" in told
    assert "127.0.0.1: execution proof\n" in told
    folder = next((laptop / "runs").glob("scaled-*"))
    path = folder / "certificate.json"
    certificate = Certificate.model_validate_json(path.read_text())
    user = daemon.url().partition("//")[2].partition("@")[0]
    assert certificate.host == f"{user}@127.0.0.1, no GPU"
    assert certificate.verdict is not None
    assert certificate.verdict.accepted
    assert f"judged and timed at {user}@127.0.0.1, no GPU" in (folder / "report.md").read_text()
    assert run(["verify", str(path)]) == 0
    assert run(["resume", folder.name, "--runs", "runs"]) == 0
