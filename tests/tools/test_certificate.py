from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from agentkernel.domain.candidate import Candidate
from agentkernel.domain.certificate import Certificate
from agentkernel.domain.plan import Plan
from agentkernel.errors import RunNotFound
from agentkernel.tools.certificate import (
    build_certificate,
    canonical_json,
    read_certificate,
    write_certificate,
)
from agentkernel.tools.store import Manifest
from fakes import ANALYSIS, VERSIONS, measurement, profile, settings, small_problem, verdict

CANDIDATE = Candidate(source="class ModelNew: ...\n", coder="scripted", round=1)


def certificate(tmp_path: Path, *, measured: bool) -> Certificate:
    loaded = small_problem(tmp_path)
    manifest = Manifest(
        id="plus-1",
        created="2026-11-21T10:00:00+00:00",
        problem=loaded.problem,
        settings=settings(tmp_path / "runs"),
        target="h100-sxm",
        note="",
        versions=VERSIONS,
        judge_sha256="0" * 64,
    )
    return build_certificate(
        manifest,
        created="2026-11-21T10:05:00+00:00",
        status="met",
        reason="2x",
        candidate=CANDIDATE,
        plan=Plan(analysis=ANALYSIS, hypotheses=()),
        verdict=verdict(CANDIDATE, problem=loaded.problem.sha256),
        profile=profile(CANDIDATE, *((measurement(),) if measured else ())),
    )


@pytest.mark.parametrize("measured", [True, False])
def test_round_trip(tmp_path: Path, measured: bool) -> None:
    path = tmp_path / "certificate.json"
    made = certificate(tmp_path, measured=measured)
    write_certificate(path, made)
    assert read_certificate(path) == made
    assert canonical_json(read_certificate(path)) == path.read_text()
    assert made.basis == ("measured" if measured else "estimated")


def test_infinities_survive(tmp_path: Path) -> None:
    made = certificate(tmp_path, measured=False)
    assert made.verdict is not None
    case = made.verdict.cases[0].model_copy(update={"norm_error": math.inf})
    odd = made.model_copy(update={"verdict": made.verdict.model_copy(update={"cases": (case,)})})
    path = tmp_path / "certificate.json"
    write_certificate(path, odd)
    assert read_certificate(path) == odd
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("class ModelNew: ...", "class ModelNew: pass", "candidate_sha256"),
        ('"name": "plus"', '"name": "minus"', "problem_sha256"),
    ],
)
def test_a_changed_certificate_is_refused(tmp_path: Path, old: str, new: str, named: str) -> None:
    path = tmp_path / "certificate.json"
    write_certificate(path, certificate(tmp_path, measured=True))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(RunNotFound, match=named):
        read_certificate(path)


@pytest.mark.parametrize("text", [None, "{", "{}"])
def test_a_damaged_certificate_is_one_line(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "certificate.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(RunNotFound) as caught:
        read_certificate(path)
    assert "\n" not in str(caught.value)
