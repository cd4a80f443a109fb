"""How does a model try a problem in several turns, and what is learned from each of them?

A conversation holds the task, the model's last file as its own turn, and what was found in it: the
words in which the finished model is asked. What was found comes from typed values of the judge;
nothing that a model wrote is read as a verdict, and marks of a conversation in it are taken apart
before the model reads it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agentkernel.agents.answer import extract_module
from agentkernel.agents.evidence import Fact
from agentkernel.agents.taught import faster_turn, file_turn, repair_turn
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.exchange import Message
from agentkernel.training.data.rl_problems import RlProblem
from agentkernel.training.rl.advantages import CorrectTurn, advantages, rejected_turns
from agentkernel.training.rl.reward import JudgedTurn, Reward, reward_of
from agentkernel.training.rl.sampler import ConversationWriter, SampledAnswer
from agentkernel.training.rl.turn_pool import ProblemAnswer, RlEnvironment
from agentkernel.training.training import RlSettings

CODER = "local"


class Turn(NamedTuple):
    """What a model said, what became of it, and what that is worth."""

    written: SampledAnswer
    judged: JudgedTurn
    reward: Reward


@dataclass
class Rollout:
    """One try at a problem: its turns, and what the model is to answer next; None: it is over."""

    problem: RlProblem
    turns: list[Turn] = field(default_factory=list)
    next: tuple[Message, ...] | None = None


class TurnSample(NamedTuple):
    """A turn to learn from: its tokens, and how much better than the others it was. One whose
    advantage is 0 changes nothing, but its tokens count in the mean."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    advantage: float


def roll_out(
    problems: Sequence[RlProblem],
    writer: ConversationWriter,
    environment: RlEnvironment,
    settings: RlSettings,
    seed: int,
) -> list[list[Rollout]]:
    """`settings.rollouts` tries at each problem, `settings.turns` turns at most; all that go on are
    answered at once, and all answers are judged at once. Of more problems than `settings.problems`
    only so many are judged: see `informative_groups`.

    A try ends with an answer without a file, one that the judge came to no verdict on, or a right
    one of which nobody knows where its time goes.
    """
    groups = [
        [Rollout(problem, next=(problem.task,)) for _ in range(settings.rollouts)]
        for problem in problems
    ]
    for number in range(settings.turns):
        live = [item for group in groups for item in group if item.next is not None]
        if not live:
            break
        written = writer.write([item.next or () for item in live], seed * settings.turns + number)
        if number == 0:
            tries = settings.rollouts
            first = [written[place * tries : (place + 1) * tries] for place in range(len(groups))]
            kept = informative_groups(first, settings.problems)
            groups = [groups[place] for place in kept]
            live = [item for group in groups for item in group]
            written = [item for place in kept for item in first[place]]
        _judge(live, written, environment, settings)
    return groups


def informative_groups(written: Sequence[Sequence[SampledAnswer]], most: int) -> list[int]:
    """The places of `most` groups of first answers, those first whose files are not all the same,
    in the order that they came in.

    First turns that say the same are worth the same, so that they teach nothing about themselves,
    and a judge need not be asked to know it; what later turns would have made of them is given up.
    DAPO's dynamic sampling (arXiv 2503.14476, section 3.2) draws more than a step needs too, and
    throws away by the reward what is alike.
    """
    if len(written) <= most:
        return list(range(len(written)))
    alike = [_say_the_same(group) for group in written]
    return sorted(sorted(range(len(written)), key=lambda place: alike[place])[:most])


def _say_the_same(written: Sequence[SampledAnswer]) -> bool:
    return len({extract_module(item.text) for item in written}) < 2


def _judge(
    live: Sequence[Rollout],
    written: Sequence[SampledAnswer],
    environment: RlEnvironment,
    settings: RlSettings,
) -> None:
    said = [(item, answer) for item, answer in zip(live, written, strict=True) if answer.answer]
    for item in live:
        item.next = None
    answers = [ProblemAnswer(item.problem.text, answer.text, _last(item)) for item, answer in said]
    judged = environment.judge(answers)
    for (item, answer), turn in zip(said, judged, strict=True):
        before = item.turns[-1].judged if item.turns else None
        item.next = conversation(item.problem, turn, len(item.turns))
        item.turns.append(Turn(answer, turn, reward_of(turn, settings, before)))


