"""Is a database whole?"""

from __future__ import annotations

import sqlite3
from pathlib import Path


def database_damage(database: Path) -> str | None:
    """What SQLite says against the file; asked first, because Chroma aborts on some of it."""
    if not database.is_file():
        return "its database is missing"
    try:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        try:
            answer = connection.execute("PRAGMA quick_check").fetchone()
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if answer == ("ok",) else str(answer)[:120]
