from __future__ import annotations

import argparse
import json
from pathlib import Path

import draw
import pytest
import run
import table
import torch

pytest.importorskip("transformers")


@pytest.mark.slow
def test_blocks_are_taken_out_of_a_model_with_the_arguments_of_its_own_call() -> None:
    found = {block.path: block for block in draw.blocks_of("transformers", "bert")}
    block = found["encoder.layer.0.output"]
    assert block.class_name == "transformers.models.bert.modeling_bert.BertOutput"
    called = draw.take(block)
    with torch.no_grad():
        made = called.module(*called.args, **called.kwargs)
    assert made.shape == (2, 12, 64)
    assert "" not in found
    assert not any(name.endswith("dropout") for name in found)
    again = draw.take(block)
    torch.testing.assert_close(called.args, again.args)
    moved = draw.take(block._replace(path="encoder.layer.7"))
    assert draw.class_name(moved.module) == block.class_name
    with pytest.raises(draw.Absent):
        draw.take(block._replace(class_name="transformers.Nothing"))


def test_the_same_seed_draws_the_same_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [draw.Block("timm", "m", f"p{place}", f"timm.C{place}") for place in range(30)]
    monkeypatch.setattr(draw, "population", lambda library: many)
    first = draw.draw(5, 0, ["timm"])
    assert first == draw.draw(5, 0, ["timm"])
    assert len(set(first)) == 5
    assert first != draw.draw(5, 1, ["timm"])


def test_a_keyword_of_none_is_left_to_its_default() -> None:
    called = draw.Called(torch.nn.Identity(), (torch.ones(2),), {"mask": None, "cached": False})
    assert run._given(called).kwargs == {"cached": False}


@pytest.mark.slow
def test_a_block_that_raises_in_its_process_leaves_a_row(tmp_path: Path) -> None:
    chosen = argparse.Namespace(
        rows=tmp_path / "rows.jsonl", jobs=1, limit=200, unchecked=True, device="cpu"
    )
    torch.ones(2000, 2000) @ torch.ones(2000, 2000)  # threads that a fork would lack
    (row,) = run._ran([draw.Block("transformers", "no model", "", "transformers.C")], chosen)
    assert row["status"] == "traceback"
    assert "no model" in row["reason"]


def test_what_differs_is_wrong() -> None:
    good = torch.linspace(-1, 1, 7)
    assert run._error(good, good.clone()) == 0.0
    assert run._error(good, good * 1.01) > run.TOLERANCE
    assert run._error(good, good[:3]) == float("inf")
    assert run._error(good, torch.where(good > 0, good, torch.nan)) == float("inf")


def test_the_last_row_of_a_block_counts(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    for status in ("ended", "verified"):
        run._add(rows, {"class_name": "timm.C", "status": status})
    assert [json.dumps(row) for row in run._rows(rows)] == [
        json.dumps({"class_name": "timm.C", "status": "verified"})
    ]


def test_the_page_counts_and_names_what_was_in_the_way() -> None:
    shared = {"library": "timm", "version": "1.0", "model": "vit", "seconds": 3.2}
    rows = [
        {
            **shared,
            "class_name": "timm.layers.Mlp",
            "status": "verified",
            "reason": "accepted",
            "kernels": ["gelu_kernel"],
            "calls": ["aten.mm"],
        },
        {**shared, "class_name": "timm.layers.A", "status": "kept_original", "reason": "aten.x"},
    ]
    lines = table.page(rows, 0, "h100").splitlines()
    assert "| timm | 2 | 1 | 1 | 0 | 0 | 0 | 0 |" in lines
    assert "| `Mlp` | timm vit | verified | 1 | mm |  | 3 |" in lines
    assert "| `A` | timm vit | kept |  |  | aten.x | 3 |" in lines
