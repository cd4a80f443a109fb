"""Does a judgement draw, lay out, change and order its inputs in every way that it should?"""

import ast
import math

import pytest
import torch

from agentkernel.tools.judge.cases import interpreted_cases, measured_cases
from agentkernel.tools.judge.judge import plan_cases
from agentkernel.tools.judge.kernel_text import telling_sizes
from agentkernel.tools.judge.layouts import arranged, copied, placed, placement, whole
from agentkernel.tools.judge.question import TF32_STEP, edit, looks_up, rounding
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.judge.shapes import at_sizes
from agentkernel.tools.judge.values import Distribution, Sampler, randomise_state
from agentkernel.tools.lift.specialise import specialise

EVERY = set(Distribution.__args__)


@pytest.mark.parametrize("plan", [interpreted_cases, measured_cases])
def test_a_plan_tries_everything(prepared, sources, plan, monkeypatch):
    loaded, captured = prepared(sources.SOFTMAX_PROBLEM)
    monkeypatch.setattr("agentkernel.tools.judge.judge.interpreted_cases", plan)
    cases = plan_cases(loaded, captured, JudgeSettings())
    required = [case for case in cases if case.required]
    assert {case.distribution for case in cases} == EVERY
    assert {case.distribution for case in required} == EVERY - {"own"}
    assert {case.layout for case in required} == {
        "contiguous",
        "strided",
        "expanded",
        "offset",
        "sliced",
    }
    changes = {echo.change for case in required for echo in case.echoes}
    assert changes >= {"again", "one", "few", "swap", "weights"}
    assert len({case.seed for case in required}) >= 5
    assert len({case.shape.label for case in required}) >= 4
    assert sum(case.primary for case in cases) == 1
    others = plan_cases(loaded, captured, JudgeSettings(seed=1))
    assert [case.distribution for case in cases] != [case.distribution for case in others]


def test_a_large_shape_is_asked_for_plain_values_alone(prepared, sources):
    loaded, captured = prepared(sources.SOFTMAX_PROBLEM)
    settings = JudgeSettings(device="cuda")
    large = loaded.problem.shape_sets[0].label
    plain = plan_cases(loaded, captured, settings)
    cases = plan_cases(loaded, captured, settings, lambda shape: shape.label != large)
    there = [case for case in cases if case.shape.label == large]
    assert [case.distribution for case in there] == ["normal"]
    assert there[0].primary
    asked = {case.distribution for case in cases if case.shape.label != large}
    assert asked == EVERY
    (stand_in,) = {case.shape.label for case in cases if case.distribution == "own"}
    again = [case for case in cases if case.shape.label == stand_in and case.echoes]
    assert {echo.change for echo in again[0].echoes} == {"again", "one", "weights"}
    assert len(cases) == len(plain) + 1


def test_a_large_shape_without_a_stand_in_is_asked_for_the_rest_as_time_allows(prepared, sources):
    loaded, captured = prepared(sources.SOFTMAX_PROBLEM)
    fixed = specialise(captured)
    settings = JudgeSettings(device="cuda", declared_sizes=True)
    cases = plan_cases(loaded, fixed, settings, lambda shape: False)
    assert len({case.shape.label for case in cases}) == 1
    assert sum(case.required for case in cases) == 2
    assert {case.distribution for case in cases} == EVERY


@pytest.fixture(scope="module")
def draw(prepared, sources):
    loaded, _ = prepared(sources.SOFTMAX_PROBLEM)
    sampler = Sampler(loaded, "cpu", 0)

    def one(distribution):
        return sampler.draw(loaded.problem.shape_sets[0], 0, distribution, 3, 1e2)[0]

    return one


def test_distributions_are_what_they_are_called(draw):
    assert torch.equal(draw("constant"), torch.full((64, 200), 0.75))
    assert bool((draw("sorted").diff(dim=-1) >= 0).all())
    assert 1 <= int(draw("nan").isnan().sum()) <= 4
    found = draw("inf")
    assert int((found == math.inf).sum()) >= 1
    assert int((found == -math.inf).sum()) >= 1
    assert not bool(found.isnan().any())


def test_sparse_rows_come_in_four_kinds(draw):
    spikes, head, small, thin = draw("sparse").reshape(16, 4, 200).unbind(1)
    assert 0 < float((spikes != 0).double().mean()) < 0.05
    assert float(head[:, :4].abs().mean()) > 1e3 * float(head[:, 4:].abs().mean())
    assert float(small.abs().max()) < 0.1
    assert 0.03 < float((thin != 0).double().mean()) < 0.2


