"""Which files does a bench leave beside its rows? All of them can be made from the rows again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentkernel.bench.markdown import PICTURE, markdown
from agentkernel.bench.plot import speedup_svg
from agentkernel.bench.rows import Row
from agentkernel.bench.summary import Summary, summarise
from agentkernel.domain.plain_text import plain
from agentkernel.storage.atomic import write_atomic
from agentkernel.tools.ours import is_json_with, require_all_generated, require_generated

REPORT, SUMMARY = "report.md", "summary.json"


def require_free(folder: Path) -> None:
    """Raise OutputError where a bench would write over somebody's file in `folder`: one with these
    names is its own beside a summary or rows of a bench."""
    require_generated(folder / SUMMARY, is_json_with("suite", "coders"))
    proven = (folder / SUMMARY).is_file() or any(folder.glob("rows*.jsonl"))
    require_all_generated((folder / REPORT, folder / PICTURE), proven)


def write_report(folder: Path, suite: str, rows: Sequence[Row]) -> Summary:
    """`summary.json`, `report.md` and the picture. Raises OutputError."""
    summary = summarise(suite, rows)
    title = f"{suite}: {', '.join(summary.coders)} on {', '.join(summary.gpus) or 'no GPU'}"
    write_atomic(folder / SUMMARY, summary.model_dump_json(indent=1) + "\n")
    write_atomic(folder / REPORT, plain(markdown(summary, rows)))
    write_atomic(folder / PICTURE, plain(speedup_svg(rows, title)))
    return summary
