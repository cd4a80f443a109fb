"""A graph form is judged by its plain text, then beside it: the same bits, the same kernels."""

import pytest
import torch

from agentkernel.domain.base import sha256_text
from agentkernel.domain.verdict import CaseResult
from agentkernel.tools.judge.comparison.compare import CaseOutcome
from agentkernel.tools.judge.execution.proof import Trace, TracedCall, parse_trace
from agentkernel.tools.judge.execution.tracer import CallRecorder
from agentkernel.tools.judge.launch_form import NOT_RUN, _same_bits, check_replays
from agentkernel.tools.judge.policy.families import Work
from agentkernel.tools.judge.policy.graph_form import with_graph
from agentkernel.tools.judge.policy.launch_form import AS_GRAPH
from agentkernel.tools.judge.worker.calls import CallResult

KERNELS = (("one_kernel", 8), ("other_kernel", 20))


def formed(source):
    text = with_graph(source.replace("DTYPE", "float32"))
    assert text is not None
    return text


def test_without_a_gpu_its_launches_are_judged(judged, sources):
    text = formed(sources.NORM)
    verdict = judged(sources.NORM_PROBLEM, text)
    assert verdict.accepted, verdict.failure
    assert verdict.launches == ("norm_kernel",)
    assert NOT_RUN[AS_GRAPH] in verdict.notes
    assert verdict.candidate == sha256_text(text)
    assert not any(AS_GRAPH in case.label for case in verdict.cases)


def test_a_wrong_plain_text_is_refused_at_its_gate(judged, sources):
    text = formed(sources.ADD.replace("x + 2 * y, mask", "x * 0.0, mask"))
    verdict = judged(sources.ADD_PROBLEM, text)
    assert not verdict.accepted
    assert verdict.gate == "correctness"
    assert NOT_RUN[AS_GRAPH] not in verdict.notes


def test_its_own_forward_is_asked_too(judged, sources):
    """The plain text alone is right: what the whole file does when it is loaded is not."""
    text = formed(sources.ADD)
    spoilt = text.replace("GRAPHS_LOCK = threading.Lock()", "GRAPHS_LOCK = threading.Look()")
    verdict = judged(sources.ADD_PROBLEM, spoilt, static=False)
    assert verdict.gate == "load"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_its_replays_are_judged(judged, sources):
    verdict = judged(sources.NORM_PROBLEM, formed(sources.NORM), device="cuda")
    assert verdict.accepted, verdict.failure
    told = next(note for note in verdict.notes if note.startswith("the CUDA graph was replayed"))
    replayed, calls = (int(word) for word in told.split() if word.isdigit())
    assert 10 < replayed <= calls


def call(launches, replays=()):
    return TracedCall(tuple(launches), (), (), (), draws=False, replays=tuple(map(tuple, replays)))


def wrong(*calls):
    found = check_replays(Trace(KERNELS, calls, ()), ["first", "second", "third"])
    assert found is None or found.rule == "graph"
    return found


def test_replays_of_what_was_launched_are_right():
    assert wrong(call([0, 1, 0, 1], [[0, 1]]), call([0, 1], [[0, 1]]), call([0, 1])) is None
    assert wrong(call([0])) is None


@pytest.mark.parametrize("kernels", [[], [0], [1, 0], [0, 1, 1]])
def test_a_graph_of_other_kernels_is_wrong(kernels):
    found = wrong(call([0, 1, *kernels], [kernels]))
    assert found is not None
    assert found.case == "first"
    assert ("no kernel" in found.text) == (not kernels)


def test_a_replay_stands_for_launches_of_before():
    found = wrong(call([0, 0], [[0]]), call([1], [[1]]))
    assert found is not None
    assert found.case == "second"
    assert "other_kernel (line 20), not other kernels" in found.text


def test_replays_are_read_as_the_worker_tells_them():
    seen = parse_trace(
        {"kernels": [], "calls": [{"launches": [0, 0], "replays": [[0], "x", ["y"]]}],
         "violations": []}
    )  # fmt: skip
    assert seen.calls[0].replays == ((0,), (), (0,))


def result(error, label="normal, seed 1"):
    return CaseResult(
        label=label, seed=1, distribution="normal", shapes="x", norm_error=error,
        eager_norm_error=1e-7, element_error=0.0, eager_element_error=0.0, passed=True,
    )  # fmt: skip


def test_other_last_digits_are_wrong():
    known = {"normal, seed 1": result(1e-7)}
    label = f"normal, seed 1, {AS_GRAPH}"
    same = CaseOutcome((result(1e-7, label),), (), None)
    other = CaseOutcome((result(1.0000001e-7, label),), (), None)
    unknown = CaseOutcome((result(2.0, f"uniform, seed 1, {AS_GRAPH}"),), (), None)
    assert _same_bits(same, known, AS_GRAPH) is None
    assert _same_bits(unknown, known, AS_GRAPH) is None
    found = _same_bits(other, known, AS_GRAPH)
    assert found is not None
    assert "1.0000001e-07" in found.text


@pytest.mark.parametrize(
    ("graph_form", "runs", "calls"),
    [
        pytest.param(True, (1, 1, 0), 1, id="compiled-and-recorded"),
        pytest.param(True, (1, 1, 1), 1, id="run-again-where-recording-failed"),
        pytest.param(True, (1, 2, 0), 2, id="more-in-the-recording"),
        pytest.param(True, (1, 1, 0, 1), 1, id="recorded-a-second-time"),
        pytest.param(True, (1, 1, 1, 1), 2, id="runs-past-the-first-recording-add-up"),
        pytest.param(False, (1, 1, 0), 2, id="another-text-that-records"),
    ],
)
def test_operators_are_those_of_one_run(sources, tmp_path, graph_form, runs, calls):
    """A recording is a run of its own in the graph form alone, whose text cannot tell its runs
    apart, and only the first one of a call."""
    file = tmp_path / "candidate.py"
    file.write_text(formed(sources.ADD) if graph_form else sources.ADD)
    recorder = CallRecorder("cpu", False, str(file))
    recorder.loaded(file.read_text())
    x = torch.randn(8, 40)

    def work():
        for place, times in enumerate(runs):
            for _ in range(times):
                torch.topk(x, 2)
            if place + 1 < len(runs):
                (recorder._recorded if place % 2 else recorder._recording)()
        return CallResult([], "", None)

    recorder.call(work, {}, set())
    (seen,) = parse_trace(recorder.drain()).calls
    assert seen.called == {"topk": Work(calls, calls * 8 * 40)}
