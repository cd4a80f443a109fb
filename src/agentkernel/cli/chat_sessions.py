"""Which sessions are there, and which one does a name mean?"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path

from agentkernel.cli.chat_open import STORE
from agentkernel.domain.base import Frozen

MOST_LISTED = 10


class Summary(Frozen):
    """A session in a list. `used`: when it was last written to, UTC."""

    id: str
    folder: str
    used: str


def sessions(runs: Path) -> tuple[Summary, ...]:
    """The sessions below `runs`, last used first; nothing of them is opened."""
    found = [path for path in runs.glob(f"*/{STORE}") if not path.parent.name.startswith(".")]
    times = {path: last_written(path) for path in found}
    return tuple(
        Summary(
            id=path.parent.name,
            folder=str(path.parent),
            used=datetime.fromtimestamp(times[path], UTC).isoformat(" ", "seconds")[:19],
        )
        for path in sorted(found, key=lambda item: times[item], reverse=True)
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
    others = [path for path in runs.glob(f"{name}*") if path not in begins] if not same else []
    if same or (len(begins) == 1 and not others and name):
        return (same or begins)[0]
    return None


def list_sessions(runs: Path, *, as_json: bool) -> None:
    """Print the last sessions, and how to go on with one or begin another."""
    from agentkernel.cli.output import print_json

    found = sessions(runs)
    if as_json:
        print_json([item.model_dump(mode="json") for item in found])
        return
    for item in found[:MOST_LISTED]:
        print(f"{item.used}  {item.id}")
    if found:
        print("Go on with one:   agentkernel resume SESSION")
    else:
        print(f"No sessions in {str(runs)!r} yet.")
    print("Begin another:    agentkernel chat FILE --target h100")


def resume_words(folder: Path, usual: Path) -> str:
    """The command that opens the session again from where the user stands."""
    known = folder.parent.resolve() == usual.resolve()
    return f"agentkernel resume {folder.name if known else shlex.quote(str(folder))}"
