"""`.ci/gpu-wheels.txt` holds all that a GPU machine without a network lacks for this package."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

LIST = (Path(__file__).parents[1] / ".ci" / "gpu-wheels.txt").read_text(encoding="utf-8")
WHEELS = set(re.findall(r"^([\w.-]+)==", LIST, re.M))
THERE = set(re.findall(r"^# ([\w.-]+)$", LIST, re.M))
NEEDED = """
import sys
from importlib.metadata import packages_distributions
import agentkernel.cli.app, agentkernel.api, agentkernel.chat.session
import agentkernel.workflows.optimize
known = packages_distributions()
tops = {name.split(".")[0] for name in sys.modules} - {"agentkernel"}
print(*sorted({name for top in tops for name in known.get(top, ())}))
"""


@pytest.mark.slow
def test_the_command_line_needs_nothing_else_there() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NEEDED], capture_output=True, text=True, check=True
    )
    needed = {name.lower().replace("_", "-") for name in done.stdout.split()}
    assert {"torch", "langgraph"} <= needed
    assert needed - WHEELS - THERE == set()