def test_layouts_lie_as_they_are_called():
    x = torch.randn(6, 8)
    (offset,) = arranged([x], "offset")
    assert torch.equal(offset, x)
    assert offset.storage_offset() == 1
    assert offset.data_ptr() % 16
    (expanded,) = arranged([x], "expanded")
    assert expanded.stride() == (0, 1)
    assert torch.equal(expanded[3], x[0])
    for layout in ("offset", "expanded", "sliced", "strided"):
        (value,) = arranged([x], layout)
        twin = copied(value)
        assert torch.equal(twin, value)
        assert placement(twin) == placement(value)
        assert twin.data_ptr() != value.data_ptr()
        assert torch.equal(placed(whole(value), placement(value)), value)


@pytest.mark.parametrize(
    ("change", "least", "most"), [("one", 1, 1), ("few", 2, 5), ("swap", 16, 16)]
)
def test_changes_touch_as_much_as_they_say(change, least, most):
    x = torch.randn(6, 8)
    before = x.clone()
    edit([x, 3], change, -3.0, 5)
    assert least <= int((x != before).sum()) <= most
    if change == "swap":
        assert math.isclose(float(x.double().sum()), float(before.double().sum()), rel_tol=1e-9)


def test_integers_change_to_others_of_their_own():
    x = torch.randint(0, 9, (50,))
    before = x.clone()
    edit([x], "one", 3.0, 5)
    assert int((x != before).sum()) == 1
    assert int(x.max()) < 9


class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        mask = torch.tensor([0.0, 1.0, -math.inf])
        self.register_buffer("mask", mask)
        self.register_buffer("count", torch.tensor(3))


def test_plain_buffers_move_and_masks_stay_masks():
    module = Masked()
    randomise_state(module, 4)
    assert float(module.mask[0]) == 0.0
    assert 0.5 < float(module.mask[1]) < 1.5
    assert float(module.mask[1]) != 1.0
    assert float(module.mask[2]) == -math.inf
    assert int(module.count) == 3


def test_a_graph_that_takes_elements_by_number_is_known(prepared, sources):
    """Of other sizes there may be fewer than a buffer of numbers says: on a GPU that ends the
    process, so that the CPU tries it first."""
    triangle = (
        "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('rows', torch.tril_indices(6, 6, offset=-1)[0])\n\n"
        "    def forward(self, x):\n        return x[:, self.rows]\n\n\n"
        "def get_inputs():\n    return [torch.randn(4, 6)]\n"
    )
    assert looks_up(prepared(triangle)[1])
    assert not looks_up(prepared(sources.SOFTMAX_PROBLEM)[1])


def test_the_references_own_rounding_is_known(prepared, sources, monkeypatch):
    """Eager rounds to TF32 where a flag lets it: convolutions of fp32 on a GPU, by default."""
    convolution = (
        "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.conv = nn.Conv2d(2, 3, 3)\n\n"
        "    def forward(self, x):\n        return self.conv(x)\n\n\n"
        "def get_inputs():\n    return [torch.randn(1, 2, 8, 8)]\n"
    )
    captured = prepared(convolution)[1]
    assert rounding(captured, "cuda") == TF32_STEP
    assert rounding(captured, "cpu") == 0
    assert rounding(prepared(sources.SOFTMAX_PROBLEM)[1], "cuda") == 0
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert rounding(captured, "cuda") == 0


@pytest.mark.parametrize(
    ("line", "sizes"),
    [
        ("fast = n % 128 == 0", [128]),
        ("blocks = n // 16", [16]),
        ("long = n > 2048", [2048, 2049]),
        ("flat = x.dim() == 2", []),
        ("odd = n % 2 == 1", []),
    ],
)
def test_sizes_that_a_file_tells_from_others_are_read(sources, line, sizes):
    source = sources.SOFTMAX.replace(
        "class ModelNew", f"def way(x, n):\n    {line}\n\n\nclass ModelNew"
    )
    plain = telling_sizes(ast.parse(sources.SOFTMAX))
    assert [size for size in telling_sizes(ast.parse(source)) if size not in plain] == sizes


def test_such_a_size_is_asked_for(prepared, sources):
    loaded, captured = prepared(sources.SOFTMAX_PROBLEM)
    shapes = at_sizes(loaded.problem.shape_sets[0], captured, 20_000, [128])
    assert any(shape.inputs.tensors[0].shape[-1] == 128 for shape in shapes)
    assert all(shape.elements <= 20_000 for shape in shapes)
