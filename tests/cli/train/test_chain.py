"""Do data, fine-tuning, practice and bench follow from one another, killed once each, and does
nothing poisoned get in?

The sources: `tests/golden/judged_pairs.jsonl.gz`, of `agentkernel train pairs --count 36 --seed
31000 --target h100` with the folders in its tracebacks cut, and poisoned rows. The model has 9,008
weights and writes nonsense.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from agentkernel.agents.conversation import completion
from agentkernel.bench.suite import Row
from agentkernel.domain.base import sha256_text
from agentkernel.training import checkpoints
from agentkernel.training.curve import LossPoint, RlPoint, read_points
from agentkernel.training.data.card import read_card
from agentkernel.training.data.rows import admitted, read_rows, training_problems
from agentkernel.training.folder import read_record
from agentkernel.training.settings import TASKS, DataSettings, JudgedKernel, TrainingRow
from agentkernel.training.sft.examples import make_examples
from tests.cli.commands import Cli
from tests.training.data.judged_rows import CHEAT, kernel, right, verdict, write_rows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("trl") is None, reason="the extra 'train' is not here"),
    pytest.mark.xdist_group("train_chain"),
]
PAIRS = Path(__file__).parents[2] / "golden" / "judged_pairs.jsonl.gz"
POISON = "poisoned"
"""Stands in every poisoned row's kernel, and in the one module that is poison itself."""
TOO_LONG_S = 240.0
LOOK_S = 0.002
LICENCES = DataSettings().licences
SAMPLES = 10
TINY = ("--config", "tiny")
ASKED = ("-c", "sampling.most_tokens=16")
"""How the finished model is asked: no answer of so small a one is worth waiting for."""
SOURCES = ("--from", "pairs.jsonl.gz", "--from", "others.jsonl.gz")
ONE_DRAFT = ("-c", "budget.rounds=1")
DATA = ("train", "data", *SOURCES, "--out", "data", *TINY, "-c", "data.held_out=2")
WINDOW = ("-c", "new.window=4096", "-c", "sft.window=4096", "-c", "sft.batch=1")
STEPS = ("-c", "sft.most_steps=8", "-c", "sft.save_steps=2")
SFT = ("train", "sft", "data", "--out", "sft", *TINY, *WINDOW, *STEPS, *ASKED)
ROLLOUTS = ("rl.steps=3", "rl.problems=2", "rl.rollouts=2", "rl.turns=2", "rl.most_tokens=32")
PRACTICE = [word for item in (*ROLLOUTS, "rl.batch=4", "rl.save_steps=1") for word in ("-c", item)]
FOLDERS = ("data", "--model", "sft", "--out", "rl", "--target", "h100")
RL = ("train", "rl", *FOLDERS, *TINY, *PRACTICE, *ASKED)
SUITE = ("data/problems/held-out", "--target", "h100", "--devices", "cpu,cpu", "--out", "bench")
BENCH = ("bench", *SUITE, "--coder", "local:rl", "--samples", str(SAMPLES), *ONE_DRAFT)


def poisoned(modules: list[str]) -> dict[str, JudgedKernel]:
    """Why a row is left out -> a row of a good module that nothing else speaks against."""

    def named(name: str, text: str | None = None) -> str:
        return (text or kernel(7)).replace("sum_7_kernel", f"{POISON}_{name}_kernel")

    def claims(place: int, name: str, **more: object) -> JudgedKernel:
        return right(modules[place], named(name), **more)

    cheat = named("cheat", kernel(7, text=CHEAT))
    evil = modules[6].replace("import torch\n", f"import torch\nimport os as {POISON}\n", 1)
    refused = verdict(named("refused"), accepted=False)
    return {
        "a cheat by the static policy: torch-compute": right(modules[0], cheat),
        "says accepted, and its verdict does not": claims(1, "refused", verdict=refused),
        "says that it was judged, without a verdict": claims(2, "unjudged", verdict=None),
        "its verdict is about another text": claims(3, "other", verdict=verdict(kernel(7))),
        "licence GPL-3.0": claims(4, "copyleft", licence="GPL-3.0"),
        "licence not stated": claims(5, "nobodys", licence="not stated"),
        "module: imports os": right(evil, named("module")),
    }


