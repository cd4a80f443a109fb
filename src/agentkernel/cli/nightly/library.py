"""`agentkernel library`: list, show, verify, export and prune the verified kernels.

`verify` judges kernels again, withdraws what no longer verifies, and then exits 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from agentkernel.cli.configuration import runs_path
from agentkernel.cli.console import console
from agentkernel.cli.knowledge.place import print_to_stderr
from agentkernel.cli.nightly.options import (
    MOST_LISTED,
    LibraryExportFlags,
    LibraryListFlags,
    LibraryPruneFlags,
    LibraryShowFlags,
    LibraryVerifyFlags,
)
from agentkernel.cli.terminal import print_json, print_plain
from agentkernel.domain.errors import LibraryError, SettingError
from agentkernel.domain.plain_text import plain, plain_line
from agentkernel.nightly.library import (
    KernelMeasurement,
    KernelSummary,
    Library,
    PruneResult,
    PruneRule,
    default_library,
)
from agentkernel.nightly.library.maintenance import VerifiedKernel, export_library, verify_kernel
from agentkernel.runtime.machine import installed_versions

if TYPE_CHECKING:
    from agentkernel.domain.region import Kernel

EXIT_WITHDRAWN, EXIT_UNDECIDED = 6, 4
SHORTEST_SHA = 4
ESTIMATED = "estimated:"
"""Begins the name of a GPU that nobody measured on."""


def list_kernels(flags: LibraryListFlags) -> None:
    """`agentkernel library list`."""
    most = flags.limit or (None if flags.as_json else MOST_LISTED)
    with open_library(flags.path) as library:
        lines = library.checked_lines(valid=flags.valid, newest=most)
        if flags.as_json:
            print_json([_line_values(item) for item in lines])
        elif lines:
            if len(lines) == most and library.count() > most:
                print_plain(f"The newest {most} of {library.count()} kernels; --limit shows more.")
            console().print(kernel_table(lines))
        else:
            where = str(library.path)
            print_plain(f"No kernels in {where!r}. Next: agentkernel batch ZOO.yaml --target h100")


def show(flags: LibraryShowFlags) -> None:
    """`agentkernel library show`."""
    with open_library(flags.path) as library:
        keys = _named(library, flags.sha256)
        most = None if flags.as_json else MOST_LISTED
        lines = library.checked_lines(sha256=keys[0].sha256, newest=most)
        kernels = library.kernels(sha256=keys[0].sha256, newest=most)
        measured = library.measurements(keys[0].sha256)
        if flags.as_json:
            print_json(
                {
                    "kernels": [item.model_dump(mode="json") for item in kernels],
                    "measurements": [asdict(item) for item in measured],
                    "unreadable": len(lines) - len(kernels),
                }
            )
            return
        screen = console()
        if len(keys) > len(lines):
            print_plain(f"The newest {len(lines)} of {len(keys)} keys; --json shows all.")
        for line in kernel_lines(lines, kernels, measured[-MOST_LISTED:]):
            screen.print(line, markup=False, soft_wrap=True)


def verify(flags: LibraryVerifyFlags) -> None:
    """`agentkernel library verify`."""
    if (flags.sha256 is None) == (not flags.every):
        raise SettingError(
            f"verify got {flags.sha256!r} and --all {'set' if flags.every else 'not set'}. "
            "Expected one of the two. Next: agentkernel library verify SHA, or "
            "agentkernel library verify --all"
        )
    runs = runs_path(flags.runs_folder, flags.settings)
    checked = []
    with open_library(flags.path) as library:
        lines = _named(library, flags.sha256) if flags.sha256 is not None else _usable(library)
        versions = installed_versions()
        for line in lines:
            found = verify_kernel(
                library,
                line,
                versions,
                runs=runs,
                allow_unsandboxed=flags.allow_unsandboxed,
                unpickle=flags.unpickle,
            )
            checked.append(found)
            if not flags.as_json:
                console().print(checked_words(found), markup=False, soft_wrap=True)
        code = exit_code(checked, mended=library.mended is not None)
        if flags.as_json:
            print_json({"exit_code": code, "kernels": [_checked_values(item) for item in checked]})
        else:
            print_plain(count_words(checked))
        raise typer.Exit(code)


def export(flags: LibraryExportFlags) -> None:
    """`agentkernel library export`."""
    with open_library(flags.path) as library:
        found = export_library(
            library, flags.folder, withdrawn=flags.withdrawn, modules=flags.modules
        )
        if flags.as_json:
            print_json({**asdict(found), "folder": str(found.folder)})
            return
        left = f"; {found.left_out} that may not be used left out" if found.left_out else ""
        print_plain(f"{found.kernels} kernels in {str(found.folder)!r}{left}")


def prune(flags: LibraryPruneFlags) -> None:
    """`agentkernel library prune`."""
    versions = installed_versions() if flags.other_versions else None
    rule = PruneRule(
        older_than_days=flags.older_than,
        withdrawn=flags.withdrawn,
        keep_torch=versions.torch if versions else None,
        keep_triton=versions.triton if versions else None,
        keep_gpu=flags.keep_gpu,
        newest_too=flags.newest_too,
        nights_older_than_days=flags.nights_older_than,
    )
    if rule.empty:
        raise SettingError(
            "prune was not told what to drop. Expected one or more of --older-than, --withdrawn, "
            "--other-versions, --keep-gpu, --nights-older-than. Next: name one; nothing is dropped "
            "without --yes."
        )
    with open_library(flags.path) as library:
        found = library.prune(rule, yes=flags.yes)
        if flags.as_json:
            print_json(_pruned_values(found))
            return
        for line in pruned_lines(found):
            console().print(line, markup=False, soft_wrap=True)


@contextmanager
def open_library(path: Path | None) -> Iterator[Library]:
    """The library that the flag names, else the user's own; it has to be there. Raises
    LibraryError.

    Where it was damaged the command ends in 4, though it said what could be read: what is missing
    from its answer nobody knows.
    """
    place = default_library() if path is None else path
    if not place.is_file():
        raise LibraryError(
            f"No library of kernels in {str(place)!r}. Expected the file that 'agentkernel batch' "
            "wrote. Next: check --library, or agentkernel batch ZOO.yaml --target h100"
        )
    with Library(place, print_to_stderr) as library:
        yield library
        if library.mended is not None:
            raise typer.Exit(EXIT_UNDECIDED)


def kernel_table(lines: Sequence[KernelSummary]) -> Table:
    """One row a kernel and key."""

    table = Table(box=None, pad_edge=False)
    headings = ("kernel", "problem", "gpu", "torch", "dtype", "speedup", "created", "state")
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading == "kernel")
    for item in lines:
        key = item.key
        cells = (
            item.sha256[:10],
            item.problem,
            key.gpu,
            key.torch,
            item.dtype,
            speedup_words(item.speedup, item.basis),
            item.created[:10],
            state_words(item),
        )
        table.add_row(*(Text(plain_line(cell)) for cell in cells))
    return table


def state_words(line: KernelSummary) -> str:
    """For people: whether the library gives it out, and if not, why; whether no GPU judged it."""
    if line.withdrawn is not None:
        return f"withdrawn: {line.withdrawn}"
    if line.unfit is not None:
        return f"not given out: {line.unfit}"
    parts = ["valid"]
    parts += ["not signed"] if line.signed is False else []
    return ", ".join([*parts, "interpreted"] if line.interpreted else parts)


def kernel_lines(
    lines: Sequence[KernelSummary], kernels: Sequence[Kernel], measured: Sequence[KernelMeasurement]
) -> list[str]:
    """For people: each key with its figures, what was measured, the source."""
    by_key = {item.key.model_dump_json(): item for item in lines}
    shown = [f"kernel {lines[0].sha256}", f"problem {plain_line(lines[0].problem)}"]
    for item in kernels:
        key, line = item.key, by_key[item.key.model_dump_json()]
        shown += [
            f"for {key.gpu}, torch {key.torch}, triton {key.triton}, {key.precision} "
            f"{line.dtype}, signature {key.signature}",
            f"  {speedup_words(item.speedup, item.basis)}, run {plain_line(item.run)}, created "
            f"{item.created}, verified {item.verified or 'never again'}",
        ]
        shown.append(f"  {plain_line(state_words(line))}")
    if len(lines) > len(kernels):
        shown.append(f"{len(lines) - len(kernels)} more, whose certificate cannot be read")
    for one in measured:
        time = "no time" if one.time_us is None else f"{one.time_us:g} us"
        speedup = "" if one.speedup is None else f", {one.speedup:.2f}x"
        gpu = one.gpu.removeprefix(ESTIMATED)
        what = f"{one.basis} {one.taken} {'on' if one.basis == 'measured' else 'for'} {gpu}"
        night = f", night {plain_line(one.night)}" if one.night else ""
        shown.append(f"{what}: {time}{speedup}{night}")
    return [*shown, "", *(plain(item.source) for item in kernels[:1])]


def speedup_words(speedup: float | None, basis: str) -> str:
    """For people: `1.82x`, marked where no GPU measured it."""
    if speedup is None:
        return "not measured"
    return f"{speedup:.2f}x" + (" (estimated)" if basis == "estimated" else "")


def checked_words(found: VerifiedKernel) -> str:
    """One line about a kernel that was judged again."""
    line = found.kernel
    reason = f": {plain_line(found.reason)}" if found.reason else ""
    return f"{line.sha256[:10]} {plain_line(line.problem)} on {line.key.gpu}: {found.state}{reason}"


def count_words(checked: Sequence[VerifiedKernel]) -> str:
    """How many of each."""
    states = [item.state for item in checked]
    parts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
    return ", ".join(parts) or "no kernel to verify"


def exit_code(checked: Sequence[VerifiedKernel], *, mended: bool = False) -> int:
    """6 outweighs 4: what does not verify is told though another one could not be judged, or the
    file was damaged and `mended`."""
    states = {item.state for item in checked}
    if "withdrawn" in states:
        return EXIT_WITHDRAWN
    return EXIT_UNDECIDED if mended or "undecided" in states else 0


def pruned_lines(found: PruneResult) -> list[str]:
    """For people: what goes, what stays in spite of the rule, and how to go on."""
    lines = [
        f"{item.kernel.sha256[:10]} {plain_line(item.kernel.problem)} on {item.kernel.key.gpu}: "
        f"{plain_line(item.why)}"
        for item in found.kernels
    ]
    verb = "dropped" if found.dropped else "would be dropped"
    lines += [f"night {night}" for night in found.nights]
    lines.append(
        f"{len(found.kernels)} kernels, {len(found.nights)} nights and {found.jobs} jobs {verb}"
    )
    if found.spared:
        lines.append(f"{found.spared} stay: the newest valid of their signature (--all drops them)")
    if not found.dropped and (found.kernels or found.nights or found.jobs):
        lines.append("Next: the same with --yes")
    return lines


def _named(library: Library, sha256: str) -> tuple[KernelSummary, ...]:
    """The keys of the one kernel that the digits name. Raises LibraryError."""
    digits = sha256.lower()
    well_formed = len(digits) >= SHORTEST_SHA and set(digits) <= set("0123456789abcdef")
    lines = library.lines(sha256=digits) if well_formed else ()
    names = sorted({item.sha256[:16] for item in lines})
    if len(names) != 1:
        found = (
            f"stands for {len(names)} kernels: {', '.join(names[:5])}" if names else "is unknown"
        )
        raise LibraryError(
            f"The kernel {sha256!r} {found}. Expected {SHORTEST_SHA} or more first digits of one "
            "hash. Next: 'agentkernel library list' shows them."
        )
    return lines


def _usable(library: Library) -> tuple[KernelSummary, ...]:
    return tuple(item for item in library.lines() if item.withdrawn is None)


def _line_values(line: KernelSummary) -> dict[str, object]:
    values = {**asdict(line), "key": line.key.model_dump(mode="json")}
    del values["row"]
    return values


def _checked_values(found: VerifiedKernel) -> dict[str, object]:
    return {**_line_values(found.kernel), "state": found.state, "reason": found.reason}


def _pruned_values(found: PruneResult) -> dict[str, object]:
    return {
        "dropped": found.dropped,
        "kernels": [{**_line_values(item.kernel), "why": item.why} for item in found.kernels],
        "spared": found.spared,
        "nights": list(found.nights),
        "jobs": found.jobs,
    }
