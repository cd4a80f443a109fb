"""How do the figures of `agentkernel train evaluate` look, as a table, in lines and as JSON?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.storage.disk import open_new

if TYPE_CHECKING:
    from rich.table import Table

    from agentkernel.training.evaluate.evaluate import PassAt
    from agentkernel.training.evaluate.intervals import Interval
    from agentkernel.training.training import Task

    Found = dict[str, dict[Task, PassAt]]
    """Figures by model, then by task, as they were asked for."""


def differences(found: Found, model: str, seed: int) -> dict[Task, Interval]:
    """pass@1 of `model` less that of the first one, task by task; none for the first."""
    from agentkernel.training.evaluate.evaluate import difference

    first = next(iter(found))
    pairs = (
        (task, difference(passed, found[first][task], seed=seed))
        for task, passed in found[model].items()
        if model != first
    )
    return {task: interval for task, interval in pairs if interval is not None}


def difference_lines(found: Found, seed: int) -> list[str]:
    """`local:rl vs local:sft, write: +0.040 [+0.020, +0.060]`."""
    first = next(iter(found))
    return [
        f"{model} vs {first}, {task}: {interval.signed()}"
        for model in found
        for task, interval in differences(found, model, seed).items()
    ]


def table(found: Found) -> Table:
    """A line for each model and task."""
    from rich.table import Table

    passed = [item for tasks in found.values() for item in tasks.values()]
    ks = sorted({k for item in passed for k in item.pass_at})
    shown = Table(box=None, pad_edge=False)
    undecided = any(item.undecided for item in passed)
    rates = ("hacks", "no file", *(("undecided",) if undecided else ()))
    for number, heading in enumerate(
        ("model", "task", "asked", *(f"pass@{k} [95%]" for k in ks), *rates)
    ):
        shown.add_column(heading, justify="left" if number < 2 else "right")
    for model, tasks in found.items():
        for task, item in tasks.items():
            last = (str(item.undecided),) if undecided else ()
            shown.add_row(*cells(model, task, item, ks), *last)
    return shown


def cells(model: str, task: Task, passed: PassAt, ks: Sequence[int]) -> list[str]:
    """One line of the table."""
    intervals = (passed.pass_at.get(k) for k in ks)
    return [
        model,
        task,
        str(passed.questions),
        *("-" if item is None else item.text() for item in intervals),
        f"{passed.hack_rate.value:.1%}",
        f"{passed.no_file_rate.value:.1%}",
    ]


def figures(found: Found, seed: int, *, rows: bool) -> dict[str, object]:
    """By model: the figures of "write" as they are, those of the other tasks under the task's name,
    and under "against" the differences from the first model."""
    exclude = None if rows else {"rows"}
    first = next(iter(found))
    whole: dict[str, object] = {}
    for model, tasks in found.items():
        entry: dict[str, object] = {}
        for task, item in tasks.items():
            dumped = item.model_dump(mode="json", exclude=exclude)
            entry |= dumped if task == "write" else {str(task): dumped}
        less = differences(found, model, seed)
        if less:
            told = {str(task): item.model_dump(mode="json") for task, item in less.items()}
            entry["against"] = {"model": first, **told}
        whole[model] = entry
    return whole


def check_figures_path(path: Path) -> None:
    """Prove that `path` can be written and is nobody else's, before anything is paid for. Raises
    OutputError."""
    import errno
    import os

    from agentkernel.storage.atomic import explain_write_failure
    from agentkernel.tools.ours import require_generated

    with explain_write_failure(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        probe = path.with_name(f".{path.name}.{os.getpid()}.probe")
        open_new(probe).close()
        probe.unlink()
    require_generated(path, lambda text: text.startswith("{") and '"pass_at"' in text)


def write_figures(path: Path, found: Found, seed: int) -> None:
    """All figures so far in one JSON file. Raises OutputError."""
    import json

    from agentkernel.storage.atomic import write_atomic

    write_atomic(path, json.dumps(figures(found, seed, rows=True), indent=1))


__all__ = ["check_figures_path", "difference_lines", "figures", "table", "write_figures"]
