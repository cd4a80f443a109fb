"""Cases are judged by slices, or beside eager, as they are with whole tensors."""

import pytest

from agentkernel.tools.judge.cases.plan import Case, NotApplicable
from agentkernel.tools.judge.cases.shapes import CaseShape
from agentkernel.tools.judge.memory import FreeMemory, plan_memory
from tests.tools.judge.sources import problem_of

HEAD = "import torch, triton\nimport triton.language as tl\nfrom torch import nn\n"


def plain(result):
    return problem_of(result, "torch.randn(64, 512)")


POINTWISE = plain("torch.tanh(x) * 3")
SCALED = plain("x / torch.norm(x)")
LOSS = plain("(1 - x).clamp(min=0).mean()")
SCAN = plain("x.flatten().cumsum(0)")
WHICH = plain("(x.argmax(1), x.amax(1))")
MODEL = (
    HEAD
    + """
class ModelNew(nn.Module):
    def forward(self, x):
        BODY
"""
)


def candidate(body):
    return MODEL.replace("BODY", body.replace("\n", "\n        "))


@pytest.fixture
def bytes_for(prepared):
    """The device memory with which a problem takes a route."""

    def find(problem, route):
        loaded, captured = prepared(problem)
        inputs = loaded.problem.shape_sets[0]
        least = plan_memory(captured, inputs, FreeMemory(1, 1 << 40, 0)).footprint.eager
        for times in (1.3, 1.6, 2.2, 3, 4, 5, 6):
            room = FreeMemory(int(times * least), 1 << 40, 0)
            if plan_memory(captured, inputs, room).route == route:
                return room.free
        raise AssertionError(f"no size for {route}")

    return find


