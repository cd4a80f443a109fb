"""The process in which one target is fuzzed: `child.py TARGET EXAMPLES SEED TEMPLATE FOLDER`."""

from __future__ import annotations

import faulthandler
import os
import re
import resource
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402

from tests.fuzz.edits import CANARY, Edit, apply, edits_of, kind_of  # noqa: E402
from tests.fuzz.planted import PLANTED  # noqa: E402
from tests.fuzz.targets import TARGETS, run_no_problem  # noqa: E402
from tests.fuzz.watch import MOST_S, Fault, Watch  # noqa: E402

ROOM_BYTES = 4 * 10**9
"""Of address space, so that a fault takes no machine with it."""
PRECIOUS = b"precious\n"
UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""In names that Chroma draws anew each time: a seed that finds a fault must find it again."""
SUFFIXES = ("", ".html", ".json", ".jsonl", ".md", ".pkl", ".py", ".sqlite", ".sqlite3", ".yaml")


def main(name: str, examples: int, number: int, template: Path, folder: Path) -> None:
    """Fuzz one target, or, named "planted", see what the watch says of each planted fault. Raises
    what a falsified example raised."""
    place, outside, temporary = folder / "place", folder / "outside", folder / "tmp"
    temporary.mkdir(parents=True)
    _make_outside(outside)
    tempfile.tempdir = str(temporary)
    shutil.copytree(template, place)
    os.chdir(place)
    run_no_problem()
    found = sorted(place.rglob("*"), key=lambda path: UUID.sub("uuid", str(path)))
    files, kinds = [path.relative_to(place) for path in found], [kind_of(path) for path in found]
    if name in TARGETS:
        TARGETS[name](place, "\n".join(map(str, files)))  # what is imported on first use
    watch = Watch((place, temporary))
    watch.begin()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM_BYTES,) * 2)

    def read(ask: Callable[[Path, str], object], edits: tuple[Edit, ...], most_s: float) -> None:
        os.chdir(folder)
        shutil.rmtree(place)
        shutil.copytree(template, place)
        os.chdir(place)
        apply(edits, [place / file for file in files], outside)
        names = "\n".join(str(files[edit.file]) for edit in edits)
        try:
            with watch.watching(most_s):
                ask(place, names)
        except BaseException as error:
            error.add_note(f"{edits!r:.2000} of\n{names}")
            raise
        if run := list(folder.rglob(CANARY)):
            raise Fault(f"it ran code: {run}")
        _check_outside(outside)

    if name not in TARGETS:
        for each in [name] if name in PLANTED else [x for x in PLANTED if x != "dies"]:
            try:
                # A busy machine takes seconds to hand out a gigabyte; what hangs is cut short.
                read(PLANTED[each], (), 3.0 if each in ("hangs", "waits") else 10 * MOST_S)
            except (Exception, Fault) as error:  # noqa: BLE001 - each is told
                print(each, type(error).__name__, str(error).partition("\n")[0])
            _clear(outside)
        return

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(edits_of(kinds))
    def reads(edits: tuple[Edit, ...]) -> None:
        counted.append(None)
        if len(counted) % 500 == 0:
            print(f"{len(counted)} read", flush=True)
        try:
            read(TARGETS[name], edits, MOST_S)
        except (Exception, Fault) as error:  # noqa: BLE001 - others are looked for first
            at = traceback.extract_tb(error.__traceback__)[-1]
            faults.setdefault((type(error).__name__, at.filename, at.lineno), error)
            traceback.print_exception(error)
            _clear(outside)

    counted: list[None] = []
    faults: dict[tuple[str, str, int | None], BaseException] = {}
    reads()
    if faults:
        raise BaseExceptionGroup(f"{len(faults)} faults", list(faults.values()))


def _clear(outside: Path) -> None:
    shutil.rmtree(outside)
    _make_outside(outside)


def _make_outside(outside: Path) -> None:
    (outside / "folder").mkdir(parents=True)
    for suffix in SUFFIXES:
        (outside / f"precious{suffix}").write_bytes(PRECIOUS if suffix != ".sqlite" else b"")


def _check_outside(outside: Path) -> None:
    there = sorted(path for path in outside.rglob("*"))
    if len(there) != 1 + len(SUFFIXES) or any(
        path.read_bytes() not in (PRECIOUS, b"") for path in there if path.is_file()
    ):
        raise Fault(f"it wrote outside: {there}")


if __name__ == "__main__":
    faulthandler.enable()
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), Path(sys.argv[5]))
