"""A nightly run over a model zoo from the command line: flags, progress, reports, exit code.

The exit code is 0 for no finding, 5 for a regression and 6 where something does not verify.
Part of the time budget is reserved for end-to-end figures: on a GPU each model is compiled and
timed in four forms.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agentkernel.bench.sample import cache_folder
from agentkernel.cli.configuration import require_here
from agentkernel.cli.console import console
from agentkernel.cli.rendering.live import counting
from agentkernel.cli.rendering.text import show_ratio, show_share, show_span, show_us
from agentkernel.cli.terminal import COLUMNS, SILENCE_S, ElapsedTime, print_json, print_plain
from agentkernel.domain.errors import ProblemError, RunNotFound, SettingError
from agentkernel.nightly.library import Library, default_library
from agentkernel.nightly.page.comparison import change_text, compare_nights, headline
from agentkernel.nightly.page.figures import lost_text, merged_regions, model_costs
from agentkernel.nightly.page.files import require_free, write_night
from agentkernel.nightly.page.tables import MOST_KERNELS, MOST_ROWS, region_order
from agentkernel.nightly.run import NightOptions, run_night
from agentkernel.nightly.scheduler.engine import (
    Engine,
    LocalEngine,
    gpu_of,
    printing_to_stderr,
    run_job,
)
from agentkernel.nightly.scheduler.jobs import ZooPart, default_ranking
from agentkernel.nightly.scheduler.ray_engine import RayEngine
from agentkernel.nightly.zoo.loader import load_model
from agentkernel.nightly.zoo.reader import packaged_zoos, top_keys
from agentkernel.runtime.machine import CPU, default_workers, installed_versions, visible_devices
from agentkernel.storage.files import make_folder
from agentkernel.tools.targets import ResolvedTarget, find_target

if TYPE_CHECKING:
    from agentkernel.domain.nightly import Comparison, ModelRow, NightlyRun, Zoo
    from agentkernel.domain.region import Kernel
    from agentkernel.domain.settings import Settings
    from agentkernel.nightly.scheduler.scheduler import Scheduler


T = TypeVar("T")
SHOWN_REGIONS = 12
REFRESH_S = 0.5
SAID = {
    ("region", "kept"): "eager kept",
    ("region", "put back"): "put back to the end of the night",
    ("model", "regions"): "runs with its regions' kernels",
    ("model", "one-region"): "runs as one region's kernel",
}
"""Statuses in more words for people, by kind of event."""


def counted_as(number: int, noun: str) -> str:
    """`1 region`, `2 regions`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@dataclass
class NightlyScreen:
    """What is shown while a night goes on: a table on a terminal, else a line an event."""

    as_json: bool
    said: Counter[str] = field(default_factory=Counter)
    """How many of each kind."""
    _live: Live | None = None
    _scheduler: Scheduler | None = None

    def __post_init__(self) -> None:
        self._clock = ElapsedTime(
            sys.stdout, COLUMNS, self._words, first_s=SILENCE_S, every_s=SILENCE_S, lines=True
        )

    @contextmanager
    def live(self) -> Iterator[NightlyScreen]:
        """Around the night."""

        screen = console()
        if self.as_json:
            yield self
            return
        if not screen.is_terminal:
            self._clock.start()
            try:
                yield self
            finally:
                self._clock.stop()
            return
        # Drawn by its own timer: a job may take minutes without an event, and the clock goes on.
        with Live(
            console=screen,
            refresh_per_second=1 / REFRESH_S,
            transient=True,
            get_renderable=self._drawn,
        ) as shown:
            self._live = shown
            yield self

    def _words(self, seconds: float) -> str:
        """For a pipe: how far the night is, and what is worked on."""
        del seconds  # of the silence: how long the night takes says more
        if self._scheduler is None:
            return "preparing the night"
        return doing_words(self._scheduler)

    def _drawn(self) -> RenderableType:
        return progress(self._scheduler) if self._scheduler is not None else ""

    def watch(self, scheduler: Scheduler) -> None:
        """Show what has changed; a table is made when it is drawn."""
        self._scheduler = scheduler
        if self._live is None:
            new = list(_new_events(scheduler, self.said))
            if new and self._clock.stop():
                self._clock.start()
            for values in new:
                self._say(values)

    def interrupted(self) -> str:
        """One sentence: what is kept of the night, and how it goes on; "" before it began."""
        if self._scheduler is None:
            return ""
        kernels = sum(item.sha256 is not None for item in self._scheduler.decided.values())
        cuts, models = len(self._scheduler.cuts), len(self._scheduler.question.parts)
        return (
            f"Interrupted. Kept of night {self._scheduler.question.night}: "
            f"{counted_as(kernels, 'kernel')}, {cuts} of {counted_as(models, 'model')} cut. "
            "Next: the same command goes on with it."
        )

    def _say(self, values: Mapping[str, str]) -> None:
        if self.as_json:
            print_json(dict(values))
        else:
            status = SAID.get((values["kind"], values["status"]), values["status"])
            parts = (values["what"], status, values.get("reason"))
            print_plain(": ".join(item for item in parts if item))