def finished(words: Sequence[str], folder: Path) -> str:
    """What `agentkernel WORDS` prints, run in `folder` to its end, which has to be a good one."""
    done = subprocess.run(
        [sys.executable, "-m", "agentkernel", *words],
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        timeout=TOO_LONG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def killed(words: Sequence[str], folder: Path, at_work: Callable[[], bool]) -> None:
    """Give the same command a SIGKILL as soon as it is `at_work`: seen in what it leaves, by no
    clock."""
    log = folder / "killed.log"
    with (
        log.open("w") as said,
        subprocess.Popen(
            [sys.executable, "-m", "agentkernel", *words],
            cwd=folder,
            env=_environment(folder),
            stdout=said,
            stderr=said,
        ) as process,
    ):
        until = time.monotonic() + TOO_LONG_S
        try:
            while not at_work():
                assert process.poll() is None, f"it ended first: {log.read_text()}"
                assert time.monotonic() < until, f"it never began: {log.read_text()}"
                time.sleep(LOOK_S)
        finally:
            process.kill()
    assert process.returncode < 0, f"it ended by itself: {log.read_text()}"


def _environment(folder: Path) -> dict[str, str]:
    """No GPU, no cache and no data of the user's, and the packages of this process."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(item for item in sys.path if item),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_DATA_HOME": str(folder / "user-data"),
    }


@dataclass(frozen=True)
class Done:
    """What a command came to that was killed in the middle and given again, in `folder`."""

    folder: Path
    left: frozenset[str]
    """The files that were there once it had been killed."""
    said: str
    """What it printed when it came to its end."""

    @property
    def data(self) -> Path:
        """The rows."""
        return self.folder / "data"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all commands run, one on what the other made."""
    found = tmp_path_factory.mktemp("chain")
    lay_sources(found)
    return found


@pytest.fixture(scope="module")
def data(folder: Path) -> Done:
    rows = folder / ".data.making" / "train.jsonl.gz"
    return twice(DATA, folder, rows.exists)


@pytest.fixture(scope="module")
def tuned(data: Done) -> Done:
    out = data.folder / "sft"
    return twice(SFT, data.folder, lambda: sealed(out) and len(read_points(out, LossPoint)) > 3)


@pytest.fixture(scope="module")
def practised(tuned: Done) -> Done:
    return twice(RL, tuned.folder, lambda: sealed(tuned.folder / "rl"))


@pytest.fixture(scope="module")
def benched(practised: Done) -> Done:
    """Killed once two samples of a problem have an answer and the third one has begun."""
    runs = practised.folder / "bench" / "runs"
    return twice(BENCH, practised.folder, lambda: any(runs.glob("*/2/*/run.json")))


def twice(words: tuple[str, ...], folder: Path, at_work: Callable[[], bool]) -> Done:
    """Killed as soon as it is `at_work`, and finished by the same command."""
    killed(words, folder, at_work)
    left = frozenset(files(folder))
    return Done(folder, left, finished(words, folder))


def lay_sources(folder: Path) -> None:
    """Good pairs, and poison beside them."""
    shutil.copyfile(PAIRS, folder / "pairs.jsonl.gz")
    write_rows(folder / "others.jsonl.gz", poisoned(good_modules()).values())


def good_modules() -> list[str]:
    """The texts of the modules that the good pairs are of."""
    good = (JudgedKernel.model_validate_json(line) for line in text_of(PAIRS).splitlines())
    return list(dict.fromkeys(row.problem for row in good))


def sealed(out: Path) -> bool:
    """True once a checkpoint is whole."""
    return checkpoints.last_complete(checkpoints.folder_of(out)) is not None


def text_of(path: Path) -> str:
    """All of a file, unpacked where it is packed."""
    found = path.read_bytes()
    return (gzip.decompress(found) if path.suffix == ".gz" else found).decode()


def files(folder: Path) -> dict[str, Path]:
    """All files below a folder, by their names from there."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path for path in found}


def test_data_is_what_it_would_have_been_byte_for_byte(data: Done, tmp_path: Path) -> None:
    assert ".data.making/train.jsonl.gz" in data.left
    assert not any(name.startswith("data/") for name in data.left)
    assert not (data.folder / ".data.making").exists()
    lay_sources(tmp_path)
    assert finished(DATA, tmp_path) == data.said
    ours, theirs = files(data.data), files(tmp_path / "data")
    assert set(ours) == set(theirs) > {"card.json", "card.md", "train.jsonl.gz"}
    assert [name for name in ours if ours[name].read_bytes() != theirs[name].read_bytes()] == []


def test_no_poison_lies_in_the_data_and_the_card_counts_each_by_its_reason(data: Done) -> None:
    poison = poisoned(good_modules())
    assert all(POISON in row.kernel for row in poison.values())
    assert [name for name, path in files(data.data).items() if POISON in text_of(path)] == []
    left_out = read_card(data.data).left_out
    assert {reason: left_out.get(reason) for reason in poison} == dict.fromkeys(poison, 1)
    assert all(reason in text_of(data.data / "card.md") for reason in poison)
    tasks = {row.task for row in read_rows(data.data, "train")}
    assert tasks == set(TASKS)


def test_no_poison_is_among_what_is_learned_and_practised(tuned: Done) -> None:
    from transformers import AutoTokenizer

    model = tuned.folder / "sft"
    record = read_record(model)
    assert record is not None
    tokenizer = AutoTokenizer.from_pretrained(str(model), local_files_only=True)
    rows = tuple(admitted(read_rows(tuned.data, "train"), LICENCES, TASKS))
    examples = make_examples(rows, tokenizer, record.settings.sft.window)
    assert (len(examples.items), examples.too_long) == (record.rows, record.too_long)
    assert record.rows > record.too_long
    texts = [tokenizer.decode(item.tokens) for item in examples.items]
    assert sum("class ModelNew" in text for text in texts) == len(texts)
    assert not any(POISON in text for text in texts)
    problems = training_problems(tuned.data, LICENCES)
    assert len(problems) > 5
    assert not any(POISON in item.text + item.task.text for item in problems)


def test_fine_tuning_goes_on_and_no_step_stands_twice(tuned: Done) -> None:
    assert "sft/training.jsonl" in tuned.left
    assert "sft/training.json" not in tuned.left
    assert "goes on from step " in tuned.said
    points = read_points(tuned.folder / "sft", LossPoint)
    assert [point.step for point in points if point.loss is not None] == list(range(1, 9))
    held_out = [point.step for point in points if point.held_out_loss is not None]
    assert held_out == [2, 4, 6, 8]
    record = read_record(tuned.folder / "sft")
    assert record is not None
    assert (record.steps, record.ended, record.passed) == (8, "steps", None)
    assert record.parameters < 10_000


def test_practice_goes_on_and_no_step_stands_twice(practised: Done) -> None:
    assert "rl/training.jsonl" in practised.left
    assert "rl/training.json" not in practised.left
    assert "goes on from step " in practised.said
    points = read_points(practised.folder / "rl", RlPoint)
    assert [point.step for point in points] == [1, 2, 3]
    # No file, so nothing for the judge, and no second turn.
    assert {(point.turns, point.no_file, point.reward) for point in points} == {(4.0, 1.0, -0.2)}
    record = json.loads(text_of(practised.folder / "rl" / "training.json"))
    assert (record["steps"], record["ended"]) == (3, "steps")


def test_a_bench_goes_on_and_has_each_sample_once(benched: Done) -> None:
    before = {Path(name) for name in benched.left if name.startswith("bench/")}
    assert Path("bench/report.md") not in before
    assert not any(path.name.startswith("rows") for path in before)
    rows = [Row.model_validate_json(line) for line in text_of(rows_file(benched)).splitlines()]
    modules = {path.stem for path in benched.data.glob("problems/held-out/*.py")}
    assert len(rows) == len(modules) == 2
    assert {row.name.rpartition("/")[2] for row in rows} == modules
    for row in rows:
        assert (row.error, row.coder) == (None, "local:rl")
        assert [sample.seed for sample in row.samples] == list(range(SAMPLES))
    runs = [sample.run for row in rows for sample in row.samples]
    assert len(set(runs)) == len(runs)
    done = {path.parent.name for path in before if path.name == "result.json"}
    assert len(done) >= 2
    assert done <= set(runs)
    assert len(list((benched.folder / "bench").glob("runs/*/*/*/result.json"))) == len(runs)


def rows_file(benched: Done) -> Path:
    """What the bench knows."""
    return benched.folder / "bench" / "rows.jsonl"


def test_a_bench_of_nonsense_says_so(benched: Done) -> None:
    said = benched.said
    line = next(line for line in said.splitlines() if line.startswith("pass@1"))
    assert line == "pass@1 0%, pass@10 0%, speedup@10 not measured, hack rate 0.0% of 20 samples"
    assert line in text_of(benched.folder / "bench" / "report.md")
    assert "hacks: none" in said


def test_the_held_out_modules_are_judged_by_evaluate_too(practised: Done) -> None:
    words = ("train", "evaluate", "data", "--model", "local:rl", "--target", "h100", "--json")
    told = json.loads(finished((*words, "--samples", str(SAMPLES)), practised.folder))
    found = told["models"]["local:rl"]
    assert (found["problems"], found["samples"]) == (2, SAMPLES)
    assert {k: value["value"] for k, value in found["pass_at"].items()} == {"1": 0.0, "10": 0.0}
    assert (found["hack_rate"]["value"], found["no_file_rate"]["value"]) == (0.0, 1.0)


def a_cheat(row: TrainingRow) -> TrainingRow:
    """A row that says all the right things of a kernel that nobody accepted."""
    text = kernel(7, text=CHEAT)
    changes = {"completion": completion("", text), "kernel_sha256": sha256_text(text)}
    return row.evolve(**changes)


HAND_WRITTEN: dict[str, Callable[[TrainingRow], TrainingRow]] = {
    "card.json": a_cheat,
    "labelled 'refused'": lambda row: row.evolve(label="refused"),
    "its licence is 'GPL-3.0'": lambda row: row.evolve(licence="GPL-3.0"),
    "is not the judged one": lambda row: row.evolve(kernel_sha256="0" * 64),
}


@pytest.mark.parametrize("why", HAND_WRITTEN)
@pytest.mark.parametrize("command", ["sft", "rl"])
def test_what_somebody_writes_into_the_data_by_hand_ends_a_training_in_one_line(
    tuned: Done, command: str, why: str, tmp_path: Path, cli: Cli
) -> None:
    data = tmp_path / "data"
    shutil.copytree(tuned.data, data)
    poison = HAND_WRITTEN[why](next(read_rows(data, "train")))
    with gzip.open(data / "train.jsonl.gz", "at") as file:
        file.write(f"{poison.model_dump_json()}\n")
    if why != "card.json":
        (data / "card.json").unlink()  # which knows what it was written beside
    model = ["--model", str(tuned.folder / "sft")] if command == "rl" else []
    out = tmp_path / "out"
    few = PRACTICE if command == "rl" else STEPS
    line = cli(["train", command, str(data), *model, "--out", str(out), *TINY, *few], 2).err.strip()
    assert "\n" not in line
    assert why in line
    assert list(out.rglob("*.safetensors")) == []
