"""The margins of honest evaluations and of planted losses of precision under the precision rule.

python benchmarks/precision/calibrate.py [--device cuda] [--svg docs/precision.svg]

The margin of a result is how much of what is allowed it uses, with every honest evaluation of the
rule counted, the worst case over all distributions of values: an honest result has to pass each of
them, a planted one is caught by any. Half of the problems, every second one, are for calibrating;
the other half reports. On the CPU the evaluations are emulated in torch; with `--device cuda` those
run there, and Triton kernels beside them.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import populations
import torch
from torch import nn

from agentkernel.domain.problem import ShapeSet, TensorSpec
from agentkernel.tools.judge.cases.values import Distribution, Sampler, scales
from agentkernel.tools.judge.comparison.compare import (
    ELEMENT_ULPS,
    HONEST_DRAWS,
    HONEST_FACTOR,
    RuleResult,
    allowance,
)
from agentkernel.tools.judge.comparison.errors import (
    HONEST,
    Errors,
    Perturb,
    Suspects,
    Tally,
    errors,
    specials,
)
from agentkernel.tools.judge.reference.oracle import Answer, call_reference
from agentkernel.tools.judge.reference.population import Population

DISTRIBUTIONS: tuple[Distribution, ...] = (
    "normal",
    "uniform",
    "large",
    "tiny",
    "sparse",
    "sorted",
    "constant",
    "shifted",
)
CAP = 1e4
"""Margins past it are drawn there."""


@dataclass(frozen=True)
class Margin:
    """The worst case of one evaluation of one problem."""

    problem: str
    evaluation: str
    kind: Literal["honest", "planted"]
    half: Literal["calibrated", "reported"]
    margin: float
    distribution: str


class Reference(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        """Call it."""
        return self.function(*given)


def inputs_of(
    problem: populations.Problem, distribution: Distribution, seed: int, device: str
) -> list[torch.Tensor] | None:
    """Values drawn as the judge draws them: the first scale that the reference survives."""
    dtype = str(problem.dtype).removeprefix("torch.")
    specs = [
        TensorSpec(name=f"x{number}", shape=shape, dtype=dtype)
        for number, shape in enumerate(problem.shapes)
    ]
    shape_set = ShapeSet(inputs=tuple(specs))
    loaded = SimpleNamespace(problem=SimpleNamespace(shape_sets=[shape_set]))
    sampler = Sampler(cast("Any", loaded), device, seed)
    for scale in scales(distribution, shape_set):
        values = cast("list[torch.Tensor]", sampler.draw(shape_set, 0, distribution, seed, scale))
        if problem.targets:
            count = problem.shapes[0][0]
            values.append(torch.randint(problem.targets, (count,), device=device))
        if bool(problem.reference(*values).isfinite().all()):
            return values
    return None


class Allowed:
    """What the rule allows in one case, all honest evaluations made."""

    def __init__(self, answer: Answer, population: Population, columns: bool) -> None:
        self._eager = cast("torch.Tensor", answer.leaves[0])
        self._oracle = cast("torch.Tensor", answer.oracle[0])
        self._columns = columns
        self._blur: Perturb = lambda seed: answer.perturbed.output(0, seed, 0.0)
        theirs = errors(self._eager, self._oracle, self._eager)
        allowed = allowance(theirs, self._eager.dtype, "strict")
        self._seen: list[torch.Tensor] = []
        for evaluate in (population.honest(0), population.permitted(0)):
            for draw in range(HONEST_DRAWS if evaluate is not None else 0):
                value = evaluate(draw)  # type: ignore[misc]
                if value is None:
                    break
                self._seen.append(value)
                found = errors(value, self._oracle, self._eager)
                if math.isfinite(found.norm):
                    allowed = Errors(
                        max(allowed.norm, HONEST_FACTOR * found.norm),
                        max(allowed.element, HONEST_FACTOR * found.element),
                    )
        self._allowed = allowed
        further = (population.honest(0, HONEST), population.permitted(0, HONEST))
        moved = (evaluate(draw) for evaluate in further if evaluate for draw in range(HONEST_DRAWS))
        self._further = [value for value in moved if value is not None]

    def margin(self, found: torch.Tensor) -> float:
        """How much of it `found` uses."""
        tally = Tally(self._oracle.numel())
        tally.add(found, self._eager, self._oracle)
        wide = self._eager.dtype in (torch.float32, torch.float64)
        least = torch.finfo(self._eager.dtype).eps * (ELEMENT_ULPS if wide else 4)
        suspects = Suspects(least, self._columns)
        compared = specials(self._eager, self._oracle).compared
        suspects.add(found, self._eager, self._oracle, compared)
        seen, further = (list(map(suspects.at, made)) for made in (self._seen, self._further))
        largest = suspects.result(self._allowed.element, self._blur, seen, further)
        return max(RuleResult(tally.errors(0), self._allowed, largest).shares.values())


def measure(problem: populations.Problem, half: str, device: str) -> Iterator[Margin]:
    """The margins of every evaluation of one problem."""
    worst: dict[tuple[str, str], tuple[float, str]] = {}
    for seed, distribution in enumerate(DISTRIBUTIONS):
        given = inputs_of(problem, distribution, seed, device)
        if given is None:
            continue
        model = Reference(problem.reference)
        answer = call_reference(model, given)
        population = Population(model, given, False, problem.permits)
        allowed = Allowed(answer, population, distribution == "normal")
        for kind, evaluations in (("honest", problem.honest), ("planted", problem.planted)):
            for name, evaluation in evaluations.items():
                margin = allowed.margin(evaluation(*(item.clone() for item in given)))
                if margin >= worst.get((kind, name), (-1.0, ""))[0]:
                    worst[kind, name] = (margin, distribution)
    for (kind, name), (margin, distribution) in worst.items():
        yield Margin(problem.name, name, cast("Any", kind), cast("Any", half), margin, distribution)


def every(sizes: tuple[int, ...], device: str) -> list[populations.Problem]:
    """All problems of these sizes; on a GPU with Triton kernels among the evaluations."""
    found = list(populations.problems(sizes))
    if device == "cuda":
        import kernels

        found += kernels.problems()
    return found


def measure_one(number: int, sizes: tuple[int, ...], device: str) -> list[Margin]:
    """The margins of one problem by its place in `every`, in whatever process this is.

    A function cannot be sent to a process, and so the problems are made there.
    """
    torch.set_num_threads(1)
    torch.manual_seed(number)
    half = "reported" if number % 2 else "calibrated"
    return list(measure(every(sizes, device)[number], half, device))


def summary(margins: Sequence[Margin]) -> str:
    """The two distributions of each half, and the gap between them."""
    lines = [
        "| half | kind | evaluations | least | median | 90% | largest | wrong side |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for half in ("calibrated", "reported"):
        for kind in ("honest", "planted"):
            values = sorted(x.margin for x in margins if (x.half, x.kind) == (half, kind))
            if not values:
                continue
            wrong = sum(value > 1 if kind == "honest" else value <= 1 for value in values)
            spots = (values[0], values[len(values) // 2], values[len(values) * 9 // 10], values[-1])
            words = " | ".join(f"{value:.3g}" for value in spots)
            lines.append(f"| {half} | {kind} | {len(values)} | {words} | {wrong} |")
    for half in ("calibrated", "reported"):
        honest = max((x.margin for x in margins if (x.half, x.kind) == (half, "honest")), default=0)
        planted = min(
            (x.margin for x in margins if (x.half, x.kind) == (half, "planted")), default=math.inf
        )
        lines.append(f"\n{half}: honest at most {honest:.3g}, planted at least {planted:.3g}")
    return "\n".join(lines)


def nearest(margins: Sequence[Margin]) -> str:
    """The evaluations nearest to the bound on either side."""
    honest = sorted((x for x in margins if x.kind == "honest"), key=lambda x: -x.margin)[:10]
    planted = sorted((x for x in margins if x.kind == "planted"), key=lambda x: x.margin)[:10]
    return "\n".join(
        f"{x.kind:8} {x.margin:8.3g}  {x.problem}: {x.evaluation} ({x.distribution})"
        for x in (*honest, *planted)
    )


def picture(margins: Sequence[Margin], title: str) -> str:
    """Both distributions over a logarithmic axis, as SVG; 1 is what is allowed."""
    width, row, left, bins = 760, 150, 40, 80
    low, high = math.log10(1e-3), math.log10(CAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {2 * row + 60}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{2 * row + 60}" fill="white"/>',
        f'<text x="{left}" y="18" font-size="14">{title}</text>',
    ]
    span = width - 2 * left
    for number, (kind, color) in enumerate((("honest", "#2a7f62"), ("planted", "#b3413a"))):
        base = 30 + (number + 1) * row - 20
        values = [min(max(x.margin, 1e-3), CAP) for x in margins if x.kind == kind]
        counts = [0] * bins
        for value in values:
            place = int((math.log10(value) - low) / (high - low) * (bins - 1))
            counts[place] += 1
        for place, count in enumerate(counts):
            height = 100 * count / max(counts)
            parts.append(
                f'<rect x="{left + place * span / bins:.1f}" y="{base - height:.1f}" '
                f'width="{span / bins - 1:.1f}" height="{height:.1f}" fill="{color}"/>'
            )
        words = f"{kind}: {len(values)} evaluations"
        parts.append(f'<text x="{left}" y="{base - 105}" fill="{color}">{words}</text>')
        parts.append(f'<path d="M{left} {base}H{left + span}" stroke="#444"/>')
    one = left - low / (high - low) * span
    parts.append(f'<path d="M{one:.1f} 30V{2 * row + 20}" stroke="#444" stroke-dasharray="4 3"/>')
    for power in range(int(low), int(high) + 1):
        at = left + (power - low) / (high - low) * span
        name = "1 = allowed" if power == 0 else f"{10.0**power:g}"
        parts.append(f'<text x="{at:.1f}" y="{2 * row + 40}" text-anchor="middle">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", default="", help="problems whose names hold this")
    parser.add_argument("--sizes", type=int, nargs="*", default=populations.SIZES)
    parser.add_argument("--jobs", type=int, default=1, help="processes that measure at once")
    parser.add_argument("--svg", type=Path, help="where the picture goes")
    parser.add_argument("--json", type=Path, help="where every margin goes")
    asked = parser.parse_args()
    begin = time.monotonic()
    sizes = tuple(asked.sizes)
    names = [problem.name for problem in every(sizes, asked.device)]
    wanted = [number for number, name in enumerate(names) if asked.only in name]
    margins: list[Margin] = []
    with ProcessPoolExecutor(asked.jobs, multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(measure_one, n, sizes, asked.device): n for n in wanted}
        for done in as_completed(waiting):
            margins += done.result()
            seconds = time.monotonic() - begin
            print(f"{names[waiting[done]]}: {seconds:.0f} s", file=sys.stderr)
            if asked.json:
                rows = [asdict(item) for item in margins]
                asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(summary(margins))
    print(nearest(margins))
    where = torch.cuda.get_device_name() if asked.device == "cuda" else "CPU, emulated"
    print(f"{len(margins)} evaluations on {where}, {time.monotonic() - begin:.0f} s")
    if asked.svg:
        asked.svg.write_text(picture(margins, f"Margin under the precision rule ({where})"))


if __name__ == "__main__":
    main()
