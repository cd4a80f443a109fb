from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel import interpret
from agentkernel.domain.errors import SettingError

ROOT = Path(__file__).parents[2]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("interpret", "calls"),
    [("1", "[(1, {}, None), (1, {}, None)]"), ("0", "[(0, {'device': 1}, None)")],
)
def test_a_triton_kernel_runs_where_it_can(interpret: str, calls: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.swap.interpreted"], cwd=ROOT, capture_output=True,
        text=True, timeout=120, check=False, env={**os.environ, "TRITON_INTERPRET": interpret},
    )  # fmt: skip
    assert done.stdout.startswith(f"True {calls}"), done.stdout + done.stderr
    assert done.stdout.endswith(" 2\n")


def test_a_convolution_in_the_interpreter_is_as_exact_as_it_was_judged() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.swap.interpreted_convolution"], cwd=ROOT,
        capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.stdout.startswith("True "), done.stdout + done.stderr
    assert float(done.stdout.split()[1]) < 1e-6
    assert done.stdout.endswith(" 0\n"), done.stdout


def test_a_bf16_product_and_a_label_out_of_range_are_as_judged_in_the_interpreter() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.swap.interpreted_bf16"], cwd=ROOT, capture_output=True,
        text=True, timeout=240, check=False, env=environment,
    )  # fmt: skip
    assert done.stdout.split() == ["True"] * 6, done.stdout + done.stderr


def test_the_interpreter_is_asked_for_before_triton_is_imported() -> None:
    import triton.language  # noqa: F401

    with pytest.raises(SettingError, match="Next: call it first in the program; in a notebook"):
        interpret()
    assert "TRITON_INTERPRET" not in os.environ


LATE = """
import os, triton, agentkernel
os.environ["TRITON_INTERPRET"] = "1"
try:
    agentkernel.interpret()
except agentkernel.errors.AgentKernelError as error:
    print(error)
"""


def test_the_environment_after_the_import_is_too_late() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", LATE], cwd=ROOT, capture_output=True, text=True, timeout=120,
        check=False, env=environment,
    )  # fmt: skip
    assert "comes too late" in done.stdout, done.stdout + done.stderr
