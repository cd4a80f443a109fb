"""Does the folder hold what it says, the same each time, and nothing poisoned?"""

from __future__ import annotations

import gzip
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import SettingError, TrainingError
from agentkernel.training.data.card import Card, read_card
from agentkernel.training.data.dataset import make_data
from agentkernel.training.data.generator import make_problem
from agentkernel.training.data.rows import admitted, held_out_problems, read_rows, row_refusal
from agentkernel.training.data.sources import Origin
from agentkernel.training.settings import DataSettings, JudgedKernel, Split
from tests.training.data.judged_rows import (
    CHEAT,
    family_rows,
    kernel,
    made_rows,
    right,
    verdict,
    write_rows,
    wrong,
)

SETTINGS = DataSettings(held_out=6)
SPLITS: tuple[Split, ...] = ("train", "held-out")


def made(
    folder: Path, rows: list[JudgedKernel], settings: DataSettings = SETTINGS, name: str = "out"
) -> Card:
    path = write_rows(folder / f"{name}.jsonl.gz", rows)
    return make_data([Origin("pairs", path)], settings, folder / name)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith("card.")
    }


def test_no_structure_and_no_module_stands_on_both_sides(tmp_path: Path) -> None:
    card = made(tmp_path, made_rows(60))
    out = tmp_path / "out"
    sides = {split: list(read_rows(out, split)) for split in SPLITS}
    for key in ("structure", "problem_sha256", "id"):
        train, held = ({getattr(row, key) for row in sides[split]} for split in SPLITS)
        assert not train & held, key
    assert len(held_out_problems(out)) == card.held_out_modules == 6
    texts = {sha256_text(path.read_text()) for path in held_out_problems(out)}
    assert texts == {row.problem_sha256 for row in sides["held-out"]}
    assert all(row.split == split for split in SPLITS for row in sides[split])
    assert list(admitted(sides["train"], SETTINGS.licences, ("write", "optimise", "repair")))


def test_a_module_whose_text_names_the_structure_of_a_held_out_one_is_in_neither_part(
    tmp_path: Path,
) -> None:
    rows = made_rows(40)
    twins = dict[str, str]()
    for row in rows[::3]:
        copy = row.problem.replace("batch", "rows").replace("torch.randn(", "torch.rand(")
        # What was captured of it has another name: its text says whose kin it is.
        twin = right(copy, kernel(9), structure=f"other {len(twins)}")
        twins |= {row.problem_sha256: twin.problem_sha256, twin.problem_sha256: row.problem_sha256}
        rows.append(twin)
    card = made(tmp_path, rows)
    held = {row.problem_sha256 for row in read_rows(tmp_path / "out", "held-out")}
    learned = {row.problem_sha256 for row in read_rows(tmp_path / "out", "train")}
    assert len(held) == 6
    assert card.kin_modules >= 6
    assert not {twins[name] for name in held} & (held | learned)


def test_shares_hold_and_what_cannot_be_filled_is_said(tmp_path: Path) -> None:
    card = made(tmp_path, made_rows(60))
    counts = card.train.tasks
    assert card.unfilled == ()
    for task, share in SETTINGS.shares.items():
        assert abs(counts[task] - share * card.train.rows) <= 1
    other = made(tmp_path, made_rows(60, timed=False), name="untimed")
    assert "optimise" not in other.train.tasks
    assert [line.partition(":")[0] for line in other.unfilled] == ["optimise"]
    write, repair = other.train.tasks["write"], other.train.tasks["repair"]
    assert abs(write * 3 - repair * 4) <= 4
    alone = made(
        tmp_path, made_rows(20), DataSettings(held_out=2, shares={"repair": 1.0}), name="alone"
    )
    assert set(alone.train.tasks) == {"repair"}


def test_the_same_rows_in_any_order_come_to_the_same_bytes_and_another_seed_does_not(
    tmp_path: Path,
) -> None:
    rows = made_rows(40)
    made(tmp_path, rows)
    made(tmp_path, random.Random(1).sample(rows, len(rows)), name="shuffled")
    made(tmp_path, [*rows, *rows], name="twice")
    made(tmp_path, rows, SETTINGS.evolve(seed=1), name="seed")
    first = files(tmp_path / "out")
    assert files(tmp_path / "shuffled") == first
    assert files(tmp_path / "twice") == first
    assert files(tmp_path / "seed") != first
    rows_found = list(read_rows(tmp_path / "twice", "train"))
    assert len({row.id for row in rows_found}) == len(rows_found)


