"""Do table and picture say what was measured, and nothing where nothing was?"""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from agentkernel.bench.report import curves, markdown, speedup_svg, write_report
from agentkernel.bench.suite import Times
from agentkernel.bench.summary import summarise
from agentkernel.workflows.report import table
from tests.bench.bench_rows import ratio, row, sample, suite, unmeasured

GOLDEN = Path(__file__).parents[1] / "golden"


def test_a_measured_bench_reads_like_its_golden_file() -> None:
    text = markdown(summarise("examples", suite()), suite())
    assert text == (GOLDEN / "bench_measured.md").read_text()


def test_an_estimated_bench_reads_like_its_golden_file() -> None:
    text = markdown(summarise("examples", unmeasured()), unmeasured())
    assert text == (GOLDEN / "bench_estimated.md").read_text()
    assert "fast_1" not in text
    assert "fast_p: not measured" in text


def test_a_derived_ratio_is_marked_and_a_failed_baseline_is_named() -> None:
    derived = sample(2.0, vs_autotune=ratio(1.1), autotune_derived=True)
    timed = Times(eager_us=100.0, autotune_us=55.0, autotune_derived=True)
    failed = Times(eager_us=100.0, autotune_note="failed: out of memory")
    rows = (
        row("level1/a", derived, times=timed),
        row("level1/b", sample(2.0, vs_autotune=ratio(1.2)), times=Times(autotune_us=60.0)),
        row("level1/c", sample(2.0), times=failed),
    )
    text = markdown(summarise("examples", rows), rows)
    assert "times eager's drift, for 1 of 3 problems: derived, not interleaved" in text
    assert "max-autotune has no time on level1/c (failed: out of memory)." in text
    assert "1.10 [1.09, 1.11] (derived) |" in text
    assert "1.20 [1.19, 1.21] |" in text
    assert "derived" not in markdown(summarise("examples", suite()), suite())


def test_a_cell_cannot_break_the_table() -> None:
    assert table(["a"], [["x | y\nz"]])[-1] == "| x / y z |"


def test_the_picture_has_a_dot_a_problem_and_baseline() -> None:
    eager, compiled = curves(suite())
    assert (eager.values, eager.wrong) == ((1.1, 2.0, 5.0), 1)
    assert (compiled.baseline, compiled.wrong) == ("torch.compile", 1)
    root = ElementTree.fromstring(speedup_svg(suite(), "a < b & c"))
    dots = [item for item in root.iter() if item.tag.endswith("circle") and item.get("r") == "2.5"]
    heights = [float(item.get("cy", "0")) for item in dots[:3]]
    assert len(dots) == 6
    assert heights == sorted(heights, reverse=True), "faster is higher"


def test_the_picture_stays_inside_for_any_speed() -> None:
    rows = [row("level1/a", sample(0.001)), row("level1/b", sample(900.0))]
    root = ElementTree.fromstring(speedup_svg(rows, "wide"))
    for item in root.iter():
        if item.tag.endswith("circle"):
            assert 0 <= float(item.get("cx", "-1")) <= 760
            assert 0 <= float(item.get("cy", "-1")) <= 420


def test_the_picture_of_nothing_says_so() -> None:
    assert "not measured" in speedup_svg(unmeasured(), "nothing")
    assert curves(unmeasured()) == ()


def test_the_files(tmp_path: Path) -> None:
    summary = write_report(tmp_path, "examples", suite())
    assert json.loads((tmp_path / "summary.json").read_text()) == summary.model_dump(mode="json")
    assert sorted(item.name for item in tmp_path.iterdir()) == [
        "report.md",
        "speedups.svg",
        "summary.json",
    ]
