"""Inputs of a judgement are drawn, laid out, changed and ordered in every way."""

import ast
import math

import pytest
import torch

from agentkernel.domain.problem import ShapeSet
from agentkernel.tools.judge.cases.edge_inputs import (
    constants_of,
    literals_of,
    row_structure,
    wide_inputs,
)
from agentkernel.tools.judge.cases.layouts import (
    arranged,
    copied,
    permuted,
    placed,
    placement,
    whole,
)
from agentkernel.tools.judge.cases.module_state import randomise_state
from agentkernel.tools.judge.cases.patterns import peak_places
from agentkernel.tools.judge.cases.plan import (
    KINDS,
    Case,
    FollowUp,
    in_modes,
    interpreted_cases,
    measured_cases,
    source_modes,
)
from agentkernel.tools.judge.cases.selection import end_cases, plan_cases
from agentkernel.tools.judge.cases.shapes import (
    MOST_RESULTS,
    CaseShape,
    at_sizes,
    capture_covers,
    drawn_sizes,
    past_tile,
    with_least_sizes,
    within,
)
from agentkernel.tools.judge.cases.values import Distribution, Sampler, SpecialValues
from agentkernel.tools.judge.policy.kernel_source import largest_tile, telling_sizes
from agentkernel.tools.judge.reference.oracle_inputs import (
    TF32_STEP,
    OracleInputs,
    ReferenceCase,
    edit,
    indexes_elements,
    rounding,
)
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.problem.specialise import specialise
from tests.tools.judge.sources import problem_of

EVERY = set(Distribution.__args__) - {"wide"}
LAYOUTS = ("offset", "sliced", "stepped")
WEIGHT = "self.weight = nn.Parameter(torch.ones(100))"


@pytest.mark.parametrize("plan", [interpreted_cases, measured_cases])
def test_a_plan_tries_everything(prepared, sources, plan, monkeypatch):
    loaded, captured = prepared(sources.SOFTMAX_PROBLEM)
    monkeypatch.setattr("agentkernel.tools.judge.cases.selection.interpreted_cases", plan)
    cases = plan_cases(loaded, captured, JudgeSettings(seed=0))
    required = [case for case in cases if case.required]
    assert {case.distribution for case in cases} == EVERY
    assert {case.distribution for case in required} == EVERY - {"own"}
    assert {case.layout for case in required} == {
        "contiguous",
        "strided",
        "stepped",
        "expanded",
        "offset",
        "sliced",
        "overlapping",
    }
    changes = {follow_up.change for case in required for follow_up in case.follow_ups}
    assert changes >= {"again", "one", "few", "swap", "weights"}
    assert len({case.seed for case in required}) >= 5
    assert len({case.shape.label for case in required}) >= 4
    assert sum(case.primary for case in cases) == 1
    others = plan_cases(loaded, captured, JudgeSettings(seed=1))
    assert [case.distribution for case in cases] != [case.distribution for case in others]


def test_what_a_file_may_tell_apart_is_asked_both_ways(prepared, sources):
    loaded, captured = prepared(sources.SOFTMAX_PROBLEM)
    plan = plan_cases(loaded, captured, JudgeSettings(seed=0))
    text = "torch.is_grad_enabled() and self.training"
    for seed in range(12):
        cases = in_modes(plan, lambda shape: True, source_modes(text), seed)
        assert not any(case.gradients for case in cases)
        again = [case for case in cases if FollowUp("again") in case.follow_ups and case.required]
        assert {case.layout for case in again} >= {"strided", "stepped"}
        assert "nan" in {case.distribution for case in again}
        trained = [case for case in cases if FollowUp("training") in case.follow_ups]
        most = max(case.shape.elements for case in plan if case.required)
        for asked in (again, trained):
            assert most in {case.shape.elements for case in asked}
        assert {case.kind for case in cases if case.required} == set(KINDS)


def test_training_mode_is_asked_where_the_original_is_the_same_there(prepared):
    text = problem_of("nn.functional.dropout(x.relu(), 0.5, self.training)", "torch.rand(8)")
    loaded, captured = prepared(text)
    same, _ = prepared(problem_of("x.relu()", "torch.rand(8)"))
    for problem, expected in ((loaded, None), (same, 1)):
        oracle_inputs = OracleInputs(problem, captured, JudgeSettings(seed=0), [])
        shape = CaseShape(problem.problem.shape_sets[0], "declared", 0)
        for distribution in ("normal", "zeros"):  # of zeros dropout gives zeros, and draws
            case = Case(shape, distribution, 1)
            reference_case = oracle_inputs.ask(case)
            found = oracle_inputs.follow(case, reference_case, FollowUp("training"))
            assert found is (reference_case if expected else None)


