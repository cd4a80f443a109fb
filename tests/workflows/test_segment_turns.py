"""A run of a team whose model writes one segment, at a real endpoint, from the question to the
certificate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentkernel.tools.certificate.record import read_certificate
from tests.workflows.model_story import IMPORTS, KEY, Ended, Place, said, serve

PROBLEM = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 64)
        self.norm = nn.LayerNorm(64)

    def forward(self, x):
        y = self.norm(self.inner(x))
        return y, torch.sort(y, -1)[0]


def get_inputs():
    return [torch.randn(16384, 64)]


def get_init_inputs():
    return []
"""
FUSED = (
    IMPORTS
    + """@triton.jit
def product_norm(x, w, b, gain, shift, y, rows, inner, N: tl.constexpr, ROWS: tl.constexpr,
                 K: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, N)
    total = tl.zeros((ROWS, N), tl.float32)
    for start in range(0, inner, K):
        at = start + tl.arange(0, K)
        left = tl.load(x + row * inner + at[None, :], mask=(row < rows) & (at < inner)[None, :],
                       other=0.0)
        right = tl.load(w + col[None, :] * inner + at[:, None], mask=(at < inner)[:, None],
                        other=0.0)
        total = tl.dot(left, right, total, input_precision="tf32x3")
    total += tl.load(b + col)[None, :]
    centred = total - (tl.sum(total, 1) / N)[:, None]
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / N + 1e-5)
    value = centred * scale[:, None] * tl.load(gain + col)[None, :] + tl.load(shift + col)[None, :]
    tl.store(y + row * N + col[None, :], value, mask=row < rows)


class ModelNew(nn.Module):
    def forward(self, x, weight, bias, weight_1, bias_1):
        given = (x, weight, bias, weight_1, bias_1)
        x, weight, bias, weight_1, bias_1 = (item.contiguous() for item in given)
        y = torch.empty((*x.shape[:-1], 64), device=x.device, dtype=x.dtype)
        rows, inner = y.numel() // 64, x.shape[-1]
        if rows:
            product_norm[(triton.cdiv(rows, 64),)](
                x, weight, bias, weight_1, bias_1, y, rows, inner, N=64, ROWS=64, K=32, num_warps=4
            )
        return y
"""
)
"""One kernel where the compiler has a product and a norm of its result."""


def team(place: Place, *sources: str) -> Ended:
    """A run with one turn of a model that gives these files."""
    path = place.folder / "problem.py"
    path.write_text(PROBLEM)
    with serve([said(item) for item in sources]) as server:
        words = place.words(server, "-c", "team.segments=1", "-c", "budget.rounds=2")
        words[words.index("--coder") + 1] = f"team:chat:openai:scripted@{server.url}"
        return place.finish([*words, "-c", "budget.repairs=0", "-c", "budget.headroom=0"])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    return made


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_segment_goes_from_the_question_to_the_certificate(place: Place) -> None:
    end = team(place, FUSED)
    drafts = end.of_kind("candidate_drafted")
    assert str(drafts[-1]["strategy"]).startswith("segment 1 of "), drafts
    assert drafts[-1]["candidate"] is not None, drafts[-1]["reason"]
    assert [item.gate for item in end.verdicts] == ["accepted", "accepted"]
    assert "def segment_product_norm(" in end.handed_over()
    certificate = read_certificate(end.folder / "certificate.json")
    (told,) = certificate.segments
    assert told.startswith("linear, layer_norm by chat:openai:scripted")
    assert f"- {told}" in end.report
    assert [item.question.agent for item in end.exchanges] == ["segment"]
    asked = json.dumps([item.model_dump(mode="json") for item in end.exchanges])
    assert KEY not in asked


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_wrong_segment_leaves_the_compilers_answer(place: Place) -> None:
    end = team(place, FUSED.replace("1e-5", "1e-2"))
    drafts = end.of_kind("candidate_drafted")
    assert drafts[-1]["candidate"] is None
    assert "refused at the gate correctness" in str(drafts[-1]["reason"])
    assert [item.gate for item in end.verdicts] == ["accepted"]
    assert "segment" not in end.handed_over()
    assert end.result.status == "verified"
