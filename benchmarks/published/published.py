"""Published kernels by package name beside ours, timed in one process on one GPU.

`python benchmarks/published/published.py --out published --seconds 240`

A drop-in that lies in `OUT/candidates` is timed as it is; the others are searched for first. Where
a run keeps a baseline, its best accepted candidate is timed all the same.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple, cast

import torch
import typer
from torch import nn

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import AgentKernelError, one_line
from agentkernel.domain.formatting import error_text, with_interval
from agentkernel.domain.profile import Ratio
from agentkernel.storage.configuration import load_settings
from agentkernel.storage.files import write_atomic
from agentkernel.swap.kernel import execute_module
from agentkernel.swap.selection import WARM_CALLS, time_calls
from agentkernel.tools.judge.comparison.errors import ABOVE_EAGER, errors
from agentkernel.tools.judge.interpreter.hooks import install_hooks
from agentkernel.tools.judge.reference.oracle import as_float64, in_float64, value_as_float64
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.profiler.rounds import Pace
from agentkernel.tools.profiler.timing.stopwatch import CallTimer, Device
from agentkernel.tools.speedup import paired_ratio
from agentkernel.workflows.events import CandidateDrafted, Decided, Event, RunStarted
from agentkernel.workflows.optimize import run
from agentkernel.workflows.state import OptimizeRequest

ROOT = Path(__file__).parents[2]
OURS = "ours"
TUNED = "torch.compile, max-autotune"
PACKAGES = ("torch", "triton", "liger_kernel", "helion", "flag_gems")
SEARCH_SHARE = 0.5
"""Of an entry's time, for the search; the rest compiles, checks and times."""
TUNED_S = 15.0
"""Max-autotune, which nothing can end in this process, wants so much of an entry's time left."""
PACE_S = 2.5
"""Of timing, the usual length; four times that is the most."""
DRY_SHRINK = 64

Call = Callable[[], object]
Bind = Callable[[nn.Module, Sequence[torch.Tensor]], Call]


class Published(NamedTuple):
    """A kernel of a package: `bind` imports it and gives a call on the module's own tensors."""

    label: str
    bind: Bind
    note: str = ""


