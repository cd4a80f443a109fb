"""Replays find what was edited, what changed since, and what cannot be judged again."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import pytest

from agentkernel.domain.base import sha256_text
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.certificate import Certificate, ModuleGraph, Status
from agentkernel.domain.errors import ProblemError, RunNotFound
from agentkernel.domain.problem import Problem, ShapeSet
from agentkernel.domain.profile import ProfileFailed, Ratio
from agentkernel.domain.verdict import RunFailed, Verdict
from agentkernel.runtime.machine import installed_versions
from agentkernel.tools.certificate.record import build_certificate, canonical_json, read_certificate
from agentkernel.tools.certificate.replay import (
    Replay,
    inspect_certificate,
    replay,
    timing_differences,
    verdict_differences,
)
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.settings import JudgeSettings, judge_sha256
from agentkernel.tools.own_files import write_live
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.problem.module_graph import problem_graph
from agentkernel.tools.run_store import Manifest
from tests.tools.certificate.certificates import write_certificate
from tests.workflows.fakes import VERSIONS, measurement, profile, settings, small_problem, verdict

PLUS = """import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def plus_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) + ADDED, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        plus_kernel[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), BLOCK=4096)
        return y
"""
RIGHT = PLUS.replace("ADDED", "1")
WRONG = PLUS.replace("ADDED", "2")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTKERNEL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def manifest(tmp_path: Path, **update: object) -> Manifest:
    made = Manifest(
        id="plus-1", created="2026-11-21T10:00:00+00:00", problem=small_problem(tmp_path).problem,
        settings=settings(tmp_path / "runs"), target="h100-sxm", note="",
        versions=installed_versions(), judge_sha256=judge_sha256(),
    )  # fmt: skip
    return made.evolve(**update)


def certify(
    folder: Path,
    source: str | None = RIGHT,
    *,
    judged: str | None = None,
    status: Status = "verified",
    edit: Callable[[Certificate], Certificate] = lambda item: item,
    graph: ModuleGraph | None = None,
    **update: object,
) -> Path:
    """A certificate for `source` with the verdict that `judged` (the same, if None) really got."""
    found = _judged(judged or source or RIGHT)
    candidate = None if source is None else Candidate(source=source, coder="", round=0)
    if candidate is not None:
        found = found.evolve(candidate=candidate.sha256)
    made = build_certificate(
        manifest(folder, **update),
        status=status,
        reason="",
        candidate=candidate,
        plan=None,
        verdict=found,
        profile=None,
    )
    made = made.evolve(graph=graph)
    path = folder / "certificate.json"
    write_certificate(path, edit(made.evolve(seeds=1)))
    return path


@functools.cache
def _judged(source: str) -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        loaded = small_problem(Path(folder))
    return judge(loaded, capture(loaded), source, JudgeSettings(seed=0, seeds=1))


def what(found: Replay) -> list[str]:
    return [item.what for item in found.differences]


def test_a_right_candidate_replays_the_same(tmp_path: Path) -> None:
    path = certify(tmp_path)
    (tmp_path / "plus.py").unlink()
    found = replay(path)
    assert found.holds
    assert found.differences == ()
    assert (found.signature, found.signer_known) == ("valid", True)
    assert found.verdict.accepted


def test_another_verdict_decides(tmp_path: Path) -> None:
    found = replay(certify(tmp_path, WRONG, judged=RIGHT))
    assert not found.holds
    assert found.edited == ()
    decisive = [item for item in found.differences if item.decisive]
    assert [(item.what, item.then) for item in decisive] == [("verdict", "accepted")]
    assert "correctness" in decisive[0].now


def test_a_fresh_seed_decides_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written for the seed of its certificate comes out as then under that one alone."""
    path = certify(tmp_path)
    seeds: list[int] = []

    def knows_its_seed(
        loaded: object, captured: object, source: str, asked: JudgeSettings
    ) -> Verdict:
        seeds.append(asked.seed)
        found = _judged(RIGHT).evolve(seed=asked.seed)
        if asked.seed == 0:
            return found
        failure = RunFailed(reason="raised", log="", case="")
        return found.evolve(accepted=False, gate="run", failure=failure)

    monkeypatch.setattr("agentkernel.tools.judge.judge.judge", knows_its_seed)
    found = replay(path)
    assert not found.holds
    assert seeds[0] == 0
    assert len(seeds) == len(set(seeds)) == 2
    decisive = [item for item in found.differences if item.decisive]
    assert [item.what for item in decisive] == [f"verdict under the fresh seed {seeds[1]}"]


@pytest.mark.slow
def test_other_versions_and_another_judge_are_said_and_do_not_decide(tmp_path: Path) -> None:
    found = replay(certify(tmp_path, versions=VERSIONS, judge_sha256="0" * 64))
    assert found.holds
    assert {"platform", "judge"} <= set(what(found))