def test_one_case_of_three_records_gradients(prepared, sources):
    loaded, captured = prepared(sources.SOFTMAX_PROBLEM)
    plan = plan_cases(loaded, captured, JudgeSettings(seed=0))
    drawn = [in_modes(plan, lambda shape: True, source_modes(""), seed) for seed in range(12)]
    places = [{at for at, case in enumerate(cases) if case.gradients} for cases in drawn]
    assert all(len(found) >= len(plan) // 5 for found in places)
    assert len(set.union(*places)) > 2 * len(plan) // 3
    assert [case.follow_ups for case in drawn[0]] == [case.follow_ups for case in plan]
    assert in_modes(plan, lambda shape: False, source_modes("grad"), 0) == plan


def test_a_large_shape_is_asked_for_plain_values_alone(prepared, sources):
    loaded, captured = prepared(sources.SOFTMAX_PROBLEM)
    settings = JudgeSettings(seed=0, device="cuda")
    large = loaded.problem.shape_sets[0].label
    plain = plan_cases(loaded, captured, settings)
    cases = plan_cases(loaded, captured, settings, lambda shape: shape.label != large)
    there = [case for case in cases if case.shape.label == large]
    assert [case.distribution for case in there] == ["normal"]
    assert there[0].primary
    asked = {case.distribution for case in cases if case.shape.label != large}
    assert asked == EVERY
    (stand_in,) = {case.shape.label for case in cases if case.distribution == "own"}
    again = [case for case in cases if case.shape.label == stand_in and case.follow_ups]
    assert {follow_up.change for follow_up in again[0].follow_ups} == {"again", "one", "weights"}
    assert len(cases) == len(plain) + 1


def test_a_large_shape_without_a_stand_in_is_asked_for_the_rest_as_time_allows(prepared, sources):
    loaded, captured = prepared(sources.SOFTMAX_PROBLEM)
    fixed = specialise(captured)
    settings = JudgeSettings(seed=0, device="cuda", declared_sizes=True)
    cases = plan_cases(loaded, fixed, settings, lambda shape: False)
    assert len({case.shape.label for case in cases}) == 1
    assert sum(case.required for case in cases) == 2
    assert {case.distribution for case in cases} == EVERY


def test_each_judgement_has_a_seed_of_its_own():
    seeds = {JudgeSettings().seed for _ in range(8)}
    assert len(seeds) == 8
    assert all(0 <= seed < 1 << 31 for seed in seeds)
    assert JudgeSettings(seed=7).seed == 7


@pytest.fixture(scope="module")
def draw(prepared, sources):
    loaded, _ = prepared(sources.SOFTMAX_PROBLEM)
    sampler = Sampler(loaded, "cpu", 0)

    def one(distribution, scale=1e2, seed=3):
        return sampler.draw(loaded.problem.shape_sets[0], 0, distribution, seed, scale)[0]

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


def test_one_element_of_each_row_stands_apart_by_another_height(draw):
    """The kind of a kernel that leaves out what is small beside the largest: whatever its
    threshold, some row has a largest element just past it, and many others below."""
    value = draw("spiked", 1.0)
    place = value.abs().argmax(-1, keepdim=True)
    assert len(place.unique()) > 40
    heights = value.gather(-1, place).abs().sort(dim=0).values.flatten()
    assert float(heights.min()) < 4
    assert float(heights.max()) > 35
    between = heights[(heights > 5) & (heights < 30)]
    assert float((between[1:] / between[:-1]).max()) < 1.35
    rest = value.scatter(-1, place, 0.0)
    assert 0.4 < float(rest.std()) < 0.6


def test_every_place_of_every_line_outweighs_its_line_once(prepared):
    """The kind of a kernel that does not read one slice of what it reduces."""
    loaded, _ = prepared(problem_of("x.sum(-1)", "torch.randn(64, 33)"))
    sampler = Sampler(loaded, "cpu", 0)
    (value,) = sampler.draw(loaded.problem.shape_sets[0], 0, "peaked", 5, 1.0)
    for lines in (value, value.t()):
        shares = lines.square() / lines.square().sum(-1, keepdim=True)
        heavy = shares > 0.1
        assert bool(heavy.any(-1).all())
    assert bool((value.square() / value.square().sum(-1, keepdim=True) > 0.1).any(0).all())
    for size in (3, 16, 100, 5000):
        places = peak_places(size, torch.Generator().manual_seed(0), "cpu")
        assert sorted(places.tolist()) == list(range(size))
        assert places[:2].tolist() == [size - 1, 0]


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("arguments", "result", "inputs", "wide"),
    [
        ("x, y", "x * y + x", "torch.randint(0, 9, (4, 60)), torch.randint(-9, 9, (4, 60))",
         (0, 1)),
        ("x", "(x >> 3) ^ x", "torch.randint(0, 9, (4, 60))", (0,)),
        ("x", "x.sum(0).float().exp()", "torch.randint(0, 9, (4, 60), dtype=torch.int32)", (0,)),
        ("x", "x.argmax(-1)", "torch.randint(0, 9, (4, 60))", (0,)),
        ("x", "torch.cat([x[:, 1:], x[:, :1]], 1)", "torch.randint(0, 9, (4, 60))", (0,)),
        ("x", "x.topk(3)[0] * 2", "torch.randint(0, 9, (4, 60))", (0,)),
        ("x", "x.sort(-1)[1] + x", "torch.randint(0, 9, (4, 60))", (0,)),
        ("x, y", "x.gather(1, x.argmin(1, keepdim=True)) + x[:, y]",
         "torch.randint(0, 9, (4, 60)), torch.randint(0, 9, (4,))", (0,)),
        ("x", "x.roll(1, -1)[x[0] % 4]", "torch.randint(0, 9, (4, 60))", ()),
        ("x, y", "x[y]", "torch.randn(9, 60), torch.randint(0, 9, (4,))", ()),
        ("x, y", "x >> y", "torch.randint(0, 9, (4, 60)), torch.randint(0, 9, (4, 60))", ()),
        ("x, y", "(x + y)[x[0] * 0]", "torch.randint(0, 9, (4, 60)), torch.randint(0, 9, (4, 60))",
         (1,)),
        ("x", "x.relu()", "torch.randn(4, 60)", ()),
    ],
)  # fmt: skip
def test_integers_of_exact_arithmetic_are_drawn_over_their_type(
    prepared, arguments, result, inputs, wide
):
    loaded, captured = prepared(problem_of(result, inputs, arguments))
    assert tuple(wide_inputs(captured)) == wide
    asked = [
        case
        for case in plan_cases(loaded, captured, JudgeSettings(seed=0))
        if case.distribution == "wide"
    ]
    assert len(asked) == bool(wide)
    sampler = Sampler(loaded, "cpu", 0, SpecialValues(wide=wide_inputs(captured)))
    values = sampler.draw(loaded.problem.shape_sets[0], 0, "wide", 3, 63.0)
    for position, value in enumerate(values):
        if position in wide:
            most = torch.iinfo(value.dtype).max
            assert int(value.abs().max()) > most // 8
            assert int(((value.abs() > 100) & (value.abs() < 1 << 15)).sum()) > 5
            assert bool((value < 0).any())
            largest = value.sort(-1).values[..., -2:].diff()
            assert int(largest.min()) < 8  # no narrower type tells the two apart
        elif not value.is_floating_point():
            assert int(value.max()) < 9


