"""Workers for the sandbox's tests, and what is left of them."""

import contextlib
import os
import tempfile
import time
from pathlib import Path

import pytest

from agentkernel.tools.sandbox.isolation import Isolation, probe
from agentkernel.tools.sandbox.protocol import WorkerFailed

EXECUTE = "agentkernel.tools.sandbox.worker:execute"
ISOLATED = ("bubblewrap", "namespaces", "landlock")
SERVERS = ("bubblewrap", "landlock")
"""Bubblewrap stands around its server; that of namespaces is started and ended as landlock's, an
ordinary process."""


def pytest_generate_tests(metafunc):
    """`tier`: every kind of walls that stands here; `server_tier`: every kind of fork server."""
    for name, tiers in (("tier", ISOLATED), ("server_tier", SERVERS)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, [_param(tier) for tier in tiers], scope="module")


def _param(name):
    reason = probe(Isolation(name), False)
    return pytest.param(name, marks=pytest.mark.skipif(reason is not None, reason=str(reason)))


@pytest.fixture(scope="session")
def run():
    """Run the body of a function `run(t)` in a worker; its value, or the failure."""

    def run(worker, body, tensors=None, timeout_s=60.0):
        source = "def run(t):\n" + "".join(f"    {line}\n" for line in body.splitlines())
        reply = worker.call(EXECUTE, {"source": source, "tensors": tensors or {}}, timeout_s)
        return reply if isinstance(reply, WorkerFailed) else reply["result"]

    return run


@pytest.fixture
def nothing_left(tmp_path, monkeypatch):
    """After the test no process runs that works below its temporary folder, and that is empty."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    end = time.monotonic() + 10
    while (left := _processes_of(tmp_path)) and time.monotonic() < end:
        time.sleep(0.05)
    assert left == []
    assert list(tmp_path.iterdir()) == []


def _processes_of(folder):
    """Launchers, workers and what those started: they name the scratch, or work in it."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace")
                place = os.readlink(f"/proc/{entry}/cwd")
                if f"{folder}/" in words or place.startswith(f"{folder}/"):
                    found.append((int(entry), words.split("\0")[0]))
    return found
