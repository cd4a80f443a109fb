"""Where do the processes of one test run keep what they share, and who clears it away?"""

from __future__ import annotations

import os
import tempfile

import pytest

from shared_codes import FOLDER


def pytest_configure(config: pytest.Config) -> None:
    """The first process of a run makes the folder and removes it; the others inherit its name."""
    if FOLDER in os.environ:
        return
    folder = tempfile.TemporaryDirectory(prefix="agentkernel-tests-")
    os.environ[FOLDER] = folder.name

    def clear() -> None:
        del os.environ[FOLDER]
        folder.cleanup()

    config.add_cleanup(clear)
