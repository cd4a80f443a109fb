"""Is a model cut into what a kernel can stand for, each graph once, with times that add up?"""

import pytest
import torch
from torch import nn

from agentkernel.domain.errors import ProblemError
from agentkernel.nightly.regions import cut as candidates
from agentkernel.nightly.regions.cut import cut_model, region_problem
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.roofline.model import analyse, estimate_eager
from agentkernel.tools.targets import load_targets
from tests.nightly.regions.region_models import WIDTH, Mlp, Tower, loaded

H100 = load_targets()["h100-sxm"]


@pytest.fixture(scope="module")
def tower():
    return cut_model(loaded(Tower, name="tower"), H100)


def named(cut):
    return {region.name: region for region in cut.regions}


def paths(region):
    return [use.path for use in region.uses]


def test_equal_submodules_are_one_region_of_many_uses(tower):
    found = named(tower)
    assert set(found) == {"Tower", "Mlp", "Gate", "Linear", "LayerNorm"}
    assert paths(found["Tower"]) == [""]
    assert paths(found["Mlp"]) == [f"layers.{index}.mlp" for index in range(3)]
    assert len(paths(found["LayerNorm"])) == 7
    assert found["Mlp"].uses[0].parameters == (
        "norm.weight",
        "norm.bias",
        "up.weight",
        "up.bias",
        "down.weight",
        "down.bias",
    )
    assert found["Mlp"].shapes == "float32[2, 4, 16], 1.0"
    assert found["LayerNorm"].ops == ("aten.layer_norm",)


@pytest.mark.slow
def test_each_graph_is_captured_once(monkeypatch):
    seen = []

    def counting(problem):
        seen.append(problem.problem.class_name)
        return capture(problem)

    monkeypatch.setattr(candidates, "capture", counting)
    cut_model(loaded(Tower), H100)
    assert sorted(seen) == ["Gate", "LayerNorm", "Linear", "Linear", "Mlp", "Tower"]


def test_parts_lie_next_below(tower):
    found = {region.signature: region.name for region in tower.regions}
    parts = {region.name: [found[x] for x in region.parts] for region in tower.regions}
    assert parts["Mlp"] == ["LayerNorm", "Linear", "Linear"]
    assert parts["Gate"] == ["LayerNorm"]
    assert parts["LayerNorm"] == []


@pytest.mark.slow
def test_times_are_those_of_the_roofline(tower):
    region = named(tower)["Mlp"]
    captured = capture(region_problem(loaded(Tower), "layers.0.mlp").problem)
    assert region.eager_us == pytest.approx(estimate_eager(captured, H100).time_us)
    assert region.bound_us == pytest.approx(analyse(captured, H100).bound_us)
    assert region.share == pytest.approx(3 * region.eager_us / tower.time_us)
    assert region.score == pytest.approx(region.share * region.headroom)
    assert tower.basis == "estimated"


def test_the_whole_takes_all_ops_and_the_outermost_regions_no_more(tower):
    found = named(tower)
    outer = found["Mlp"].share + found["Gate"].share + found["LayerNorm"].uses[-1].share
    assert outer == pytest.approx(1.0, abs=0.02)
    assert outer <= 1.0
    whole = found["Tower"]
    assert whole.share == pytest.approx(1.0, abs=1e-5)
    assert (whole.parts, whole.device_ops) == ((), 28)
    assert tower.shapes == whole.shapes == "float32[2, 4, 16]"


def test_what_cannot_stand_says_why(tower):
    reasons = {item.path: item.reason for item in tower.refused}
    assert reasons["layers.1"].startswith("argument 'cache' is a Cache, no tensor")
    assert reasons["layers.0.drop"] == "it returns one of its inputs, or a view of it"
    assert "" not in reasons


def test_a_model_without_parts_is_its_own_region():
    cut = cut_model(loaded(lambda: nn.LayerNorm(WIDTH)), H100)
    assert [paths(region) for region in cut.regions] == [[""]]
    assert cut.regions[0].share == pytest.approx(1.0, abs=0.001)


def test_a_wrapper_of_the_same_graph_stands_for_it():
    cut = cut_model(loaded(lambda: nn.Sequential(nn.Sequential(nn.LayerNorm(WIDTH)))), H100)
    assert [paths(region) for region in cut.regions] == [["0"]]
    assert cut.regions[0].parts == ()


class Writes(nn.Module):
    def __init__(self, what):
        super().__init__()
        self.what = what
        self.register_buffer("count", torch.zeros(WIDTH))

    def forward(self, x):
        if self.what == "buffer":
            self.count.add_(1)
        y = x.add_(1) if self.what == "input" else x + 1
        return torch.rand_like(y) if self.what == "random" else y * 2 + self.count


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("input", "it writes to its input 'x'"),
        ("buffer", "it writes to its buffer 'count'"),
        ("random", "it draws random numbers with aten.rand_like"),
    ],
)
def test_side_effects_are_refused(what, reason):
    cut = cut_model(loaded(lambda: nn.Sequential(Writes(what))), H100)
    own, whole = cut.refused
    assert (own.path, own.reason) == ("0", reason)
    assert (whole.path, whole.reason.split(" with ")[0][:8]) == ("", reason[:8])
    assert cut.regions == ()