def test_constants_of_the_graph_and_their_neighbours_are_drawn(prepared):
    form = problem_of(
        "torch.clamp(x, -0.5, 2.0) + torch.where(x > 0.3, x, 7.5)",
        "torch.randn(60, 60, dtype=DTYPE)",
        "x",
    )
    for dtype in (torch.float32, torch.bfloat16):
        loaded, captured = prepared(form.replace("DTYPE", str(dtype)))
        constants = constants_of(captured)
        assert {-0.5, 2.0, 0.3} <= set(constants)
        sampler = Sampler(loaded, "cpu", 0, SpecialValues(constants=constants))
        (value,) = sampler.draw(loaded.problem.shape_sets[0], 0, "uniform", 3, 1.0)
        for number in (-0.5, 2.0, 0.3):
            exact = torch.tensor(number, dtype=dtype)
            for toward in (exact, torch.tensor(9.0, dtype=dtype), torch.tensor(-9.0, dtype=dtype)):
                assert bool((value == torch.nextafter(exact, toward)).any())
        (plain,) = sampler.draw(loaded.problem.shape_sets[0], 0, "uniform", 3, 0.0)
        assert 0 <= float(plain.min()) <= float(plain.max()) <= 1


def test_layouts_lie_as_they_are_called():
    x = torch.randn(6, 8)
    (offset,) = arranged([x], "offset")
    assert torch.equal(offset, x)
    assert offset.storage_offset() % 2
    assert offset.data_ptr() % 16
    (expanded,) = arranged([x], "expanded")
    assert expanded.stride() == (0, 1)
    assert torch.equal(expanded[3], x[0])
    (overlapping,) = arranged([x], "overlapping")
    step = overlapping.stride(0)
    assert 0 < step < 8
    assert torch.equal(overlapping[1, : 8 - step], overlapping[0, step:])
    for layout in ("offset", "expanded", "sliced", "strided", "overlapping"):
        (value,) = arranged([x], layout)
        twin = copied(value)
        assert torch.equal(twin, value)
        assert placement(twin) == placement(value)
        assert twin.data_ptr() != value.data_ptr()
        assert torch.equal(placed(whole(value), placement(value)), value)


def test_layouts_are_drawn():
    """No file knows the steps, the margins and the places in memory."""
    x = torch.randn(6, 8)
    drawn = [arranged([x], layout, seed)[0] for seed in range(20) for layout in LAYOUTS]
    assert {value.stride(-1) for value in drawn} >= {2, 3, 5}
    assert any(value.stride(0) > 8 and value.stride(0) % 16 == 0 for value in drawn)
    assert any(value.storage_offset() > 4 * 8 for value in drawn)
    assert len({value.stride() for value in drawn}) > 10
    assert all(torch.equal(value, x) for value in drawn)


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
    rows = "self.register_buffer('rows', torch.tril_indices(6, 6, offset=-1)[0])"
    triangle = problem_of("x[:, self.rows]", "torch.randn(4, 6)", state=rows)
    assert indexes_elements(prepared(triangle)[1])
    assert not indexes_elements(prepared(sources.SOFTMAX_PROBLEM)[1])