def _new_events(scheduler: Scheduler, said: Counter[str]) -> Iterator[dict[str, str]]:
    """What came since `said`, which is brought up to date. All of these only ever grow."""
    if not said["night"]:
        said["night"] = 1
        status = f"{counted_as(len(scheduler.question.parts), 'model')} to cut"
        yield {"kind": "night", "what": f"night {scheduler.question.night}", "status": status}
    for name, cut in _since(scheduler.cuts, "cut", said):
        yield {"kind": "cut", "what": name, "status": counted_as(len(cut.regions), "region")}
    for signature, why in _since(scheduler.put_back, "later", said):
        what = f"{scheduler.regions[signature].name} {signature[:8]}"
        yield {"kind": "region", "what": what, "status": "put back", "reason": why}
    for signature, decided in _since(scheduler.decided, "region", said):
        yield {
            "kind": "region",
            "what": f"{scheduler.regions[signature].name} {signature[:8]}",
            "status": decided.status,
            "reason": decided.reason,
        }
    for name, row in _since(scheduler.rows, "model", said):
        yield {"kind": "model", "what": name, "status": row.form}
    for name, why in _since(scheduler.errors, "error", said):
        yield {"kind": "model", "what": name, "status": "failed", "reason": why}
    for jobs, why in lost_text(scheduler.lost_jobs[said["lost"] :]):
        yield {"kind": "lost", "what": jobs, "status": why}
    said["lost"] = len(scheduler.lost_jobs)


def _since(found: dict[str, T], kind: str, said: Counter[str]) -> list[tuple[str, T]]:
    """The entries past the first `said[kind]`, without going through those."""
    new = list(islice(reversed(found.items()), len(found) - said[kind]))
    said[kind] = len(found)
    return new[::-1]


def progress(scheduler: Scheduler) -> RenderableType:
    """The clock, one line a model, then the regions that are worked on and the latest decided.

    It is called from the screen's thread: what the night adds to meanwhile is copied, not walked.
    """
    budget = scheduler.question.budget_s
    limit = f" of {show_span(budget)}" if budget is not None else ""
    title = Text(f"night {scheduler.question.night}: {show_span(scheduler.wall_s)}{limit}")
    running = list(scheduler.running.values())
    table = Table(box=None, pad_edge=False)
    for heading in ("model", "region", "share", "status"):
        table.add_column(heading, justify="right" if heading == "share" else "left")
    doing = {job.part.model.name: job.kind for job in running if job.kind != "kernel"}
    for part in scheduler.question.parts:
        name = part.model.name
        row, error = scheduler.rows.get(name), scheduler.errors.get(name)
        waiting = "cut" if name in scheduler.cuts else "waits"
        at = DOING[doing[name]] if name in doing else waiting
        table.add_row(name, "", "", error or (row.form if row else at))
    shown = [job.region for job in running if job.kind == "kernel"]
    latest = list(scheduler.decided)[: -SHOWN_REGIONS - 1 : -1]
    shown += [scheduler.regions[signature] for signature in latest]
    for region in shown[:SHOWN_REGIONS]:
        decided = scheduler.decided.get(region.signature)
        models = ", ".join(dict.fromkeys(use.model for use in region.uses))
        status = decided.status if decided else "under way"
        table.add_row(models, region.name, show_share(region.share), status)
    return Group(title, table)


