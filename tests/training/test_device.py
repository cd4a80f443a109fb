"""Is bf16 taken only where it is wanted and the GPU has it itself?"""

from __future__ import annotations

import pytest

from agentkernel.training.folder import device_name, in_bf16, precision_of


def a_gpu(monkeypatch: pytest.MonkeyPatch, *, has_bf16: bool) -> None:
    """A GPU that has bf16, or one that would only emulate it."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda number: f"GPU {number}")
    monkeypatch.setattr(
        "torch.cuda.is_bf16_supported",
        lambda including_emulation=True: has_bf16 or including_emulation,
    )


def test_without_a_gpu_all_is_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert device_name() == "CPU"
    assert not in_bf16(True)
    assert precision_of(True) == "fp32"


@pytest.mark.parametrize(
    ("wanted", "has", "found"), [(1, 1, "bf16"), (0, 1, "fp32"), (1, 0, "fp32")]
)
def test_bf16_is_wanted_and_there(
    monkeypatch: pytest.MonkeyPatch, wanted: int, has: int, found: str
) -> None:
    a_gpu(monkeypatch, has_bf16=bool(has))
    assert device_name() == "GPU 0"
    assert precision_of(bool(wanted)) == found
