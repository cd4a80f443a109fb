"""Where do tests keep what they share, who clears it away, and what reaches nobody else's data?"""

from __future__ import annotations

import gc
import itertools
import os
import re
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.compiler.inductor_codes import FOLDER

settings.register_profile("any load", deadline=None)
settings.load_profile("any load")

MISSING_PART = re.compile(
    r"not installed|is not here|no Chromium here|needs tmux|could not import|made with bubblewrap"
)
"""The reason of a test that is skipped for want of a program or a package."""
NEW_MODULES = 300
"""So many imported modules later the heap is frozen anew."""
_frozen_modules = [0]


def pytest_configure(config: pytest.Config) -> None:
    """The first process of a run makes the folder and removes it; the others inherit its name."""
    config.add_cleanup(gc.unfreeze)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell that starts this in the background has Ctrl-C ignored, and so had all children.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if FOLDER in os.environ:
        return
    folder = tempfile.TemporaryDirectory(prefix="agentkernel-tests-")
    os.environ[FOLDER] = folder.name

    def clear() -> None:
        del os.environ[FOLDER]
        folder.cleanup()

    config.add_cleanup(clear)


def _require_part(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Where CI=true, `.ci/run` and the extra `dev` have put every part there: none is missing."""
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if MISSING_PART.search(reason):
            report.outcome = "failed"
            report.longrepr = f"{reason}. Expected every part where CI=true. Next: .ci/run"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `quick(n)` the first n cases that are not slow already stay quick."""
    seen: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("quick")
        if mark is not None and item.get_closest_marker("slow") is None:
            name = item.nodeid.partition("[")[0]
            seen[name] += 1
            if seen[name] > mark.args[0]:
                item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _require_part(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _require_part(report)
    return report


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """What a module's imports left is no garbage: trainers and benches collect garbage by hand, and
    each time would walk over all tests and libraries, a second and more."""
    if len(sys.modules) > NEW_MODULES + _frozen_modules[-1]:
        gc.collect()
        gc.freeze()
        _frozen_modules.append(len(sys.modules))


@pytest.fixture(scope="session", autouse=True)
def shared_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where fixtures that several tests share keep their data."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Names of folders, one a test. pytest's own factory would look at all that there are for the
    next number: with thousands of tests that adds up to minutes."""
    folder = tmp_path_factory.mktemp("own")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def own_data(
    shared_data: Path, own_folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test learns nothing from the runs of another."""
    folder = next(own_folders)
    folder.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