def test_the_references_own_rounding_is_known(prepared, sources, monkeypatch):
    """Eager rounds to TF32 where a flag lets it: convolutions of fp32 on a GPU, by default."""
    convolution = problem_of(
        "self.conv(x)", "torch.randn(1, 2, 8, 8)", state="self.conv = nn.Conv2d(2, 3, 3)"
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
        ("limit = 3 * 1000\n    long = n > limit", [3000, 3001]),
        ("limit = 1 << 12\n    long = n >= limit - 1", [4095, 4096]),
        ("odd = n % 2 == 1", []),
        ("other = n % 61 == 7", [68, 61]),
        ("other = n & 63 == 39", [103, 40, 39]),
        ("few = x.shape[0] == 5", [5]),
        ("few = x.dim() == 5", []),
    ],
)
def test_sizes_that_a_file_tells_from_others_are_read(sources, line, sizes):
    source = sources.SOFTMAX.replace(
        "class ModelNew", f"def way(x, n):\n    {line}\n\n\nclass ModelNew"
    )
    plain = telling_sizes(ast.parse(sources.SOFTMAX))
    assert [size for size in telling_sizes(ast.parse(source)) if size not in plain] == sizes


def test_places_and_remainders_that_a_kernel_asks_for_are_read(sources):
    line = "    e = tl.where((n % 61 == 7) | (cols == 777), 0.0, e)\n"
    source = sources.SOFTMAX.replace("    tl.store(", f"{line}    tl.store(", 1)
    assert source != sources.SOFTMAX
    assert telling_sizes(ast.parse(source))[:2] == [68, 778]


def test_such_a_size_is_asked_for(prepared, sources):
    loaded, captured = prepared(sources.SOFTMAX_PROBLEM)
    shapes = at_sizes(loaded.problem.shape_sets[0], captured, 20_000, [128])
    assert any(shape.inputs.tensors[0].shape[-1] == 128 for shape in shapes)
    assert all(shape.elements <= 20_000 for shape in shapes)


def test_a_size_is_drawn_for_each_judgement(prepared, sources):
    """Odd and even ones, multiples of 16 and of 128: no file knows them."""
    for seed in range(5):
        sizes = drawn_sizes(seed)
        assert any(size % 2 for size in sizes)
        assert any(size % 16 == 0 for size in sizes)
        assert any(size % 128 == 0 for size in sizes)
    loaded, captured = prepared(sources.SOFTMAX_PROBLEM)
    plans = [
        {case.shape.label for case in plan_cases(loaded, captured, JudgeSettings(seed=seed))}
        for seed in range(5)
    ]
    always = set.intersection(*plans)
    assert len(set.union(*plans) - always) >= 4


def test_inputs_of_many_dimensions_lie_in_other_orders(prepared):
    form = problem_of(
        "x + y + z.sum()",
        "torch.randn(6, 5, 4, 3), torch.randn(6, 5, 4, 3), torch.randn(7)",
        "x, y, z",
    )
    loaded, captured = prepared(form)
    cases = plan_cases(loaded, captured, JudgeSettings(seed=0))
    assert any(case.layout == "permuted" and case.required for case in cases)
    given = [torch.randn(6, 5, 4, 3), torch.randn(6, 5, 4, 3), torch.randn(6, 5, 4)]
    found = permuted([*given, torch.ones(3), 2])
    assert all(torch.equal(one, other) for one, other in zip(given, found, strict=False))
    assert (
        found[0].stride() == torch.empty_like(given[0], memory_format=torch.channels_last).stride()
    )
    assert found[1].transpose(1, 2).is_contiguous()
    assert found[2].permute(0, 2, 1).is_contiguous()
    (swapped,) = permuted([given[2], given[2]])[1:]
    assert swapped.transpose(0, 1).is_contiguous()


def test_exact_values_and_literals_of_the_file_are_drawn(prepared):
    """The kinds of a rounding that is wrong at ties, and of a threshold that is taken for past."""
    loaded, captured = prepared(problem_of("torch.round(x)", "torch.randn(64, 200)"))
    literals = literals_of("def f(x):\n    return x * 0.37 + 1e-30 + 5\n")
    assert literals == (0.37, -0.37)
    sampler = Sampler(loaded, "cpu", 0, SpecialValues(constants=constants_of(captured)))
    sampler.add_constants(literals)
    (value,) = sampler.draw(loaded.problem.shape_sets[0], 0, "uniform", 3, 2.0)
    for number in (0.5, -1.5, 2.5, -3.0, 0.0, 0.37, -0.37):
        assert bool((value == torch.tensor(number)).any())
    (mild,) = sampler.draw(loaded.problem.shape_sets[0], 0, "uniform", 3, 1.0)
    assert not bool((mild == 2.5).any())


