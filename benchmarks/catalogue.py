"""Which problems does the suite hold, and what is each made of? Writes the table of its README,
and the list of the few problems of the probe.

python benchmarks/catalogue.py
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from agentkernel.storage.files import write_atomic
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.roofline.model import estimate_eager, sizes_of
from agentkernel.tools.roofline.op_cost import is_free, op_name, stored_bytes
from agentkernel.tools.targets import load_targets

SUITE = Path(__file__).parent / "suite"
README = SUITE / "README.md"
PROBE = SUITE / "probe.txt"
PROBE_SEED, PROBE_PER_LEVEL = 2026, 8
BEGIN, END = "<!-- problems: begin -->", "<!-- problems: end -->"
TARGET = "h100-sxm"
OPS_SHOWN = 9
SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


class Entry(NamedTuple):
    """One problem. `structure` is a digest of its ops in order, without widths, dtypes and views;
    `eager_us` is what eager is estimated to take on TARGET, `total_bytes` what inputs, weights and
    all results hold together: more than is ever alive at once."""

    level: str
    name: str
    title: str
    ops: tuple[str, ...]
    dtypes: tuple[str, ...]
    structure: str
    eager_us: float
    total_bytes: int

    @property
    def row(self) -> str:
        """Its line of the table."""
        counts = Counter(self.ops)
        words = [name if count == 1 else f"{name} ×{count}" for name, count in counts.items()]
        more = f" and {len(words) - OPS_SHOWN} more" if len(words) > OPS_SHOWN else ""
        shown = ", ".join(words[:OPS_SHOWN]) + more
        dtypes = "/".join(self.dtypes)
        return f"| `{self.name}` | {self.title} | {shown} | {dtypes} | {self.structure} |"


def problem_files() -> tuple[Path, ...]:
    """Every problem of the suite, by level and name."""
    return tuple(sorted(SUITE.glob("level*/*.py")))


def draw_probe(names: Sequence[str]) -> tuple[str, ...]:
    """PROBE_PER_LEVEL of each level's `LEVEL/NAME`: those whose digests with the seed are smallest,
    so that a problem that joins the suite moves at most one. The deep levels, which take longest,
    come first."""
    by_level: dict[str, list[str]] = {}
    for name in names:
        by_level.setdefault(name.split("/")[0], []).append(name)
    drawn = [
        sorted(sorted(by_level[level], key=_lot)[:PROBE_PER_LEVEL])
        for level in sorted(by_level, reverse=True)
    ]
    return tuple(name for level in drawn for name in level)


def _lot(name: str) -> str:
    return hashlib.sha256(f"{PROBE_SEED} {name}".encode()).hexdigest()


def suite_names() -> tuple[str, ...]:
    """`LEVEL/NAME` of every problem, as the bench calls it."""
    return tuple(f"{path.parent.name}/{path.stem}" for path in problem_files())


def describe(path: Path) -> Entry:
    """Load and capture one problem; no memory is touched for its inputs."""
    loaded = load_problem(str(path))
    return entry_of(path, loaded, capture(loaded))


def entry_of(path: Path, loaded: LoadedProblem, captured: Captured) -> Entry:
    """What `describe` says of the problem at `path`, which is loaded and captured already."""
    ops = compute_ops(captured)
    return Entry(
        level=path.parent.name,
        name=path.stem,
        title=title_of(path),
        ops=ops,
        dtypes=float_dtypes(loaded, captured),
        structure=hashlib.sha256(" ".join(ops).encode()).hexdigest()[:8],
        eager_us=estimate_eager(captured, load_targets()[TARGET]).time_us,
        total_bytes=total_bytes(captured),
    )


def title_of(path: Path) -> str:
    """The first line of its docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n")[0].rstrip(".")


def total_bytes(captured: Captured) -> int:
    """Bytes of every input, weight and intermediate result, at the captured sizes."""
    size_of = sizes_of(captured)
    values = [node.meta.get("val") for node in captured.graph.graph.nodes]
    return sum(stored_bytes(item, size_of) for item in values if isinstance(item, torch.Tensor))


def compute_ops(captured: Captured) -> tuple[str, ...]:
    """The ATen calls in order, without those that only look at memory another way."""
    return tuple(
        op_name(node.target).removeprefix("aten.")
        for node in captured.graph.graph.nodes
        if node.op == "call_function"
        and isinstance(node.target, torch._ops.OpOverload)
        and not is_free(node.target)
    )


def float_dtypes(loaded: LoadedProblem, captured: Captured) -> tuple[str, ...]:
    """The floating types of inputs and outputs, in the order of their first appearance."""
    named = {node.name: node for node in captured.graph.graph.nodes}
    values = [named[name].meta["val"] for name in captured.outputs if name is not None]
    found = [spec.dtype for spec in loaded.problem.shape_sets[0].tensors]
    found += [str(value.dtype).removeprefix("torch.") for value in values]
    return tuple(SHORT[name] for name in dict.fromkeys(found) if name in SHORT)


def table(entries: list[Entry]) -> str:
    """The Markdown between the markers."""
    kinds = len({entry.structure for entry in entries})
    lines = [
        f"{len(entries)} problems, {kinds} distinct sequences of compute ops "
        f"(torch {release()}; widths, dtypes and views do not count)."
    ]
    for level in sorted({entry.level for entry in entries}):
        own = [entry for entry in entries if entry.level == level]
        lines += ["", f"### {level}: {len(own)}", ""]
        lines += ["| problem | what it is | ops | dtype | structure |", "|---|---|---|---|---|"]
        lines += [entry.row for entry in own]
    return "\n".join(lines)


def release() -> str:
    """The torch that captured: its op sequences may differ from those of another."""
    return ".".join(torch.__version__.split(".")[:2])


def main() -> None:
    """Rewrite the table of README and the list of the probe."""
    entries = [describe(path) for path in problem_files()]
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    write_atomic(README, f"{before}{BEGIN}\n{table(entries)}\n{END}{after}")
    write_atomic(PROBE, "\n".join([*draw_probe(suite_names()), ""]))
    for entry in entries:
        print(f"{entry.eager_us:9.1f} us  {entry.structure}  {entry.level}/{entry.name}")


if __name__ == "__main__":
    main()