class Branch(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1


def test_a_branch_on_values_is_refused_and_its_neighbour_is_not():
    cut = cut_model(loaded(lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), Branch())), H100)
    assert [region.name for region in cut.regions] == ["Linear"]
    assert [item.path for item in cut.refused] == ["1", ""]
    for item in cut.refused:
        assert "change with the values" in item.reason or "branch" in item.reason


def test_a_stack_of_layers_is_left_to_the_layer():
    cut = cut_model(loaded(lambda: nn.Sequential(nn.Sequential(Mlp(), Mlp(), Mlp()))), H100)
    assert paths(named(cut)["Mlp"]) == ["0.0", "0.1", "0.2"]
    assert cut.refused[0].reason == ("it runs 0.0 and its like 3 times: the part is the region")


def test_a_long_forward_is_left_to_its_parts(monkeypatch):
    monkeypatch.setattr(candidates, "MOST_OPS", 3)
    cut = cut_model(loaded(lambda: nn.Sequential(Mlp())), H100)
    assert [item.path for item in cut.refused] == ["0", ""]
    assert all(item.reason.startswith("it runs 6 ops, more than the 3") for item in cut.refused)
    assert "Linear" in named(cut)


def test_the_signature_of_a_cut_is_that_of_the_problem(tower):
    for name in ("Gate", "LayerNorm"):
        region = named(tower)[name]
        call = region_problem(loaded(Tower), region.uses[-1].path)
        assert call.signature == region.signature
        assert call.parameters == region.uses[-1].parameters


def test_a_problem_has_the_submodules_weights_and_inputs():
    source = loaded(Tower)
    call = region_problem(source, "norm")
    module = source.build()
    given = module.get_submodule("norm").state_dict()
    own = call.problem.build(seed=0).state_dict()
    assert all(torch.equal(own[key], given[key]) for key in given)
    assert call.problem.problem.class_name == "LayerNorm"
    (x,) = call.problem.make_inputs(seed=0)
    assert torch.allclose(module.norm(x), module(*source.make_call().args))


def test_a_signature_picks_among_shapes():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH)

        def forward(self, x):
            return self.norm(x) + self.norm(x[:1])

    source = loaded(Two)
    found = cut_model(source, H100).regions
    regions = [region for region in found if region.name == "LayerNorm"]
    assert (len(found), len(regions)) == (3, 2)
    for region in regions:
        call = region_problem(source, "norm", signature=region.signature)
        assert call.problem.problem.shape_sets[0].label.endswith(region.shapes.split("float32")[1])
    with pytest.raises(ProblemError, match="has no call of signature 0000"):
        region_problem(source, "norm", signature="0" * 16)


def test_an_unknown_path_is_one_line():
    with pytest.raises(ProblemError, match=r"no submodule 'layers\.9'\. Expected a path"):
        region_problem(loaded(Tower), "layers.9")


def test_given_calls_need_no_forward():
    inputs = (torch.randn(3, WIDTH),)
    call = region_problem(loaded(Tower), "norm", calls=[inputs])
    assert call.problem.live_inputs == inputs


def test_on_a_gpu_the_timeline_gives_the_shares(monkeypatch):
    from agentkernel.nightly.regions import cut as module
    from agentkernel.nightly.regions.recording import Timeline, record

    source = loaded(lambda: nn.Sequential(nn.LayerNorm(WIDTH), nn.ReLU(), nn.LayerNorm(WIDTH)))
    calls = record(source, source.build()).calls
    times = {(item.path, item.specs): 2.0 for item in calls}
    monkeypatch.setattr(module, "measure", lambda *_: Timeline(100.0, 50.0, times))
    monkeypatch.setattr(module, "record", lambda source, built, device: record(source, built))
    cut = cut_model(_OnCpu(source), H100, device="cuda")
    assert (cut.basis, cut.time_us) == ("measured", 100.0)
    norm = named(cut)["LayerNorm"]
    assert (norm.eager_us, norm.share) == (2.0, pytest.approx(4 / 50))


class _OnCpu:
    """A model that stays on the CPU wherever it is asked to be."""

    def __init__(self, source):
        self.spec, self.source = source.spec, source

    def build(self, device="cpu"):
        return self.source.build()

    def make_call(self, device="cpu", seed=0):
        return self.source.make_call("cpu", seed)


class Kept(nn.Module):
    """As a mixture of experts keeps its loss."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.aux = torch.zeros(())

    def forward(self, x):
        y = torch.relu(self.norm(x))
        self.aux = y.square().mean()
        return y


def test_a_module_that_keeps_a_tensor_is_left_to_its_parts():
    cut = cut_model(loaded(lambda: nn.Sequential(Kept())), H100)
    assert [use.path for region in cut.regions for use in region.uses] == ["0.norm"]
    assert ("0", "it sets its attribute 'aux'") in {(x.path, x.reason) for x in cut.refused}


class Quantised(torch.Tensor):
    """A kind of tensor that gives no bytes."""

    def numpy(self):
        raise RuntimeError("no bytes")


def test_a_tensor_that_cannot_be_read_costs_its_module_alone():
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.ones(WIDTH).as_subclass(Quantised)

        def forward(self, x):
            return x * 2

    cut = cut_model(loaded(lambda: nn.Sequential(Holder(), nn.LayerNorm(WIDTH))), H100)
    assert [use.path for region in cut.regions for use in region.uses] == ["1"]
    assert any("cannot be read" in item.reason for item in cut.refused)