def poisoned() -> dict[str, JudgedKernel]:
    """Reason -> a row of a module of its own, that nothing may be learned from."""
    problems = [make_problem(seed).text for seed in range(500, 520)]
    good = verdict(kernel(7))
    bad = verdict(kernel(7), accepted=False)
    cheat = kernel(7, text=CHEAT)
    evil = problems[0].replace("import torch\n", "import torch\nimport os\n", 1)
    reading = "print(open('/etc/passwd').read())\n"
    return {
        "licence GPL-3.0": right(problems[1], kernel(7), licence="GPL-3.0"),
        "licence MIT, GPL-3.0": right(problems[2], kernel(7), licence="MIT, GPL-3.0"),
        "licence not stated": right(problems[3], kernel(7), licence="not stated"),
        "a cheat by the static policy: torch-compute": right(problems[4], cheat),
        "says that it was judged, without a verdict": right(problems[5], kernel(7), verdict=None),
        "its verdict is about another text": right(problems[6], kernel(8), verdict=good),
        "says accepted, and its verdict does not": right(problems[7], kernel(7), verdict=bad),
        "says refused, and its verdict does not": wrong(problems[8], kernel(7), "x", verdict=good),
        "judged under another policy than it says": right(problems[9], kernel(7), policy="any"),
        "says that it was judged elsewhere than its verdict does": right(
            problems[10], kernel(7), label="gpu"
        ),
        "module: imports os": right(evil, kernel(7)),
        "module: a statement that runs at import": right(problems[11] + reading, kernel(7)),
    }


def test_a_poisoned_row_is_never_learned_from_and_is_counted_by_its_reason(tmp_path: Path) -> None:
    rows, bad = made_rows(30), poisoned()
    made(tmp_path, rows, name="clean")
    card = made(tmp_path, [*bad.values(), *rows], name="out")
    assert {reason: card.left_out.get(reason) for reason in bad} == dict.fromkeys(bad, 1)
    assert files(tmp_path / "out") == files(tmp_path / "clean")
    hashes = {row.problem_sha256 for row in bad.values()}
    for split in SPLITS:
        for row in read_rows(tmp_path / "out", split):
            assert row.problem_sha256 not in hashes
            assert split == "held-out" or row_refusal(row, SETTINGS.licences) is None
    for reason in bad:
        assert reason in (tmp_path / "out" / "card.md").read_text()


def test_a_refused_kernel_is_given_and_never_learned(tmp_path: Path) -> None:
    rows = made_rows(30)
    made(tmp_path, rows)
    refused = {row.sha256 for row in rows if row.label == "refused"}
    for row in read_rows(tmp_path / "out", "train"):
        assert row.kernel_sha256 not in refused
        assert row.label == "interpreter"


def test_of_equal_kernels_a_verdict_counts_more_than_a_word_and_a_refusal_most(
    tmp_path: Path,
) -> None:
    rows = made_rows(30)
    made(tmp_path, rows)
    told = [right(row.problem, row.kernel, label="not-judged", verdict=None) for row in rows]
    for name, all_rows in (("before", [*told, *rows]), ("after", [*rows, *told])):
        made(tmp_path, all_rows, name=name)
        assert files(tmp_path / name) == files(tmp_path / "out")
    refused = [wrong(row.problem, row.kernel, "x") for row in rows[::3]]
    for name, all_rows in (("first", [*refused, *rows]), ("last", [*rows, *refused])):
        made(tmp_path, all_rows, name=name)
        learned = {
            (row.problem_sha256, row.kernel_sha256)
            for split in SPLITS
            for row in read_rows(tmp_path / name, split)
        }
        assert not learned & {(row.problem_sha256, row.sha256) for row in refused}


def test_what_nobody_judged_lies_apart_and_says_so(tmp_path: Path) -> None:
    told = [
        right(make_problem(900 + n).text, kernel(20 + n), label="not-judged", verdict=None)
        for n in range(5)
    ]
    card = made(tmp_path, [*made_rows(30), *told])
    with gzip.open(tmp_path / "out" / "not-judged.jsonl.gz", "rt") as file:
        lines = file.read().splitlines()
    assert len(lines) == card.not_judged.rows
    assert 3 <= card.not_judged.rows <= 5
    assert card.not_judged.labels == {"not-judged": card.not_judged.rows}
    hashes = {row.sha256 for row in told}
    assert not hashes & {row.kernel_sha256 for row in read_rows(tmp_path / "out", "train")}
    assert "not-judged" not in card.train.labels


def test_rows_that_are_too_long_are_left_out(tmp_path: Path) -> None:
    rows = made_rows(30)
    whole = made(tmp_path, rows)
    limit = whole.train.lengths.median
    short = made(tmp_path, rows, SETTINGS.evolve(most_characters=limit), name="short")
    assert short.train.lengths.longest <= limit < whole.train.lengths.longest
    assert short.left_out[f"longer than {limit} characters"] > 0


