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