def test_what_was_edited_is_not_executed(tmp_path: Path) -> None:
    path = certify(tmp_path)
    marker = tmp_path / "executed"
    tree = json.loads(path.read_text())
    tree["problem"]["source"] += f"\nopen({str(marker)!r}, 'w')\n"
    path.write_text(json.dumps(tree))
    found = replay(path)
    assert not found.holds
    assert (set(found.edited), found.verdict) == ({"signature", "problem_sha256"}, None)
    assert not marker.exists()


def test_an_edit_that_no_certificate_has(tmp_path: Path) -> None:
    path = certify(tmp_path)
    path.write_text(path.read_text().replace('"verified"', '"splendid"'))
    _, found = inspect_certificate(path)
    assert not found.holds
    assert "status" in found.edited[1]


REJECTED: dict[str, object] = {
    "accepted": False,
    "gate": "run",
    "failure": RunFailed(reason="raised", log="", case=""),
}


@pytest.mark.parametrize(
    ("values", "verdict", "edited"),
    [
        ({"verdict": None}, {}, "verdict"),
        ({}, REJECTED, "verdict"),
        ({}, {**REJECTED, "accepted": True}, "verdict.accepted"),
        ({"status": "kept_original"}, {}, "status"),
        ({"candidate_source": None}, {}, "status"),
        ({"graph": ModuleGraph(signature="0" * 16, text="n1 = relu(x)")}, {}, "graph.signature"),
    ],
)
def test_what_contradicts_itself_is_not_executed(
    tmp_path: Path, values: dict[str, object], verdict: dict[str, object], edited: str
) -> None:
    def contradicting(made: Certificate) -> Certificate:
        judged = made.verdict.evolve(**verdict)
        return made.evolve(**{"verdict": judged, **values})

    path = certify(tmp_path, edit=contradicting)
    found = replay(path)
    assert (found.signature, found.edited, found.verdict) == ("valid", (edited,), None)
    with pytest.raises(RunNotFound, match=f"{edited} does not fit"):
        read_certificate(path)


@pytest.mark.parametrize("name", ["certificate.json", "fast.certificate.json"])
def test_another_drop_in_beside_it_is_said(tmp_path: Path, name: str) -> None:
    path = certify(tmp_path).rename(tmp_path / name)
    beside = tmp_path / ("plus_optimized.py" if name == "certificate.json" else "fast.py")
    beside.write_text(RIGHT)
    assert inspect_certificate(path)[1].edited == ()
    beside.write_text(WRONG)
    assert inspect_certificate(path)[1].edited == (beside.name,)


def test_a_record_that_its_source_does_not_give_decides(tmp_path: Path) -> None:
    def other(made: Certificate) -> Certificate:
        (spec,) = made.problem.shape_sets[0].tensors
        small = ShapeSet(inputs=(spec.evolve(shape=(1, 1)),))
        return _of(made, made.problem.evolve(shape_sets=(small,)))

    found = replay(certify(tmp_path, edit=other))
    assert [item.what for item in found.differences if item.decisive] == ["problem"]
    assert not found.holds


@pytest.mark.slow
def test_another_class_of_the_file_is_a_problem_of_its_own(tmp_path: Path) -> None:
    def other(made: Certificate) -> Certificate:
        source = f"{made.problem.source}\nclass Other(Model): ...\n"
        return _of(made, made.problem.evolve(source=source, class_name="Other"))

    assert replay(certify(tmp_path, edit=other)).holds


def _of(made: Certificate, problem: Problem) -> Certificate:
    assert made.verdict is not None
    verdict = made.verdict.evolve(problem=problem.sha256)
    return made.evolve(problem=problem, problem_sha256=problem.sha256, verdict=verdict)


@pytest.mark.slow
def test_the_graph_of_another_module_decides(tmp_path: Path) -> None:
    loaded = small_problem(tmp_path)
    graph = problem_graph(loaded, capture(loaded))
    assert replay(certify(tmp_path, graph=graph)).holds
    text = graph.text.replace("add", "mul")
    other = graph.evolve(text=text, signature=sha256_text(text)[:16])
    found = replay(certify(tmp_path, graph=other))
    assert [item.what for item in found.differences if item.decisive] == ["graph"]


@pytest.mark.parametrize("name", ["gradients", "repeatable", "eval_only"])
def test_a_claim_that_goes_further_decides(tmp_path: Path, name: str) -> None:
    found = _judged(RIGHT)
    claim = name != "eval_only"
    then = found.evolve(**{name: claim})
    less = found.evolve(**{name: not claim})
    assert [item.what for item in verdict_differences(then, less) if item.decisive] == [name]
    assert not any(item.decisive for item in verdict_differences(less, then))
    elsewhere = less.evolve(device="another")
    assert not any(item.decisive for item in verdict_differences(then, elsewhere))