RIGHT = [
    (POINTWISE, "return torch.tanh(x) * 3"),
    (SCALED, "return x / x.double().square().sum().sqrt().float()"),
    (LOSS, "return (1 - x).clamp(min=0).double().mean().float()"),
    (WHICH, "return x.argmax(1), x.amax(1)"),
]
WRONG = [
    (POINTWISE, "y = torch.tanh(x) * 3\ny[63, 511] += 1e-3\nreturn y", "mismatch"),
    (POINTWISE, "y = torch.tanh(x) * 3\nx[3, 5] += 1e-3\nreturn y", "inputs"),
    (POINTWISE, "return (torch.tanh(x) * 3).half().float()", "mismatch"),
    (POINTWISE, "return (torch.tanh(x) * 3).t().contiguous().t()", "meta"),
    (SCALED, "return x / x[:60].square().sum().sqrt()", "mismatch"),
    (LOSS, "return (1 - x)[:63].clamp(min=0).mean()", "mismatch"),
    (WHICH, "i = x.argmax(1)\ni[7] = 0\nreturn i, x.amax(1)", "mismatch"),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize(("problem", "body"), RIGHT)
def test_a_right_candidate_passes_in_slices(tried, bytes_for, problem, body):
    outcome, runner = tried(problem, candidate(body), device_bytes=bytes_for(problem, "slices"))
    assert outcome.failure is None, outcome.failure
    assert [item.passed for item in outcome.results] == [True]
    (plan,) = runner._plans.values()
    assert plan.route == "slices"
    assert plan.slices > 2


@pytest.mark.quick(2)
@pytest.mark.parametrize(("problem", "body", "kind"), WRONG)
def test_a_wrong_candidate_is_refused_in_slices(tried, bytes_for, problem, body, kind):
    outcome, _ = tried(problem, candidate(body), device_bytes=bytes_for(problem, "slices"))
    assert outcome.failure.kind == kind
    whole, _ = tried(problem, candidate(body))
    assert whole.failure.kind == kind
    if kind == "mismatch" and outcome.failure.first_index:
        assert outcome.failure.first_index == whole.failure.first_index


ROUGH = plain("(x * 3000).sin()")


LINEAR = problem_of(
    "x * self.weight",
    "torch.randn(64, 512)",
    state="self.weight = nn.Parameter(torch.ones(512))",
)


def test_weights_are_those_of_the_module_whose_turn_it_is(tried, bytes_for):
    """A second module's case comes before one in slices, which the first module answers."""

    source = LINEAR.replace("class Model(", "class ModelNew(").split("def get_inputs")[0]
    free = bytes_for(LINEAR, "slices")
    outcome, runner = tried(LINEAR, source, device_bytes=free)
    shape = CaseShape(runner.loaded.problem.shape_sets[0], "declared", 0)
    small = shape.inputs.evolve(inputs=[shape.inputs.inputs[0].evolve(shape=(1, 512))])
    second = runner.run(Case(CaseShape(small, "small", 0), "normal", 2, module="second"))
    assert second.failure is None, second.failure
    outcome = runner.run(Case(shape, "normal", 1))
    assert [plan.route for plan in runner._plans.values()] == ["slices", "whole"]
    assert outcome.failure is None, outcome.failure


@pytest.mark.parametrize(
    ("problem", "passes"),
    [(ROUGH, True), (ROUGH.replace("x *", "(x + self.training) *"), False)],
)
def test_in_training_mode_too_eager_is_not_the_truth(tried, bytes_for, problem, passes):
    """Eager's own error counts there as in eval mode, where both modes compute the same."""
    free = bytes_for(problem, "slices")
    right = candidate("return (x.double() * 3000).sin().float()")
    found = tried(problem, right, device_bytes=free, training=True)
    assert (found.failure is None) == passes


@pytest.mark.parametrize("route", ["offload", "eager"])
def test_without_slices_outputs_are_compared_piece_by_piece(tried, bytes_for, route):
    free = bytes_for(SCAN, route)
    right = "return x.flatten().double().cumsum(0).float()"
    outcome, _ = tried(SCAN, candidate(right), device_bytes=free)
    assert outcome.failure is None, outcome.failure
    wrong = "y = x.flatten().double().cumsum(0).float()\ny[-1] += 1\nreturn y"
    outcome, _ = tried(SCAN, candidate(wrong), device_bytes=free)
    assert (outcome.failure.kind, outcome.failure.first_index) == ("mismatch", (64 * 512 - 1,))


@pytest.mark.parametrize("route", ["whole", "slices"])
def test_where_memory_runs_out_it_is_planned_anew(tried, prepared, monkeypatch, route):
    """The plan knows what eager holds, not what a candidate does: the next one keeps more back,
    until outputs wait on the host."""
    import torch

    from agentkernel.tools.judge.case_runner import CaseRunner
    from agentkernel.tools.sandbox.protocol import WorkerFailed

    loaded, captured = prepared(POINTWISE)
    inputs = loaded.problem.shape_sets[0]
    held = plan_memory(captured, inputs, FreeMemory(1 << 40, 1 << 40, 0)).footprint
    free = {"whole": 24, "slices": 8}[route] * held.eager
    call, calls = CaseRunner.call, []

    def short(runner, case, reference_case, memory, recall=False):
        plan = runner.plan(case.shape)
        calls.append(plan.placing)
        if plan.found_on_host:
            return call(runner, case, reference_case, memory, recall)
        if plan.route == "whole":
            raise torch.OutOfMemoryError("no room")
        return WorkerFailed("raised", "no room", error="OutOfMemoryError")

    monkeypatch.setattr(CaseRunner, "call", short)
    right = candidate("return torch.tanh(x) * 3")
    outcome, _ = tried(POINTWISE, right, device_bytes=free)
    assert calls[0][0] == route
    assert len(calls) > 1
    assert calls[-1] == ("slices", True, True)
    assert outcome.failure is None, outcome.failure


@pytest.mark.parametrize("route", ["whole", "slices"])
def test_a_case_leaves_no_tensor_to_the_collector(tried, bytes_for, worker, route):
    """What lies in a cycle holds a device's memory until Python looks for cycles."""
    import gc

    import torch

    def tensors():
        return {id(item) for item in gc.get_objects() if isinstance(item, torch.Tensor)}

    free = bytes_for(POINTWISE, "slices") if route == "slices" else None
    right = candidate("return torch.tanh(x) * 3")
    _, runner = tried(POINTWISE, right, device_bytes=free)
    shape = CaseShape(runner.loaded.problem.shape_sets[0], "declared", 0)
    gc.collect()
    gc.disable()
    try:
        before = tensors()
        outcome = runner.run(Case(shape, "normal", 2))
        assert outcome.failure is None
        worker.call("agentkernel.tools.judge.worker:rest", {}, 60.0)
        assert not tensors() - before
    finally:
        gc.enable()


def test_what_does_not_fit_is_said_with_its_figures(prepared, worker):
    from agentkernel.tools.judge.case_runner import CaseRunner
    from agentkernel.tools.judge.settings import JudgeSettings

    loaded, captured = prepared(POINTWISE)
    runner = CaseRunner(
        worker, loaded, captured, JudgeSettings(seed=0, policy="any", device_bytes=100_000), []
    )
    assert runner.build(candidate("return torch.tanh(x) * 3")) is None
    shape = CaseShape(loaded.problem.shape_sets[0], "declared", 0)
    outcome = runner.run(Case(shape, "normal", 1))
    assert isinstance(outcome, NotApplicable)
    assert outcome.out_of_memory
    assert "0.1 MB free" in outcome.reason


@pytest.mark.slow
def test_a_judgement_in_slices_ends_as_one_with_whole_tensors(judged, sources):
    verdict = judged(sources.SOFTMAX_PROBLEM, sources.SOFTMAX, device_bytes=600_000)
    assert verdict.accepted, verdict.failure
    assert any("fp64 in slices" in note for note in verdict.notes), verdict.notes
    short = sources.SOFTMAX.replace("axis=0), mask=mask)", "axis=0), mask=cols < n - 1)")
    assert judged(sources.SOFTMAX_PROBLEM, short, device_bytes=600_000).gate == "correctness"


def test_slices_that_are_another_function_are_not_believed(tried, bytes_for, monkeypatch):
    """The candidate then is held against eager alone, and the verdict says so."""
    from agentkernel.tools.judge.reference.sliced import Sliced

    block = Sliced.block
    monkeypatch.setattr(Sliced, "block", lambda *a: [2 * x for x in block(*a)])
    free = bytes_for(POINTWISE, "slices")
    outcome, runner = tried(POINTWISE, candidate("return torch.tanh(x) * 3"), device_bytes=free)
    assert outcome.failure is None
    assert "compared with eager instead" in runner.oracle_inputs._notes[0]
    outcome, _ = tried(POINTWISE, candidate("return torch.tanh(x) * 6"), device_bytes=free)
    assert outcome.failure.kind == "mismatch"
