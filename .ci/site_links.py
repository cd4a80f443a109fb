"""Hook of mkdocs: a link from a page into the repository becomes the name of that file.

The site holds the pages alone. A link to a file that does not exist stays, and fails the build.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, **event: object) -> str:
    """The page with each link that leads out of docs/ written as text."""
    page = ROOT / "docs" / str(getattr(getattr(event["page"], "file", None), "src_uri", ""))

    def plain(found: re.Match[str]) -> str:
        target = (page.parent / found[3]).resolve()
        if target.is_relative_to(ROOT / "docs") and not target.is_dir():
            return found[0]
        if not target.exists() or not target.is_relative_to(ROOT):
            return found[0]
        name = target.relative_to(ROOT).as_posix()
        return f"`{name}`" if found[2].strip("`") in name else f"{found[2]} (`{name}`)"

    return LINK.sub(plain, markdown)