def test_fractions_that_no_operator_compares_with_are_constants_too(prepared):
    _, captured = prepared(problem_of("x * 0.75 + x.clamp(max=2)", "torch.randn(4, 8)"))
    assert constants_of(captured) == (2.0, 0.75)


def test_rows_of_what_is_elementwise_have_any_size(prepared):
    loaded, captured = prepared(
        problem_of("torch.hypot(x, y)", "torch.randn(32, 100), torch.randn(32, 100)", "x, y")
    )
    sampler = Sampler(loaded, "cpu", 0, SpecialValues(rows=row_structure(captured)))
    x, y = sampler.draw(loaded.problem.shape_sets[0], 0, "rows", 3, 1.0)
    sizes = x.double().square().mean(-1).sqrt()
    assert float(sizes.max()) > 1e20
    assert float(sizes.min()) < 1e-20
    assert bool(((sizes > 1e-18) & (sizes < 1e-9)).any())
    others = y.double().square().mean(-1).sqrt()
    assert bool(((sizes / others).log10().abs() < 0.5).all())
    assert not torch.equal(x, y)


def test_one_row_of_what_is_reduced_is_masked_as_a_whole(prepared):
    for result, dim in (("x.softmax(-1)", 1), ("x.softmax(0)", 0)):
        loaded, captured = prepared(problem_of(result, "torch.randn(16, 9)"))
        sampler = Sampler(loaded, "cpu", 0, SpecialValues(rows=row_structure(captured)))
        (x,) = sampler.draw(loaded.problem.shape_sets[0], 0, "rows", 3, 1.0)
        assert int((x == -math.inf).all(dim).sum()) == 1
        assert int(x.isinf().sum()) == x.shape[dim]


def test_masks_have_rows_that_are_special_as_a_whole(prepared):
    loaded, captured = prepared(
        problem_of(
            "torch.where(m, x, 0.0).sum(-1)", "torch.randn(16, 9), torch.rand(16, 9) < 0.5", "x, m"
        )
    )
    sampler = Sampler(loaded, "cpu", 0, SpecialValues(rows=row_structure(captured)))
    _, mask = sampler.draw(loaded.problem.shape_sets[0], 0, "rows", 3, 1.0)
    counts = mask.sum(-1)
    assert int((counts == 0).sum()) >= 3
    assert int((counts == 9).sum()) >= 3
    assert int((counts == 1).sum()) >= 3
    starts = mask[:, :-1] | ~mask[:, 1:]
    assert bool((starts.all(-1) & (counts > 1) & (counts < 9)).any())


def test_inputs_that_are_compared_nearly_equal_each_other(prepared):
    inputs = "torch.randn(32, 10), torch.randn(32, 10)"
    for result, alike in (("(x == y).all(-1)", True), ("(x + y).sum(-1)", False)):
        loaded, captured = prepared(problem_of(result, inputs, "x, y"))
        sampler = Sampler(loaded, "cpu", 0, SpecialValues(rows=row_structure(captured)))
        x, y = sampler.draw(loaded.problem.shape_sets[0], 0, "rows", 3, 1.0)
        same = (x == y) | x.isinf()
        if not alike:
            assert not bool(same[~x.isinf()].any())
            continue
        assert set(same.sum(-1).tolist()) <= {9, 10}
        assert bool((~same).any(0).all())


class Weighted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(64)
        self.gamma = torch.nn.Parameter(torch.full((64, 1), 1e-4))
        self.slope = torch.nn.Parameter(torch.full((1,), 0.25))
        self.table = torch.nn.Parameter(torch.rand(64, 64))
        self.register_buffer("mask", torch.ones(9, 9).tril().bool())
        self.register_buffer("index", torch.arange(30))


@torch.no_grad()
def test_weights_have_any_sign_and_size():
    plain, odd = Weighted(), Weighted()
    randomise_state(plain, 4)
    randomise_state(odd, 4, sign=-1)
    assert float(plain.norm.weight.min()) > 0
    assert torch.equal(plain.index, torch.arange(30))
    for value in (odd.norm.weight, odd.gamma, odd.table):
        assert float(value.min()) < 0 < float(value.max())
        assert int((value == 0).sum()) > 0
    assert float(odd.gamma.std()) > 0.5
    assert float(odd.slope) < -1
    randomise_state(odd, 5, sign=1)
    assert float(odd.slope) > 1
    assert not torch.equal(odd.mask, plain.mask)
    assert torch.equal(odd.mask.sum(-1), plain.mask.sum(-1))
    assert not torch.equal(odd.index, plain.index)
    assert torch.equal(odd.index.sort().values, plain.index)


