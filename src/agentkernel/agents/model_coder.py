"""Coder that asks a model to draft a candidate and to repair one that the judge refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agentkernel.agents.answers import extract_module
from agentkernel.agents.conversation import (
    ONGOING,
    FileContext,
    choose_files,
    coder_messages,
    example_of,
)
from agentkernel.agents.models.local_presets import Prompt
from agentkernel.agents.models.protocol import Model, OnText, ignore
from agentkernel.agents.protocols import Attempt, DraftRequest
from agentkernel.agents.reviewer import Review, Reviews
from agentkernel.domain.candidate import Candidate, Draft, NoTemplate
from agentkernel.domain.errors import PromptTooLong, one_line
from agentkernel.domain.exchange import (
    AgentName,
    Exchange,
    Message,
    ModelRequest,
    Reply,
    Sampling,
)
from agentkernel.domain.settings import TurnOptions
from agentkernel.tools.problem.loading import LoadedProblem

NO_CODE = "the model's answer held no complete Python file that defines ModelNew"
SAME = "the model gave only files that it had given before"
AGAIN = {
    NO_CODE: (
        "An answer to this held no complete Python file with `class ModelNew`. Send the whole "
        "file in one fenced block, with nothing before it and nothing after it."
    ),
    SAME: (
        "An answer to this was a file that you had given before, and that was judged already. "
        "Send one that differs in what was found wrong with it."
    ),
}
"""What the second question adds. The first answer is not sent along: it may be long, and some
endpoints insist on turns that alternate."""


class UnusedSample(NamedTuple):
    """A sample that was not drafted in the round in which it came."""

    round: int
    source: str


@dataclass
class ModelCoder:
    """Drafts what a model writes: the first sample that holds a file not seen before.

    `answered` are the exchanges of a run's earlier sessions: their unused samples are drafts still
    to be tried, as they would be had the run never stopped.
    """

    name: str
    """As written after `--coder`."""
    model: Model
    sampling: Sampling
    prompt: Prompt = "coder"
    """What asks for a first draft."""
    answered: Sequence[Exchange] = ()
    on_text: OnText = ignore
    reviews: Reviews | None = None
    """What is said of the candidate to go on from; None: nobody is asked."""
    turns: TurnOptions = field(default_factory=TurnOptions)
    """Which file a question is about."""
    seed_step: int = 0
    """By how much the seed moves from a question to the next: the prompt of a tuned model may stay
    the same, and is to have another answer then."""
    agent: AgentName = "coder"
    """What its questions are booked under; samples of another agent's are no drafts of its own."""
    _unused_samples: list[UnusedSample] = field(default_factory=list)

    def __post_init__(self) -> None:
        for item in self.answered:
            if item.model == self.model.name and item.question.agent == self.agent:
                self._keep(item.question.round, item.reply)

    @property
    def improves(self) -> bool:
        """True where it is shown the candidate to go on from: a model that others tuned was taught
        to be given the module alone."""
        return self.prompt in ONGOING

    def draft(self, problem: LoadedProblem, request: DraftRequest) -> Draft:
        """One candidate: an earlier sample, a new one, or the last one fixed after a diagnosis.

        Raises ModelUnavailable where the model cannot be reached: what is verified stays, and the
        run can go on when it answers again.
        """
        shown = choose_files(request, self.turns, one=self.prompt == "taught")
        if shown.refused is None:
            spare = self._spare(request)
            if spare is not None:
                return Draft(candidate=self._from(spare, request))
        basis = self._basis(shown)
        about = basis.candidate.sha256 if basis else ""
        made = self._fitting(problem, request, shown)
        # A file that was too long counts as asked about, so that another has its turn.
        return made.evolve(shown=about)

    def _fitting(self, problem: LoadedProblem, request: DraftRequest, shown: FileContext) -> Draft:
        """The answer to as much of `shown` as leaves room for one: all of it, one file, or the
        module alone."""
        fewer = [shown]
        fewer += [shown._replace(before=())] if shown.before else []
        fewer += [FileContext()] if shown.about else []
        error = ""
        for files in fewer:
            try:
                return self._answer(problem, request, files)
            except PromptTooLong as failed:
                error = one_line(failed)
        return Draft(candidate=None, none=NoTemplate(reason=error))

    def _answer(self, problem: LoadedProblem, request: DraftRequest, shown: FileContext) -> Draft:
        """The first file among the answers that was not tried, after two questions at most."""
        review = self._review(request, shown.right)
        messages = coder_messages(problem, request, self.prompt, review, shown)
        sampling = self._sampling(request.round + len(request.shown))
        missing = ""
        for _ in range(2):
            reply = self._ask(messages, request, sampling)
            sources = tuple(sources_of(reply, shown.about))
            source = _first_fresh(sources, request)
            if source is not None:
                candidate = self._candidate(source, problem, request, shown)
                return Draft(candidate=candidate)
            missing = SAME if sources else NO_CODE
            messages = _with_more(messages, AGAIN[missing])
        return Draft(candidate=None, none=NoTemplate(reason=missing))

    def _basis(self, shown: FileContext) -> Attempt | None:
        """The file that a question is about."""
        return shown.refused or (shown.right if self.improves else None)

    def _ask(
        self, messages: tuple[Message, ...], request: DraftRequest, sampling: Sampling
    ) -> Reply:
        question = ModelRequest(
            agent=self.agent, round=request.round, messages=messages, sampling=sampling
        )
        reply = self.model.ask(question, self.on_text)
        self._keep(request.round, reply)
        return reply

    def _sampling(self, number: int) -> Sampling:
        """With a seed of its own for every question, from 1: a file may be asked about again."""
        if self.sampling.seed is None or not self.seed_step:
            return self.sampling
        seed = self.sampling.seed + self.seed_step * (number - 1)
        return self.sampling.evolve(seed=seed)

    def _review(self, request: DraftRequest, attempt: Attempt | None) -> Review | None:
        if attempt is None or self.reviews is None or not self.improves:
            return None
        found = self.reviews.of(attempt, request.plan.analysis, request.target)
        return found if isinstance(found, Review) else None

    def _keep(self, made_in: int, reply: Reply) -> None:
        if len(reply.texts) > 1:
            self._unused_samples += [UnusedSample(made_in, source) for source in sources_of(reply)]

    def _spare(self, request: DraftRequest) -> UnusedSample | None:
        """The oldest sample of an earlier round of its own that was not tried yet."""
        tried = _tried(request)
        own = {item.round for item in self._own(request)}
        fitting = (
            item
            for item in self._unused_samples
            if item.round < request.round and item.round in own and item.source not in tried
        )
        return min(fitting, key=lambda item: item.round, default=None)

    def _from(self, spare: UnusedSample, request: DraftRequest) -> Candidate:
        """A sample that came earlier: it goes on from what was shown then."""
        first = next(item for item in self._own(request) if item.round == spare.round)
        return Candidate(
            source=spare.source,
            coder=self.name,
            round=request.round,
            parent=first.parent,
            strategy=first.strategy,
            note=f"another sample of round {spare.round}",
            declared_sizes=first.declared_sizes,
        )

    def _candidate(
        self, source: str, problem: LoadedProblem, request: DraftRequest, shown: FileContext
    ) -> Candidate:
        example = example_of(problem, request, shown) if self.improves else None
        basis = self._basis(shown)
        return Candidate(
            source=source,
            coder=self.name,
            round=request.round,
            parent=basis.candidate.sha256 if basis else None,
            strategy=request.hypothesis.strategy,
            note="mended after the judge's verdict" if shown.refused else "drafted from the module",
            origin=example.id if example else "",
            # The judge asks such a file at other sizes too: there it is right, or it refuses.
            declared_sizes=basis.candidate.declared_sizes if basis else False,
        )

    def _own(self, request: DraftRequest) -> Iterator[Candidate]:
        """What it drafted so far, in order."""
        drafted = (item.candidate for item in request.history)
        return (item for item in drafted if item.coder == self.name)


def sources_of(reply: Reply, about: Attempt | None = None) -> Iterator[str]:
    """The files in the samples, in order; edits are of the file `about`."""
    parent = about.candidate.source if about is not None else None
    found = (extract_module(text, parent=parent) for text in reply.texts)
    return (source for source in found if source is not None)


def _first_fresh(sources: Sequence[str], request: DraftRequest) -> str | None:
    tried = _tried(request)
    return next((source for source in sources if source not in tried), None)


def _tried(request: DraftRequest) -> set[str]:
    return {item.candidate.source for item in request.history}


def _with_more(messages: tuple[Message, ...], more: str) -> tuple[Message, ...]:
    last = messages[-1]
    return (*messages[:-1], last.evolve(text=f"{last.text}\n{more}\n"))
