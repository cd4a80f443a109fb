"""Audit of the profiler: the same code against itself, and planted slowdowns.

`python benchmarks/profiler/audit.py --seconds 240 --out audit`
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from agentkernel.domain.base import Frozen
from agentkernel.domain.profile import Call, ClockState, GpuState
from agentkernel.storage.files import write_atomic
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.profiler.comparison import Comparison, ComparisonResult
from agentkernel.tools.profiler.nvml import Gauge, NvmlGauge
from agentkernel.tools.profiler.rounds import Pace, ProfileSettings, RemoteSide, SideFailed
from agentkernel.tools.profiler.timing.driver import CandidateProcess
from agentkernel.tools.profiler.timing.process import CANDIDATE
from agentkernel.tools.profiler.timing.stopwatch import Device, flush_bytes
from agentkernel.tools.sandbox.session import close_idle_workers, prefork_worker
from agentkernel.tools.speedup import half_width, paired_ratio
from agentkernel.tools.targets import find_target

if TYPE_CHECKING:
    from rich.table import Table


POINTWISE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x)


def get_inputs():
    return [torch.randn({rows}, {columns})]
"""
SOFTMAX = POINTWISE.replace("torch.sigmoid(x)", "torch.softmax(x, dim=-1)")
LAYERNORM = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn({rows}, {columns})]


def get_init_inputs():
    return [{columns}]
"""
LINEAR = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.linear = nn.Linear(columns, columns)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn({rows}, {columns})]


def get_init_inputs():
    return [{columns}]
"""


