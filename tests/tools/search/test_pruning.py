"""What cannot run is sorted out before anything is measured."""

from __future__ import annotations

from agentkernel.domain.candidate import TrialResult
from agentkernel.domain.profile import CompileReport, KernelResources
from agentkernel.domain.verdict import CompileFailed, LoadFailed
from agentkernel.tools.search.static import best_first, preference, prune


def report(
    *, spill: int = 0, fits: bool = True, occupancy: float = 1.0, name: str = "rows"
) -> CompileReport:
    kernel = KernelResources(
        name=name, grid=(1, 1, 1), num_warps=4, num_stages=2, registers=64, spill_bytes=spill,
        shared_bytes=0, occupancy=occupancy, tensor_core=None, constants={}, compile_s=0.1,
        error=None if fits else "out of resources: shared memory 300000 > 232448", fits=fits,
    )  # fmt: skip
    return CompileReport(target="h100-sxm", kernels=(kernel,))


def test_what_does_not_fit_fails_or_spills_is_out() -> None:
    found = prune(
        [
            report(),
            report(spill=64),
            report(fits=False),
            CompileFailed(log="line 1\nptxas fatal"),
            LoadFailed(log="SyntaxError: no"),
            None,
        ]
    )
    assert (found[0], found[1]) == (None, "rows spills 64 bytes a thread")
    assert found[2] == "rows does not fit: out of resources: shared memory 300000 > 232448"
    assert (found[3], found[4]) == ("compile: ptxas fatal", "load: SyntaxError: no")
    assert found[5] is None


def test_where_everything_spills_nothing_is_out_for_it() -> None:
    assert prune([report(spill=8), report(spill=64), report(fits=False)])[:2] == (None, None)


def test_low_occupancy_comes_last_and_the_order_given_breaks_ties() -> None:
    reports = [report(occupancy=0.2), report(occupancy=0.9), None, report(occupancy=0.5)]
    assert preference(reports) == (1, 3, 0)


def trial(**values: object) -> TrialResult:
    return TrialResult.model_validate({"label": "", "sha256": "", "schedule": {}, **values})


def test_measured_before_estimated_and_never_what_was_pruned() -> None:
    trials = [
        trial(),
        trial(estimated_us=1.0),
        trial(time_us=9.0, estimated_us=2.0),
        trial(pruned="spills", time_us=0.1),
        trial(time_us=8.0),
    ]
    assert best_first(trials) == (4, 2, 1, 0)