class Entry(NamedTuple):
    """A problem: the Model of a file of this repository, at `sizes` that its texts name."""

    name: str
    model: str
    dtype: str
    inputs: str
    init: str
    sizes: Mapping[str, int]
    published: tuple[Published, ...]

    def title(self, shrink: int = 1) -> str:
        """For people and, without its blanks, for files: `product, float32, 4096 x 4096 x 4096`."""
        return f"{self.name}, {self.dtype}, {' x '.join(map(str, self.at(shrink).values()))}"

    def at(self, shrink: int = 1) -> dict[str, int]:
        """The sizes, divided by `shrink`."""
        return {name: size // shrink for name, size in self.sizes.items()}

    def source(self, shrink: int = 1) -> str:
        """The problem file."""
        model = (ROOT / self.model).read_text(encoding="utf-8").partition("def get_inputs")[0]
        given = self.inputs.format(dtype=f"dtype=torch.{self.dtype}", **self.at(shrink))
        made = self.init.format(**self.at(shrink))
        return (
            f"{model}def get_inputs():\n    return [{given}]\n\n\n"
            f"def get_init_inputs():\n    return [{made}]\n"
        )


class Row(Frozen):
    """One side of the problem of that title.

    `ratio`: its time over that of ours, more than 1 where ours is the faster; `error`: relative to
    the norm of the fp64 answer; `failed`: why there is no time.
    """

    problem: str
    side: str
    note: str = ""
    median_us: float | None = None
    ratio: Ratio | None = None
    peak_bytes: int | None = None
    error: float | None = None
    right: bool | None = None
    """Whether the error is within `ABOVE_EAGER` times that of eager, or an ulp of the inputs."""
    failed: str = ""


class Results(Frozen):
    """All rows, with what they were measured on and with."""

    gpu: str
    versions: dict[str, str]
    rows: tuple[Row, ...]
    seconds: float


def _flaggems_mm(module: nn.Module, inputs: Sequence[torch.Tensor]) -> Call:
    """FlagGems' product. It compiles its 162 configurations one after another, for minutes: those
    of large tiles are left to its tuning. Raises where there is no GPU."""
    os.environ.setdefault("GEMS_VENDOR", "nvidia")
    gems = importlib.import_module("flag_gems")
    tuner = gems.mm.__globals__["mm_kernel_general_host_tma"].fn
    tuner.configs = [item for item in tuner.configs if is_large(item.kwargs)]
    return partial(gems.mm, *inputs)


def is_large(tile: Mapping[str, int]) -> bool:
    """Whether a configuration of FlagGems may win where each side is thousands long."""
    return tile["BLOCK_M"] >= 128 and tile["BLOCK_N"] == 128 and tile["BLOCK_K"] < 128


def _helion(kernel: str, module: nn.Module, inputs: Sequence[torch.Tensor]) -> Call:
    return partial(getattr(importlib.import_module("helion_matmul"), kernel), *inputs)


def _liger(function: str, *arguments: object) -> Call:
    found = importlib.import_module("liger_kernel.transformers.functional")
    return partial(getattr(found, function), *arguments)


def _liger_loss(module: nn.Module, inputs: Sequence[torch.Tensor]) -> Call:
    x, target = inputs
    return _liger(
        "liger_fused_linear_cross_entropy", x, module.get_parameter("head.weight"), target
    )


def _liger_norm(module: nn.Module, inputs: Sequence[torch.Tensor]) -> Call:
    return _liger("liger_rms_norm", inputs[0], module.get_parameter("weight"), 1e-6)


def _liger_gate(module: nn.Module, inputs: Sequence[torch.Tensor]) -> Call:
    return _liger("liger_swiglu", *inputs)


def _product(dtype: str, m: int, n: int, k: int, *published: Published) -> Entry:
    return Entry(
        "product",
        "benchmarks/suite/level1/deep_inner.py",
        dtype,
        "torch.randn({m}, {k}, {dtype}), torch.randn({k}, {n}, {dtype})",
        "",
        {"m": m, "n": n, "k": k},
        published,
    )


FEW = "tuned over its tiles of 128 x 128 and more"
GEMS_HALF = Published("FlagGems mm", _flaggems_mm, FEW)
ONE = "one configuration"
HELION_HALF = Published("Helion matmul", partial(_helion, "half"), ONE)
ENTRIES = (
    _product(
        "float32", 4096, 4096, 4096,
        Published("FlagGems mm", _flaggems_mm, f"3xTF32 on Hopper; {FEW}"),
        Published("Helion matmul, TF32", partial(_helion, "tf32"), f"its default; {ONE}"),
        Published("Helion matmul, ieee", partial(_helion, "ieee"), f"strict; {ONE}"),
    ),
    *(_product("bfloat16", 8192, 8192, k, GEMS_HALF, HELION_HALF) for k in (1024, 4096, 8192)),
    Entry(
        "linear + cross-entropy",
        "benchmarks/suite/level2/linear_cross_entropy.py",
        "bfloat16",
        "torch.randn({rows}, {width}, {dtype}), torch.randint(0, {classes}, ({rows},))",
        "{width}, {classes}",
        {"rows": 8192, "width": 4096, "classes": 128256},
        (Published("Liger fused linear cross-entropy", _liger_loss, "no gradients under no_grad"),),
    ),
    Entry(
        "RMSNorm",
        "examples/rmsnorm_bf16.py",
        "bfloat16",
        "torch.randn({rows}, {width}, {dtype})",
        "{width}",
        {"rows": 8192, "width": 4096},
        (Published("Liger RMSNorm", _liger_norm),),
    ),
    Entry(
        "SwiGLU",
        "benchmarks/large/pointwise_gate.py",
        "bfloat16",
        "torch.randn({rows}, {width}, {dtype}), torch.randn({rows}, {width}, {dtype})",
        "",
        {"rows": 8192, "width": 4096},
        (Published("Liger SwiGLU", _liger_gate),),
    ),
)  # fmt: skip


class Found(NamedTuple):
    """Our drop-in's text, "" where nothing was drafted, and what is said of it."""

    source: str
    note: str


def search(loaded: LoadedProblem, kept: Path, runs: Path, seconds: float) -> Found:
    """The best accepted candidate of one run, kept at `kept`, or the file that lies there.

    Where the time is over before the judge accepted one, the last draft: its error is checked here
    as that of every side, and it is not kept.
    """
    if kept.is_file():
        return Found(kept.read_text(encoding="utf-8"), "searched before")
    seen: list[Event] = []
    flags = {"budget.time_s": seconds, "profile.max_autotune": False, "runs": str(runs)}
    result = run(OptimizeRequest(loaded, load_settings(None, (), flags)), seen.append)
    best = [event.best for event in seen if isinstance(event, Decided) and event.best]
    drafts = [item.candidate for item in seen if isinstance(item, CandidateDrafted)]
    known = best or [item for item in drafts if item]
    if not known:
        return Found("", f"{result.status}: {result.reason}")
    folder = next(Path(event.folder) for event in seen if isinstance(event, RunStarted))
    source = (folder / "candidates" / f"{known[-1]}.py").read_text(encoding="utf-8")
    if not best:
        return Found(source, f"drafted, not accepted in {seconds:.0f} s")
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(kept, source)
    return Found(source, f"{result.status} after {result.spent_s:.0f} s")


class Side(NamedTuple):
    """A contender: how its call is made, and what the table says of it."""

    make: Callable[[], Call]
    note: str = ""


class Checked(NamedTuple):
    """A warm call, its error relative to the fp64 answer, and whether that is near eager's."""

    call: Call
    error: float
    right: bool


class Problem:
    """A problem on the device, with the answer in fp64."""

    def __init__(self, loaded: LoadedProblem, device: Device) -> None:
        self._loaded = loaded
        self.device: Device = device
        self.module = loaded.build(seed=0, device=device)
        self.inputs = cast("tuple[torch.Tensor, ...]", loaded.make_inputs(seed=0, device=device))
        wide = cast("list[torch.Tensor]", [value_as_float64(item) for item in self.inputs])
        with torch.no_grad(), in_float64():
            self._exact: torch.Tensor = as_float64(self.module)(*wide)
        with torch.no_grad():
            self._eager: torch.Tensor = self.module(*self.inputs)
        self._room = max(
            ABOVE_EAGER * self._error(self._eager), torch.finfo(self.inputs[0].dtype).eps
        )

    def compiled(self, mode: str | None = None) -> Call:
        """torch.compile in one of its modes."""
        return partial(torch.compile(self.module, dynamic=False, mode=mode), *self.inputs)

    def drop_in(self, found: Found) -> Call:
        """Our drop-in, with the module's own weights. Raises RuntimeError where there is none."""
        if not found.source:
            raise RuntimeError(found.note)
        namespace = execute_module(found.source, "published_drop_in")
        made: nn.Module = namespace.ModelNew(*self._loaded.init_args)
        made.load_state_dict(self.module.state_dict(), assign=True)
        return partial(made.eval(), *self.inputs)

    def checked(self, make: Callable[[], Call]) -> Checked:
        """The call, compared and warm. Raises what it raises."""
        call = make()
        with torch.no_grad():
            for _ in range(WARM_CALLS):
                value = cast("torch.Tensor", call())
        error = self._error(value)
        return Checked(call, error, error <= self._room)

    def _error(self, value: torch.Tensor) -> float:
        if value.shape != self._exact.shape:
            return float("inf")
        return errors(value, self._exact, self._eager).norm


def compared(
    problem: Problem, sides: Mapping[str, Side], row: Row, end_s: float, pace: Pace
) -> list[Row]:
    """Check and time `sides`, of which the last is ours. `row`: what all rows have in common;
    `end_s`: the moment of `time.monotonic` at which it should be over."""
    done: dict[str, Checked] = {}
    failed: dict[str, str] = {}
    for name, side in sides.items():
        if name == TUNED and time.monotonic() > end_s - TUNED_S:
            failed[name] = "left out: no time"
            continue
        try:
            done[name] = problem.checked(side.make)
        except Exception as error:  # noqa: BLE001 - whatever a package raises, the others go on
            failed[name] = f"{type(error).__name__}: {one_line(error, 160)}"
    calls = {name: item.call for name, item in done.items()}
    rounds = time_calls(calls, failed, problem.device, pace=pace)
    timer, timed = CallTimer(problem.device, 0), rounds.sides()
    rows = []
    for name, side in sides.items():
        found = row.evolve(side=name, note=side.note, failed=failed.get(name, ""))
        if name in done:
            found = found.evolve(error=done[name].error, right=done[name].right)
        if name in timed:
            found = found.evolve(
                median_us=median(rounds.samples(name)), peak_bytes=timer.peak_bytes(calls[name])
            )
        if name in timed and OURS in timed and name != OURS:
            ratio = paired_ratio(rounds.medians(name), rounds.medians(OURS))
            found = found.evolve(ratio=ratio)
        rows.append(found)
    return rows


def measure(entry: Entry, out: Path, end_s: float, shrink: int, device: Device) -> list[Row]:
    """Search for our drop-in of `entry` and compare all sides."""
    left_s = max(end_s - time.monotonic(), 1.0)
    with tempfile.TemporaryDirectory(prefix="agentkernel-published-") as folder:
        path = Path(folder) / "problem.py"
        path.write_text(entry.source(shrink), encoding="utf-8")
        loaded = load_problem(str(path))
        kept = out / "candidates" / f"{entry.title(shrink).replace(' ', '')}.py"
        try:
            found = search(loaded, kept, out / "runs", SEARCH_SHARE * left_s)
        except AgentKernelError as error:
            found = Found("", one_line(error))
        torch.compiler.reset()
        problem = Problem(loaded, device)
        sides = {
            "eager": Side(lambda: partial(problem.module, *problem.inputs)),
            "torch.compile": Side(problem.compiled),
            **{
                item.label: Side(partial(item.bind, problem.module, problem.inputs), item.note)
                for item in entry.published
            },
            TUNED: Side(partial(problem.compiled, "max-autotune-no-cudagraphs")),
            OURS: Side(partial(problem.drop_in, found), found.note if found.source else ""),
        }
        row = Row(problem=entry.title(shrink), side="")
        pace = Pace(seconds=min(PACE_S, left_s / 10))
        return compared(problem, sides, row, end_s, pace)


def versions() -> dict[str, str]:
    """What is installed of the packages that the table names."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def table(results: Results) -> str:
    """The Markdown table, below a line that names the GPU and the versions."""
    named = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    head = ("problem", "side", "us", "time over ours [95%]", "peak MB", "error", "")
    lines = [f"{results.gpu}; {named}; {results.seconds:.0f} s.", "", _line(head)]
    lines.append(_line(["---"] * len(head)))
    return "\n".join([*lines, *(_line(_cells(row)) for row in results.rows), ""])


def _cells(row: Row) -> Sequence[str]:
    wrong = f"wrong: more than {ABOVE_EAGER:g} times eager's error" if row.right is False else ""
    return (
        row.problem,
        row.side,
        "-" if row.median_us is None else f"{row.median_us:.1f}",
        with_interval(row.ratio, 3) if row.ratio else "-",
        "-" if row.peak_bytes is None else f"{row.peak_bytes / 1e6:.1f}",
        error_text(row.error),
        "; ".join(part for part in (wrong, row.note, row.failed) if part),
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def main(
    out: Annotated[Path, typer.Option(help="Folder for the table, the rows and drop-ins.")] = Path(
        "published"
    ),
    seconds: Annotated[float, typer.Option(help="About how long it may take.")] = 240.0,
    only: Annotated[str, typer.Option(help="Problems whose title contains this.")] = "",
    dry: Annotated[bool, typer.Option(help="Small sizes on the CPU, in the interpreter.")] = False,
) -> None:
    """Time published kernels, PyTorch and ours on each problem, and write the table."""
    begin = time.monotonic()
    device: Device = "cpu" if dry else "cuda"
    if dry and os.environ.get("TRITON_INTERPRET") != "1":
        raise typer.BadParameter("--dry wants TRITON_INTERPRET=1 in the environment.")
    if dry:
        install_hooks()
    chosen = [entry for entry in ENTRIES if only in entry.title()]
    if not chosen:
        titles = "; ".join(entry.title() for entry in ENTRIES)
        raise typer.BadParameter(f"no problem's title contains {only!r}. There are: {titles}.")
    rows: list[Row] = []
    for number, entry in enumerate(chosen):
        now = time.monotonic()
        share_s = (begin + seconds - now) / (len(chosen) - number)
        if share_s <= 0:
            typer.echo(f"left out, no time: {'; '.join(item.title() for item in chosen[number:])}")
            break
        rows += measure(entry, out, now + share_s, DRY_SHRINK if dry else 1, device)
        if not dry:
            torch.cuda.empty_cache()
        results = Results(
            gpu="CPU, no times that mean anything" if dry else torch.cuda.get_device_name(),
            versions=versions(),
            rows=tuple(rows),
            seconds=time.monotonic() - begin,
        )
        # After each problem: what ends this process early leaves the rows so far.
        write_atomic(out / "published.json", results.model_dump_json(indent=1))
        write_atomic(out / "published.md", table(results))
    typer.echo(table(results))


if __name__ == "__main__":
    typer.run(main)
