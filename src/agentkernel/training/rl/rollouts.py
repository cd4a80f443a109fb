"""Multi-turn rollouts and the advantages of their turns.

A conversation holds the task, the model's last file as its own turn, and what was found in it,
in the words in which the finished model is asked. Findings are typed values of the judge;
nothing that a model wrote is read as a verdict, and chat marks in it are broken up before the
model reads it again. Turn-level leave-one-out (TRLOO) and profiling-based rejection sampling
are of Dr. Kernel (arXiv 2602.05885): a mean over all rollouts contains the one that it is
subtracted from and shrinks its gradient by 1 - 1/n; the mean of the others does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from agentkernel.agents.answers import extract_module
from agentkernel.agents.conversation import faster_turn, file_turn, repair_turn
from agentkernel.agents.evidence import Fact
from agentkernel.agents.models.local import decode, prompt_ids
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.exchange import Message
from agentkernel.training.data.rows import RlProblem
from agentkernel.training.decoding import TokenSampling, answer_all
from agentkernel.training.rl.judge_pool import ProblemAnswer, RlEnvironment
from agentkernel.training.rl.judge_worker import JudgedTurn, Reward, reward_of
from agentkernel.training.settings import RlSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class CorrectTurn(NamedTuple):
    """A right turn: where it stands, and the share of its time in its own kernels, if known."""

    place: int
    own_share: float | None


def rewards_to_go(rewards: Sequence[float | None], discount: float) -> tuple[float | None, ...]:
    """G_t = sum over k >= t of discount^(k - t) r_k of one rollout.

    Where nobody knows a reward it is None, and so are its G and those of the turns before it.
    """
    found: list[float | None] = []
    later: float | None = 0.0
    for reward in reversed(rewards):
        later = None if reward is None or later is None else reward + discount * later
        found.append(later)
    return tuple(reversed(found))


def advantages(
    rewards: Sequence[Sequence[float | None]], discount: float
) -> tuple[tuple[float, ...], ...]:
    """Of each turn of each rollout of one problem: its reward-to-go less the mean of those of the
    other rollouts that reached that turn.

    0 where no other did, and where the reward is None: such a turn is no other's yardstick either.
    """
    returns = [rewards_to_go(item, discount) for item in rewards]
    return tuple(
        tuple(_advantage(returns, rollout, turn) for turn in range(len(item)))
        for rollout, item in enumerate(returns)
    )


def _advantage(returns: Sequence[Sequence[float | None]], rollout: int, turn: int) -> float:
    own = returns[rollout][turn]
    # Exact, so that equal returns have an advantage of exactly 0, in any order of the rollouts.
    others = [
        value
        for number, item in enumerate(returns)
        if number != rollout and turn < len(item) and (value := item[turn]) is not None
    ]
    if own is None or not others:
        return 0.0
    return math.fsum(own - value for value in others) / len(others)


def rejected_turns(right: Sequence[CorrectTurn], keep_at_most: float) -> frozenset[int]:
    """The places of those right turns that nothing is learned from: all but `keep_at_most` of
    them, the largest shares of their own kernels first.

    Only right turns are ever given up: wrong ones and cheats are what a model learns to avoid. One
    that is as good as the last that is kept is kept, and so is one whose share nobody knows.
    """
    known = sorted((item.own_share for item in right if item.own_share is not None), reverse=True)
    if not known:
        return frozenset()
    last = known[max(math.ceil(keep_at_most * len(known)), 1) - 1]
    return frozenset(
        item.place for item in right if item.own_share is not None and item.own_share < last
    )


class SampledAnswer(NamedTuple):
    """An answer as tokens and text. `answer` ends with the token that ended it, where there was
    one; empty where the conversation fills the window."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    text: str


class ConversationWriter(Protocol):
    """Whoever answers each of many conversations once."""

    def write(self, conversations: Sequence[Sequence[Message]], seed: int) -> list[SampledAnswer]:
        """The answers, in order; the same `seed` gives the same ones."""
        ...


class ModelWriter:
    """A model in memory, as it is being trained. `window` are the tokens that it can see;
    `autocast` makes it compute as it does while it learns."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        drawing: TokenSampling,
        *,
        window: int,
        autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
        chat_template: bool = True,
    ) -> None:
        self._model, self._tokenizer, self._drawing = model, tokenizer, drawing
        self._window, self._autocast = window, autocast
        self._chat_template = chat_template

    def write(self, conversations: Sequence[Sequence[Message]], seed: int) -> list[SampledAnswer]:
        prompts = [prompt_ids(self._tokenizer, item, self._chat_template) for item in conversations]
        with self._autocast():
            answers = answer_all(
                self._model,
                prompts,
                replace(self._drawing, seed=seed),
                window=self._window,
            )
        return [
            SampledAnswer(tuple(prompt), tuple(answer), self._text(answer))
            for prompt, answer in zip(prompts, answers, strict=True)
        ]

    def _text(self, answer: Sequence[int]) -> str:
        return decode(self._tokenizer, [item for item in answer if item not in self._drawing.ends])


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
    alike = [len({extract_module(item.text) for item in group}) < 2 for group in written]
    return sorted(sorted(range(len(written)), key=lambda place: alike[place])[:most])


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
        CorrectTurn(place, turn.judged.speed.own_share if turn.judged.speed else None)
        for place, turn in enumerate(turns)
        if turn.reward.outcome == "right"
    ]
    return rejected_turns(right, settings.keep_at_most)


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