class Kept(torch.nn.Module):
    """What a module keeps that the same constructor makes the same everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("correction", torch.zeros(48))
        self.register_buffer("gain", torch.full((48,), 3.0))
        self.register_buffer("zero_point", torch.zeros(48, dtype=torch.int32))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mask", torch.full((48, 48), -math.inf).triu(1))
        self.table = torch.nn.Parameter(torch.randn(48, 8))


@torch.no_grad()
def test_what_is_the_same_everywhere_in_a_state_gets_other_values():
    """The kinds of a correction that is zero at the start, of zero points, of a mask that is taken
    for causal, of a count that is never high and of a row of zeros that is never met."""
    plain, odd, few = Kept(), Kept(), Kept()
    masked = plain.mask.isinf()
    randomise_state(odd, 4, sign=-1, least=-3)
    randomise_state(few, 4, sign=1, least=0)
    for module in (odd, few):
        for value in (module.correction, module.gain):
            assert float(value.min()) < 0 < float(value.max())
        assert len(module.zero_point.unique()) > 1
        assert not torch.equal(module.mask.isinf(), masked)
        assert torch.equal(module.mask.isinf().sum(-1), masked.sum(-1))
        assert int((module.table == 0).all(-1).sum()) >= 1
    assert int(odd.zero_point.min()) < 0 <= int(few.zero_point.min())
    assert int(few.step) == 1_000
    assert int(odd.step) == 100_000
    randomise_state(plain, 4, sign=1)
    assert int(plain.step) == 0
    assert float(plain.correction.abs().max()) == 0


def test_a_module_that_looks_up_by_a_buffer_is_asked_for_rows_that_there_are(prepared):
    kinds = "self.register_buffer('kinds', torch.zeros(6, dtype=torch.int64))"
    table = "self.table = nn.Parameter(torch.randn(2, 6))"
    text = problem_of(
        "x + self.table[self.kinds]", "torch.randn(4, 6, 6)", state=f"{kinds}\n{table}"
    )
    for distribution in ("uniform", "spiked"):
        _, reference_case = asked(prepared, text, distribution)
        assert isinstance(reference_case, ReferenceCase), reference_case
        assert int(reference_case.model.kinds.min()) >= 0
        assert int(reference_case.model.kinds.max()) == 1


def test_special_values_meet_where_a_module_is_elementwise(prepared):
    """The kind of 0 * NaN, and of two infinities."""
    shapes = "torch.randn(16, 9), torch.randn(16, 9)"
    _, reference_case = asked(prepared, problem_of("x * y", shapes, "x, y"), "nan")
    words = {
        (str(a), str(b))
        for a, b in zip(*(item.flatten().tolist() for item in reference_case.inputs), strict=True)
    }
    for pair in (("nan", "0.0"), ("inf", "0.0"), ("-inf", "-inf"), ("inf", "-inf"), ("nan", "inf")):
        assert pair in words
        assert pair[::-1] in words
    oracle = reference_case.answer.oracle[0]
    zero_by_nan = (reference_case.inputs[0] == 0) & reference_case.inputs[1].isnan()
    assert bool(oracle[zero_by_nan].isnan().all())
    shapes = "torch.randn(16, 9), torch.randn(9), torch.randn(16, 1)"
    _, reference_case = asked(prepared, problem_of("x * y + z", shapes, "x, y, z"), "nan")
    for value in reference_case.inputs[:2]:
        assert bool(value.isnan().any())
        assert bool((value == -math.inf).any())
    shapes = "torch.randn(16, 9), torch.randn(9, 16)"
    _, reference_case = asked(prepared, problem_of("x @ y", shapes, "x, y"), "nan")
    assert int(reference_case.inputs[0].isnan().sum()) <= 4


def test_every_tensor_is_asked_turned_and_with_a_step():
    """The kind of a single input that is taken for the transpose of something contiguous."""
    x, y = torch.arange(12.0).reshape(3, 4), torch.arange(8.0).reshape(2, 4)
    turned, stepped = arranged([x, 2.0, y], "strided"), arranged([x, 2.0, y], "stepped")
    assert [item.stride() for item in (turned[0], stepped[2])] == [(1, 3), (1, 2)]
    assert all(item.stride()[-1] > 1 for item in (stepped[0], turned[2]))
    for found in (turned, stepped):
        assert torch.equal(found[0], x)
        assert found[1] == 2.0
        assert torch.equal(found[2], y)


def test_large_values_are_as_large_as_the_reference_takes(prepared):
    for body, least in (("x.softmax(-1)", 1e14), ("x ** 4", 1e4), ("x.exp()", 1.0)):
        _, reference_case = asked(prepared, problem_of(body, "torch.randn(16, 30)"), "large")
        assert isinstance(reference_case, ReferenceCase), reference_case
        assert float(reference_case.inputs[0].abs().max()) > least


def asked(prepared, text, distribution):
    loaded, captured = prepared(text)
    settings = JudgeSettings(seed=0)
    oracle_inputs = OracleInputs(loaded, captured, settings, [])
    plan = plan_cases(loaded, captured, settings)
    return oracle_inputs, oracle_inputs.ask(
        next(case for case in plan if case.distribution == distribution)
    )


def test_a_module_is_asked_within_its_domain(prepared):
    """The kind of an asymptote that is taken too early, in a mean of which no signed draw makes
    numbers."""
    form = problem_of("torch.acosh(x).mean(-1)", "1.0 + torch.rand(16, 100)")
    for distribution in ("spiked", "large", "uniform", "sparse"):
        _, reference_case = asked(prepared, form, distribution)
        assert isinstance(reference_case, ReferenceCase), reference_case
        assert float(reference_case.inputs[0].min()) >= 1


def test_weights_of_any_sign_are_asked_where_the_original_takes_them(prepared):
    """A root of a weight below zero is none."""
    for result, signed in (("x * self.weight", True), ("x * self.weight.sqrt()", False)):
        text = problem_of(result, "torch.randn(16, 100)", state=WEIGHT)
        _, reference_case = asked(prepared, text, "spiked")
        assert bool((reference_case.model.weight.detach() < 0).any()) == signed


def test_vectors_of_weights_have_any_size_where_the_original_takes_them(prepared):
    """The kind of outlier channels past a clamp. An exponential of a million is no number."""
    for result, most in (("x * self.weight", 1e4), ("x * self.weight.exp()", 0)):
        text = problem_of(result, "torch.randn(16, 100)", state=WEIGHT)
        _, reference_case = asked(prepared, text, "sorted")
        sizes = reference_case.model.weight.detach().abs()
        assert (float(sizes.max()) > 1e4) == bool(most)
        assert (float(sizes.min()) < 1e-4) == bool(most)


@torch.no_grad()
def test_some_variances_vanish():
    norm = torch.nn.BatchNorm1d(32)
    randomise_state(norm, 4, sign=-1)
    assert int((norm.running_var == 0).sum()) == 2
    assert int((norm.running_var == 1e-8).sum()) == 2
    randomise_state(norm, 4, sign=1)
    assert float(norm.running_var.max()) > 0.1


STATE = (
    "self.codes = nn.Parameter(torch.randn(12, 100))\n"
    "self.register_buffer('edges', torch.arange(5) - 1.5)"
)


def test_inputs_are_elements_and_rows_of_the_state(prepared):
    """The kinds of an edge that falls on the wrong side and of a point that is a code itself."""
    result = "(x[..., None] > self.edges).sum(-1) + (x @ self.codes.T).sum()"
    _, reference_case = asked(
        prepared, problem_of(result, "torch.randn(16, 100)", state=STATE), "uniform"
    )
    (x,) = reference_case.inputs
    model = reference_case.model
    assert bool(torch.isin(x, model.edges).any())
    codes = model.codes.detach()
    assert bool((x[:, None] == codes).all(-1).any())


def test_what_is_subtracted_lies_as_far_from_zero_as_the_input(prepared):
    """The kind of a distance by the square's expansion, of which nothing is left there."""
    for result, far in (
        ("(x[:, None] - self.codes).square().sum(-1)", True),
        ("x @ self.codes.T", False),
    ):
        text = problem_of(result, "torch.randn(16, 100)", state=STATE)
        _, reference_case = asked(prepared, text, "shifted")
        assert (float(reference_case.model.codes.detach().mean()) > 1e2) == far


