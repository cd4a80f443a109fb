"""A large module is constructed once for each seed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from agentkernel.tools.problem import loading
from agentkernel.tools.problem.loading import LoadedProblem, load_problem

TEXT = """
import torch
from torch import nn

class Model(nn.Module):
    count = 0

    def __init__(self):
        super().__init__()
        Model.count += 1
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 64)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x))

def get_inputs():
    return [torch.randn(2, 64)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedProblem:
    monkeypatch.setattr(loading, "REMEMBERED_BYTES", (1, 1 << 30))
    path = tmp_path / "problem.py"
    path.write_text(TEXT)
    return load_problem(str(path))


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_seed_draws_its_numbers_once(large: LoadedProblem) -> None:
    kind = large.module_class
    before = kind.count  # type: ignore[attr-defined]
    first = large.build(seed=3)
    again = large.build(seed=3)
    assert kind.count == before + 1  # type: ignore[attr-defined]
    assert same(first, again)
    assert not same(first, large.build(seed=4))


def test_what_is_done_to_one_shows_in_no_other(large: LoadedProblem) -> None:
    first = large.build(seed=3)
    wanted = first.first.weight.detach().clone()  # type: ignore[union-attr, operator]
    with torch.no_grad():
        first.first.weight.add_(1)  # type: ignore[union-attr, operator]
    first.double()
    again = large.build(seed=3)
    assert torch.equal(again.first.weight, wanted)  # type: ignore[union-attr, arg-type]
    assert again.second.weight is again.first.weight  # type: ignore[union-attr]


def test_the_last_few_are_kept(large: LoadedProblem) -> None:
    for seed in (1, 2, 1, 3):
        large.build(seed=seed)
    assert list(large._constructed) == [1, 3]


HELD = {
    "a hook": "self.register_forward_hook(lambda *_: self.first)",
    "a function": "self.act = lambda x: x * self.first.weight.sum()",
    "a method": "self.act = self.first.forward",
    "a view": "self.cut = nn.Parameter(torch.randn(8, 16)[:, :4])",
    "shared memory": "self.cut = nn.Parameter(self.first.weight.data[:4])",
    "an attribute": "self.first.bias.kind = 'bias'",
}


@pytest.mark.parametrize("line", HELD.values(), ids=HELD)
def test_what_a_copy_would_share_or_lose_is_constructed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(loading, "REMEMBERED_BYTES", (1, 1 << 30))
    path = tmp_path / "problem.py"
    last = "self.second.weight = self.first.weight\n"
    path.write_text(TEXT.replace(last, f"{last}        {line}\n"))
    found = load_problem(str(path))
    found.build(seed=1)
    assert not found._constructed


def test_small_and_huge_modules_are_constructed_anew(
    large: LoadedProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sizes in ((1 << 20, 1 << 30), (1, 64)):
        monkeypatch.setattr(loading, "REMEMBERED_BYTES", sizes)
        large.build(seed=1)
        assert not large._constructed


def test_random_numbers_go_on_as_after_a_construction(large: LoadedProblem) -> None:
    drawn = []
    for _ in range(2):
        large.build(seed=5)
        drawn.append(torch.rand(3))
    assert torch.equal(*drawn)


def test_one_that_cannot_be_copied_is_constructed_anew(
    large: LoadedProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, memo: object) -> None:
        raise RuntimeError("no copies")

    monkeypatch.setattr(large.module_class, "__deepcopy__", refuse, raising=False)
    assert same(large.build(seed=3), large.build(seed=3))
    assert not large._constructed
