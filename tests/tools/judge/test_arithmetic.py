"""Values are rounded as a GPU rounds them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.tools.judge.execution.launches import LaunchState
from agentkernel.tools.judge.interpreter.arithmetic import bf16_to_f32, f32_to_bf16, rounded_product


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=32), min_size=1, max_size=40))
def test_bf16_rounds_as_torch_does(values):
    data = np.array(values, dtype=np.float32)
    ours = torch.from_numpy(bf16_to_f32(f32_to_bf16(data)))
    theirs = torch.from_numpy(data).bfloat16().float()
    assert torch.equal(ours.nan_to_num(), theirs.nan_to_num())


def test_each_precision_has_its_own_error():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((96, 96)).astype(np.float32) for _ in range(2))
    exact = a.astype(np.float64) @ b.astype(np.float64)

    def error(name):
        return np.linalg.norm(rounded_product(a, b, name) - exact) / np.linalg.norm(exact)

    assert error("IEEE") < 1e-6
    assert error("TF32X3") < 1e-6
    assert 1e-4 < error("TF32") < 2e-3
    assert error("BF16X6") < error("BF16X3") < 5e-5


def test_a_watch_keeps_the_first_refusal():
    watch = LaunchState()
    first, second = ValueError("first"), ValueError("second")
    watch.refuse(first)
    watch.refuse(second)
    assert watch.refusal is first
    watch.reset("reversed")
    assert watch.refusal is None


@pytest.mark.slow
def test_a_step_that_is_not_associative_gives_another_result():
    script = Path(__file__).with_name("interpreted_trees.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {
        "place": True,
        "top": True,
        "run": True,
        "back": True,
        "not associative": False,
    }