class AuditProblem(NamedTuple):
    """A problem file's text, and its size for the tests on the CPU."""

    name: str
    text: str
    rows: int
    columns: int
    long: bool = True
    """Past 100 us: a slowdown of 3% is more than the launch of what makes it."""

    def source(self, shrink: int = 1) -> str:
        """The problem file, with every size divided by `shrink`."""
        return self.text.format(rows=self.rows // shrink, columns=self.columns // shrink)

    def candidate(self) -> str:
        """The reference under the candidate's name: what an A/A measurement submits."""
        return self.source().partition("def get_inputs")[0].replace("Model(", "ModelNew(")

    def slower(self, nbytes: int) -> str:
        """The same, which also reads and writes `nbytes` in each call."""
        waste = (
            "        if not hasattr(self, 'waste'):\n"
            f"            self.waste = torch.ones({max(nbytes // 8, 1)}, device=x.device)\n"
            "        self.waste.mul_(1.0)\n"
        )
        return self.candidate().replace("        return", f"{waste}        return", 1)


PROBLEMS = (
    AuditProblem("pointwise-40MB", POINTWISE, 5120, 2048, long=False),
    AuditProblem("softmax-64MB", SOFTMAX, 4096, 4096, long=False),
    AuditProblem("layernorm-256MB", LAYERNORM, 8192, 8192),
    AuditProblem("linear-2048", LINEAR, 2048, 2048),
    AuditProblem("linear-4096", LINEAR, 6144, 4096),
)
"""About 23 us, 55 us, 0.22 ms, 0.35 ms and 4 ms in eager mode on an H200."""
LAUNCH_US = 2.0
"""What an extra small kernel takes by itself on an H200."""


def waste_bytes(call_us: float, share: float, copy_gb_per_s: float) -> int | None:
    """Bytes of an extra pass that makes a call longer by `share`; None where its launch alone does
    more than that."""
    extra_us = call_us * share - LAUNCH_US
    return None if extra_us <= 0 else int(extra_us * copy_gb_per_s * 1e3)


Kind = Literal["same", "slower"]
SHARE = 0.03
"""The planted slowdown."""
AUDIT = ProfileSettings(compare_compile=False, extras=False)


class AuditRow(Frozen):
    """One measurement of the reference against itself ("same") or with a planted slowdown."""

    problem: str
    kind: Kind
    call: Call | None
    value: float
    half_width: float
    low99: float | None
    high99: float | None
    inside_us: float
    outside_us: float | None
    clocks: ClockState | None
    seconds: float


class AuditFailure(Frozen):
    """A measurement that ended without a figure: an honest candidate that was refused, say."""

    problem: str
    kind: Kind
    reason: str
    log: str


class Audit(Frozen):
    """Everything that was measured; `profiler_us`: device time of one call's kernels by problem."""

    gpu: GpuState
    rows: tuple[AuditRow, ...]
    failures: tuple[AuditFailure, ...]
    profiler_us: dict[str, float]
    seconds: float

    def of(self, kind: Kind, problem: str | None = None) -> list[AuditRow]:
        """The rows of one kind, of one problem or of all."""
        return [r for r in self.rows if r.kind == kind and problem in (None, r.problem)]

    @property
    def false_calls(self) -> int:
        """Measurements of the same code that were called faster or slower."""
        return sum(row.call in ("faster", "slower") for row in self.of("same"))

    @property
    def seen(self) -> int:
        """Planted slowdowns that were called slower."""
        return sum(row.call == "slower" for row in self.of("slower"))


def audit(
    gauge: Gauge,
    *,
    seconds: float = 240.0,
    repeats: int = 20,
    planted: int = 20,
    device: Device = "cuda",
    problems: Sequence[AuditProblem] = PROBLEMS,
    settings: ProfileSettings = AUDIT,
    l2_flush_bytes: int = 256 << 20,
    shrink: int = 1,
    tell: Callable[[str], None] = lambda line: None,
) -> Audit:
    """Measure each problem `repeats` times against itself, and at least `planted` slowdowns, spread
    over the long ones, within about `seconds`: each problem gets an even share of what is left.

    One twin serves a problem, and one worker each of its two candidates.
    """
    begin = time.monotonic()
    rows: list[AuditRow] = []
    failures: list[AuditFailure] = []
    profiler: dict[str, float] = {}
    each = -(-planted // max(sum(problem.long for problem in problems), 1))
    with tempfile.TemporaryDirectory(prefix="agentkernel-audit-") as folder:
        for number, problem in enumerate(problems):
            left = seconds - (time.monotonic() - begin)
            end = time.monotonic() + left / (len(problems) - number)
            path = Path(folder) / f"{problem.name}.py"
            path.write_text(problem.source(shrink), encoding="utf-8")
            if device == "cuda":
                prefork_worker(device=device, interpret=False, count=2)
            with Comparison(
                load_problem(str(path)), settings, gauge, flush_bytes=l2_flush_bytes, device=device
            ) as comparison:
                one = _OneProblem(comparison, problem, settings, shrink)
                same = list(one.measure("same", one.source("same"), repeats, end))
                profiler[problem.name] = one.profiler_us
                source = one.source("slower", same) if problem.long else ""
                slow = list(one.measure("slower", source, each, end)) if source else []
            found = same + slow
            rows += [item for item in found if isinstance(item, AuditRow)]
            failures += [item for item in found if isinstance(item, AuditFailure)]
            tell(f"{problem.name}: {len(found)} measurements, {left:.0f} s were left")
    close_idle_workers()
    return Audit(
        gpu=gauge.state(),
        rows=tuple(rows),
        failures=tuple(failures),
        profiler_us=profiler,
        seconds=time.monotonic() - begin,
    )


class _OneProblem:
    """The measurements of one problem, which share its twin."""

    def __init__(
        self, comparison: Comparison, problem: AuditProblem, settings: ProfileSettings, shrink: int
    ) -> None:
        self._comparison = comparison
        self._problem = problem._replace(
            rows=problem.rows // shrink, columns=problem.columns // shrink
        )
        self._settings = settings
        self.profiler_us = 0.0

    def source(self, kind: Kind, same: Sequence[object] = ()) -> str:
        """What is submitted; "" for a slowdown that this problem is too short for."""
        if kind == "same":
            return self._problem.candidate()
        times = [row.inside_us for row in same if isinstance(row, AuditRow)]
        ceiling = self._comparison.copy_gb_per_s()
        if not times or isinstance(ceiling, SideFailed):
            return ""
        nbytes = waste_bytes(median(times), SHARE, ceiling)
        return "" if nbytes is None else self._problem.slower(nbytes)

    def measure(
        self, kind: Kind, source: str, repeats: int, end_s: float
    ) -> Iterator[AuditRow | AuditFailure]:
        """Up to `repeats` measurements with one worker, at least one however late it is."""
        process = self._comparison.candidate(source)
        if isinstance(process, SideFailed):
            yield self._failure(kind, process)
            return
        with process:
            for number in range(repeats):
                if number and time.monotonic() > end_s:
                    break
                begin = time.monotonic()
                found = self._comparison.measure(process, 0, record=False)
                if isinstance(found, SideFailed):
                    yield self._failure(kind, found)
                    break
                if found.rounds.kept:
                    yield self._row(kind, found, time.monotonic() - begin)
            if kind == "same":
                self.profiler_us = self._kernels_us(process)

    def _kernels_us(self, process: CandidateProcess) -> float:
        """Device time of one call's kernels (CUPTI), last because it slows launches down."""
        launches = RemoteSide(CANDIDATE, process, self._settings.call_limit_s).launches()
        return 0.0 if isinstance(launches, SideFailed) else sum(item.device_us for item in launches)

    def _row(self, kind: Kind, found: ComparisonResult, seconds: float) -> AuditRow:
        own, eager = found.rounds.medians(CANDIDATE), found.rounds.medians("eager")
        ratio = paired_ratio(eager, own, seed=self._settings.seed)
        return AuditRow(
            problem=self._problem.name,
            kind=kind,
            call=ratio.call,
            value=ratio.value,
            half_width=half_width(ratio),
            low99=ratio.low99,
            high99=ratio.high99,
            inside_us=median(own),
            outside_us=found.clock.outside_us if found.clock else None,
            clocks=found.clock.state if found.clock else None,
            seconds=seconds,
        )

    def _failure(self, kind: Kind, failure: SideFailed) -> AuditFailure:
        return AuditFailure(
            problem=self._problem.name, kind=kind, reason=failure.reason, log=failure.log[-1500:]
        )


def table_of(found: Audit) -> Table:
    """One line a problem and kind: calls, half-widths, and the three clocks."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in (
        "problem", "kind", "n", "faster", "slower", "same", "noisy", "ratio", "95% hw",
        "inside us", "outside us", "profiler us", "disputed", "s each",
    ):  # fmt: skip
        table.add_column(name, justify="left" if name in ("problem", "kind") else "right")
    for name in dict.fromkeys(row.problem for row in found.rows):
        for kind in ("same", "slower"):
            rows = found.of(kind, name)
            if rows:
                table.add_row(name, kind, *_cells(rows, found.profiler_us.get(name, 0.0)))
    return table


def _cells(rows: Sequence[AuditRow], profiler_us: float) -> list[str]:
    calls = [row.call for row in rows]
    outside = [row.outside_us for row in rows if row.outside_us is not None]
    return [
        str(len(rows)),
        *(str(calls.count(name)) for name in ("faster", "slower", "same", "too_noisy")),
        f"{median(row.value for row in rows):.4f}",
        f"{median(row.half_width for row in rows):.2%}",
        f"{median(row.inside_us for row in rows):.1f}",
        f"{median(outside):.1f}" if outside else "-",
        f"{profiler_us:.1f}",
        str(sum(row.clocks == "disputed" for row in rows)),
        f"{median(row.seconds for row in rows):.2f}",
    ]


def main(
    seconds: Annotated[float, typer.Option(help="About how long it may take.")] = 240.0,
    repeats: Annotated[int, typer.Option(help="Measurements of each problem.")] = 20,
    planted: Annotated[int, typer.Option(help="Planted slowdowns in all.")] = 20,
    pace: Annotated[float, typer.Option(help="Longest measuring a measurement, seconds.")] = 2.5,
    out: Annotated[Path, typer.Option(help="Folder for audit.json.")] = Path("audit"),
) -> None:
    """Audit the profiler on this machine's GPU."""
    from rich.console import Console

    resolved = find_target(None)
    gpu = resolved.measured_target or resolved.target
    console = Console(width=160)
    settings = AUDIT.evolve(pace=Pace(seconds=pace))
    found = audit(
        NvmlGauge(),
        seconds=seconds,
        repeats=repeats,
        planted=planted,
        settings=settings,
        l2_flush_bytes=flush_bytes(gpu.l2_mb.value),
        tell=console.print,
    )
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / "audit.json", found.model_dump_json(indent=1))
    console.print(table_of(found))
    for item in found.failures:
        console.print(f"{item.problem} ({item.kind}): {item.reason}: {item.log[-400:]}")
    same, slower = found.of("same"), found.of("slower")
    console.print(f"the same code called different: {found.false_calls} of {len(same)}")
    console.print(f"a planted {SHARE:.0%} seen: {found.seen} of {len(slower)}")
    console.print(f"{found.seconds:.0f} s, written to {out / 'audit.json'}")


if __name__ == "__main__":
    typer.run(main)
