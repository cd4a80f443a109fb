"""Which drop-ins does TorchInductor's code for a graph make, and how may the best one be tuned?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from agentkernel.compiler.drop_in.wrapper import DropInSource
from agentkernel.compiler.lift.code import InductorCode, NotLifted
from agentkernel.compiler.lift.options import options_of
from agentkernel.compiler.lift.steps import Unliftable, read_wrapper
from agentkernel.compiler.lift.write import lift
from agentkernel.domain.base import sha256_text
from agentkernel.domain.candidate import TrialResult
from agentkernel.domain.errors import TimeIsUp, one_line
from agentkernel.domain.rules import Policy
from agentkernel.tools.judge.policy.policy import check_policy, own_names
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.problems import LoadedProblem

MAX_TUNED = 16
"""Launch configurations tried of the variant that won."""
OPTION = ", option "
RUNNERS_UP = 1
"""Variants tried beside the one that an experience names."""


@dataclass(frozen=True)
class LiftedDraft:
    """One lifted file: the variant's name, with the options chosen in it."""

    label: str
    source: DropInSource
    code: InductorCode


def lifted_drafts(
    problem: LoadedProblem,
    captured: Captured,
    codes: Sequence[InductorCode | NotLifted],
    policy: Policy,
) -> list[LiftedDraft] | NotLifted:
    """A file a variant, as far as the policy allows it, of equal ones that with the most launch
    configurations to try; the commonest reason where there is none."""
    found: dict[str, LiftedDraft] = {}
    reasons: Counter[str] = Counter()
    for code in codes:
        source = code if isinstance(code, NotLifted) else _lifted(code, problem, captured)
        if isinstance(source, NotLifted) or isinstance(code, NotLifted):
            reasons[source.reason if isinstance(source, NotLifted) else ""] += 1
            continue
        refused = check_policy(source.text, policy, own_names(problem))
        if refused is not None:
            reasons[f"policy {policy!r}: {refused.text}"] += 1
            continue
        known = found.get(source.text)
        if known is None or _configurations(code) > _configurations(known.code):
            found[source.text] = LiftedDraft(code.variant, source, code)
    if found:
        return list(found.values())
    return NotLifted(reason=reasons.most_common(1)[0][0] if reasons else "no variant was asked for")


def _lifted(
    code: InductorCode, problem: LoadedProblem, captured: Captured
) -> DropInSource | NotLifted:
    """TorchInductor's code changes from version to version: what cannot be read costs a variant."""
    try:
        return lift(code, problem, captured)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        return NotLifted(reason=f"{code.variant}: {type(error).__name__}: {one_line(error)}")


def _configurations(code: InductorCode) -> int:
    return sum(len(kernel.configs) for kernel in code.kernels)


def launch_variants(
    draft: LiftedDraft, problem: LoadedProblem, captured: Captured
) -> Iterator[LiftedDraft]:
    """The same code with one launch configured otherwise, in turn over its kernels."""
    try:
        options = options_of(draft.code, read_wrapper(draft.code.source))
    except Unliftable:
        return
    changes = [
        (name, place)
        for place in range(1, max(map(len, options.values()), default=1))
        for name, items in options.items()
        if place < len(items)
    ]
    for name, place in changes[:MAX_TUNED]:
        source = lift(draft.code, problem, captured, {name: place})
        if isinstance(source, DropInSource) and source.text != draft.source.text:
            yield LiftedDraft(f"{draft.label}{OPTION}{place} of {name}", source, draft.code)


def variant_of(label: str) -> str:
    """The variant that a label names, without the option that was chosen in it."""
    return label.partition(OPTION)[0]


def with_runner_up(drafts: Sequence[LiftedDraft], label: str) -> list[LiftedDraft]:
    """The variant of `label` with the first of the others beside it; all of `drafts` where it is
    none of them."""
    same = [item for item in drafts if item.label == variant_of(label)]
    others = [item for item in drafts if item.label != variant_of(label)]
    return [*same, *others[:RUNNERS_UP]] if same else list(drafts)


Rank = Callable[[Sequence[LiftedDraft]], Sequence[TrialResult]]
"""Times (or estimates) drafts: one result each, in their order."""


def rank_and_tune(
    drafts: Sequence[LiftedDraft],
    problem: LoadedProblem,
    captured: Captured,
    rank: Rank,
    seen: Collection[str] = (),
    known_best: str = "",
) -> list[tuple[LiftedDraft, TrialResult]]:
    """Every variant, then the winner's launch configurations beside it; the best one first.

    `seen`: hashes of sources that were candidates before, which no configuration gives again.
    `known_best`: what an experience names as the best of all; where its variant wins, its own
    configuration is the only one beside it.
    """
    first = _ranked(drafts, rank(drafts))
    winner, result = first[0]
    others = list(launch_variants(winner, problem, captured)) if result.pruned is None else []
    if known_best and winner.label == variant_of(known_best):
        others = [item for item in others if item.label == known_best]
    known = {sha256_text(draft.source.text) for draft in drafts}.union(seen)
    others = [item for item in others if sha256_text(item.source.text) not in known]
    if not others:
        return first
    again = [winner, *others]
    try:
        return [*_ranked(again, rank(again)), *first[1:]]
    except TimeIsUp:
        return first


def _ranked(
    drafts: Sequence[LiftedDraft], results: Sequence[TrialResult]
) -> list[tuple[LiftedDraft, TrialResult]]:
    pairs = zip(drafts, results, strict=True)
    return sorted(pairs, key=lambda pair: time_rank(pair[1]))


def time_rank(result: TrialResult) -> tuple[bool, float]:
    """Sort key: measured or estimated time, pruned ones last."""
    time = result.time_us if result.time_us is not None else result.estimated_us
    return result.pruned is not None, time if time is not None else float("inf")