def doing_words(scheduler: Scheduler) -> str:
    """`after 93 s: draft Block 2275bc2d; 2 of 11 regions decided`, in one line."""
    running = [job.name for job in list(scheduler.running.values())]
    if scheduler.regions:
        done = f"{len(scheduler.decided)} of {counted_as(len(scheduler.regions), 'region')} decided"
    else:
        models = counted_as(len(scheduler.question.parts), "model")
        done = f"{len(scheduler.cuts)} of {models} cut"
    return f"after {scheduler.wall_s:.0f} s: {', '.join(running) or 'nothing'} under way; {done}"


DOING = {"cut": "being cut", "whole": "being compared as a whole"}
"""What is done with a model, by the kind of its job."""


def models_table(night: NightlyRun) -> Table:
    """The end-to-end figures; measured and estimated ones are never in one column."""
    table = Table(box=None, pad_edge=False)
    table.add_column("model")
    table.add_column("runs as")
    figures = (
        ("x eager", "x compile", "time")
        if night.basis == "measured"
        else ("eager, estimated", "estimated", "x eager, estimated")
    )
    for heading in (*figures, "swapped", "of its time"):
        table.add_column(heading, justify="right")
    table.add_column("outputs")
    for row in night.models:
        table.add_row(*_cells(row, night))
    return table


def _cells(row: ModelRow, night: NightlyRun) -> tuple[str, ...]:
    if row.error is not None:
        return (row.name, "failed", "", "", "", "", "", row.error)
    if night.basis == "measured":
        timing = row.timings.get(row.form)
        figures = (
            show_ratio(row.vs_eager.value if row.vs_eager else None),
            show_ratio(row.vs_compile.value if row.vs_compile else None),
            show_us(timing.median_us if timing else None),
        )
    else:
        figures = (
            show_us(row.estimated_eager_us),
            show_us(row.estimated_us),
            show_ratio(row.estimated_speedup),
        )
    verified = {True: "right", False: "not right", None: "-"}[row.verified]
    return (
        row.name,
        row.form,
        *figures,
        str(row.swapped),
        show_share(row.time_in_regions),
        verified,
    )


def print_summary(
    night: NightlyRun, comparison: Comparison, folder: Path, *, as_json: bool
) -> None:
    """The end-to-end table, what changed, and where the reports are."""
    if as_json:
        print_json(
            {
                "night": night.model_dump(mode="json"),
                "comparison": comparison.model_dump(mode="json"),
                "costs": [item.model_dump(mode="json") for item in model_costs(night).values()],
                "merged": merged_regions(night).model_dump(mode="json"),
                "exit_code": comparison.exit_code,
                "folder": str(folder),
            }
        )
        return
    screen = console()
    screen.print(models_table(night))
    for change in comparison.changes:
        kind = change.kind.replace("_", " ")
        screen.print(f"{kind}  {change.what}: {change_text(change)}", markup=False)
    for row in night.models:
        if row.error is None and not row.swapped:
            why = f": {row.why}" if row.why else ""
            screen.print(f"no kernels  {row.name} runs as {row.form}{why}", markup=False)
    against = f" (against night {comparison.against})" if comparison.against else ""
    screen.print(f"{headline(comparison)}{against}", markup=False)
    for name in ("night.html", "night.md", "junit.xml"):
        screen.print(f"report       {folder / name}", markup=False)
    use = use_line(night, folder)
    if use:
        screen.print(use, markup=False, soft_wrap=True)


def use_line(night: NightlyRun, folder: Path) -> str:
    """How the kernels get into a model in Python; "" where no model runs with any."""
    names = [row.name for row in night.models if row.swapped]
    if not names:
        return ""
    others = f"  # or {', '.join(map(repr, names[1:]))}" if len(names) > 1 else ""
    return f"use it       agentkernel.apply(model, {str(folder)!r}, name={names[0]!r}){others}"


