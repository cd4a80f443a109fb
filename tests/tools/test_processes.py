"""Does a process that only compiles give way, with all that it starts?"""

from __future__ import annotations

import os
import subprocess
import sys

from agentkernel.tools.processes import give_way

FAMILY = """
import os, subprocess, sys
sys.stdin.readline()
asks = "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"
subprocess.run([sys.executable, "-c", asks], check=True)
"""


def test_what_it_starts_gives_way_too_and_we_do_not() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    process = subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    give_way(process.pid)
    assert process.communicate("\n")[0] == "10\n"
    assert os.getpriority(os.PRIO_PROCESS, 0) == own
    give_way(process.pid)
