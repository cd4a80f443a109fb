"""Other modules of the class and other calls of forward: the candidate must be right, or raise."""

from __future__ import annotations

import ast
import dataclasses
import random
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from agentkernel.domain.errors import ProblemError
from agentkernel.domain.problem import ShapeSet
from agentkernel.domain.verdict import Failure
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.cases.cases import Case
from agentkernel.tools.judge.cases.shapes import CaseShape
from agentkernel.tools.judge.elsewhere import judge_other_shapes
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.judge.trial import CaseRunner
from agentkernel.tools.judge.workers import on_device, open_judge_worker
from agentkernel.tools.problem.problems import LoadedProblem, default_value
from agentkernel.tools.problem.structures import unflatten_data, values_of
from agentkernel.tools.sandbox.session import Worker

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.tools.problem.capture import Captured

ELEMENTS = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Parameters and buffers of a module that is tried have so many elements at most."""
LEAST = 4
"""Smaller integers count something else than elements."""
FACTORS = (3, 2)
"""Three times a size is past the next power of two, and keeps what divides it."""
WORDS = ("sum", "mean", "none")
"""What a word that says how a result is put together may be, beside those of the file."""
MOST_WORDS = 6
LONGEST_WORD = 20


@dataclasses.dataclass(frozen=True)
class Variant:
    """Another module, or another way to call it, and a case for it."""

    loaded: LoadedProblem
    case: Case

    @property
    def inputs(self) -> ShapeSet:
        """Those of the case."""
        return self.case.shape.inputs


def variant(loaded: LoadedProblem, case: Case, inputs: ShapeSet, told: str) -> Variant:
    """`loaded` at `inputs`, with the values of `case`; `told` says to people what is other."""
    problem = loaded.problem.model_copy(update={"shape_sets": (inputs,)})
    shape = CaseShape(inputs, "scaled", 0)
    return Variant(
        dataclasses.replace(loaded, problem=problem),
        dataclasses.replace(case, shape=shape, variant=told),
    )


def judge_variants(
    variants: Sequence[Variant],
    captured: Captured,
    source: str,
    settings: JudgeSettings,
    notes: list[str],
    first: Worker | None = None,
) -> Failure | None:
    """One after the other in a worker as long as it lives, `first` before a new one: the candidate
    refuses to be built, or to be called, or it is right."""
    left = list(variants)
    while left:
        usable = first is not None and first.alive
        opened = nullcontext(first) if usable and first is not None else open_judge_worker(settings)
        with opened as worker, on_device(settings):
            runner: CaseRunner | None = None
            of: LoadedProblem | None = None
            while left and worker.alive:
                item = left.pop(0)
                if item.loaded is not of:
                    of = item.loaded
                    runner = _built(worker, of, captured, source, settings, notes)
                if runner is None:
                    continue
                found = judge_other_shapes(runner, None, [item.case])
                if found.failure is not None:
                    return found.failure
    return None


def _built(
    worker: Worker,
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    settings: JudgeSettings,
    notes: list[str],
) -> CaseRunner | None:
    """The candidate as such a module; None where it, or the original, refuses to be built."""
    try:
        runner = CaseRunner(worker, loaded, captured, settings, notes)
    except ProblemError:
        return None
    return None if runner.build(source) is not None else runner


def other_values(value: object, chance: random.Random, source: str) -> list[object]:
    """Values that may stand for `value`, which is a number, a flag, a word or None, those first
    that tell most. Numbers are drawn, so that no file knows them."""
    if value is None:
        return [round(chance.uniform(0.3, 0.9), 3), chance.randint(2, 3), True]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        return [word for word in known_words(source) if word != value]
    if isinstance(value, float):
        near = abs(value) * chance.uniform(1.3, 1.9) + chance.uniform(0.1, 0.3)
        return [round(near, 4), value / 2, round(-near, 4)]
    if not isinstance(value, int):
        return []
    if value >= LEAST:
        return [*(factor * value for factor in FACTORS), value // 2, value + 1]
    beside = [value + 1, value + 2, value - 1]
    chance.shuffle(beside)
    # None of something, last: a loop that steps by it does not end.
    return [number for number in beside if number * value > 0 or value == 0 <= number]


def known_words(source: str) -> list[str]:
    """Words that the text compares with or hands on, then what such words often are."""
    tree = parse_source(source)
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told
    ]
    short = [word for word in found if word.isidentifier() and len(word) <= LONGEST_WORD]
    return list(dict.fromkeys((*WORDS, *short)))[: MOST_WORDS + len(WORDS)]


def few_elements(loaded: LoadedProblem, device: str) -> bool:
    """Whether the module can be built, and has so few elements that a further one is no matter."""
    try:
        module = loaded.build(seed=0, device="meta")
    except (ProblemError, NotImplementedError):
        return False
    count = sum(int(value.numel()) for value in module.state_dict().values())
    return count <= ELEMENTS[device]


def plain_module(loaded: LoadedProblem) -> nn.Module | None:
    """The original on the CPU, called as its class is; None where its constructor raises."""
    bare = loaded.problem.model_copy(update={"arguments": None})
    try:
        return dataclasses.replace(loaded, problem=bare).build(seed=0)
    except (ProblemError, NotImplementedError):
        return None


def plain_outputs(module: nn.Module | None, asked: Variant) -> list[object] | None:
    """The leaves of what `module` makes of plain inputs of the form of `asked`, the same in each
    call; None where it takes none such."""
    import torch
    from torch.utils._pytree import tree_leaves

    if module is None:
        return None
    arguments = asked.loaded.problem.arguments
    torch.manual_seed(0)
    given = [default_value(spec, "cpu") for spec in asked.inputs.inputs]
    args, named = given, {}
    if arguments is not None:
        args, named = unflatten_data(arguments, given, values_of(arguments))
    try:
        with torch.no_grad():
            return tree_leaves(module(*args, **named))
    except Exception:  # noqa: BLE001 - the user's module may raise anything
        return None


def outputs_differ(found: Sequence[object], plain: Sequence[object]) -> bool:
    """Whether two answers are not the same: else what was changed is no matter."""
    import torch

    def same(one: object, other: object) -> bool:
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            return one.dtype == other.dtype and torch.equal(one, other)
        try:
            return type(one) is type(other) and bool(one == other)
        except Exception:  # noqa: BLE001 - leaves may be anybody's, and compare as they like
            return False

    return len(found) != len(plain) or not all(map(same, found, plain))
