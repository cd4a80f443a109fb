"""Which sessions are there, and which one does a name mean?"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path

from agentkernel.cli.chat.chat_open import STORE
from agentkernel.cli.output import print_plain
from agentkernel.domain.base import Frozen

MOST_LISTED = 10


class Summary(Frozen):
    """A session in a list. `used`: when it was last written to, UTC."""

    id: str
    folder: str
    used: str


def sessions(runs: Path) -> tuple[Summary, ...]:
    """The sessions below `runs`, last used first; nothing of them is opened."""
    from agentkernel.tools.store import uses

    named = (path for path in runs.glob(f"*/{STORE}") if not path.parent.name.startswith("."))
    found = [path for path in named if path.is_file()]
    times = {path: last_written(path) for path in found}

    def used(path: Path) -> tuple[int, float]:
        return uses(path.parent).last, times[path]

    return tuple(
        Summary(
            id=path.parent.name,
            folder=str(path.parent),
            used=datetime.fromtimestamp(times[path], UTC).isoformat(" ", "seconds")[:19],
        )
        for path in sorted(found, key=used, reverse=True)
    )


def last_written(store: Path) -> float:
    """Of the store or its journal, in seconds since 1970."""
    files = (store, store.with_name(f"{store.name}-wal"))
    return max(path.stat().st_mtime for path in files if path.is_file())


def session_folder(runs: Path, name: str) -> Path | None:
    """The session that `name` means: a path, a name or the unique beginning of one; None where it
    is a run or nothing."""
    if (Path(name) / STORE).is_file():
        return Path(name)
    known = [Path(item.folder) for item in sessions(runs)]
    same = [path for path in known if path.name == name]
    begins = [path for path in known if path.name.startswith(name)]
    if same:
        return same[0]
    if len(begins) != 1 or not name:
        return None
    others = [path for path in runs.iterdir() if path.name.startswith(name)]
    return begins[0] if others == begins else None


def last_used(runs: Path) -> Path | None:
    """The session that "last" means: the one that was used after every run, or whose own step made
    the newest run; None where that is a run, or nothing is there."""
    from agentkernel.tools.store import run_folders, uses

    found = sessions(runs)
    if not found:
        return None
    known = run_folders(runs)
    if not known:
        return Path(found[0].folder)
    newest = known[-1]
    own = [item for item in found if f"session={item.id}" in flags_of(newest)]
    if own:
        return Path(own[0].folder)
    session = Path(found[0].folder)
    noted = uses(session).last, uses(newest).last
    if all(noted):
        return session if noted[0] > noted[1] else None
    return session if last_written(session / STORE) > run_written(newest) else None


def flags_of(run: Path) -> tuple[str, ...]:
    """What a run was asked with; nothing where its manifest cannot be read."""
    from agentkernel.domain.errors import RunNotFound
    from agentkernel.tools.store import read_manifest

    try:
        return read_manifest(run).flags
    except RunNotFound:
        return ()


def run_written(run: Path) -> float:
    """When a run was last written to, in seconds since 1970."""
    store = run / "run.sqlite"
    return last_written(store) if store.is_file() else run.stat().st_mtime


def list_sessions(runs: Path, *, as_json: bool) -> None:
    """Print the last sessions, and how to go on with one or begin another."""
    from agentkernel.cli.output import print_json

    found = sessions(runs)
    if as_json:
        print_json([item.model_dump(mode="json") for item in found])
        return
    for item in found[:MOST_LISTED]:
        print_plain(f"{item.used}  {item.id}")
    if found:
        print_plain("Go on with one:   agentkernel resume SESSION")
    else:
        print_plain(f"No sessions in {str(runs)!r} yet.")
    print_plain("Begin another:    agentkernel chat FILE --target h100")


def resume_words(folder: Path, usual: Path) -> str:
    """The command that opens the session again from where the user stands."""
    known = folder.parent.resolve() == usual.resolve()
    return f"agentkernel resume {folder.name if known else shlex.quote(str(folder))}"
