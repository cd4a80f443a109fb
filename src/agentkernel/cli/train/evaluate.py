"""`agentkernel train evaluate`: pass@k of models on the held-out modules of a data folder.

All answers are written before one is judged, so the GPU holds one model at a time. Differences
from the first model have a confidence interval. Figures come as a table, as lines and as JSON.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from agentkernel.agents.models.local_presets import model_folder, parse_local
from agentkernel.cli.console import console, progress_bar
from agentkernel.cli.terminal import print_json
from agentkernel.cli.train.options import EvaluateFlags
from agentkernel.cli.train.outcome import judging_device, line_printer, print_line
from agentkernel.domain.errors import ModelUnavailable, SettingError, TrainingError
from agentkernel.storage.files import explain_write_failure, open_new, write_atomic
from agentkernel.tools.own_files import require_generated
from agentkernel.tools.targets import find_target
from agentkernel.training.data.conversations import HeldOutQuestions, questions_of, target_of
from agentkernel.training.data.rows import held_out_hash, held_out_problems, read_rows
from agentkernel.training.evaluate.answer_cache import (
    CachedWriter,
    NearestWriter,
    base_model,
    model_fingerprints,
    new_model_settings,
)
from agentkernel.training.evaluate.evaluation import (
    Interval,
    LocalWriter,
    PassAt,
    Writer,
    difference,
    run_evaluation,
    sampling_of,
    spread_over,
)
from agentkernel.training.folder import read_record
from agentkernel.training.settings import TASKS, Show, Task
from agentkernel.training.worker_pool import STRICT, SubmissionJudge

if TYPE_CHECKING:
    from agentkernel.training.judged_problems import Verification


if TYPE_CHECKING:
    Found = dict[str, dict[Task, PassAt]]
    """Figures by model, then by task, as they were asked for."""


def differences(found: Found, model: str, seed: int) -> dict[Task, Interval]:
    """pass@1 of `model` less that of the first one, task by task; none for the first."""
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

    with explain_write_failure(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        probe = path.with_name(f".{path.name}.{os.getpid()}.probe")
        open_new(probe).close()
        probe.unlink()
    require_generated(path, lambda text: text.startswith("{") and '"pass_at"' in text)


def write_figures(path: Path, found: Found, seed: int) -> None:
    """All figures so far in one JSON file. Raises OutputError."""

    write_atomic(path, json.dumps(figures(found, seed, rows=True), indent=1))


def evaluate_model(flags: EvaluateFlags) -> None:
    """`agentkernel train evaluate`."""
    target = flags.target

    resolved = find_target(target)
    judging_device(flags.device, measurable=resolved.measurable, target=resolved.target.name)
    there = held_out_problems(flags.data)
    if not there:
        raise TrainingError(
            f"{str(flags.data)!r} has no held-out modules. Expected files in problems/held-out. "
            "Next: name a folder that 'agentkernel train data' made."
        )
    held_out = held_out_hash(flags.data)
    chosen = spread_over(there, flags.problems or len(there))
    verification = STRICT.evolve(device=flags.device, budget_s=flags.budget)
    wanted = tasks_of(flags.tasks or ("write",))
    if "write" in wanted:
        target = target_of(flags.data, target, line_printer(flags.as_json))
    asked = [questions_of(task, flags.data, chosen, target, verification.policy) for task in wanted]
    writers = {
        model: prepared(model, flags.data, flags.seed, flags.answers, asked, flags.samples)
        for model in dict.fromkeys(flags.models)
    }
    if flags.out is not None:
        check_figures_path(flags.out)
    if flags.answers is not None:
        write_all(writers, asked, flags.samples, silent=flags.as_json)
    found: Found = {}
    for (model, task), passed in verdicts(
        writers, asked, flags.samples, verification, flags.jobs, flags.seed, silent=flags.as_json
    ):
        now = passed.evolve(held_out_sha256=held_out)
        found.setdefault(model, {})[task] = now
        if flags.out is not None:
            write_figures(flags.out, found, flags.seed)
        if not flags.as_json:
            print_line(f"{model}, {task}: {now.line()}")
    if flags.as_json:
        print_json({"models": figures(found, flags.seed, rows=False)})
    else:
        console().print(table(found), markup=False)
        for line in difference_lines(found, flags.seed):
            print_line(line)


def tasks_of(names: Sequence[str]) -> tuple[Task, ...]:
    """The tasks of those names, each once. Raises SettingError."""
    unknown = [name for name in names if name not in TASKS]
    if unknown:
        raise SettingError(
            f"Unknown task {unknown[0]!r}. Expected {', '.join(TASKS)}. Next: name one of these."
        )
    return tuple(task for task in TASKS if task in names)


def prepared(
    model: str,
    data: Path,
    seed: int,
    answers: Path | None,
    asked: Sequence[HeldOutQuestions],
    samples: int,
) -> Callable[[], Writer]:
    """Whoever answers under that name, once called: only then are weights loaded. Raises what
    `check_model` does, unless `answers` has all that is asked."""

    def make() -> Writer:
        return writer_of(model, data, seed)

    if answers is None:
        check_model(model)
        return make
    made = model_fingerprints(model, data)

    def kept() -> CachedWriter:
        return CachedWriter(answers, model, seed, made, cache(make))

    if not all(kept().has(questions.conversations, samples) for questions in asked):
        try:
            check_model(model)
        except ModelUnavailable as error:
            raise ModelUnavailable(
                f"{str(answers)!r} has not all answers of {model!r} to these questions ({samples} "
                f"each, seed {seed}), and it cannot be asked: {error}"
            ) from error
    return kept


def write_all(
    writers: Mapping[str, Callable[[], Writer]],
    asked: Sequence[HeldOutQuestions],
    samples: int,
    *,
    silent: bool,
) -> None:
    """Have all answers written before one is judged: a GPU is then needed for seconds, and its
    memory holds one model at a time."""
    for model, writer_now in writers.items():
        writer = writer_now()
        for questions in asked:
            with progress_bar(f"{model}, {questions.task}", silent=silent) as show:

                def wrote(done: int, total: int, show: Show = show) -> None:
                    show(done, total, "answers written")

                writer.write(questions.conversations, samples, wrote)


def verdicts(
    writers: Mapping[str, Callable[[], Writer]],
    asked: Sequence[HeldOutQuestions],
    samples: int,
    verification: Verification,
    jobs: int | None,
    seed: int,
    *,
    silent: bool,
) -> Iterator[tuple[tuple[str, Task], PassAt]]:
    """Each model with each task, once its answers are judged; what several say, once."""
    judge = SubmissionJudge(verification, jobs)
    for model, writer_now in writers.items():
        writer = writer_now()
        for questions in asked:
            with progress_bar(f"{model}, {questions.task}", silent=silent) as show:
                passed = run_evaluation(
                    writer,
                    questions,
                    samples,
                    judge,
                    seed=seed,
                    show=show,
                )
            if isinstance(writer, CachedWriter):
                passed = passed.evolve(writing_s=writer.seconds)
            yield (model, questions.task), passed


def check_model(model: str) -> None:
    """Raises what `writer_of` does where that name stands for nothing; loads no weights."""
    kind, _, path = model.partition(":")
    if kind == "local" and path:
        preset = parse_local(model)
        for name in (preset.model, preset.adapter):
            if name is not None:
                model_folder(name)
    elif kind == "untrained" and path:
        new_model_settings(Path(path))
    elif model != "nearest":
        raise _unknown(model)


def writer_of(model: str, data: Path, seed: int) -> Writer:
    """Whoever answers under that name. Raises SettingError, ModelUnavailable, TrainingError."""
    kind, _, path = model.partition(":")
    if model == "nearest":
        return NearestWriter(read_rows(data, "train"))
    if kind == "local" and path:
        return LocalWriter(model, seed=seed)
    if kind == "untrained" and path:
        weights, record = base_model(Path(path)), read_record(Path(path))
        assert record is not None
        return LocalWriter(weights, sampling_of(record.settings.sampling), seed=seed)
    raise _unknown(model)


def _unknown(model: str) -> SettingError:
    return SettingError(
        f"Unknown model {model!r}. Expected local:PATH, untrained:PATH or nearest. "
        "Next: name one of these."
    )
