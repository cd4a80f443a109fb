"""Kernels that are put in where there is no GPU: the originals run, and one line says so."""

from __future__ import annotations

import logging

import pytest
import torch

from agentkernel.swap import swap
from agentkernel.swap.swap import NO_GPU, apply, apply_all, apply_equal, counts
from tests.swap.applied_kernels import TRITON, block, example, norm_kernel


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    swap._warn_once.cache_clear()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [item.getMessage() for item in caplog.records if item.name == "agentkernel"]


def test_one_line_says_once_that_the_original_runs(caplog: pytest.LogCaptureFixture) -> None:
    model = block()
    kernel = norm_kernel(TRITON)
    with caplog.at_level(logging.WARNING, "agentkernel"):
        first = apply(model, {"norm": kernel, "last": kernel})
        again = apply(model, {"norm": kernel})
    assert said(caplog) == [NO_GPU]
    assert "\n" not in NO_GPU
    assert NO_GPU in repr(first)
    assert again.note == NO_GPU
    model(example())
    assert all(item.kernel == 0 and item.fallback == 1 for item in counts(model).values())


def test_nothing_is_said_of_what_runs_on_the_processor(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "agentkernel"):
        applied = apply_equal(block(), {"norm": norm_kernel()})
        nothing = apply(block(), {})
    assert not said(caplog)
    assert applied.note == nothing.note == ""


def test_of_a_model_in_training_mode_it_says_what_runs(caplog: pytest.LogCaptureFixture) -> None:
    """Its own modules run there: whoever put a kernel in believed otherwise, and one who trains
    need not leave the mode."""
    with caplog.at_level(logging.WARNING, "agentkernel"):
        applied = apply_equal(block().train(), {"norm": norm_kernel()})
    assert "training goes on as before" in applied.note
    assert "for inference call model.eval()" in applied.note


def test_no_kernel_at_all_is_said() -> None:
    applied = apply_all(torch.nn.Linear(3, 3), norm_kernel(), "RMSNorm")
    assert not applied.kernels
    assert applied.note.startswith("No kernel was put in")
