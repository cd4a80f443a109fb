"""`agentkernel train problems`, `pairs`, `reviews` and `data`: from modules to training rows.

`problems` writes generated modules, `pairs` has kernels for them drafted and judged, `reviews`
asks a teacher model what limits correct kernels, and `data` writes the rows of the three tasks
with the held-out modules and a data card. The same call continues after a kill; `data` then
writes the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agentkernel.cli.options import AsJson, BaseUrl, Overrides, UsdLimit
from agentkernel.cli.terminal import print_plain
from agentkernel.cli.train.options import judging_device

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentkernel.training.data.card import Card
    from agentkernel.training.data.pairs import PairsReport
    from agentkernel.training.data.reviews import ReviewsReport


Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="PATH",
        help="Pairs, KernelBook's shards, a knowledge base, a folder of runs or a file of reviews; "
        "KIND:PATH says which. Repeat.",
    ),
]
Licence = Annotated[
    str, typer.Option("--licence", help="Of rows that name none, as of your own runs.")
]
DataFolder = Annotated[Path, typer.Option("--out", help="A new folder, or a finished one.")]
Training = Annotated[
    str,
    typer.Option("--config", metavar="NAME|FILE.yaml", help="Whose 'data:' holds; small."),
]


def data(
    out: DataFolder,
    sources: Sources = None,
    licence: Licence = "",
    training: Training = "small",
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Write rows of the three tasks, held-out modules and a card; the same call after a kill comes
    to the same bytes."""
    from agentkernel.cli.terminal import print_json, progress_bar
    from agentkernel.domain.errors import SettingError
    from agentkernel.training.data.dataset import make_data
    from agentkernel.training.data.sources import origin_of
    from agentkernel.training.settings import load_training

    if not sources:
        raise SettingError(
            "data got no --from. Expected a file of pairs, or another source. Next: agentkernel "
            "train pairs --out pairs.jsonl.gz --count 1000 makes one."
        )
    settings = load_training(training, overrides or ()).data
    origins = [origin_of(item, licence) for item in sources]
    with progress_bar("data", silent=as_json) as show:
        card = make_data(
            origins,
            settings,
            out,
            command=command_line(sources, licence, training, overrides or (), out),
            show=show,
        )
    if as_json:
        print_json({"out": str(out), **card.model_dump(mode="json")})
    else:
        print_plain("\n".join(data_lines(card, out)))


def command_line(
    sources: list[str],
    licence: str,
    training: str,
    overrides: list[str] | tuple[str, ...],
    out: Path,
) -> str:
    """The call, as it is typed again."""
    import shlex

    words = ["agentkernel", "train", "data"]
    for item in sources:
        words += ["--from", item]
    words += ["--licence", licence] if licence else []
    words += ["--config", training]
    for item in overrides:
        words += ["-c", item]
    return shlex.join([*words, "--out", str(out)])


def data_lines(card: Card, out: Path) -> list[str]:
    """What the folder holds, and what was asked for and is not there."""
    from agentkernel.domain.plain_text import plain_line
    from agentkernel.training.data.card import unreadable

    tasks = ", ".join(f"{rows} {task}" for task, rows in card.train.tasks.items())
    lines = [
        f"{card.train.rows} rows ({tasks}) on {card.train.problems} modules; "
        f"{card.held_out_modules} modules held out; {card.not_judged.rows} rows not judged, apart"
    ]
    lines += [f"not filled: {item}" for item in card.unfilled]
    ranked = sorted(card.left_out.items(), key=lambda item: (-item[1], item[0]))
    lines += [f"left out: {count} x {reason}" for reason, count in ranked[:6]]
    lines += [f"unreadable: {count} x {why}" for why, count in unreadable(card.inputs)[:6]]
    lines.append(f"{out / 'card.md'} says more. Next: agentkernel train sft {out} --out MODEL")
    return [plain_line(line) for line in lines]


OWN_LICENCE = "Apache-2.0"
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the first module; the next has +1.")]
ModuleCount = Annotated[int, typer.Option("--count", min=1, help="Different modules to write.")]
ModuleFolder = Annotated[Path, typer.Option("--out", help="Folder for the modules.")]
PairsFile = Annotated[
    Path,
    typer.Option(
        "--out", metavar="FILE.jsonl.gz", help="The same call goes on in it after a kill."
    ),
]
RowCount = Annotated[
    int | None,
    typer.Option("--count", min=1, help="Rows in the file at most; needed for made modules."),
]
ProblemsPath = Annotated[
    Path | None,
    typer.Option(
        "--problems",
        metavar="PATH",
        help="A folder of modules in the KernelBench convention, or KernelBook's shards, in place "
        "of made ones. They run.",
    ),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="Made modules of this kind alone; of several, one of each in turn. 'all': of all.",
    ),
]
ModuleLicence = Annotated[
    str, typer.Option("--licence", help="Of the modules in a folder, by SPDX name.")
]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Modules worked on at once.")]
Target = Annotated[
    str | None, typer.Option("--target", help="GPU the kernels are for; the local one, else h100.")
]
Device = Annotated[
    Literal["auto", "cpu", "cuda"],
    typer.Option("--device", help="Where kernels are judged; auto is the GPU of the target."),
]
Broken = Annotated[
    int,
    typer.Option("--broken", min=0, help="Of each module, so many kernels with one mistake each."),
]
Schedules = Annotated[
    int,
    typer.Option("--schedules", min=0, help="Of each module, so many more right kernels."),
]
Times = Annotated[
    Literal["estimated", "measured", "none"],
    typer.Option("--times", help="Of right kernels: rows of slow -> faster come from these."),
]