def test_integers_are_asked_below_zero_but_where_a_loop_counts_them_down(prepared):
    form = "torch.randint(0, 9, (4, 60)), torch.randint(0, 9, (4, 60))"
    assert wide_inputs(prepared(problem_of("x % 7 + y", form, "x, y"))[1]) == {0: True, 1: True}
    assert wide_inputs(prepared(problem_of("torch.gcd(x, y)", form, "x, y"))[1]) == {
        0: False,
        1: False,
    }


def test_rows_of_a_slice_in_the_middle_lie_at_no_one_step():
    x = torch.randn(4, 6, 5)
    (value,) = arranged([x], "sliced")
    assert torch.equal(value, x)
    assert value.stride(-1) == 1
    assert value.stride(0) != value.stride(1) * x.shape[1]
    first, second = arranged([torch.randn(4, 6, 5, 7), torch.randn(4, 6, 5, 7)], "swapped")
    assert first.transpose(1, 2).is_contiguous()
    assert second.is_contiguous(memory_format=torch.channels_last)


def test_the_largest_tile_of_a_file_is_known():
    head = "import triton\nWIDE = 1 << 11\n"
    for line, tile in (
        ("k[(1,)](x, n, BLOCK=2048)", 2048),
        ("k[(1,)](x, n, BLOCK=WIDE)", 2048),
        ("triton.Config({'BLOCK': 512}, num_warps=4)", 512),
        ("tl.arange(0, 64)", 64),
        ("k[(1,)](x, 4096)", 0),
        ("k[(1,)](x, n, BLOCK=min(n, WIDE))", 2048),
        (
            "@triton.jit\ndef k(x, B):\n    for i in range(8):\n        x += B\nk[(1,)](x, B=128)",
            1024,
        ),
        (
            "@triton.jit\ndef k(x, n, B):\n    for i in range(0, n, B):\n        x += B\n"
            "k[(1,)](x, n, B=128)",
            128,
        ),
    ):
        assert largest_tile(ast.parse(head + line)) == tile


