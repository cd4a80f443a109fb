"""Do rows and packages come to another machine as they were, and figures back without weights?"""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import shutil
import subprocess
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "training" / "carry.sh"


def carry(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [SCRIPT, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("carry") / "data"
    (folder / "problems" / "held-out").mkdir(parents=True)
    (folder / "problems" / "held-out" / "m.py").write_text("m = 1\n")
    rows = folder / "train.jsonl.gz"
    with rows.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
        file.write(b'{"text": "one\xe2\x80\xa8"}\n{"text": "two"}\n' * 1000)
    sha256 = hashlib.sha256(rows.read_bytes()).hexdigest()
    (folder / "card.json").write_text(json.dumps({"train_sha256": sha256}))
    return folder


@pytest.fixture(scope="module")
def bundle(data: Path) -> Path:
    wheels, made = data.parent / "wheels", data.parent / "bundle"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "one-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("one/__init__.py", "ONE = 1\n")
        wheel.writestr("pyarrow/_flight.so", "large")
        wheel.writestr("pyarrow/lib.py", "")
    packed = carry("pack", data, wheels, made)
    assert packed.returncode == 0, packed.stderr
    return made


@pytest.mark.slow
def test_what_is_packed_comes_out_as_it_was(data: Path, bundle: Path, tmp_path: Path) -> None:
    there = tmp_path / "the other one"
    there.mkdir()
    unpacked = carry("unpack", bundle, ".", cwd=there)
    assert (unpacked.returncode, unpacked.stdout) == (0, "the rows are the card's\n")
    for file in ("train.jsonl.gz", "card.json", "problems/held-out/m.py"):
        assert (there / "data" / file).read_bytes() == (data / file).read_bytes()
    asked = ". ./env.sh; cd /; python3 -c 'import one, pyarrow; print(one.ONE)'"
    assert subprocess.check_output(["bash", "-c", asked], text=True, cwd=there) == "1\n"
    assert not (there / "site-packages" / "pyarrow" / "_flight.so").exists()
    assert (there / "src" / "agentkernel" / "__init__.py").is_file()
    assert not any(there.rglob("*.safetensors"))


def test_other_rows_and_cut_packages_end_it(bundle: Path, tmp_path: Path) -> None:
    other = shutil.copytree(bundle, tmp_path / "other")
    (other / "train.jsonl.xz").write_bytes(lzma.compress(b"{}\n"))
    found = carry("unpack", other, tmp_path / "there")
    assert found.returncode != 0
    assert "OTHER BYTES" in found.stdout
    shutil.copy(bundle / "train.jsonl.xz", other)
    site = other / "site.tar.xz"
    site.write_bytes(site.read_bytes()[:-20])
    assert carry("unpack", other, tmp_path / "there").returncode != 0


def test_results_come_back_without_weights(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "sft" / "checkpoints" / "1").mkdir(parents=True)
    (out / "answers").mkdir()
    for name in ("figures-main.json", "sft/training.jsonl", "answers/answers-1.jsonl.gz"):
        (out / name).write_text(name)
    for name in ("sft/model.safetensors", "sft/tokenizer.json", "sft/checkpoints/1/state.json"):
        (out / name).write_text(name)
    for older in ("results.tar.xz.01", "results.tar.xz.new.01"):  # of a larger one, and a cut one
        (tmp_path / older).write_text("older")
    assert carry("results", out, "results.tar.xz", cwd=tmp_path).returncode == 0
    assert [item.name for item in tmp_path.glob("results.*")] == ["results.tar.xz.00"]
    with tarfile.open(tmp_path / "results.tar.xz.00") as packed:
        found = {Path(name).as_posix() for name in packed.getnames()}
    assert found == {"figures-main.json", "sft/training.jsonl", "answers/answers-1.jsonl.gz"}


@pytest.mark.slow
def test_it_is_watched_until_it_ends_and_what_ended_is_not_waited_for(tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "results.tar.xz"
    out.mkdir()
    (out / "sft.log").write_text("step 1\rstep 2\n")
    with subprocess.Popen(["sleep", "1.5"]) as works:
        (out / "running").write_text(str(works.pid))
        begun = time.monotonic()
        reaper = threading.Thread(target=works.wait)  # a dead child that nobody waited for is there
        reaper.start()
        found = carry("watch", out, "60", file)
        reaper.join()
    assert 1.5 <= time.monotonic() - begun < 30
    assert "== sft.log\nstep 1\nstep 2\n" in found.stdout, found.stderr
    assert Path(f"{file}.00").is_file()
    (out / "running").unlink()
    begun = time.monotonic()
    assert carry("watch", out, "60", file).returncode == 0
    assert time.monotonic() - begun < 15


def test_an_unknown_verb_shows_the_verbs() -> None:
    asked = carry("unpak")
    assert asked.returncode == 2
    assert "carry.sh unpack BUNDLE FOLDER" in asked.stderr