@pytest.mark.slow
def test_kernelbench_is_asked_again_where_it_was(tmp_path: Path) -> None:
    def claiming(made: Certificate) -> Certificate:
        return made.evolve(verdict=made.verdict.evolve(kernelbench=True))

    found = replay(certify(tmp_path, edit=claiming))
    assert found.verdict.kernelbench is True
    assert found.holds


def test_a_kept_baseline_has_nothing_to_replay(tmp_path: Path) -> None:
    found = replay(certify(tmp_path, None, status="kept_original"))
    assert found.holds
    assert "kept_original" in found.nothing
    assert found.verdict is None


@pytest.mark.slow
def test_an_unsigned_one_is_replayed_and_said(tmp_path: Path) -> None:
    path = certify(tmp_path)
    tree = json.loads(path.read_text())
    for key in ("signature", "unsigned", "seeds"):
        del tree[key]
    path.write_text(json.dumps(tree))
    found = replay(path)
    assert (found.fits, found.holds) == (True, False)
    assert found.signature == "absent"
    assert found.verdict is not None


def test_a_signer_of_elsewhere_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = certify(tmp_path, None, status="kept_original")
    monkeypatch.setenv("AGENTKERNEL_HOME", str(tmp_path / "elsewhere"))
    found = replay(path)
    assert (found.signature, found.signer_known, found.holds) == ("valid", False, True)


@pytest.mark.slow
def test_a_live_module_is_replayed_from_its_run_folder(tmp_path: Path) -> None:
    import torch

    class Plus(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    inputs = (torch.randn(4, 8),)
    loaded = problem_from_module(Plus(), inputs)

    def live(made: Certificate) -> Certificate:
        problem = loaded.problem
        verdict = made.verdict.evolve(problem=problem.sha256)
        values = {"problem": problem, "problem_sha256": problem.sha256, "verdict": verdict}
        return made.evolve(**values)

    path = certify(tmp_path, edit=live)
    with pytest.raises(RunNotFound, match="Cannot restore the live module"):
        replay(path)
    (tmp_path / "live.pkl").write_bytes(cloudpickle.dumps((Plus(), inputs)))
    with pytest.raises(RunNotFound, match="not vouched for by your own key"):
        replay(path)
    assert replay(path, unpickle=True).holds
    digest = write_live(tmp_path, Plus(), inputs)
    (tmp_path / "live.json").unlink()
    certify(tmp_path, edit=lambda made: live(made).evolve(live_sha256=digest))
    found = replay(path)
    assert found.holds
    assert found.verdict is not None
    write_live(tmp_path, Plus(), (torch.randn(4, 8),))
    found = replay(path, unpickle=True)
    assert (found.edited, found.holds, found.verdict) == (("live.pkl",), False, None)


def test_a_reference_that_no_longer_runs_is_the_users(tmp_path: Path) -> None:
    def broken(made: Certificate) -> Certificate:
        problem = made.problem.evolve(source="import no_such_package_here")
        verdict = made.verdict.evolve(problem=problem.sha256)
        values = {"problem": problem, "problem_sha256": problem.sha256, "verdict": verdict}
        return made.evolve(**values)

    with pytest.raises(ProblemError, match="no_such_package_here"):
        replay(certify(tmp_path, edit=broken))


def test_forging_the_verdict_of_a_resigned_file_shows_in_the_replay(tmp_path: Path) -> None:
    path = certify(tmp_path, WRONG, judged=RIGHT)
    made = Certificate.model_validate_json(path.read_text())
    assert canonical_json(made) == path.read_text()
    assert not replay(path).holds


def test_a_machine_too_slow_decides_nothing() -> None:
    candidate = Candidate(source="x", coder="", round=0)
    slow = RunFailed(
        reason="timeout", log="could not be judged here: no answer within 9 s", case="primary"
    )
    then, now = verdict(candidate), verdict(candidate, slow)
    assert not any(item.decisive for item in verdict_differences(then, now))
    wrong = verdict(candidate, slow.evolve(log="it hangs"))
    assert any(item.decisive for item in verdict_differences(then, wrong))


def test_timings_differ_where_their_intervals_do_not_meet() -> None:
    candidate = Candidate(source="x", coder="", round=0)
    then = profile(candidate, measurement(Ratio(value=2.0, low=1.9, high=2.1)))
    near = profile(candidate, measurement(Ratio(value=2.05, low=2.0, high=2.1)))
    far = profile(candidate, measurement(Ratio(value=1.5, low=1.4, high=1.6)))
    assert timing_differences(then, near) == []
    (found,) = timing_differences(then, far)
    assert (found.what, found.decisive) == ("speedup over eager", False)
    (failed,) = timing_differences(then, ProfileFailed(side="candidate", reason="timing_disputed"))
    assert failed.decisive
    (hot,) = timing_differences(then, ProfileFailed(side="gpu", reason="throttled"))
    assert not hot.decisive
    assert timing_differences(profile(candidate), far) == []