def problems(
    count: ModuleCount, out: ModuleFolder, seed: Seed = 0, as_json: AsJson = False
) -> None:
    """Write made modules as files; again at any time."""
    from agentkernel.cli.terminal import print_json
    from agentkernel.training.data.pairs import write_problems

    fresh = write_problems(count, seed, out)
    if as_json:
        print_json({"out": str(out), "modules": count, "written": fresh})
    else:
        print_plain(f"{count} modules in {str(out)!r}, {fresh} of them new")


def pairs(
    out: PairsFile,
    count: RowCount = None,
    seed: Seed = 0,
    kind: Kinds = None,
    path: ProblemsPath = None,
    licence: ModuleLicence = OWN_LICENCE,
    jobs: Jobs = None,
    target: Target = None,
    device: Device = "auto",
    times: Times = "estimated",
    schedules: Schedules = 1,
    broken: Broken = 1,
    as_json: AsJson = False,
) -> None:
    """Draft kernels for modules, break some, have all judged; the same call goes on after a
    kill."""
    import os

    from agentkernel.cli.terminal import print_json
    from agentkernel.domain.errors import SettingError
    from agentkernel.tools.targets import find_target
    from agentkernel.training.data.pair_worker import PairSettings
    from agentkernel.training.data.pairs import generated, make_pairs, problems_in

    if path is None and count is None:
        raise SettingError(
            "pairs got neither --count nor --problems. Expected one: made modules never end. Next: "
            f"agentkernel train pairs --out {out} --count 1000"
        )
    if path is not None and not path.exists():
        raise SettingError(
            f"No problems at {str(path)!r}. Expected a folder of modules or KernelBook's shards. "
            "Next: check the path."
        )
    if path is not None and kind:
        raise SettingError(
            f"--kind {kind[0]!r} chooses among made modules, and --problems {str(path)!r} brings "
            "others. Expected one of the two. Next: leave --kind out."
        )
    resolved = find_target(target)
    judged_on = judging_device(device, measurable=resolved.measurable, target=resolved.target.name)
    if times == "measured" and judged_on == "cpu":
        raise SettingError(
            "--times 'measured' needs kernels judged on a GPU; here they are interpreted. Expected "
            "'estimated' or 'none'. Next: --times estimated"
        )
    settings = PairSettings(
        measure=times == "measured",
        estimate=times == "estimated",
        schedules=schedules,
        broken=broken,
    )
    with progress(count, silent=as_json) as (say, show):
        made = make_pairs(
            generated(seed, kinds_of(kind)) if path is None else problems_in(path, licence),
            out,
            target=resolved.target.name,
            jobs=jobs or len(os.sched_getaffinity(0)),
            device=judged_on,
            most=count,
            settings=settings,
            say=say,
            show=show,
        )
    if as_json:
        print_json(made)
    else:
        say("\n".join(pairs_lines(made, out)))
    raise typer.Exit(1 if made.problems and not made.rows and not made.known else 0)


def kinds_of(named: list[str] | None) -> tuple[str, ...]:
    """Of MODULE_KINDS, those that `named` names; none where modules come as they are drawn. Raises
    SettingError."""
    from agentkernel.domain.errors import SettingError
    from agentkernel.training.data.generator import MODULE_KINDS

    chosen = tuple(named or ())
    for name in chosen:
        if name not in (*MODULE_KINDS, "all"):
            raise SettingError(
                f"No modules of the kind {name!r} are made. Expected all, "
                f"{', '.join(MODULE_KINDS)}. Next: --kind all"
            )
    return tuple(MODULE_KINDS) if "all" in chosen else chosen


@contextmanager
def progress(
    most: int | None, *, silent: bool
) -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None]]]:
    """`print_plain` for make_pairs' lines, which are dropped, and `show`, which says rate and time
    left."""
    from agentkernel.cli.terminal import progress_bar

    begun_s = time.monotonic()
    with progress_bar("rows", silent=silent) as bar:
        yield (
            lambda line: None,
            lambda rows, fresh: bar(
                rows, most, rate(rows, fresh, most, time.monotonic() - begun_s)
            ),
        )


