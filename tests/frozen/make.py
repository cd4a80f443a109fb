"""Writes the fixtures of tests/frozen: what the commands of one day left on a disk.

    python tests/frozen/make.py [NAME ...]     all of them, or those named; minutes each

They are kept to be opened by later code, so they are made anew only where a new kind of record is
to be frozen beside the old one. Everything runs on the CPU, in a folder of its own, and is signed
with a key that is not kept.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent

PLUS = '''"""Three pointwise operators, which one kernel fuses."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 0.5 + 1.0)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 96)]


def get_init_inputs() -> list[object]:
    return []
'''
MODELS = '''"""Two models with one layer in common."""

import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * self.weight + 1.0)


class One(nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.scale = Scale(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale(x).sum(-1)


class Two(nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.first = Scale(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x).amax(-1)
'''
ZOO = """name: pair
models:
  - {name: one, model: "models.py:One", inputs: ["x=f32[64,256]"]}
  - {name: two, model: "models.py:Two", inputs: ["x=f32[64,256]"]}
"""
LINES = """how long will it take?
/run 1
why is it fast?
try 8 warps
/show c1
/tree
"""
FAST = ("-c", "judge.seeds=1", "-c", "budget.rounds=1", "-c", "knowledge.limit=0")
TOO_LONG_S = 1800.0
LOOK_S = 0.01
EVENTS = 30
"""Of the scripted run, which has some seventy: it is killed in its second round."""


def agentkernel(work: Path, *words: str, codes: tuple[int, ...] = (0,)) -> str:
    """What a command prints that is run in `work`."""
    done = subprocess.run(
        [sys.executable, "-m", "agentkernel", *words],
        cwd=work,
        env=environment(work),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TOO_LONG_S,
        check=False,
    )
    assert done.returncode in codes, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def environment(work: Path) -> dict[str, str]:
    """No GPU, and folders of its own."""
    folders = {f"XDG_{name}_HOME": str(work / name.lower()) for name in ("DATA", "CACHE", "CONFIG")}
    path = os.pathsep.join(item for item in sys.path if item)
    return os.environ | folders | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": path}


def make_run(work: Path) -> tuple[str, ...]:
    """A finished run of the compiler with its certificate."""
    agentkernel(work, "optimize", "plus.py", "--target", "h100", *FAST)
    return ("agentkernel-runs",)


def make_killed(work: Path) -> tuple[str, ...]:
    """The same run, killed as soon as its candidate was judged."""
    words = ["optimize", "plus.py", "--target", "h100", "--runs", "killed-runs", *FAST]
    child = subprocess.Popen(
        [sys.executable, "-m", "agentkernel", *words],
        cwd=work,
        env=environment(work),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not judgements(work / "killed-runs"):
        assert child.poll() is None, "it ended before it was killed"
        time.sleep(LOOK_S)
    child.send_signal(signal.SIGKILL)
    child.wait()
    return ("killed-runs",)


def judgements(runs: Path) -> int:
    """How many of them the runs below `runs` have."""
    found = 0
    for path in runs.glob("*/run.sqlite"):
        records = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        # The table may still be to be made.
        with closing(records), suppress(sqlite3.OperationalError):
            found += int(records.execute("select count(*) from judgements").fetchone()[0])
    return found


def make_scripted(work: Path) -> tuple[str, ...]:
    """A run with made-up verdicts and measured times, killed in its second round: its checkpoint
    holds every kind of value."""
    folder = work / "scripted"
    folder.mkdir()
    words = [sys.executable, "-m", "tests.workflows.scripted_process", str(folder), "0.05"]
    env = environment(work)
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env=env, cwd=TESTS.parent
    ) as child:
        assert child.stdout is not None
        for _ in range(EVENTS):
            assert child.stdout.readline(), "it ended before it was killed"
        child.send_signal(signal.SIGKILL)
    return ("scripted",)


def make_chat(work: Path) -> tuple[str, ...]:
    """A chat with a run, a question, a change and a look."""
    (work / "lines.txt").write_text(LINES)
    words = ("chat", "plus.py", "--target", "h100", "--runs", "chats", "--script", "lines.txt")
    agentkernel(work, *words, *FAST, codes=(0, 3))
    return ("chats",)


def make_night(work: Path) -> tuple[str, ...]:
    """Two nights over a zoo of two models, the library of kernels that they left, its export."""
    words = ("batch", "pair.yaml", "--target", "h100", "--workers", "1", *FAST)
    for _ in range(2):
        agentkernel(work, *words, "--library", "library.sqlite")
    agentkernel(work, "library", "export", "export", "--library", "library.sqlite")
    library = ("library.sqlite", "library.sqlite.live", "export")
    return ("agentkernel-nights", *library, "pair.yaml", "models.py")


def make_bench(work: Path) -> tuple[str, ...]:
    """A bench of one problem that is solved and one that is broken."""
    (work / "suite/level1").mkdir(parents=True)
    (work / "suite/level1/plus.py").write_text(PLUS)
    (work / "suite/level1/broken.py").write_text("raise ValueError('no luck')\n")
    words = ("bench", "suite", "--target", "h100", "--out", "bench", *FAST)
    agentkernel(work, *words, codes=(1,))
    return ("suite", "bench")


def make_knowledge(work: Path) -> tuple[str, ...]:
    """Two pairs of the user's own, one of them changed once, and their vectors."""
    from agentkernel.cli.knowledge.transfer import own_pair
    from agentkernel.knowledge.store import open_knowledge_store
    from agentkernel.knowledge.vector_index import open_vectors
    from tests.knowledge.memory_store import HashEmbedder

    answers = TESTS.parent / "src/agentkernel/knowledge/kernels"
    problems = TESTS.parent / "examples"
    folder = work / "knowledge"
    with open_knowledge_store(folder) as store:
        for title in ("Softmax over rows", "Softmax over rows, in registers"):
            pair = own_pair(
                problems / "softmax.py", answers / "softmax_row.py", title, "MIT", "frozen"
            )
            store.put([pair])
        gate = own_pair(
            problems / "swiglu.py", answers / "swiglu.py", "SwiGLU", "Apache-2.0", "frozen"
        )
        store.put([gate])
        open_vectors(folder / "vectors", HashEmbedder()).catch_up(store)
    return ("knowledge",)


MAKERS: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "run": make_run,
    "killed": make_killed,
    "scripted": make_scripted,
    "chat": make_chat,
    "night": make_night,
    "bench": make_bench,
    "knowledge": make_knowledge,
}


def pack(work: Path, names: tuple[str, ...]) -> bytes:
    """A compressed archive of what lies at `names`, without locks and indexes of open databases."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            for path in (work / name, *sorted((work / name).rglob("*"))):
                if not path.name.endswith("-shm"):
                    archive.add(path, path.relative_to(work).as_posix(), False, filter=nobodys)
    return gzip.compress(packed.getvalue(), mtime=0)


def nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same file, of no user."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main(names: list[str]) -> None:
    """Make the fixtures named, or all."""
    work = Path(tempfile.mkdtemp(prefix="agentkernel-frozen-"))
    try:
        (work / "plus.py").write_text(PLUS)
        (work / "models.py").write_text(MODELS)
        (work / "pair.yaml").write_text(ZOO)
        for name in names or MAKERS:
            packed = pack(work, MAKERS[name](work))
            (HERE / f"{name}.tar.gz").write_bytes(packed)
            print(f"{name}: {len(packed)} bytes", flush=True)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main(sys.argv[1:])
