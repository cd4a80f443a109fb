"""Does `agentkernel bench` take its flags, say what came out, and refuse mistakes in one line?"""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from agentkernel.bench.suite import Row, append_row
from agentkernel.bench.summary import summarise
from agentkernel.cli.app import run
from agentkernel.cli.bench import suite as bench_suite
from agentkernel.cli.bench.suite import tables
from tests.bench.bench_rows import row, sample, suite
from tests.cli.commands import Cli

FAST = ("0.8", "1", "1.2", "1.5", "2", "4")
BROKEN = "raise ValueError('no luck')\n"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU, and no cache of the user's."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "suite" / "level1"
    path.mkdir(parents=True)
    (path / "broken.py").write_text(BROKEN)
    (path / "other.py").write_text(BROKEN)
    return path.parent


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["nowhere"], "No such suite: 'nowhere'"),
        (["empty"], "is empty"),
        (["suite", "--shard", "5/3"], "1 <= i <= n"),
        (["suite", "--only", "softmax"], "'softmax'"),
        (["suite", "--problems", "names.txt"], "names 'level1/gone', which is not there"),
        (["suite", "--devices", "0"], "Unknown device '0'"),
        (["suite", "--target", "h1000"], "'h100'"),
        (["suite", "--samples", "0"], "--samples"),
        (["suite", "--lanes", "0"], "--lanes"),
        (["suite", "--budget", "0"], "--budget"),
        (["suite", "--coder", "compilr"], "compilr"),
        (["suite", "two"], "Expected one SUITE"),
        (["compare", "suite"], "compare A B"),
        (["compare", "suite", "empty"], "No rows"),
        ([], "Missing argument"),
    ],
)
def test_a_mistake_is_one_clear_line(words: list[str], hint: str, folder: Path, cli: Cli) -> None:
    (folder.parent / "empty").mkdir()
    (folder.parent / "names.txt").write_text("level1/gone\n")
    captured = cli(["bench", *words], 2)
    assert captured.err.count("\n") == 1
    assert hint in captured.err
    assert not (folder.parent / "agentkernel-bench").exists()


@pytest.mark.slow
def test_broken_problems_are_rows(folder: Path, cli: Cli) -> None:
    words = ["bench", str(folder), "--target", "h100", "--out", "out"]
    assert "1 of 2 problems so far" in cli([*words, "--shard", "2/2"], 1).out
    shown = cli.json([*words, "--json"], 1)
    assert [item["name"] for item in shown["rows"]] == ["level1/broken", "level1/other"]
    assert {item["status"] for item in shown["rows"]} == {"failed"}
    assert shown["summary"]["levels"][-1]["broken"] == shown["problems"] == 2
    assert sorted(item.name for item in Path("out").glob("*.*")) == [
        "report.md",
        "rows-2of2.jsonl",
        "rows.jsonl",
        "speedups.svg",
        "summary.json",
    ]
    text = cli(words, 1).out
    assert "fast_p against eager: not measured" in text
    assert len(Path("out/rows.jsonl").read_text().splitlines()) == 1, "nothing is done twice"


@pytest.mark.slow
def test_an_interrupted_bench_leaves_a_report_of_what_it_has(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(row: Row) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_suite, "print_row", interrupted)
    assert run(["bench", str(folder), "--target", "h100", "--out", "out"]) == 130
    assert len(Path("out/rows.jsonl").read_text().splitlines()) == 1
    report = Path("out/report.md").read_text()
    assert "level1/broken" in report
    assert "level1/other" not in report


def test_a_measured_bench_on_the_screen() -> None:
    screen = Console(width=110, force_terminal=False, file=StringIO())
    for shown in tables(summarise("s", suite()), suite()):
        screen.print(shown)
    lines = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    after = lines[lines.index("against torch.compile") + 1 :]
    assert after[0].split()[:8] == ["level", "problems", *(f"fast_{p}" for p in FAST)]
    assert next(line for line in after if line.startswith("all")).split()[1:4] == [
        "5",
        "60%",
        "40%",
    ]
    assert "estimated" not in "\n".join(lines), "a column of nothing but dashes"
    assert any(line.startswith("fast_p against max-autotune: not run") for line in lines)
    best = lines[lines.index("over the best of the baselines") + 2 :]
    assert best[0].split()[:6] == ["level1", "3", "1.12x", "(3)", "1", "1.19x"]
    assert any(line.split()[:2] == ["level1/b", "improved"] for line in lines)


def test_compare_tells_what_moved(tmp_path: Path, cli: Cli) -> None:
    for name, rows in (("a", suite()), ("b", (row("level1/a", sample(3.0)), *suite()[1:]))):
        (tmp_path / name).mkdir()
        for item in rows:
            append_row(tmp_path / name / "rows.jsonl", item)
    text = cli(["bench", "compare", "a", "b"]).out
    assert "level1/a" in text
    assert "faster" in text
    assert "1 faster, 2 same, 2 wrong" in text
    before, after = (line for line in text.splitlines() if line.startswith(("before", "after:")))
    assert before.startswith("before: answers 1.54x of the best baseline over 4 rows, 2 at 1.2x")
    assert after.startswith("after: answers 1.70x of the best baseline over 4 rows, 2 at 1.2x")
    cli(["bench", "compare", "b", "a"], 3)
    found = cli.json(["bench", "compare", "a", "a/rows.jsonl", "--json"])
    assert found["ratio"] == pytest.approx(1.0)