def rate(rows: int, fresh: int, most: int | None, seconds: float) -> str:
    """`2.1 rows/s, 12 min left`."""
    if not fresh or seconds <= 0:
        return ""
    each_s = seconds / fresh
    words = f"{1 / each_s:.1f} rows/s"
    if most is None:
        return words
    left_s = max(0, most - rows) * each_s
    return (
        f"{words}, {left_s:.0f} s left" if left_s < 120 else f"{words}, {left_s / 60:.0f} min left"
    )


def pairs_lines(made: PairsReport, out: Path) -> list[str]:
    """What became of the modules."""
    from agentkernel.training.data.pairs import missed_file

    labels = ", ".join(f"{count} {label}" for label, count in sorted(made.labels.items()))
    lines = [
        f"{made.rows} rows of {made.problems} modules in {made.seconds:.0f} s "
        f"({labels or 'none'}); {made.known} modules were known"
    ]
    if made.stages:
        stages = ", ".join(f"{count} at {stage}" for stage, count in sorted(made.stages.items()))
        lines.append(f"came to nothing: {stages}; why stands in {missed_file(out).name}")
    lines.append(f"Next: agentkernel train data --from {out} --out DATA")
    return lines


TeacherName = Annotated[
    str,
    typer.Option(
        "--teacher",
        metavar="MODEL",
        help="chat:PROVIDER:MODEL[@URL] or local:PATH. The kernels are sent to it.",
    ),
]
ReviewsFile = Annotated[
    Path,
    typer.Option("--out", metavar="FILE.jsonl", help="The same call goes on in it after a kill."),
]
KernelCount = Annotated[
    int | None, typer.Option("--count", min=1, help="Kernels to ask about at most.")
]
Questions = Annotated[int, typer.Option("--jobs", min=1, help="Questions asked at once.")]
Everything = Annotated[
    bool,
    typer.Option("--all", help="Also kernels of which no faster one is known, after the others."),
]


def reviews(
    teacher: TeacherName,
    out: ReviewsFile,
    sources: Sources = None,
    licence: Licence = "",
    base_url: BaseUrl = None,
    count: KernelCount = None,
    usd: UsdLimit = None,
    jobs: Questions = 4,
    everything: Everything = False,
    training: Training = "small",
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Ask a teacher what holds right kernels back; the same call goes on after a kill, and asks
    nothing twice."""
    from agentkernel.cli.options import check_endpoint, check_model
    from agentkernel.cli.terminal import print_json, progress_bar
    from agentkernel.domain.errors import SettingError
    from agentkernel.training.data.reviews import Teacher, make_reviews
    from agentkernel.training.data.sources import origin_of
    from agentkernel.training.settings import load_training

    if not sources:
        raise SettingError(
            "reviews got no --from. Expected a file of pairs. Next: agentkernel train pairs --out "
            "pairs.jsonl.gz --count 1000 makes one."
        )
    check_endpoint("--base-url", base_url)
    check_model("--teacher", teacher, base_url)
    licences = load_training(training, overrides or ()).data.licences
    origins = [origin_of(item, licence) for item in sources]
    asked = Teacher(teacher, base_url, count, usd, jobs, everything)
    with progress_bar("reviews", silent=as_json) as show:
        made = make_reviews(origins, asked, out, licences=licences, show=show)
    if as_json:
        print_json({"out": str(out), **made.model_dump(mode="json")})
    else:
        print_plain("\n".join(reviews_lines(made, sources, out)))
    raise typer.Exit(0 if made.kept or made.known else 1)


def reviews_lines(made: ReviewsReport, sources: list[str], out: Path) -> list[str]:
    """What the file holds, what came to nothing, and what it cost."""
    import shlex

    from agentkernel.cli.rendering.text import show_count, show_usd
    from agentkernel.domain.plain_text import plain_line

    nothing = (
        (made.without_sections, "answered without sections"),
        (made.cut_off, "cut off"),
        (made.unanswered, "not answered"),
        (made.left, "left, as the money is spent"),
    )
    lines = [
        f"{made.known + made.kept} reviews of {made.kernels} kernels, {made.kept} of them new; "
        f"{made.asked} questions asked in {made.seconds:.0f} s"
    ]
    told = ", ".join(f"{number} {what}" for number, what in nothing if number)
    lines += [f"came to nothing: {told}"] if told else []
    taken = made.taken
    usd = show_usd(taken.cost_usd, taken.unpriced)
    lines.append(
        f"taken in all calls: {show_count(taken.prompt)} tokens in, {show_count(taken.completion)} "
        f"out; USD {usd}"
    )
    lines += [made.unpriced] if made.unpriced else []
    words = shlex.join(word for item in sources for word in ("--from", item))
    if made.known or made.kept:
        lines.append(f"Next: agentkernel train data {words} --from {out} --out DATA")
    return [plain_line(line) for line in lines]