LAST = ("last", "last-green")
MEASURED_RESERVE, ESTIMATED_RESERVE = 0.35, 0.1
"""Shares of the budget that are kept for the models' end-to-end figures: on a GPU each is compiled
and timed in four forms."""
DEFAULTS = ("profile.max_autotune=false",)
"""A model is held against eager and torch.compile; so are its regions."""
MOST_A_CORE = 8
"""Jobs at a time: each is a process that holds torch and a model."""
MOST_FOLDER = 100
"""Characters of a folder's name; a zoo of many chosen models has a longer one."""


@dataclass(frozen=True)
class ZooFlags:
    """The flags of a night as they were given."""

    time_s: float | None = None
    ray: str | None = None
    workers: int | None = None
    compare: str | None = None
    out: Path | None = None
    library: Path | None = None
    only: Sequence[str] = ()
    as_json: bool = False

    def given(self) -> str | None:
        """The first flag that is given, which a list of problems does not take."""
        flags = {
            "--time": self.time_s,
            "--ray": self.ray,
            "--workers": self.workers,
            "--compare": self.compare,
            "--out": self.out,
            "--library": self.library,
            "--only": self.only or None,
        }
        return next((name for name, value in flags.items() if value is not None), None)


def is_zoo(path: Path, flag: str | None = None) -> bool:
    """True for a YAML file with `models:`, and for the name of a packaged zoo; beside a `flag` that
    zoos alone take, for all but a list of problems: the zoo's reader then says what is wrong."""
    if not path.is_file() and str(path) in packaged_zoos():
        return True
    keys = top_keys(path) or ()
    return "models" in keys or (flag is not None and "problems" not in keys)


def zoo_overrides(zoo: Zoo) -> list[str]:
    """The zoo's settings, and those of every night, as `-c` would have them."""
    # JSON is YAML, which an override's value is.
    return [*DEFAULTS, *(f"{key}={json.dumps(value)}" for key, value in zoo.settings.items())]


def select_models(zoo: Zoo, only: Sequence[str]) -> Zoo:
    """The models named by `only`, as a zoo of another name: its nights are not the whole zoo's.

    Raises SettingError.
    """
    if not only:
        return zoo
    known = [model.name for model in zoo.models]
    unknown = next((name for name in only if name not in known), None)
    if unknown is not None:
        raise SettingError(
            f"--only {unknown!r} is no model of zoo {zoo.name!r}. Known: {', '.join(known)}."
        )
    models = tuple(model for model in zoo.models if model.name in only)
    name = f"{zoo.name}:{'+'.join(model.name for model in models)}"
    return zoo.evolve(models=models, name=name)


def parts_of(zoo: Zoo) -> tuple[ZooPart, ...]:
    """Each model with its hash. One that does not load is a row of the night, not its end."""
    found = []
    for model in zoo.models:
        try:
            sha256 = load_model(zoo, model).sha256
        except ProblemError as error:
            sha256 = f"not loaded: {error}"
        alone = zoo.evolve(models=(model,))
        found.append(ZooPart(zoo=alone, sha256=sha256))
    return tuple(found)


def check_workers(workers: int | None) -> None:
    """Raise SettingError for more jobs at a time than this machine could begin."""
    most = MOST_A_CORE * len(os.sched_getaffinity(0))
    if workers is not None and workers > most:
        raise SettingError(
            f"--workers {workers} is too many for this machine. Expected 1 to {most}, "
            f"{MOST_A_CORE} a core. Next: give fewer, or leave it out."
        )


