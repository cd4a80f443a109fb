"""Do comment, test report, tables and record say what the night says?"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from agentkernel.domain.errors import RunNotFound
from agentkernel.domain.nightly import LostJob, NightlyRun
from agentkernel.nightly.page.comparison import compare_nights
from agentkernel.nightly.page.figures import merged_regions, model_costs
from agentkernel.nightly.page.files import junit_xml, markdown, read_night_file, write_night
from agentkernel.nightly.page.tables import model_table, models_csv, regions_csv
from tests.nightly.page.runs import (
    estimated_model,
    history,
    kernels,
    night,
    region,
    tonight,
    with_model,
    with_region,
)

NASTY = "=cmd|'/c calc'!A1 <script>x</script> \x00\x1b[31m | `y` [a](http://b)"


def hostile() -> NightlyRun:
    found = with_model(night(), "bert-base", lambda row: row.evolve(error=NASTY))
    return with_region(found, 0, name=NASTY, status="failed", reason=NASTY, shapes=NASTY)


def test_test_report_has_a_case_for_each_with_one_outcome() -> None:
    found = tonight()
    root = ElementTree.fromstring(junit_xml(found, compare_nights(history()[-1], found)))
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert len(cases) == len(found.models) + len(found.regions)
    failed = {name: next(iter(case)) for name, case in cases.items() if len(case) > 1}
    told = {name: (item.tag, item.get("type")) for name, item in failed.items()}
    assert told == {
        "gpt2-medium": ("failure", "regression"),
        "llama-8l": ("failure", "regression"),
        "unet-small": ("failure", "regression"),
        "mamba": ("error", "model_failed"),
        f"attention ({region(1).signature})": ("failure", "withdrawn"),
        f"rmsnorm ({region(9).signature})": ("failure", "failed_to_verify"),
        **{
            f"{row.name} ({row.signature})": ("skipped", None)
            for row in found.regions
            if row.status == "unreached"
        },
    }
    counts = [root.get(key) for key in ("tests", "failures", "errors")]
    assert counts == [str(len(cases)), "5", "1"]
    properties = {item.get("name"): item.get("value") for item in root.iter("property")}
    assert properties["gpu"] == "NVIDIA H200"
    assert properties["torch"] == "2.13.0"


def test_hostile_words_break_no_file(tmp_path: Path) -> None:
    found = hostile()
    paths = write_night(tmp_path, found, compare_nights(None, found), (), kernels())
    root = ElementTree.fromstring(paths.junit.read_text())
    assert any("<script>" in (case.get("name") or "") for case in root.iter("testcase"))
    for file in (paths.models_csv, paths.regions_csv):
        for row in csv.DictReader(io.StringIO(file.read_text(), newline="")):
            assert not [cell for cell in row.values() if cell and cell[0] in "=+@"]
    text = paths.markdown.read_text()
    assert "<script" not in text
    assert "](http" not in text
    assert read_night_file(tmp_path).night == found


def test_csv_files_keep_estimates_apart_and_name_the_machine() -> None:
    found = night()
    found = found.evolve(models=(*found.models, estimated_model("clip", 760.0, 1.2)))
    rows = list(csv.DictReader(io.StringIO(models_csv(found))))
    assert [row["model"] for row in rows] == [row.name for row in found.models]
    for row in rows:
        measured = row["basis"] == "measured"
        assert bool(row["time_us"]) == measured
        assert bool(row["estimated_us"]) != measured
        gained = row["gained"] == "True"
        assert gained == (row["model"] != "llama-8l")
        assert bool(row["cost_of_percent_s"]) == (measured and gained)
        assert bool(row["estimated_cost_of_percent_s"]) == (not measured and gained)
        assert (row["gpu"], row["torch"], row["triton"]) == ("NVIDIA H200", "2.13.0", "3.9.0")
    guessed = with_region(found, 0, basis="estimated", speedup=None, speedup_low=None)
    first = next(csv.DictReader(io.StringIO(regions_csv(guessed))))
    assert first["eager_us"] == first["time_us"] == ""
    assert float(first["estimated_eager_us"]) == region(0).eager_us


def test_comment_is_short_and_begins_with_the_news() -> None:
    found = tonight()
    text = markdown(found, compare_nights(history()[-1], found))
    assert text.splitlines()[0] == (
        "### transformers: 2 things did not verify, 1 model failed, 3 regressions, 1 gain"
    )
    assert len(text) < 4000
    assert "Measured on NVIDIA H200 (driver 580.95.05); bfloat16, float16, float32; torch" in text
    whisper = next(line for line in text.splitlines() if line.startswith("| whisper-tiny |"))
    cells = "regions+torch.compile | 1.64× (1.62 to 1.66) | 298 µs | 7.4 s | verified |"
    assert whisper == f"| whisper-tiny | {cells}"
    assert "| llama-8l | torch.compile | 1.00× | 6.98 ms | no gain | – |" in text
    assert "30 regions stand for 45 submodules: 33% of them need no kernel of their own" in text
    estimated = [line for line in text.splitlines() if "clip-text | " in line]
    heading = text.splitlines()[text.splitlines().index(estimated[0]) - 2]
    assert "time (estimated)" in heading


def test_what_was_left_out_for_its_outputs_is_told_apart_from_what_did_not_help() -> None:
    wrong = {"a": "gate 3: error 0.5", "b": "gate 3: error 0.5", "c": "not tried in 24 checks"}
    dropped = {"dropped": ("a", "b", "c", "d"), "left_out": wrong}
    found = with_model(night(), "bert-base", lambda row: row.evolve(**dropped))
    found = with_model(found, "llama-8l", lambda row: row.evolve(dropped=("e",)))
    words = (
        "2 kernels left out for the outputs: gate 3: error 0.5; "
        "1 kernel left out for the outputs: not tried in 24 checks; "
        "1 kernel dropped: no help end to end"
    )
    comparison = compare_nights(None, found)
    table = model_table(found, comparison)
    (form,) = [place for place, column in enumerate(table.columns) if column.key == "form"]
    shown = {row.id: cell.more for row in table.rows if (cell := row.cells[form]) is not None}
    assert shown["model-bert-base"] == words
    assert shown["model-llama-8l"] == "1 kernel dropped: no help end to end"
    assert "left out" not in shown["model-gpt2-medium"]
    assert [
        line for line in markdown(found, comparison).splitlines() if "kernels left" in line
    ] == [f"- bert-base: {words}"]
    rows = {row["model"]: row for row in csv.DictReader(io.StringIO(models_csv(found)))}
    assert rows["bert-base"]["dropped"] == "d"
    assert rows["bert-base"]["left_out"].startswith("a: gate 3: error 0.5; b: ")
    assert (rows["llama-8l"]["dropped"], rows["llama-8l"]["left_out"]) == ("e", "")


def test_the_comment_says_what_was_cut_off_and_which_model_the_time_limit_cut_short() -> None:
    why = "cut short: 56344a5fe6 was drafted; the time limit of 48 s was over before it was judged"
    ended = "the night was ended in the middle of it; went on from the run folder"
    lost = tuple(LostJob(job=f"draft {name}", why=ended) for name in ("GatedMLP", "TinyLM"))
    found = with_model(night(), "bert-base", lambda row: row.evolve(why=why)).evolve(lost=lost)
    lines = markdown(found, compare_nights(None, found)).splitlines()
    assert f"- bert-base: {why}" in lines
    place = lines.index("**Jobs that were cut off**")
    assert lines[place + 1] == f"- draft GatedMLP, draft TinyLM: {ended}"
    whole = markdown(night().evolve(lost=()), compare_nights(None, night()))
    assert "cut" not in whole


def test_a_quiet_night_says_so() -> None:
    text = markdown(night(24), compare_nights(night(), night(24)))
    assert text.startswith("### transformers: No regression, all kernels verified\n")
    assert f"Nothing changed beyond noise since night {night().id}." in text


def test_record_is_plain_json_and_keeps_what_the_page_needs(tmp_path: Path) -> None:
    before, found = history(), tonight()
    paths = write_night(tmp_path, found, compare_nights(before[-1], found), before, kernels())
    assert json.loads(paths.json.read_text())["night"]["id"] == found.id
    again = read_night_file(paths.json)
    assert [item.id for item in again.history] == [item.id for item in before]
    assert again.costs == tuple(model_costs(found).values())
    assert again.merged == merged_regions(found)
    kept = {row.status for item in again.history for row in item.regions}
    assert kept == {"new", "retuned"}


def test_a_record_of_a_later_version_can_be_read(tmp_path: Path) -> None:
    paths = write_night(tmp_path, night(), compare_nights(None, night()), (), {})
    later = {**json.loads(paths.json.read_text()), "of_a_later_version": 1}
    paths.json.write_text(json.dumps(later))
    assert read_night_file(tmp_path).night == night()


def test_what_is_no_record_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "night.json").write_text("{}")
    with pytest.raises(RunNotFound, match="is no record of a night"):
        read_night_file(tmp_path)
    with pytest.raises(RunNotFound, match="cannot be read"):
        read_night_file(tmp_path / "nothing.json")
