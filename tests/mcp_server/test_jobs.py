"""Jobs work in processes of their own, are found again by another server, and can be ended."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agentkernel.domain.errors import RunBusy, RunNotFound
from agentkernel.mcp_server import jobs as module
from agentkernel.mcp_server.answers import (
    MOST,
    failure,
    next_step,
    page_of,
    short_figures,
    status_of,
)
from agentkernel.mcp_server.jobs import Job, Jobs
from agentkernel.mcp_server.workspace import Workspace

SLEEPER = "import time, sys; print('{}', flush=True); time.sleep(60)"


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Jobs(Workspace(tmp_path))


def ended(job: Job) -> Job:
    stop = time.monotonic() + 30
    while job.state() == "running":
        assert time.monotonic() < stop
        time.sleep(0.02)
    return job


def python(jobs: Jobs, code: str, tool: str = "plan") -> Job:
    """A job that runs `code`."""
    name = f"code_{secrets.token_hex(4)}"
    (jobs.workspace.root / f"{name}.py").write_text(code)
    return jobs.start(tool, [name])


@pytest.mark.parametrize(
    ("code", "state"), [(0, "done"), (3, "done"), (2, "failed"), (1, "failed")]
)
def test_the_exit_code_is_the_state(jobs: Jobs, code: int, state: str) -> None:
    job = ended(python(jobs, f"import sys; print('said'); sys.exit({code})"))
    assert (job.state(), job.exit_code, job.text().strip()) == (state, code, "said")
    assert f"state: {state}" in status_of(job)


def test_another_server_finds_it_at_work_and_ends_it(jobs: Jobs, tmp_path: Path) -> None:
    job = python(jobs, SLEEPER)
    other = Jobs(Workspace(tmp_path)).find(job.id)
    assert other.state() == "running"
    other.cancel()
    assert ended(other).state() == "cancelled"
    assert failure(other) == "Cancelled."


def test_what_ignores_the_interruption_is_killed_when_asked_again(jobs: Jobs) -> None:
    job = python(
        jobs,
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('{}', flush=True);"
        + SLEEPER,
    )
    while not job.text():
        time.sleep(0.02)
    job.cancel()
    time.sleep(0.2)
    assert job.state() == "running"
    job.cancel()
    assert ended(job).state() == "cancelled"


def test_a_job_that_was_killed_has_failed(jobs: Jobs) -> None:
    job = ended(python(jobs, "import os; os.kill(os.getppid(), 9); os._exit(1)"))
    assert job.state() == "failed"
    assert "killed" in failure(job)


def test_no_more_than_a_few_at_once(jobs: Jobs) -> None:
    running = [python(jobs, SLEEPER) for _ in range(module.MOST_RUNNING)]
    try:
        with pytest.raises(RunBusy, match="the most at once"):
            python(jobs, SLEEPER)
        ended(jobs.start("search_knowledge", ["timeit", "-n1", "pass"]))
    finally:
        for job in running:
            job.cancel()
    for job in running:
        ended(job)
    ended(python(jobs, "pass"))


UNDECIDED = "import sys; print('It could not be judged here'); sys.exit(4)"


def test_a_judgement_that_this_machine_cannot_decide_is_an_answer(jobs: Jobs) -> None:
    job = ended(python(jobs, UNDECIDED, tool="judge"))
    assert job.state() == "done"
    assert "nothing is known against it" in next_step(job)
    assert ended(python(jobs, "import sys; sys.exit(4)", tool="judge")).state() == "failed"


FAILED_RUN = 'import sys; print(\'{"kind": "run_started", "run": "m-1"}\'); sys.exit(%d)'


@pytest.mark.parametrize(("code", "offered"), [(1, False), (4, True)])
def test_only_a_run_that_can_go_on_is_said_to(jobs: Jobs, code: int, offered: bool) -> None:
    job = ended(python(jobs, FAILED_RUN % code, tool="optimize"))
    assert job.run_name() == "m-1"
    assert ("goes on with what is kept" in next_step(job)) is offered


def test_old_ones_are_cleared_away(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 2)
    names = [ended(python(jobs, "pass")).id for _ in range(5)]
    assert [job.id for job in jobs.all()] == names[-3:]


def test_children_do_not_inherit_the_token(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.TOKEN_VARIABLE, "x" * 40)
    job = ended(python(jobs, "import os; print(sorted(os.environ))"))
    assert "PATH" in job.text()
    assert module.TOKEN_VARIABLE not in job.text()


def test_files_of_the_workspace_do_not_stand_for_packages(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH")
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    assert ended(jobs.start("plan", ["json.tool", "--help"])).exit_code == 0


@pytest.mark.parametrize("name", ["", "..", "../x", "plan-1", "a" * 500, "\0"])
def test_unknown_ids_are_refused(jobs: Jobs, name: str) -> None:
    with pytest.raises(RunNotFound):
        jobs.find(name)


def test_a_long_text_comes_in_pages(jobs: Jobs) -> None:
    job = ended(python(jobs, "print(' '.join(str(n) for n in range(3000)))"))
    text = ""
    for page in range(1, 6):
        answer = page_of(job, page)
        assert len(answer) <= MOST
        text += "".join(answer.splitlines()[1:2])
    assert text.split() == [str(n) for n in range(3000)]
    assert "result(run_id, page=2)" in page_of(job, 1)
    assert "No page 99: there are 5 pages." in page_of(job, 99)


def test_a_failure_has_one_next_step(jobs: Jobs) -> None:
    said = "agentkernel: Unknown target 'zz'. Next: agentkernel targets"
    job = ended(python(jobs, f"import sys; sys.exit({said!r})"))
    assert failure(job) == "Unknown target 'zz'."
    assert status_of(job).count("Next: ") == 1


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("speedup_vs_eager: 1.8374629103847561", "speedup_vs_eager: 1.837"),
        ("speedup_ci95: [1.7999999523162842, 1.9]", "speedup_ci95: [1.8, 1.9]"),
        ("error: 1.1920928955078125e-07, max 12.3456789", "error: 1.192e-07, max 12.35"),
        ("123456.7890123 us", "123457 us"),
        ("torch 2.13.0+cpu, triton 3.9.0", "torch 2.13.0+cpu, triton 3.9.0"),
        ("run mlp-20261129-1.23456789a", "run mlp-20261129-1.23456789a"),
        ("rtol 1.5", "rtol 1.5"),
        (
            "  expected: -0.2334121\n  found: -0.2334093",
            "  expected: -0.233412\n  found: -0.233409",
        ),
        (
            "at x: expected 0.98765432, found 1.25 at [0]",
            "at x: expected 0.9877, found 1.25 at [0]",
        ),
        ("0.12345 expected 1.00001, found 1 at", "0.1235 expected 1.00001, found 1 at"),
        ("expected float32[33, 256], found 1.23456", "expected float32[33, 256], found 1.235"),
    ],
)
def test_figures_have_four_significant_digits(written: str, read: str) -> None:
    assert short_figures(written) == read


def test_a_finished_job_is_told_in_short_figures_and_source_keeps_its_digits(jobs: Jobs) -> None:
    job = ended(python(jobs, "print('1.8374629103847561 x faster')"))
    assert "1.837 x faster" in page_of(job, 1)
    source = replace(job, tool="show")
    assert "1.8374629103847561" in page_of(source, 1)