def engine_for(asked: ZooFlags, resolved: ResolvedTarget, locks: Path) -> Engine:
    """Ray where an address is given; else the GPUs that measure for the target, or CPU lanes."""
    if asked.ray is not None:
        # Without a GPU as many jobs at a time as are asked for, not as many as there are cores.
        stand_ins = 0 if visible_devices() else asked.workers or 0
        return RayEngine(asked.ray, most=asked.workers, stand_ins=stand_ins)
    cpus = len(os.sched_getaffinity(0))
    devices = visible_devices() if resolved.measurable else ()
    if not devices:
        return LocalEngine((CPU,), locks, lanes=asked.workers or min(2, cpus))
    used = devices[: asked.workers] if asked.workers else devices
    lanes = max(1, asked.workers // len(used)) if asked.workers else default_workers(used, cpus)
    return LocalEngine(used, locks, lanes=lanes)


def run_zoo(zoo: Zoo, settings: Settings, asked: ZooFlags) -> int:
    """The night, its reports and its exit code: 0 fine, 1 a broken model, 5 a regression, 6 not
    verified."""
    make_folder(asked.out or zoo_folder(zoo.name))  # told before the night, not after it
    if asked.out is not None:
        require_free(asked.out)
    if asked.ray is None:  # a cluster's own resources limit its jobs
        check_workers(asked.workers)
    require_here(settings, "batch")
    resolved = find_target(settings.target)
    gpu = gpu_of(resolved)
    locks = cache_folder() / "locks"
    runs = Path(settings.runs).resolve() / ".nights"
    with (
        counting("reading the zoo", silent=asked.as_json),
        printing_to_stderr(),
    ):  # the files of models are imported
        parts = parts_of(zoo)
    wanted = NightOptions(
        zoo=zoo,
        parts=parts,
        target=resolved.target.name,
        settings=settings.evolve(runs=str(runs)),
        gpu=gpu,
        versions=installed_versions(),
        locks=locks,
        budget_s=asked.time_s,
        reserve=ESTIMATED_RESERVE if gpu is None else MEASURED_RESERVE,
    )
    screen = NightlyScreen(asked.as_json)
    made: list[Comparison] = []
    with Library(asked.library or default_library()) as library:
        earlier_run(library, zoo.name, asked.compare)  # a name that no night has is told before

        def report(night: NightlyRun) -> int:
            comparison = compare_nights(
                earlier_run(library, zoo.name, asked.compare, night.id), night
            )
            folder = asked.out or nightly_folder(night)
            history = library.history(zoo.name)
            write_night(folder, night, comparison, history, kernels_of(library, night))
            made.append(comparison)
            return comparison.exit_code

        engine = engine_for(asked, resolved, locks)
        ranking = default_ranking(len(zoo.models))
        try:
            with screen.live():
                night = run_night(wanted, library, engine, run_job, ranking, screen.watch, report)
        except KeyboardInterrupt as stop:
            raise typer.Abort(screen.interrupted()) from stop
    (comparison,) = made
    print_summary(night, comparison, asked.out or nightly_folder(night), as_json=asked.as_json)
    return comparison.exit_code


def nightly_folder(night: NightlyRun) -> Path:
    """Where a night's reports lie by default."""
    return zoo_folder(night.zoo) / night.id


def zoo_folder(zoo: str) -> Path:
    """Where those of all nights over a zoo lie."""
    return Path("agentkernel-nights") / zoo.replace(":", "-")[:MOST_FOLDER]


def kernels_of(library: Library, night: NightlyRun) -> dict[str, Kernel]:
    """The kernels that a night's page shows, and their parents, by SHA-256: those of its largest
    regions. All of a large zoo's, with their certificates, do not fit in memory."""
    found: dict[str, Kernel] = {}
    for number, row in enumerate(region_order(night)):
        if number >= MOST_ROWS and len(found) >= 2 * MOST_KERNELS:  # each with its parent
            break
        for sha256 in (row.sha256, row.parent):
            if sha256 is not None and sha256 not in found:
                found |= {kernel.sha256: kernel for kernel in library.kernels(sha256=sha256)}
    return found


def earlier_run(
    library: Library, zoo: str, compare: str | None, other_than: str | None = None
) -> NightlyRun | None:
    """The night to compare with; the last one of this zoo where nothing is asked for. Never the
    night `other_than`, which is compared.

    Raises RunNotFound for a name that no night has, SettingError for that of the night itself.
    """
    if compare is None or compare in LAST:
        return library.night(compare or LAST[0], zoo=zoo, other_than=other_than)
    if compare == other_than:
        raise SettingError(
            f"--compare {compare!r} is the night that goes on here. Expected an earlier one. "
            "Next: give the same command with another, or without it."
        )
    found = library.night(compare)
    if found is None:
        raise RunNotFound(
            f"No night {compare!r} in the library {str(library.path)!r}. Expected last, "
            "last-green, or the id of a night, which its report's first line names."
        )
    return found
