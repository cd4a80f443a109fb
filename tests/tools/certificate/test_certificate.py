from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from agentkernel.domain.candidate import Candidate
from agentkernel.domain.certificate import Certificate
from agentkernel.domain.errors import RunNotFound
from agentkernel.domain.plan import Plan
from agentkernel.tools.certificate.record import (
    build_certificate,
    canonical_json,
    hash_errors,
    read_certificate,
    read_certificate_file,
    sign_certificate,
)
from agentkernel.tools.certificate.signing import certificate_signature, sign, signed_text
from agentkernel.tools.run_store import Manifest
from tests.tools.certificate.certificates import write_certificate
from tests.workflows.fakes import (
    ANALYSIS,
    VERSIONS,
    measurement,
    profile,
    settings,
    small_problem,
    verdict,
)

CANDIDATE = Candidate(source="class ModelNew: ...\n", coder="scripted", round=1)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTKERNEL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


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
    made = build_certificate(
        manifest,
        status="met",
        reason="2x",
        candidate=CANDIDATE,
        plan=Plan(analysis=ANALYSIS, hypotheses=()),
        verdict=verdict(CANDIDATE, problem=loaded.problem.sha256),
        profile=profile(CANDIDATE, *((measurement(),) if measured else ())),
    )
    return sign_certificate(made)


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
    case = made.verdict.cases[0].evolve(norm_error=math.inf)
    odd = made.evolve(verdict=made.verdict.evolve(cases=(case,)))
    path = tmp_path / "certificate.json"
    write_certificate(path, odd)
    assert read_certificate(path) == sign_certificate(odd)
    assert read_certificate(path).verdict == odd.verdict
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("class ModelNew: ...", "class ModelNew: pass", "candidate_sha256"),
        ('"name": "plus"', '"name": "minus"', "problem_sha256"),
        ('"reason": "2x"', '"reason": "9x"', "signature"),
        ('"value": 2.0', '"value": 4.0', "signature"),
        ('"met"', '"splendid"', "status"),
        ('"algorithm": "ed25519"', '"algorithm": "none"', "signature"),
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


def test_an_edit_that_mends_the_hashes_still_shows(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    made = certificate(tmp_path, measured=False)
    write_certificate(path, made)
    other = Candidate(source="class ModelNew: pass\n", coder="", round=0)
    forged = made.evolve(
        candidate_source=other.source,
        candidate_sha256=other.sha256,
        verdict=made.verdict.evolve(candidate=other.sha256),
    )
    path.write_text(canonical_json(forged))
    with pytest.raises(RunNotFound, match="signature does not fit"):
        read_certificate(path)


def test_a_field_of_a_later_version_breaks_no_signature(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    write_certificate(path, certificate(tmp_path, measured=False))
    tree = json.loads(path.read_text())
    del tree["signature"], tree["seeds"]
    old = Certificate.model_validate_json(json.dumps(tree))
    assert old.signature is None
    signature = sign(signed_text(tree).encode())
    path.write_text(json.dumps({**tree, "signature": json.loads(signature.model_dump_json())}))
    assert read_certificate_file(path).state == "valid"


def test_an_old_certificate_without_a_signature_loads(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    write_certificate(path, certificate(tmp_path, measured=True))
    tree = json.loads(path.read_text())
    for key in ("signature", "seeds", "unsigned"):
        del tree[key]
    path.write_text(json.dumps(tree))
    assert read_certificate_file(path).state == "absent"
    assert read_certificate(path).status == "met"


def test_without_a_key_the_certificate_says_why_it_is_unsigned(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTKERNEL_HOME", os.devnull)
    made = certificate(tmp_path, measured=False)
    assert made.signature is None
    assert os.devnull.rpartition("/")[0] in made.unsigned
    path = tmp_path / "certificate.json"
    write_certificate(path, made)
    assert read_certificate(path) == made


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    write_certificate(path, certificate(tmp_path, measured=False))
    text = path.read_text()
    path.write_text(text.replace('"status": "met"', '"status": "failed",\n  "status": "met"'))
    with pytest.raises(RunNotFound, match="twice"):
        read_certificate(path)


@pytest.mark.parametrize("text", [None, "{", "{}", "[]"])
def test_a_damaged_certificate_is_one_line(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "certificate.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(RunNotFound) as caught:
        read_certificate(path)
    assert "\n" not in str(caught.value)


def test_a_profile_of_another_candidate_does_not_fit(tmp_path: Path) -> None:
    made = certificate(tmp_path, measured=True)
    assert hash_errors(made) == ()
    other = made.profile.evolve(candidate="0" * 64)
    assert hash_errors(made.evolve(profile=other)) == ("profile.candidate",)
    assert hash_errors(made.evolve(basis="estimated")) == ("basis",)


@pytest.mark.parametrize("host", [None, "ada@gpu-box, NVIDIA H200"])
def test_a_certificate_names_a_host_where_there_was_one(tmp_path: Path, host: str | None) -> None:
    path = tmp_path / "certificate.json"
    write_certificate(path, certificate(tmp_path, measured=True).evolve(host=host))
    # One of before has no such entry: it must be signed, and dumped, as it was then.
    assert ("host" in json.loads(path.read_text())) is (host is not None)
    read = read_certificate(path)
    assert read.host == host
    assert certificate_signature(read) == "valid"
