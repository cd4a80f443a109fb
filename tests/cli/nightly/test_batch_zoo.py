"""A night over a zoo from the command line: whole, killed or not, with its exit code."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentkernel.cli.nightly.zoo import (
    earlier_run,
    is_zoo,
    select_models,
    zoo_folder,
    zoo_overrides,
)
from agentkernel.domain.errors import SettingError
from agentkernel.domain.nightly import NightlyRun, Zoo, ZooModel
from agentkernel.nightly.library import Library
from agentkernel.nightly.zoo.reader import packaged_zoos
from tests.cli.commands import Cli
from tests.nightly.library.library_rows import night as made_up

MODELS = '''
import torch
from torch import nn


class Scale(nn.Module):
    """Three pointwise ops, which one kernel fuses."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return torch.relu(x * self.weight + 1.0)


class One(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.scale = Scale(width)

    def forward(self, x):
        return self.scale(x).sum(-1)


class Two(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.first = Scale(width)

    def forward(self, x):
        return self.first(x).amax(-1)
'''
ZOO = """
name: pair
models:
  - {name: one, model: "models.py:One", inputs: ["x=f32[64,256]"]}
  - {name: two, model: "models.py:Two", inputs: ["x=f32[64,256]"]}
"""


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The zoo's file, with folders of the user's own."""
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODELS)
    path = tmp_path / "pair.yaml"
    path.write_text(ZOO)
    return path


def words(zoo: Path, *more: str) -> list[str]:
    return [
        *("batch", str(zoo), "--target", "h100", "--workers", "1", "--json"),
        *("-c", "judge.seeds=1", "-c", "budget.rounds=1", "-c", "knowledge.limit=0", *more),
    ]


def library_file() -> Path:
    return Path(os.environ["XDG_DATA_HOME"]) / "agentkernel" / "library.sqlite"


def library() -> Library:
    return Library(library_file())


@contextmanager
def begun(zoo: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a process of its own."""
    main = "import sys; from agentkernel.cli.app import main; main(sys.argv[1:])"
    with (zoo.parent / "child.log").open("ab") as log:
        child = subprocess.Popen([sys.executable, "-c", main, *words(zoo)], stdout=log, stderr=log)
        try:
            yield child
        finally:
            child.kill()
            child.wait()


def finished_jobs() -> int:
    if not library_file().is_file():
        return 0
    with library() as kernel_store:
        return sum(len(kernel_store.jobs(kind)) for kind in ("cut", "kernel", "whole"))


def kill_after(zoo: Path, jobs: int) -> None:
    """Begin a night and kill it once so many jobs are finished."""
    end = time.monotonic() + 240.0
    with begun(zoo) as child:
        while finished_jobs() < jobs:
            assert time.monotonic() < end
            time.sleep(0.1)
        child.send_signal(signal.SIGKILL)


def told(cli: Cli, asked: list[str], code: int = 0) -> tuple[NightlyRun, dict[str, object]]:
    """The last line of a call's output: the night, and all that stands beside it."""
    value = json.loads(cli(asked, code).out.strip().splitlines()[-1])
    return NightlyRun.model_validate(value["night"]), value


def finished_after(zoo: Path, kills: tuple[int, ...], cli: Cli) -> NightlyRun:
    """The zoo's first night, killed after so many jobs each time."""
    for jobs in kills:
        kill_after(zoo, jobs)
    kept = finished_jobs()
    assert kept < 5, "the kills came before the end"
    night, value = told(cli, words(zoo, "--out", "first"))
    found = {row.name: row for row in night.regions if row.sha256}
    assert {name: row.status for name, row in found.items()} == dict.fromkeys(
        ("Scale", "One", "Two"), "new"
    )
    assert {use.model for use in found["Scale"].uses} == {"one", "two"}, "the two models share it"
    assert [(row.form, row.swapped, row.verified) for row in night.models] == [
        ("one-region", 1, True),
        ("one-region", 1, True),
    ]
    assert {row.why for row in night.models} == {
        "estimated to be faster as one region than in regions"
    }
    assert all((row.estimated_speedup or 0) > 1 for row in night.models)
    assert night.lost, "what the kills cut off is said"
    assert Path(str(value["folder"]), "night.html").is_file()
    assert night.gpu is None
    return night


def break_kernel() -> None:
    """By hand, in the library."""
    with library() as kernel_store:
        kernel_store._db.execute("update kernels set source = source || '# more'")
        kernel_store._db.commit()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_killed_night_is_finished_and_the_next_one_finds_what_broke(zoo: Path, cli: Cli) -> None:
    finished_after(zoo, (1,), cli)
    break_kernel()
    night, value = told(cli, words(zoo), 6)
    assert "withdrawn" in {kind for kind, _ in changes(value)}
    withdrawn = [row for row in night.regions if row.status == "withdrawn"]
    assert {row.name for row in withdrawn} == {"Scale", "One", "Two"}
    assert all(row.parent is not None for row in withdrawn)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_zoo_from_its_models_to_its_exit_codes(zoo: Path, cli: Cli) -> None:
    night = finished_after(zoo, (1, 3), cli)

    # One model gets slower, and the kernel is broken in the library by hand.
    text = MODELS.replace("amax(-1)", "sort(-1).values.amax(-1)")
    (zoo.parent / "models.py").write_text(text)
    _, value = told(cli, words(zoo, "--only", "two", "--compare", night.id), 5)
    assert ("regression", "two") in changes(value)
    break_kernel()
    night, value = told(cli, words(zoo), 6)
    assert {"withdrawn", "regression"} <= {kind for kind, _ in changes(value)}
    withdrawn = [row for row in night.regions if row.status == "withdrawn"]
    assert {"Scale", "One"} <= {row.name for row in withdrawn}
    assert all(row.parent is not None for row in withdrawn)
    night, _ = told(cli, words(zoo))
    assert {row.status for row in night.regions if row.sha256} == {"reused"}


def test_a_folder_that_cannot_be_written_is_told_before_the_night(zoo: Path, cli: Cli) -> None:
    Path("afile").touch()
    assert "Cannot write 'afile'" in cli(words(zoo, "--out", "afile"), 2).out
    assert finished_jobs() == 0


def test_a_night_is_never_compared_with_itself(tmp_path: Path) -> None:
    with Library(tmp_path / "library.sqlite") as kernel_store:
        for number, name in enumerate(("first", "second")):
            started = f"2026-11-2{number}T02:00:00+00:00"
            kernel_store.save_night(made_up(name, started=started, finished=started), 0)
        assert earlier_run(kernel_store, "tiny", None) == kernel_store.night("second")
        for compare in (None, "last", "last-green"):
            assert earlier_run(kernel_store, "tiny", compare, "second") == kernel_store.night(
                "first"
            )
        assert earlier_run(kernel_store, "tiny", "first", "second") == kernel_store.night("first")
        with pytest.raises(SettingError, match="'second' is the night that goes on here"):
            earlier_run(kernel_store, "tiny", "second", "second")


def test_the_folder_of_a_zoos_nights() -> None:
    assert zoo_folder("tiny:a+b") == Path("agentkernel-nights/tiny-a+b")
    assert len(zoo_folder(f"tiny:{'+'.join(['model'] * 99)}").name) == 100


def test_what_is_a_zoo(zoo: Path) -> None:
    listed = zoo.parent / "list.yaml"
    listed.write_text("problems: [a.py]\n")
    assert is_zoo(zoo)
    assert is_zoo(Path("tiny"))
    assert not is_zoo(listed)
    assert not is_zoo(Path("nothing"))


def test_flags_of_a_zoo_are_not_a_lists(zoo: Path, cli: Cli) -> None:
    listed = zoo.parent / "list.yaml"
    listed.write_text("problems: [a.py]\n")
    assert "--only goes with a zoo" in cli(["batch", str(listed), "--only", "one"], 2).err


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, "No such zoo: 'wrong.yaml'"),
        (b"models: [", "Cannot read the zoo 'wrong.yaml'"),
        (b"models: [\xff]", "Cannot read the zoo 'wrong.yaml'"),
        (b"modells: []", "unknown key 'modells'. The nearest known one is 'models'"),
    ],
)
def test_beside_a_zoos_flag_a_mistake_is_told_as_a_zoos(
    zoo: Path, text: bytes | None, line: str, cli: Cli
) -> None:
    if text is not None:
        Path("wrong.yaml").write_bytes(text)
    assert line in cli(["batch", "wrong.yaml", "--time", "5m"], 2).err


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (("--only", "three"), "--only 'three' is no model of zoo 'pair'. Known: one, two."),
        (("--compare", "lost"), "No night 'lost'"),
        (("--time", "soon"), "--time 'soon' is no time span"),
        (("--workers", "99999999"), "--workers 99999999 is too many for this machine. Expected 1"),
        (("-c", "judge.sead=1"), "Unknown setting 'judge.sead'"),
    ],
)
def test_mistakes_are_one_line(zoo: Path, flags: tuple[str, ...], line: str, cli: Cli) -> None:
    assert line in cli(["batch", str(zoo), "--target", "h100", *flags], 2).err


def test_some_models_are_a_zoo_of_their_own() -> None:
    models = tuple(ZooModel(name=name, model="m:M") for name in "abc")
    zoo = Zoo(name="all", models=models, settings={"judge.seeds": 2, "coder": "compiler"})
    assert select_models(zoo, ()) is zoo
    assert select_models(zoo, ("c", "a")).name == "all:a+c"
    with pytest.raises(SettingError):
        select_models(zoo, ("d",))
    assert zoo_overrides(zoo)[1:] == ["judge.seeds=2", 'coder="compiler"']


@pytest.fixture
def tiny(zoo: Path) -> Path:
    """A copy of the packaged zoo, whose models may be changed."""
    packaged = packaged_zoos()["tiny"]
    shutil.copytree(packaged.parent / "models", zoo.parent / "models")
    return Path(shutil.copy(packaged, zoo.parent / "tiny.yaml"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_packaged_tiny_zoo(tiny: Path, cli: Cli) -> None:
    for jobs in (1, 4):
        kill_after(tiny, jobs)
    night, value = told(cli, words(tiny, "--out", "first"))
    assert night.lost, "what the kills cut off is said"
    assert len(night.models) == 3
    assert all(row.swapped and row.verified and row.why for row in night.models)
    assert all((row.estimated_speedup or 0) > 1 for row in night.models)
    found = {row.name: row for row in night.regions if row.sha256}
    assert len(found) >= 3
    assert all(row.status == "new" for row in found.values())
    shared = [row for row in found.values() if len({use.model for use in row.uses}) > 1]
    assert shared, "one kernel serves two models"
    page = Path(str(value["folder"]), "night.html").read_text()
    assert "estimated" in page
    assert "measured on no GPU" in page

    # One model gets slower; then one kernel is broken in the library by hand.
    blocks = tiny.parent / "models" / "blocks.py"
    text = blocks.read_text()
    blocks.write_text(text.replace("x = norm(x, mlp(x))", "x = norm(x, mlp(x)).sort(0).values"))
    night, value = told(cli, words(tiny), 5)
    assert changes(value) == {("regression", "residual-mlp"), ("version", "zoo file")}
    parts = [row for row in night.regions if row.sha256 and all(use.path for use in row.uses)]
    assert {row.status for row in parts} == {"reused"}

    broken = shared[0]
    with library() as kernel_store:
        kernel_store._db.execute(
            "update kernels set source = source || '# more' where sha256 = ?", (broken.sha256,)
        )
        kernel_store._db.commit()
    night, value = told(cli, words(tiny), 6)
    assert [row.signature for row in night.regions if row.status == "withdrawn"] == [
        broken.signature
    ]
    assert "withdrawn" in {kind for kind, _ in changes(value)}


def changes(value: dict[str, object]) -> set[tuple[str, str]]:
    """Kind and name of what the night's comparison lists."""
    listed = value["comparison"]["changes"]  # type: ignore[index]
    return {(item["kind"], item["what"]) for item in listed}
