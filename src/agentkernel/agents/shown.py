"""Which of the files so far is a model's next question about?

A file is worn out once as many questions as there is patience, about it or about what came of it,
brought no better one; it takes with it what came of it and is no better. One that brought a better
file gives way to it. So each line of files is followed while it gets on, and where all are worn out
the model begins anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from agentkernel.agents.history import best_so_far, right_time
from agentkernel.agents.protocols import Attempt, DraftRequest
from agentkernel.domain.settings import TurnOptions
from agentkernel.domain.verdict import GATES, Mismatch

RankKey = tuple[float, float, float]
CAUGHT = ("execution", "timing")
"""Gates that find who did not do the work. Such a file came no further than one that the policy
refuses: an answer that goes on from it goes on cheating."""


class FileContext(NamedTuple):
    """The files of one question; none: the module alone."""

    refused: Attempt | None = None
    """To be mended."""
    right: Attempt | None = None
    """To go on from."""
    before: tuple[Attempt, ...] = ()
    """Other refused files that may stand in the conversation, the best first."""

    @property
    def about(self) -> Attempt | None:
        """The file that the answer is an edit of."""
        return self.refused or self.right


def choose_files(request: DraftRequest, options: TurnOptions, *, one: bool = False) -> FileContext:
    """What the next question shows.

    `one`: a single file, right or refused, whatever was drafted last. Else the best right file, and
    while a refused draft is mended, the one of that strategy's that came furthest. Where a turn of
    a team names a file or none, that holds.
    """
    last = last_refused(request)
    if options.shown == "last":
        return FileContext(last, file_to_improve(request))
    bound = request.free or request.parent is not None
    left = ranked_files(request.history, request.shown, options.patience)
    if one and not bound:
        best = next((item for item in left if not _right(item) or item.profile is not None), None)
        return FileContext() if best is None else _only(best)
    right = file_to_improve(request) if bound else next(filter(_right, left), None)
    if last is None:
        return FileContext(right=right)
    line = [item for item in _refused(request.history) if _strategy(item) == _strategy(last)]
    repaired = next((item for item in left if item in line), None)
    others = sorted((item for item in line if item is not repaired), key=rank_key, reverse=True)
    return FileContext(repaired, right, tuple(others[: options.held - 1]) if repaired else ())


def ranked_files(
    history: Sequence[Attempt], shown: Sequence[str], patience: int
) -> tuple[Attempt, ...]:
    """The files that are not worn out, the best first: right ones by their time, then refused ones
    by how far they came, of equal ones that which was asked about least, then the latest."""
    rising = sorted(history, key=rank_key)  # of one text, the best that is known of it stays
    files = {item.candidate.sha256: item for item in rising if rank_key(item) > UNFIT}
    asked = Counter(shown)
    spent = _spent(files, shown)
    exhausted_files = {own for own, questions in spent.items() if questions >= patience}
    left = [item for item in files.values() if not _out(item, files, exhausted_files)]
    left.reverse()

    def order(item: Attempt) -> tuple[RankKey, int]:
        return rank_key(item), -asked[item.candidate.sha256]

    return tuple(sorted(left, key=order, reverse=True))


UNFIT: RankKey = (-1.0, 0.0, 0.0)
"""Of a file that was not judged, or is right and breaks where it is measured."""


def rank_key(attempt: Attempt) -> RankKey:
    """How good a file is; larger is better. A right one by its time, measured before estimated; a
    refused one by the gate at which it was stopped, then by the share of wrong elements; a cheat
    like what the first gate stopped."""
    verdict = attempt.verdict
    if verdict is None:
        return UNFIT
    if verdict.accepted:
        time = right_time(attempt)
        return UNFIT if time is None else (float(len(GATES)), -float(time[0]), -time[1])
    if verdict.gate in CAUGHT:
        return float(GATES.index("policy")), 0.0, 0.0
    wrong = verdict.failure.wrong_share if isinstance(verdict.failure, Mismatch) else 0.0
    return float(GATES.index(verdict.gate)), -round(wrong, 1), 0.0


def _spent(files: Mapping[str, Attempt], shown: Sequence[str]) -> Counter[str]:
    """Questions about each file, and about those that came of it and are no better."""
    spent: Counter[str] = Counter()
    for asked in (files[own] for own in shown if own in files):
        for at in (asked, *_ancestors(asked, files)):
            if rank_key(at) < rank_key(asked):
                break
            spent[at.candidate.sha256] += 1
    return spent


def _out(item: Attempt, files: Mapping[str, Attempt], exhausted_files: Set[str]) -> bool:
    """True for one that gave way to a better one, is worn out, or came of one that is and is no
    better."""
    children = (at for at in files.values() if at.candidate.parent == item.candidate.sha256)
    if any(rank_key(child) > rank_key(item) for child in children):
        return True
    line = (item, *_ancestors(item, files))
    return any(
        at.candidate.sha256 in exhausted_files and rank_key(at) >= rank_key(item) for at in line
    )


def _ancestors(item: Attempt, files: Mapping[str, Attempt]) -> Iterator[Attempt]:
    seen = {item.candidate.sha256}
    above = item.candidate.parent
    while above is not None and above in files and above not in seen:
        seen.add(above)
        yield files[above]
        above = files[above].candidate.parent


def _only(best: Attempt) -> FileContext:
    return FileContext(right=best) if _right(best) else FileContext(refused=best)


def _right(attempt: Attempt) -> bool:
    return attempt.verdict is not None and attempt.verdict.accepted


def _refused(history: Sequence[Attempt]) -> list[Attempt]:
    return [item for item in history if item.verdict is not None and not item.verdict.accepted]


def _strategy(attempt: Attempt) -> str:
    return attempt.candidate.strategy


def file_to_improve(request: DraftRequest) -> Attempt | None:
    """The right candidate to go on from, None where there is none or it is not to be shown."""
    return None if request.free else request.parent or best_so_far(request.history)


def last_refused(request: DraftRequest) -> Attempt | None:
    """The attempt that a diagnosis wants mended: the last one of the history."""
    if request.diagnosis is None or request.diagnosis.action != "repair" or not request.history:
        return None
    last = request.history[-1]
    return last if last.verdict is not None and not last.verdict.accepted else None


__all__ = [
    "FileContext",
    "choose_files",
    "file_to_improve",
    "last_refused",
    "rank_key",
    "ranked_files",
]
