"""Which files does a bench leave beside its rows? All of them can be made from the rows again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentkernel.tools.atomic import write_atomic
from agentkernel.tools.bench.markdown import PICTURE, markdown
from agentkernel.tools.bench.plot import speedup_svg
from agentkernel.tools.bench.rows import Row
from agentkernel.tools.bench.summary import Summary, summarise

REPORT, SUMMARY = "report.md", "summary.json"


def write_report(folder: Path, suite: str, rows: Sequence[Row]) -> Summary:
    """`summary.json`, `report.md` and the picture. Raises OutputError."""
    summary = summarise(suite, rows)
    title = f"{suite}: {', '.join(summary.coders)} on {', '.join(summary.gpus) or 'no GPU'}"
    write_atomic(folder / SUMMARY, summary.model_dump_json(indent=1) + "\n")
    write_atomic(folder / REPORT, markdown(summary, rows))
    write_atomic(folder / PICTURE, speedup_svg(rows, title))
    return summary
