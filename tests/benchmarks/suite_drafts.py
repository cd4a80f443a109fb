"""Which drafts does each problem of the suite get without a GPU, and do they compile for one?

python -m tests.benchmarks.suite_drafts OUT.jsonl lifted|templates [NAME ...]
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentkernel.agents.compiler_coder import ALGEBRA, simplified, variants
from agentkernel.compiler.drop_in.envelope import eval_only
from agentkernel.compiler.drop_in.wrapper import DropInSource
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.lift.drop_in import lift
from agentkernel.compiler.lift.inductor_code import InductorCode, NotLifted, Variant, find_variant
from agentkernel.compiler.lift.inductor_process import generate_many
from agentkernel.compiler.partitions import partitions, structure
from agentkernel.compiler.pipeline import Compiled
from agentkernel.domain.profile import CompileReport
from agentkernel.tools.compile import compile_many
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.targets import find_target

SUITE = Path(__file__).parents[2] / "benchmarks" / "suite"
FILES = {path.stem: path for path in sorted(SUITE.glob("level*/*.py"))}
TARGET = find_target("h200").target
LIFTED = "lifted"
VARIANTS = {"contraction_4d": "gemm_triton"}
"""Problems that the library does alone under the variant "default"."""


@dataclass(frozen=True)
class Drafted:
    """A draft of one strategy for the graph that it was written from, or why there is none."""

    strategy: str
    captured: Captured
    draft: DropInSource | NotLifted


@functools.cache
def problem(name: str) -> tuple[LoadedProblem, Captured]:
    """One problem of the suite, captured without memory for its tensors."""
    loaded = load_problem(str(FILES[name]))
    return loaded, capture(loaded)


@functools.cache
def rewritten(name: str) -> Captured:
    """The graph after the exact rewrites, or as it was captured."""
    loaded, captured = problem(name)
    try:
        return simplified(loaded, captured).captured
    except UnsupportedOp:
        return captured


def template_drafts(name: str) -> list[Drafted]:
    """The first variant of every strategy that has one; where none has, one entry says why."""
    loaded, captured = problem(name)
    found: dict[str, Drafted] = {}
    shorter = rewritten(name)
    if shorter is not captured:
        found[ALGEBRA] = _first(loaded, shorter, ALGEBRA)
    try:
        choices = partitions(loaded, captured, "mixed")
    except UnsupportedOp as error:
        return [*found.values(), Drafted("templates", captured, NotLifted(reason=str(error)))]
    for item in choices:
        strategy = structure(item)
        if strategy not in found:
            found[strategy] = Drafted(strategy, captured, written(item))
    return list(found.values())


def _first(loaded: LoadedProblem, captured: Captured, strategy: str) -> Drafted:
    try:
        draft = written(partitions(loaded, captured, "mixed")[0])
    except UnsupportedOp as error:
        draft = NotLifted(reason=str(error))
    return Drafted(strategy, captured, draft)


def written(compiled: Compiled) -> DropInSource | NotLifted:
    """The best guess of its family, without a search, or what has no form."""
    try:
        return next(variants(compiled, lambda _: None, TARGET, 1)).source
    except UnsupportedOp as error:
        return NotLifted(reason=str(error))


def lifting_job(name: str) -> tuple[Captured, Variant]:
    """What TorchInductor is asked for."""
    return rewritten(name), find_variant(VARIANTS.get(name, "default"))


def lifted_draft(name: str, code: InductorCode | NotLifted) -> Drafted:
    """The file lifted from `code`, or why there is none."""
    loaded, captured = problem(name)[0], rewritten(name)
    if isinstance(code, NotLifted):
        return Drafted(LIFTED, captured, code)
    # Said here from the capture that is there already: `lift` would make one for it.
    differs = eval_only(*problem(name))
    return Drafted(LIFTED, captured, lift(code, loaded, captured, differs_in_training=differs))


def compile_failures(name: str, drafts: Sequence[Drafted]) -> list[str]:
    """For each draft that is one: what goes wrong when its kernels are compiled, or ""."""
    texts = [item.draft.text for item in drafts if isinstance(item.draft, DropInSource)]
    found = compile_many(problem(name)[0], texts, TARGET)
    return [_failure(outcome) for outcome in found]


def _failure(outcome: object) -> str:
    if not isinstance(outcome, CompileReport):
        return str(outcome)
    if not outcome.kernels:
        return "no kernel is launched"
    return "; ".join(f"{kernel.name}: {kernel.error}" for kernel in outcome.kernels if kernel.error)


def main(path: str, kind: str, names: Sequence[str]) -> None:
    """A line of JSON a draft, as soon as it is known."""
    with Path(path).open("w", encoding="utf-8") as sink:
        codes: Sequence[InductorCode | NotLifted] = ()
        if kind == LIFTED:
            codes = generate_many([lifting_job(name) for name in names], TARGET)
        for index, name in enumerate(names):
            begun_s = time.monotonic()
            drafts = [lifted_draft(name, codes[index])] if codes else template_drafts(name)
            for line in _lines(name, drafts):
                line["seconds"] = round(time.monotonic() - begun_s, 2)
                sink.write(json.dumps(line) + "\n")
            sink.flush()


def _lines(name: str, drafts: Sequence[Drafted]) -> list[dict[str, object]]:
    failures = iter(compile_failures(name, drafts))
    return [
        {"name": name, "strategy": item.strategy}
        | (
            {"failure": next(failures), "text": item.draft.text}
            if isinstance(item.draft, DropInSource)
            else {"none": item.draft.reason, "stage": item.draft.stage}
        )
        for item in drafts
    ]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:] or list(FILES))