def test_of_a_task_with_rows_to_spare_the_crowded_families_give_way(tmp_path: Path) -> None:
    names = ["mean"] * 60 + ["softmax"] * 20 + ["linear"] * 10
    rows = []
    for seed, name in enumerate(names):
        structure = f"{name} {' '.join(['mul'] * seed)}"
        found = family_rows(seed, timed=False)  # both right kernels are taught to write
        rows += [row.evolve(structure=structure) for row in found]
    made(tmp_path, rows, DataSettings(held_out=1, shares={"write": 0.5, "repair": 0.5}))
    taken = Counter(
        row.structure.split()[0]
        for row in read_rows(tmp_path / "out", "train")
        if row.task == "write"
    )
    assert taken["linear"] >= 18
    assert taken["mean"] <= taken["softmax"] + 2


def test_a_finished_folder_is_left_alone_and_another_one_is_never_overwritten(
    tmp_path: Path,
) -> None:
    rows = made_rows(20)
    card = made(tmp_path, rows)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    assert made(tmp_path, rows) == card == read_card(tmp_path / "out")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before
    assert (
        card.train_sha256 == sha256((tmp_path / "out" / "train.jsonl.gz").read_bytes()).hexdigest()
    )
    with pytest.raises(TrainingError, match="other settings"):
        made(tmp_path, rows, DataSettings(held_out=2))
    with pytest.raises(TrainingError, match="other sources"):
        made(tmp_path, rows[3:])
    with gzip.open(tmp_path / "out" / "train.jsonl.gz", "at") as file:
        file.write("\n")
    with pytest.raises(TrainingError, match="changed after it was made"):
        made(tmp_path, rows)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(TrainingError, match="no training data"):
        made(tmp_path, rows, name="mine")
    (tmp_path / "empty").mkdir()
    assert made(tmp_path, rows, name="empty").train.rows


def test_what_holds_nothing_to_learn_is_one_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"1 x licence GPL-3\.0"):
        made(tmp_path, [right(make_problem(1).text, kernel(), licence="GPL-3.0")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl.gz"]
    with pytest.raises(SettingError, match="shares"):
        made(tmp_path, family_rows(1), DataSettings(shares={"write": 0.0}))


def test_what_cannot_be_read_is_counted_by_its_reason(tmp_path: Path) -> None:
    rows = [row.model_dump_json() for row in made_rows(30)]
    bad = ["{", '{"a"', "[]", '{"problem": 1}']
    path = tmp_path / "rows.jsonl.gz"
    data = gzip.compress("\n".join([*bad, *rows, *bad[2:], ""]).encode())
    broken = bytearray(gzip.compress(random.Random(1).randbytes(999).hex().encode()))
    broken[60:200] = bytes(140)
    path.write_bytes(data + gzip.compress(b"")[:-3])
    other = tmp_path / "broken.jsonl.gz"
    other.write_bytes(broken)
    origins = [Origin("pairs", path), Origin("pairs", other)]
    card = make_data(origins, SETTINGS, tmp_path / "out")
    first, second = card.inputs
    assert first.unread == sum(first.reasons.values()) == 7
    assert first.reasons["a list, not a JSON object"] == 2
    assert sum(count for why, count in first.reasons.items() if why.startswith("no JSON")) == 2
    assert sum(count for why, count in first.reasons.items() if why.startswith("no pair")) == 2
    assert not any("column" in why for why in first.reasons)
    assert second.unread == 1
    assert "the file" in "".join(second.reasons)
    page = (tmp_path / "out" / "card.md").read_text()
    for why in (*first.reasons, *second.reasons):
        assert why in page
    assert read_card(tmp_path / "out") == card


def test_reasons_without_end_are_told_together(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"kernel_sha256": "", "a{n}": 1}}\n' for n in range(99)))
    told = r"0 rows of 1 sources, beside 99 unreadable \(59 x other reasons; 1 x no review: a0"
    with pytest.raises(TrainingError, match=told) as caught:
        make_data([Origin("reviews", path)], SETTINGS, tmp_path / "out")
    assert "\n" not in str(caught.value)


CHILD = """
import sys
from pathlib import Path
from agentkernel.training.settings import DataSettings
from agentkernel.training.data.dataset import make_data
from agentkernel.training.data.sources import Origin
show = lambda done, total, words: print(done, words, flush=True)
make_data(
    [Origin("pairs", Path(sys.argv[1]))], DataSettings(held_out=6), Path(sys.argv[2]), show=show
)
"""


@pytest.mark.slow
def test_killed_at_any_moment_the_same_call_comes_to_the_same_bytes(tmp_path: Path) -> None:
    rows = made_rows(150)
    made(tmp_path, rows, name="whole")
    source, out = tmp_path / "whole.jsonl.gz", tmp_path / "killed"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for lines in (1, 4):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(source), str(out)],
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        assert child.stdout is not None
        for _ in range(lines):
            assert child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert not out.exists()
        assert (tmp_path / ".killed.making").is_dir()
    begun = time.monotonic()
    make_data([Origin("pairs", source)], SETTINGS, out)
    assert files(out) == files(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "whole", source.name]
    assert time.monotonic() - begun < 60
