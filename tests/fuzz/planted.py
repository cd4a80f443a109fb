"""Readings that do what none may, for the watch to see."""

from __future__ import annotations

import ctypes
import functools
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.targets import Touched, check_plain

SECRET = Path("..", "outside", "precious")
LIBC = ctypes.PyDLL(None)


def raises(folder: Path, touched: Touched) -> None:
    _ = 1 / (len(folder.name) - len(folder.name))


def dies(folder: Path, touched: Touched) -> None:
    os.abort()


def hangs(folder: Path, touched: Touched) -> None:
    while True:
        pass


def waits(folder: Path, touched: Touched) -> None:
    time.sleep(1000)


def grows(folder: Path, touched: Touched) -> None:
    bytearray(b"x") * 1_500_000_000


def writes(folder: Path, touched: Touched) -> None:
    SECRET.write_text("x")


def links(folder: Path, touched: Touched) -> None:
    Path("link").symlink_to(SECRET.absolute())
    Path("link").write_text("x")


def renames(folder: Path, touched: Touched) -> None:
    Path("file.json").rename(folder.parent / "file.json")


def writes_native(folder: Path, touched: Touched) -> None:
    LIBC.rename(os.fsencode(SECRET), b"mine")


def runs_text(folder: Path, touched: Touched) -> None:
    exec(compile("x = 1", "file.json", "exec"))


def imports(folder: Path, touched: Touched) -> None:
    Path("planted_module.py").write_text("x = 1")
    sys.path.insert(0, str(folder))
    __import__("planted_module")


def starts(folder: Path, touched: Touched) -> None:
    subprocess.run(["true"], check=False)


def unpickles(folder: Path, touched: Touched) -> None:
    pickle.loads(pickle.dumps(functools.partial))


def steers(folder: Path, touched: Touched) -> None:
    check_plain("a\x1b[2J")


PLANTED: dict[str, Callable[[Path, Touched], None]] = {
    each.__name__: each
    for each in (
        *(raises, dies, hangs, waits, grows, writes, links, renames, writes_native),
        *(runs_text, imports, starts, unpickles, steers),
    )
}