def test_a_size_past_a_tile_and_sizes_of_zero_are_asked(prepared, sources):
    loaded, captured = prepared(sources.SOFTMAX_PROBLEM)
    inputs = loaded.problem.shape_sets[0]
    plan = plan_cases(loaded, captured, JudgeSettings(seed=0))
    asked = [case.shape for case in plan]
    longer = past_tile(inputs, captured, 150_000, 2048, asked)
    assert longer.inputs.tensors[0].shape[-1] == 2049
    assert past_tile(inputs, captured, 150_000, 128, asked) is None
    *empty, single = [x.inputs.tensors[0].shape for x in with_least_sizes(inputs, captured)]
    assert {shape.index(0) for shape in empty} == {0, 1}
    assert single == (1, 1)


def test_a_tensor_of_more_elements_than_a_number_of_the_file_is_asked(prepared, sources):
    loaded, captured = prepared(sources.SOFTMAX_PROBLEM)
    small = Case(CaseShape(loaded.problem.shape_sets[0], "declared", 0), "normal", 1)
    asked = [small.shape]

    def largest(text):
        found = end_cases(small, asked, captured, ast.parse(text), 150_000)
        return max(case.shape.elements for case in found)

    assert largest("i = x & 0x3FFFF") > 1 << 18
    assert largest("i = x & ((1 << 17) - 1)") in range((1 << 17) + 1, (1 << 18) + 1)
    assert largest("i = x % 131072 + (y & 0x3FFFF)") > 1 << 18
    few = max(x.elements for x in with_least_sizes(small.shape.inputs, captured))
    assert largest("i = x & 0x7FFFFF") == few
    found = end_cases(small, asked, captured, ast.parse("i = x & 0x3FFFF"), 150_000, 4)
    assert max(case.shape.elements for case in found) == few, "no tensor of four rows has as many"
    assert largest("i = x + 7") == few


class Sums(torch.nn.Module):
    """Few inputs, and a result of as many rows as a number says, each as long as an input's."""

    def forward(self, x, index):
        return x.new_zeros(60000, x.shape[1]).index_add(0, index, x)


def test_no_odd_case_gives_far_more_than_it_takes():
    loaded = problem_from_module(Sums(), (torch.randn(500, 8), torch.randint(0, 60000, (500,))))
    captured = capture(loaded)
    inputs = loaded.problem.shape_sets[0]
    sizes = {item.symbol: 50 if item.dim == 1 else 3 for item in captured.free_dims}
    assert captured.result_elements(sizes) == 3_000_000
    found = at_sizes(inputs, captured, 1 << 20, [60000])
    assert found, "as rows it is asked"
    for shape in found:
        x = shape.inputs.tensors[0].shape
        assert 60000 * x[1] <= MOST_RESULTS


def test_cases_of_one_seed_share_a_module_that_stays_as_it_is(prepared):
    """Drawing the weights of a large module takes longer than a call of it."""
    text = problem_of("x * self.weight", "torch.randn(16, 100)", state=WEIGHT)
    loaded, captured = prepared(text)
    settings = JudgeSettings(seed=0)
    shape = CaseShape(loaded.problem.shape_sets[0], "declared", 0)
    normal, zeros = (Case(shape, name, 7) for name in ("normal", "zeros"))
    for device_bytes in (None, 1 << 30):
        oracle_inputs = OracleInputs(
            loaded, captured, settings.evolve(device_bytes=device_bytes), []
        )
        first = oracle_inputs.ask(normal)
        before = {name: value.clone() for name, value in first.model.state_dict().items()}
        again = oracle_inputs.ask(zeros)
        assert (again.model is first.model) == (device_bytes is None)
        assert torch.equal(again.model.weight, first.model.weight)
        other = oracle_inputs.ask(Case(shape, "normal", 8))
        assert not torch.equal(other.model.weight, first.model.weight)
        for change in ("weights", "values", "next", "nan", "training"):
            oracle_inputs.follow(normal, first, FollowUp(change))
        assert all(
            torch.equal(value, before[name]) for name, value in first.model.state_dict().items()
        )
        assert not first.model.training


def test_sizes_that_leave_an_output_without_one_are_not_asked(prepared):
    """Frames of a video that are counted by a division, of which a small size leaves none."""
    loaded, captured = prepared(problem_of("x.reshape(x.shape[1] // 4, -1)", "torch.randn(8, 16)"))
    given = loaded.problem.shape_sets[0]
    for width, asked in ((16, True), (3, False)):
        sizes = {item.symbol: (8, width)[item.dim] for item in captured.free_dims}
        assert within(given, captured, sizes, 1 << 20) == asked
        inputs = ShapeSet(inputs=(given.inputs[0].evolve(shape=(8, width)),))
        assert capture_covers(captured, inputs, [torch.empty(4, 32)]) == asked
