"""A model writes on the GPU only while nobody times there, and leaves it the memory it needs."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from agentkernel.agents.models.local import LocalModel
from agentkernel.agents.models.local_presets import LocalPreset
from agentkernel.domain.errors import ModelUnavailable
from agentkernel.domain.exchange import Message, ModelRequest, Reply, Sampling
from agentkernel.runtime import gpu_lock
from tests.training.tiny_models import make_model

pytestmark = pytest.mark.gpu

TIMER = """
import sys
from agentkernel.domain.errors import ModelUnavailable
from agentkernel.runtime import gpu_lock
with gpu_lock.exclusive():
    print("in", flush=True)
    sys.stdin.readline()
"""
MORE_GB = 1e6
"""More than any GPU has: the judge is always short of memory."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("tiny"))


def question(seed: int = 1) -> ModelRequest:
    return ModelRequest(
        agent="coder",
        round=1,
        messages=(Message(role="user", text="def add(x, y):"),),
        sampling=Sampling(temperature=1.0, max_tokens=40, samples=3, seed=seed),
    )


def test_writing_waits_for_another_process_that_times(base: Path) -> None:
    model = LocalModel("local:tiny", LocalPreset(model=str(base)))
    model.ask(question())
    replies: list[Reply] = []
    writer = threading.Thread(target=lambda: replies.append(model.ask(question())))
    with gpu_lock.private_lock(), ExitStack() as stack:
        timer = subprocess.Popen(
            [sys.executable, "-c", TIMER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(timer.communicate, timeout=30)
        assert timer.stdout.readline() == "in\n"
        writer.start()
        writer.join(2.0)
        assert writer.is_alive()
        assert not replies
        stack.close()
        writer.join(60.0)
    assert len(replies) == 1
    assert replies[0].gpu_seconds > 0
    assert replies[0].seconds - replies[0].gpu_seconds > 1.9, "waiting is not the GPU's time"


def allocated(base: Path) -> int:
    """What is allocated once the libraries have taken the memory that they keep."""
    model = LocalModel("local:tiny", LocalPreset(model=str(base)))
    model.ask(question())
    model.release()
    return torch.cuda.memory_allocated()


def test_memory_is_counted_and_given_back(base: Path) -> None:
    before = allocated(base)
    model = LocalModel("local:tiny", LocalPreset(model=str(base), release_between=False))
    first = model.ask(question())
    assert 0 < model.memory_bytes <= torch.cuda.memory_allocated() - before
    assert model.ask(question()).texts == first.texts
    model.release()
    assert model.memory_bytes == 0
    assert torch.cuda.memory_allocated() == before


def test_weights_step_aside_for_the_judge_and_come_back(base: Path) -> None:
    before = allocated(base)
    model = LocalModel("local:tiny", LocalPreset(model=str(base), judge_gb=MORE_GB))
    first = model.ask(question())
    assert model.memory_bytes == 0
    assert torch.cuda.memory_allocated() == before
    assert model.ask(question()).texts == first.texts


def test_a_model_that_does_not_fit_is_one_line_with_the_figures(base: Path) -> None:
    model = LocalModel("local:tiny", LocalPreset(model=str(base)))

    def full(_: str) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(ModelUnavailable, match=r"GB of weights and what 3 samples") as caught:
        model.ask(question(), full)
    assert "\n" not in str(caught.value)
    assert model.memory_bytes == 0
    assert model.ask(question()).finish
