"""How is a night over a zoo asked for, watched, and shown when it is over?"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.cli.nightly.batch_screen import NightlyScreen, print_summary
from agentkernel.domain.errors import ProblemError, RunNotFound, SettingError

if TYPE_CHECKING:
    from agentkernel.domain.night import Comparison, NightlyRun
    from agentkernel.domain.region import Kernel
    from agentkernel.domain.settings import Settings
    from agentkernel.domain.zoo import Zoo
    from agentkernel.nightly.library import Library
    from agentkernel.nightly.scheduler.engine import Engine
    from agentkernel.nightly.scheduler.jobs import ZooPart
    from agentkernel.tools.targets import ResolvedTarget

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
    from agentkernel.nightly.zoo.read import packaged_zoos, top_keys

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
    return zoo.model_copy(update={"models": models, "name": name})


def parts_of(zoo: Zoo) -> tuple[ZooPart, ...]:
    """Each model with its hash. One that does not load is a row of the night, not its end."""
    from agentkernel.nightly.scheduler.jobs import ZooPart
    from agentkernel.nightly.zoo.load import load_model

    found = []
    for model in zoo.models:
        try:
            sha256 = load_model(zoo, model).sha256
        except ProblemError as error:
            sha256 = f"not loaded: {error}"
        alone = zoo.model_copy(update={"models": (model,)})
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
    from agentkernel.nightly.scheduler.engine import LocalEngine
    from agentkernel.runtime.bench_lanes import CPU, default_workers, visible_devices

    if asked.ray is not None:
        from agentkernel.nightly.scheduler.on_ray import RayEngine

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
    """The night, its reports and its exit code: 0 fine, 5 a regression, 6 not verified."""
    from agentkernel.bench.baselines import cache_folder
    from agentkernel.nightly.library import Library, default_library
    from agentkernel.nightly.night import NightOptions, run_night
    from agentkernel.nightly.page.compare import compare_nights
    from agentkernel.nightly.page.files import require_free, write_night
    from agentkernel.nightly.scheduler.hands import default_ranking
    from agentkernel.nightly.scheduler.work import gpu_of, printing_to_stderr, run_job
    from agentkernel.runtime.versions import installed_versions
    from agentkernel.storage.atomic import make_folder
    from agentkernel.tools.targets import find_target

    make_folder(asked.out or zoo_folder(zoo.name))  # told before the night, not after it
    if asked.out is not None:
        require_free(asked.out)
    if asked.ray is None:  # a cluster's own resources limit its jobs
        check_workers(asked.workers)
    resolved = find_target(settings.target)
    gpu = gpu_of(resolved)
    locks = cache_folder() / "locks"
    runs = Path(settings.runs).resolve() / ".nights"
    with printing_to_stderr():  # the files of models are imported
        parts = parts_of(zoo)
    wanted = NightOptions(
        zoo=zoo,
        parts=parts,
        target=resolved.target.name,
        settings=settings.model_copy(update={"runs": str(runs)}),
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
        with screen.live():
            night = run_night(
                wanted,
                library,
                engine,
                run_job,
                default_ranking(len(zoo.models)),
                screen.watch,
                report,
            )
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
    from agentkernel.nightly.page.folds import MOST_KERNELS
    from agentkernel.nightly.page.tables import MOST_ROWS, region_order

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