def _last(rollout: Rollout) -> str | None:
    return rollout.turns[-1].judged.file if rollout.turns else None


def conversation(problem: RlProblem, turn: JudgedTurn, number: int) -> tuple[Message, ...] | None:
    """What the model is asked after `turn`, the `number`th from 0; None where there is nothing to
    go on from."""
    if turn.file is None or turn.verdict is None:
        return None
    if not turn.verdict.accepted:
        candidate = Candidate(source=turn.file, coder=CODER, round=number)
        return (problem.task, file_turn(turn.file), repair_turn(candidate, turn.verdict))
    if not turn.facts or turn.broke is not None:
        return None
    facts = [Fact(name, value) for name, value in turn.facts]
    return (problem.task, file_turn(turn.file), faster_turn(facts))


def samples_of(groups: Sequence[Sequence[Rollout]], settings: RlSettings) -> list[TurnSample]:
    """All turns with their advantages, turn by turn; what is rejected has none."""
    found: list[TurnSample] = []
    for group in groups:
        rewards = [[turn.reward.value for turn in rollout.turns] for rollout in group]
        better = advantages(rewards, settings.discount)
        turns = [turn for rollout in group for turn in rollout.turns]
        flat = [advantage for several in better for advantage in several]
        dropped = _rejected(turns, settings)
        found += [
            TurnSample(
                turn.written.prompt, turn.written.answer, 0.0 if place in dropped else advantage
            )
            for place, (turn, advantage) in enumerate(zip(turns, flat, strict=True))
        ]
    return found


def _rejected(turns: Sequence[Turn], settings: RlSettings) -> frozenset[int]:
    """Of the turns of one problem, those that are right and yet left out."""
    right = [
        CorrectTurn(place, _own_share(turn))
        for place, turn in enumerate(turns)
        if turn.reward.outcome == "right"
    ]
    return rejected_turns(right, settings.keep_at_most)


def _own_share(turn: Turn) -> float | None:
    return None if turn.judged.speed is None else turn.judged.speed.own_share


class TurnStatistics(NamedTuple):
    """What many turns came to. Shares are of all turns with an answer; `speedup` is the mean of
    right kernels, capped as it is paid, None where none has one."""

    turns: int
    reward: float
    """The mean over turns whose worth is known."""
    first: float
    """The share of tries that are right at the first turn."""
    solved: float
    """The share of tries that are right at any turn."""
    correct: float
    hacks: float
    no_file: float
    undecided: float
    speedup: float | None
    own_share: float | None
    rejected: int
    answer_tokens: int


def turn_statistics(
    groups: Sequence[Sequence[Rollout]], samples: Sequence[TurnSample], settings: RlSettings
) -> TurnStatistics:
    """The figures of a step, before anything was learned from it."""
    tries = [rollout for group in groups for rollout in group]
    turns = [turn for rollout in tries for turn in rollout.turns]
    known = [turn.reward.value for turn in turns if turn.reward.value is not None]
    right = [turn for turn in turns if turn.reward.outcome == "right"]
    speeds = [item.judged.speed for item in right if item.judged.speed is not None]
    faster = [min(item.speedup, settings.most_speedup) for item in speeds if item.speedup]
    shares = [item.own_share for item in speeds if item.own_share is not None]

    def share(outcome: str) -> float:
        return sum(turn.reward.outcome == outcome for turn in turns) / max(len(turns), 1)

    def is_right(rollout: Rollout) -> list[bool]:
        return [turn.reward.outcome == "right" for turn in rollout.turns]

    return TurnStatistics(
        turns=len(turns),
        reward=_mean(known) or 0.0,
        first=sum(any(is_right(item)[:1]) for item in tries) / max(len(tries), 1),
        solved=sum(any(is_right(item)) for item in tries) / max(len(tries), 1),
        correct=share("right"),
        hacks=share("hack"),
        no_file=share("no-file"),
        undecided=share("undecided"),
        speedup=_mean(faster),
        own_share=_mean(shares),
        rejected=sum(
            len(_rejected([turn for item in group for turn in item.turns], settings))
            for group in groups
        ),
        answer_tokens=sum(len(item.answer) for item in samples),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


__all__ = [
    "Rollout",
    "Turn",
    "TurnSample",
    "TurnStatistics",
    "conversation",
    "informative_groups",
    "roll_out",
    "samples_of",
    "turn_statistics",
]
