"""Each argument of a constructor is changed by itself, at inputs that go with it."""

import pytest

from agentkernel.tools.judge.cases.plan import Case
from agentkernel.tools.judge.cases.shapes import CaseShape
from agentkernel.tools.judge.variants import constructor_arguments, constructor_variants
from tests.tools.judge.sources import problem_of

SQUARE = problem_of(
    "y = self.scale * (x @ self.weight.t())\n"
    'y = y[:, self.window[0] :] if self.word == "left" else y\n'
    "y + self.window[1]",
    "torch.randn(6, 8)",
    state="self.weight = nn.Parameter(torch.randn(outside, inside))\n"
    "self.window, self.scale, self.word = window, scale, word",
    init=('inside, outside, window=(2, 5), scale=1.0, word="left", unused=0.5', "8, 8"),
)


def _rebuilt(prepared, text, seed=0):
    loaded, captured = prepared(text)
    case = Case(CaseShape(loaded.problem.shape_sets[0], "declared", 0), "normal", 1)
    return constructor_variants(loaded, captured, case, "cpu", seed)


def test_each_argument_is_changed_by_itself(prepared):
    found = _rebuilt(prepared, SQUARE)
    told = {item.case.variant.partition("=")[0]: item for item in found}
    assert list(told) == [
        "built with inside", "built with outside", "built with window[0]",
        "built with window[1]", "built with scale", "built with word",
    ]  # fmt: skip
    assert told["built with inside"].loaded.init_args == (24, 8)
    assert told["built with inside"].inputs.tensors[0].shape == (6, 24)
    assert told["built with outside"].loaded.init_args == (8, 24)
    assert told["built with outside"].inputs.tensors[0].shape == (6, 8)
    first = told["built with window[0]"].loaded.init_kwargs["window"]
    assert type(first) is tuple
    assert first[0] != 2
    assert first[1] == 5


def test_sizes_that_must_be_equal_change_together(prepared):
    text = SQUARE.replace("@ self.weight.t()", "+ self.weight[: len(x)] @ self.weight")
    found = _rebuilt(prepared, text)
    assert found[0].loaded.init_args == (24, 24)
    assert found[0].inputs.tensors[0].shape == (6, 24)


def test_an_argument_that_takes_no_triple_is_asked_otherwise(prepared):
    text = (
        SQUARE.replace("unused=0.5", "groups=4")
        .replace("self.window, ", "self.n = nn.GroupNorm(groups, outside)\n        self.window, ")
        .replace("return y +", "return self.n(x @ self.weight.t()).sum() + y +")
    )
    told = [item.case.variant for item in _rebuilt(prepared, text)]
    assert any(words.startswith("built with groups=") for words in told), told


def test_values_are_drawn(prepared):
    scales = {
        item.case.variant
        for seed in range(4)
        for item in _rebuilt(prepared, SQUARE, seed)
        if "scale" in item.case.variant
    }
    assert len(scales) == 4


def test_what_has_no_signature_of_its_own_has_no_arguments(prepared):
    head = SQUARE.partition("    def __init__")[0]
    text = f"{head}    def forward(self, x):\n        return x + 1\n\n\ndef get_inputs():\n"
    loaded, _ = prepared(f"{text}    return [torch.randn(6, 8)]\n")
    assert constructor_arguments(loaded) == []


@pytest.mark.slow
def test_a_candidate_is_right_or_refuses_to_be_built(judged, sources):
    problem = sources.NORM_PROBLEM.replace("512, 96", "64, 96")
    text = sources.NORM
    takes = ("features)", "features, eps=1e-5)")
    problem = problem.replace(*takes).replace(
        "LayerNorm(features, eps=1e-5)", "LayerNorm(features, eps=eps)"
    )
    text = text.replace(*takes).replace("LayerNorm(features, eps=1e-5)", "LayerNorm(features)")
    guard = "        if eps != 1e-5:\n            raise ValueError(eps)\n"
    first = "        super().__init__()\n"
    verdict = judged(problem, text.replace(first, first + guard))
    assert verdict.accepted, verdict.failure
    assert "built with eps=" in judged(problem, text).failure.case


CONFIGURED = problem_of(
    "self.cfg.scale * x + (self.cfg.inner.shift if self.cfg.on else 0)",
    "torch.randn(6, 8)",
    state="self.cfg = cfg",
    init=("cfg", "CONFIG"),
)
INNER = "\n\nclass Inner:\n    def __init__(self, shift):\n        self.shift = shift\n"
CONFIGS = {
    "a dataclass": "from dataclasses import dataclass, field\n"
    "\n\n@dataclass(frozen=True)\nclass Config:\n    inner: Inner = field(default_factory=lambda: "
    "Inner(3))\n    scale: float = 2.5\n    on: bool = True\n    unused: int = 7\n",
    "a plain class": "\n\nclass Config:\n    def __init__(self):\n        self.inner, self.scale = "
    "Inner(3), 2.5\n        self.on, self.unused = True, 7\n",
    "a namespace": "from types import SimpleNamespace\n\n\ndef Config():\n    "
    "return SimpleNamespace(inner=Inner(3), scale=2.5, on=True, unused=7)\n",
    "a named tuple": "from collections import namedtuple\n\n\nTuple = namedtuple('Tuple', 'inner "
    "scale on unused')\n\n\ndef Config():\n    return Tuple(Inner(3), 2.5, True, 7)\n",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_field_of_a_configuration_is_changed_by_itself(prepared, name):
    head, tail = CONFIGURED.split("\n\n\nclass Model", 1)
    text = f"{head}\n{INNER}{CONFIGS[name]}\n\nclass Model{tail}"
    found = _rebuilt(prepared, text.replace("CONFIG]", "Config()]"))
    told = {item.case.variant.partition("=")[0]: item.loaded.init_args[0] for item in found}
    assert sorted(told) == [
        "built with cfg.inner.shift", "built with cfg.on", "built with cfg.scale",
    ]  # fmt: skip
    changed = told["built with cfg.inner.shift"]
    assert changed.inner.shift != 3
    assert (changed.scale, changed.on) == (2.5, True)
    assert told["built with cfg.on"].on is False
    assert told["built with cfg.on"].inner.shift == 3
