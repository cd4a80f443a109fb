"""Does `verify` end in 0, 3, 2 or 4 where it should, and say why?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentkernel.cli.app import run
from agentkernel.cli.verify import _ending, exit_code
from agentkernel.domain.candidate import Candidate
from agentkernel.tools.certificate.record import build_certificate
from agentkernel.tools.certificate.replay import Difference, Replay
from agentkernel.tools.run_store import Manifest
from tests.cli.commands import Cli
from tests.tools.certificate.certificates import write_certificate
from tests.workflows.fakes import VERSIONS, settings, small_problem, verdict

CANDIDATE = Candidate(source="class ModelNew: ...\n", coder="scripted", round=1)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A certificate that claims that a text which cannot even be loaded was accepted."""
    monkeypatch.setenv("AGENTKERNEL_HOME", str(tmp_path / "home"))
    problem = small_problem(tmp_path).problem
    manifest = Manifest(
        id="plus-1",
        created="2026-11-21T10:00:00+00:00",
        problem=problem,
        settings=settings(tmp_path / "runs"),
        target="h100-sxm",
        note="",
        versions=VERSIONS,
        judge_sha256="0" * 64,
    )
    certificate = build_certificate(
        manifest,
        status="verified",
        reason="",
        candidate=CANDIDATE,
        plan=None,
        verdict=verdict(CANDIDATE, problem=problem.sha256),
        profile=None,
    )
    write_certificate(tmp_path / "certificate.json", certificate)
    return tmp_path / "certificate.json"


def test_another_verdict_is_3_and_said(path: Path, cli: Cli) -> None:
    shown = cli(["verify", str(path)], 3).out
    assert "signature valid: signed by a key known here" in shown
    assert "differs: verdict: accepted then, rejected at" in shown
    assert shown.endswith("does not hold\n")


def test_without_a_replay_signature_and_hashes_suffice(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    assert "not replayed\nholds\n" in cli(["verify", str(path), "--no-replay"]).out
    monkeypatch.setenv("AGENTKERNEL_HOME", str(tmp_path / "elsewhere"))
    assert "signed by a key not known here" in cli(["verify", str(path), "--no-replay"]).out
    assert run(["verify", str(path), "--no-replay", "--known-signer"]) == 3


def test_a_run_is_named_as_elsewhere(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    folder = tmp_path / "agentkernel-runs" / "plus-20261121-100000-abcd"
    folder.mkdir(parents=True)
    path.rename(folder / path.name)
    (folder / "run.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    for name in ("last", "plus-2026", str(folder), f"{folder}/{path.name}"):
        assert "signature valid" in cli(["verify", name, "--no-replay"], 0).out
    assert "Known: plus-20261121-100000-abcd" in cli(["verify", "other", "--no-replay"], 2).err


def test_a_mistyped_path_is_told_as_one(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "file").write_text("")
    for given in (tmp_path / "nope.json", tmp_path / "file" / "nope.json", tmp_path):
        shown = cli(["verify", str(given)], 2).err
        assert "No such certificate: '" in shown
        assert "Next: check the path; 'agentkernel runs' lists the runs." in shown


def test_an_edit_is_3_also_as_json(path: Path, cli: Cli) -> None:
    path.write_text(path.read_text().replace("plus-1", "plus-2"))
    found = cli.json(["verify", str(path), "--json"], 3)
    assert (found["holds"], found["signature"], found["edited"]) == (
        False,
        "invalid",
        ["signature"],
    )
    assert "signature invalid: the file was edited" in cli(["verify", str(path)], 3).out


def test_without_a_signature_nothing_holds(path: Path, cli: Cli) -> None:
    tree = json.loads(path.read_text())
    del tree["signature"], tree["unsigned"], tree["live_sha256"]
    tree["versions"]["agentkernel"] = "0.1.0"
    path.write_text(json.dumps(tree))
    words = ["verify", str(path), "--no-replay"]
    assert cli(words, 3).out.endswith("unsigned: nothing vouches for it\n")
    found = cli.json([*words, "--json"], 3)
    assert (found["holds"], found["signature"]) == (False, "absent")
    tree["run"], tree["candidate_sha256"] = "plus-2", "0" * 64
    path.write_text(json.dumps(tree))
    assert cli(["verify", str(path), "--no-replay"], 3).out.endswith("does not hold\n")


@pytest.mark.parametrize("text", [None, "no json", "{}", "[1]"])
def test_no_certificate_is_2_in_one_line(text: str | None, tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "other.json"
    if text is not None:
        path.write_text(text)
    captured = cli(["verify", str(path)], 2)
    assert captured.err.count("\n") == 1
    assert "other.json" in captured.err


def test_no_sandbox_is_4(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from agentkernel.tools.sandbox.isolation import Isolation, probe

    if probe(Isolation("landlock"), False) is None:
        pytest.skip("this kernel isolates without any program's help")
    probe.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    try:
        assert run(["verify", str(path)]) == 4
    finally:
        probe.cache_clear()
    assert "isolate" in capsys.readouterr().err


def test_what_this_machine_cannot_judge_is_4() -> None:
    slow = Replay(certificate="c", signature="valid", signer_known=True, undecided="too slow")
    assert exit_code(slow, known_signer=True) == 4
    other = Difference(what="verdict", then="accepted", now="rejected", decisive=True)
    assert exit_code(slow.evolve(differences=(other,)), known_signer=False) == 3


@pytest.mark.parametrize("replayed", [None, True])
def test_what_was_timed_again_or_never_holds(replayed: bool | None) -> None:
    found = Replay(certificate="c", signature="valid", times_replayed=replayed)
    assert _ending(found, 0) == "holds"


def test_times_that_nobody_replayed_are_said() -> None:
    found = Replay(certificate="c", signature="valid", times_replayed=False)
    assert _ending(found, 0) == "holds, but its measured times were not replayed"


def test_a_certificate_that_hands_nothing_over_says_so() -> None:
    failed = Replay(certificate="c", signature="valid", status="failed", nothing="none to judge")
    assert exit_code(failed, known_signer=False) == 3
    assert _ending(failed, 3) == "untouched, but of a failed run: it hands nothing over"
    edited = failed.evolve(edited=("status",))
    assert _ending(edited, exit_code(edited, known_signer=False)) == "does not hold"
    kept = failed.evolve(status="kept_original")
    assert exit_code(kept, known_signer=False) == 0
    assert _ending(kept, 0) == "holds: a baseline was kept, nothing is handed over"
