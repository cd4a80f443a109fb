"""How do kernels leave the library, so that they are read without this package?"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import OutputError
from agentkernel.nightly.library.library import Library, now
from agentkernel.nightly.library.rows import KernelSummary, StoredKernel
from agentkernel.storage.atomic import explain_write_failure, make_folder, write_atomic
from agentkernel.storage.disk import make_own_folder, read_regular, read_regular_text
from agentkernel.storage.source_text import check_one_reading
from agentkernel.tools.live_module import LIVE

INDEX = "index.json"
FORMAT = 1


@dataclass(frozen=True)
class Exported:
    """How many kernels were written, how many were left out because they may not be used."""

    folder: Path
    kernels: int
    left_out: int


def export_library(
    library: Library, folder: Path, *, withdrawn: bool = False, modules: bool = False
) -> Exported:
    """Write `kernels/NAME/kernel.py` and `certificate.json` of each kernel, then `index.json`.

    `withdrawn` takes those too that may not be used any more; `modules` copies the pickles of live
    modules, which `agentkernel verify` needs for a replay. Raises OutputError for a folder that
    holds something else than an export, or cannot be written.
    """
    _make_room(folder)
    entries: list[dict[str, object]] = []
    left_out = 0
    for line in library.lines():
        stored = library.stored(line)
        usable = stored is not None and _has_one_reading(stored.kernel.source)
        if stored is None or not usable or (stored.kernel.withdrawn is not None and not withdrawn):
            left_out += 1
            continue
        entries.append(_write(library, line, stored, folder, modules=modules))
    index = {"format": FORMAT, "exported": now(), "kernels": entries}
    write_atomic(folder / INDEX, json.dumps(index, indent=2, sort_keys=True) + "\n")
    return Exported(folder, len(entries), left_out)


def _has_one_reading(source: str) -> bool:
    """Whether an import of the exported file runs the text that was judged."""
    try:
        check_one_reading(source)
    except SyntaxError:
        return False
    return True


def _write(
    library: Library, line: KernelSummary, stored: StoredKernel, folder: Path, *, modules: bool
) -> dict[str, object]:
    kernel = stored.kernel
    key = sha256_text(kernel.key.model_dump_json())[:8]
    place = Path("kernels") / f"{kernel.sha256[:16]}-{key}"
    with explain_write_failure(folder / place):
        make_own_folder(folder / place)
    write_atomic(folder / place / "kernel.py", kernel.source)
    write_atomic(folder / place / "certificate.json", stored.certificate_text)
    live = library.live_pickle(line) if modules else None
    if live is not None:
        with explain_write_failure(folder / place):
            data = read_regular(live)
        write_atomic(folder / place / LIVE, data)
    facts = kernel.model_dump(mode="json", exclude={"source", "certificate"})
    return {
        **facts,
        "problem": line.problem,
        "source": f"{place.as_posix()}/kernel.py",
        "certificate": f"{place.as_posix()}/certificate.json",
        "live": None if live is None else f"{place.as_posix()}/{LIVE}",
    }


def _make_room(folder: Path) -> None:
    with explain_write_failure(folder):
        empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
        earlier = _is_export(folder / INDEX)
        if not empty and not earlier and folder.is_dir():
            raise OutputError(
                f"{str(folder)!r} holds other files. Expected a new or empty folder, or an earlier "
                "export. Next: name another folder."
            )
        if earlier:
            # What was withdrawn since is to be gone from it.
            (folder / INDEX).unlink()
            if (folder / "kernels").is_dir():  # of a pipe rmtree would wait for a writer
                shutil.rmtree(folder / "kernels", ignore_errors=True)
    make_folder(folder)
    with explain_write_failure(folder / "kernels"):
        make_own_folder(folder / "kernels")


def _is_export(index: Path) -> bool:
    try:
        found = json.loads(read_regular_text(index))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.keys() == {"format", "exported", "kernels"}
