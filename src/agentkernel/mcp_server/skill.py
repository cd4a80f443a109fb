"""The skill: a folder that teaches a coding agent the command line, with two worked examples."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from agentkernel.domain.errors import OutputError
from agentkernel.storage.files import write_atomic

NAME = "agentkernel"
FILES = ("SKILL.md", "examples/optimize.md", "examples/write-a-kernel.md")


def install_skill(folder: Path, *, force: bool) -> list[str]:
    """Write the skill to `folder`/agentkernel; a line for each file.

    Files as they are stay. Raises OutputError, before anything is written, where a file was
    changed and `force` is not given.
    """
    packaged = files("agentkernel") / "mcp_server" / "skill_files"
    texts = {name: packaged.joinpath(name).read_text(encoding="utf-8") for name in FILES}
    place = folder / NAME
    changed = [name for name, text in texts.items() if _differs(place / name, text)]
    if changed and not force:
        raise OutputError(
            f"{str(place / changed[0])!r} was changed. Expected the skill's own text or no file. "
            "Next: --force replaces it, or name another folder."
        )
    for name, text in texts.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(place / name, text)
    return [f"wrote {place / name}" for name in FILES]


def _differs(path: Path, text: str) -> bool:
    if not path.exists():
        return False
    return not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != text
