"""Does `agentkernel report` write the page of a run and of a night?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.cli.app import run
from agentkernel.domain.candidate import Candidate, Draft
from agentkernel.domain.plan import Plan
from agentkernel.nightly.library import Library
from agentkernel.nightly.page.comparison import compare_nights
from agentkernel.nightly.page.files import write_night
from agentkernel.tools.certificate.record import build_certificate, canonical_json, sign_certificate
from agentkernel.tools.run_store import RunStore, create_run
from agentkernel.tools.targets import find_target
from tests.cli.commands import Cli
from tests.nightly.page.runs import history, kernels, tonight
from tests.workflows.fakes import (
    ANALYSIS,
    VERSIONS,
    measurement,
    mismatch,
    profile,
    settings,
    small_problem,
    verdict,
)

FIRST = Candidate(
    source="class ModelNew:\n    BLOCK = 64\n", coder="compiler", round=1, strategy="rows"
)
SECOND = Candidate(
    source="class ModelNew:\n    BLOCK = 128\n",
    coder="compiler",
    round=2,
    parent=FIRST.sha256,
    strategy="<b>wider</b> rows",
)
WRONG = Candidate(source="class ModelNew:\n    pass\n", coder="compiler", round=2, strategy="none")


def finished(folder: Path, *, measured: bool) -> RunStore:
    """A run of three candidates: a parent, its better child, and one that is wrong."""
    runs = folder / "runs"
    store = create_run(
        small_problem(folder),
        settings(runs),
        find_target("h200"),
        judge_sha256="7" * 64,
    )
    for number, item in enumerate((FIRST, SECOND, WRONG)):
        failure = mismatch() if item is WRONG else None
        store.records.save_draft(str(number), Draft(candidate=item))
        store.records.save_verdict(str(number), verdict(item, failure))
        times = (measurement(candidate_us=20.0 / (number + 1)),) if measured else ()
        if failure is None:
            store.records.save_profile(str(number), profile(item, *times))
    certificate = build_certificate(
        store.manifest,
        status="improved" if measured else "verified",
        reason="2.0x over eager",
        candidate=SECOND,
        plan=Plan(analysis=ANALYSIS, hypotheses=()),
        verdict=verdict(SECOND),
        profile=profile(SECOND, *((measurement(),) if measured else ())),
    ).evolve(created="2026-11-23T02:00:00+00:00", versions=VERSIONS)
    (store.folder / "certificate.json").write_text(canonical_json(sign_certificate(certificate)))
    store.close()
    return store


@pytest.mark.parametrize("measured", [True, False])
def test_a_run_has_a_page_with_its_candidates(
    measured: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = finished(tmp_path, measured=measured)
    assert run(["report", store.id, "--runs", str(tmp_path / "runs")]) == 0
    path = store.folder.resolve() / "report.html"
    assert capsys.readouterr().out == f"{path}\n"
    text = path.read_text()
    for item in (FIRST, SECOND, WRONG):
        assert f'<tr id="candidate-{item.id}">' in text
        assert f'id="kernel-{item.id}"' in text
    assert f"Diff to its parent {FIRST.id}" in text
    assert '<span class="add">+    BLOCK = 128' in text
    assert "<b>wider" not in text
    assert "stopped at correctness" in text
    assert f"{FIRST.id} → {SECOND.id}" in text
    assert ("Measured on NVIDIA H200" in text) == measured
    assert ("Estimated for h200, measured on no GPU" in text) != measured
    assert "torch 2.13.0, triton 3.9.0" in text
    assert text.count('class="dot ') == 2 * (3 if measured else 2)


def test_an_edited_certificate_is_told(tmp_path: Path, cli: Cli) -> None:
    store = finished(tmp_path, measured=True)
    file = store.folder / "certificate.json"
    file.write_text(file.read_text().replace("2.0x over eager", "9.0x over eager"))
    page = Path(cli.json(["report", "last", "--runs", str(tmp_path / "runs"), "--json"])["page"])
    assert "This certificate was edited after it was signed" in page.read_text()


def test_a_night_has_its_page_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, found = history(), tonight()
    paths = write_night(tmp_path, found, compare_nights(before[-1], found), before, kernels())
    text = paths.html.read_text()
    paths.html.unlink()
    assert run(["report", str(tmp_path)]) == 0
    assert paths.html.read_text() == text
    out = tmp_path / "new" / "page.html"
    assert run(["report", str(paths.json), "--out", str(out)]) == 0
    assert out.read_text() == text
    assert capsys.readouterr().out.splitlines()[-1] == str(out.resolve())


def test_a_night_is_named_by_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "kernels.sqlite"
    before = history()[-1].evolve(id="20261121-020000-0a0a")
    found = tonight().evolve(id="20261122-020000-0b0b")
    later = tonight().evolve(id="20261123-020000-0c0c")
    with Library(file) as library:
        for night in (before, found, later):
            library.save_night(night)
        for kernel in kernels().values():
            library.put(kernel)
    assert run(["report", found.id, "--library", str(file)]) == 0
    page = tmp_path / "agentkernel-nights" / found.zoo / found.id / "night.html"
    assert capsys.readouterr().out == f"{page}\n"
    text = page.read_text()
    assert f"Night {found.id} over" in text
    assert before.id in text, "it is compared with the night before it"
    assert later.id not in text
    assert run(["report", "20261124-020000-0d0d", "--library", str(file)]) == 2
    assert "No night '20261124-020000-0d0d' in the library" in capsys.readouterr().err


def test_mistakes_are_one_line(tmp_path: Path, cli: Cli) -> None:
    store = finished(tmp_path, measured=False)
    runs = ["--runs", str(tmp_path / "runs")]
    (store.folder / "certificate.json").unlink()
    (tmp_path / "night.json").write_text("[]")
    (tmp_path / "empty").mkdir()
    (tmp_path / "night.md").write_text("# a comment")
    for asked, said in (
        ("no-such-run", "no-such-run"),
        (store.id, f"agentkernel resume {store.folder}"),
        (tmp_path, "is no record of a night"),
        (tmp_path / "empty", "empty' holds no run and no night. Expected the folder of a run"),
        (tmp_path / "night.md", "night.md' is no record of a night"),
        (tmp_path / "empty" / "night.json", "night.json' does not exist"),
    ):
        assert said in cli.refused(["report", str(asked), *runs])


def test_a_folder_of_the_name_of_a_run_is_no_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    store = finished(tmp_path, measured=False)
    monkeypatch.chdir(tmp_path)
    begin = store.id[:5]
    (tmp_path / begin).mkdir(exist_ok=True)
    assert store.id in cli(["report", begin, "--runs", str(tmp_path / "runs")]).out


@pytest.mark.parametrize("text", ["{}", '{"format": 0}', "", "[1]"])
def test_a_run_of_an_earlier_kind_is_one_line(text: str, tmp_path: Path, cli: Cli) -> None:
    store = finished(tmp_path, measured=False)
    certificate = (store.folder / "certificate.json").read_text()
    (store.folder / "certificate.json").write_text(text)
    said = cli.refused(["report", str(store.folder)])
    assert "certificate" in said
    assert "Next: " in said
    (store.folder / "certificate.json").write_text(certificate)
    (store.folder / "run.json").write_text(text)
    assert "is corrupt" in cli.refused(["report", str(store.folder)])


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path, cli: Cli) -> None:
    store = finished(tmp_path, measured=False)
    file = tmp_path / "file"
    file.write_text("")
    for out in (tmp_path, file / "page.html"):
        said = cli.refused(["report", str(store.folder), "--out", str(out)])
        assert "Cannot write" in said
        assert "--out" in said
