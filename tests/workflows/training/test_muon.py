"""Muon for the matrices of layers, AdamW for the rest, as one optimizer."""

from __future__ import annotations

import copy
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import AdamW, Muon
from torch.optim.lr_scheduler import LambdaLR

from agentkernel.errors import TrainingError
from agentkernel.workflows.training.configuration import load_training
from agentkernel.workflows.training.curve import read_points
from agentkernel.workflows.training.muon import MuonAdamW, muon_groups
from agentkernel.workflows.training.ranks import Ranks
from agentkernel.workflows.training.sft import train_sft
from agentkernel.workflows.training.sharding import is_sharded
from training_rows import make_data

needs_trl = pytest.mark.skipif(find_spec("trl") is None, reason="the extra 'train' is not here")


class Tied(nn.Module):
    """An embedding that is the head as well, and a layer with a norm."""

    _no_split_modules = ("Layer",)

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.layer = Layer()
        self.lm_head = nn.Linear(8, 11, bias=False)
        self.lm_head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.lm_head(self.layer(self.embedding(tokens)))
        return result


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.down(torch.tanh(self.up(self.norm(x))))
        return result


def _made(seed: int = 0) -> tuple[Tied, MuonAdamW]:
    torch.manual_seed(seed)
    model = Tied()
    return model, MuonAdamW(muon_groups(model, 0.1), lr=0.01)


def _step(model: Tied, optimizer: MuonAdamW, place: int) -> None:
    tokens = torch.arange(6).add(place).remainder(11)[None]
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(tokens[:, :-1])[0], tokens[0, 1:]).backward()
    optimizer.step()


def test_each_parameter_learns_once_and_by_what_fits_it() -> None:
    model, optimizer = _made()
    by_muon = [id(item) for item in optimizer.param_groups[0]["params"]]
    assert by_muon == [id(model.layer.up.weight), id(model.layer.down.weight)]
    every = [id(item) for group in optimizer.param_groups for item in group["params"]]
    assert sorted(every) == sorted(map(id, model.parameters()))
    decays = {
        id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]
    }
    assert decays[id(model.embedding.weight)] == 0.1
    assert decays[id(model.layer.norm.weight)] == decays[id(model.layer.up.bias)] == 0.0


def test_a_step_is_that_of_torch() -> None:
    model, optimizer = _made()
    twin, _ = _made()
    inner = (twin.layer.up.weight, twin.layer.down.weight)
    outer = [item for item in twin.parameters() if all(item is not own for own in inner)]
    parts = (
        Muon(inner, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        AdamW(
            [
                {"params": [item for item in outer if item.ndim > 1], "weight_decay": 0.1},
                {"params": [item for item in outer if item.ndim == 1], "weight_decay": 0.0},
            ],
            lr=0.01,
            betas=(0.9, 0.95),
        ),
    )
    for place in range(3):
        _step(model, optimizer, place)
        tokens = torch.arange(6).add(place).remainder(11)[None]
        twin.zero_grad()
        nn.functional.cross_entropy(twin(tokens[:, :-1])[0], tokens[0, 1:]).backward()
        for part in parts:
            part.step()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_schedule_reaches_both() -> None:
    model, optimizer = _made()
    LambdaLR(optimizer, lambda step: 0.0)
    before = [item.clone() for item in model.parameters()]
    _step(model, optimizer, 0)
    assert all(map(torch.equal, before, model.parameters()))


def test_it_goes_on_from_its_state() -> None:
    model, optimizer = _made()
    for place in range(2):
        _step(model, optimizer, place)
    again, other = _made(seed=1)
    again.load_state_dict(model.state_dict())
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for group in other.param_groups:
        group["lr"] = 0.002
    for group in optimizer.param_groups:
        group["lr"] = 0.002
    for place in range(2, 4):
        _step(model, optimizer, place)
        _step(again, other, place)
    assert all(map(torch.equal, model.parameters(), again.parameters()))


@needs_trl
def test_a_model_is_trained_by_it_and_goes_on(tmp_path: Path) -> None:
    data = make_data(tmp_path / "data")
    chosen = ["sft.optimizer=muon", "sft.save_steps=3", "sft.most_steps=12"]
    whole = train_sft(data, load_training("tiny", chosen), tmp_path / "whole")
    points = [point.loss for point in read_points(whole.out) if point.loss is not None]
    assert points[-1] < points[0]
    late = [*chosen, "sft.most_minutes=1e-9"]
    half = train_sft(data, load_training("tiny", late), tmp_path / "half")
    assert half.record.steps < 12
    done = train_sft(data, load_training("tiny", chosen), tmp_path / "half")
    assert done.record.steps == 12


@pytest.mark.parametrize(
    ("change", "ranks", "words"),
    [
        ("sft.method=lora", Ranks(), "sft.method 'lora' trains an adapter"),
        ("sft.shard=full", Ranks(0, 2), "would hold a part of them"),
    ],
)
def test_what_it_cannot_learn_is_refused(change: str, ranks: Ranks, words: str) -> None:
    settings = load_training("tiny", ["sft.optimizer=muon", change])
    with pytest.raises(TrainingError, match=words):
        is_sharded(settings, ranks)
