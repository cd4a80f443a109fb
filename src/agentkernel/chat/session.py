"""Session API: one user works on one module by turns, each request sent to its function."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, assert_never

from agentkernel.chat import actions, facts, files, knobs, limits, queries, sweep
from agentkernel.chat.figures import EstimateCache
from agentkernel.chat.language import EXAMPLES, understand
from agentkernel.chat.language.clauses import UNKNOWN
from agentkernel.chat.replies import (
    JSON_LINES,
    PAGE,
    SCRIPT,
    ClarificationNeeded,
    Reply,
    SessionEnded,
    TextReply,
    Turn,
    as_jsonl,
    as_markdown,
    as_script,
)
from agentkernel.chat.requests import (
    Ambiguous,
    AskDocs,
    AskFact,
    AskGpu,
    Cannot,
    Compare,
    Diff,
    Edit,
    ExplainLine,
    Intent,
    IntentContext,
    LessMemory,
    MemoryLimit,
    NotUnderstood,
    OnCandidate,
    OtherModule,
    Plain,
    Run,
    SetBudget,
    SetDtype,
    SetKnob,
    SetPolicy,
    SetPrecision,
    SetShapes,
    SetTarget,
    StopAt,
    Sweep,
    SwitchBranch,
    TryIdea,
    Understood,
    Undo,
    WriteTo,
)
from agentkernel.chat.session_state import Approve, SessionState, SettingsFor, settings_overlay
from agentkernel.chat.steps import HandWritten, continue_step
from agentkernel.chat.store import SessionStore, create_folder, now, open_store
from agentkernel.chat.tree import Changes, Step, Tree, label
from agentkernel.chat.user_input import (
    MOST_SOURCE,
    Pasted,
    Unreadable,
    as_said,
    classify_input,
    pick_option,
    read_with,
    readable,
    reading_model,
    sentence,
    sentences,
)
from agentkernel.domain.errors import AgentKernelError, ProblemError, RunNotFound, one_line
from agentkernel.domain.settings import Settings
from agentkernel.tools.command_lines import resume
from agentkernel.tools.own_files import write_live
from agentkernel.tools.run_store import lock_run
from agentkernel.workflows.events import Noted, OnEvent, ignore

if TYPE_CHECKING:
    from agentkernel.tools.problem.loading import LoadedProblem
    from agentkernel.workflows.deps import RunFactory


PUTS_BACK = re.compile(r"\b(?:put|set|bring|change|turn)\b.*\bback\b", re.I)
"""An undo of the change that was asked for before it."""
STARTERS = frozenset(
    {
        "run",
        "more_aggressive",
        "less_memory",
        "less_energy",
        "lower_latency",
        "try_idea",
        "repair",
    }
)
"""What starts work by itself."""


def answer(work: SessionState, intent: Intent, text: str, *, run_now: bool) -> Reply:
    """Do what `intent` asks. `run_now` False: a later request of the sentence starts the work.

    Raises AgentKernelError for what cannot be done, with one clear line.
    """
    match intent:
        case Plain():
            return _plain(work, intent, text, run_now=run_now)
        case OnCandidate():
            return _on_candidate(work, intent, text)
        case Run():
            return actions.run(work, intent, text)
        case LessMemory():
            return actions.less_memory(work, intent, text, run_now=run_now)
        case MemoryLimit():
            return actions.memory_limit(work, intent)
        case SetPrecision():
            return actions.precision(work, intent, text)
        case SetTarget():
            return actions.target(work, intent)
        case SetShapes():
            return actions.shapes(work, intent)
        case SetDtype():
            return actions.dtype(work, intent)
        case ExplainLine():
            return queries.explain_line(work, intent)
        case Diff():
            return queries.diff(work, intent)
        case Compare():
            return queries.compare(work, intent, text)
        case TryIdea():
            return actions.try_idea(work, intent, text)
        case Undo():
            return actions.undo(work, intent)
        case SwitchBranch():
            return actions.switch_branch(work, intent)
        case StopAt():
            return actions.stop_at(work, intent)
        case SetBudget():
            return actions.budget(work, intent)
        case SetPolicy():
            return actions.policy(work, intent)
        case WriteTo():
            return actions.save(work, intent) if intent.name == "save" else _export(work, intent)
        case AskDocs():
            return queries.ask_docs(work, intent)
        case Edit():
            return actions.edit(work, intent)
        case AskFact():
            return facts.fact(work, intent, text)
        case SetKnob():
            return knobs.set_knobs(work, (intent,), text)
        case Sweep():
            return sweep.sweep(work, intent)
        case AskGpu() | OtherModule() | Cannot():
            return limits.past_the_session(work, intent, text)
        case _:
            assert_never(intent)


def _plain(work: SessionState, intent: Plain, text: str, *, run_now: bool) -> Reply:
    match intent.name:
        case "more_aggressive":
            return actions.more_aggressive(work, text, run_now=run_now)
        case "less_energy" | "lower_latency":
            return actions.objective(work, intent.name, text, run_now=run_now)
        case "history":
            return queries.history(work)
        case "tree":
            return queries.tree(work)
        case "compare_all":
            return queries.compare_all(work)
        case "ideas" | "plan":
            return queries.plan(work)
        case "redo":
            return actions.redo(work)
        case "cost":
            return queries.cost(work)
        case "settings":
            return queries.settings(work)
        case "targets":
            return queries.targets(work)
        case "status":
            return queries.status(work)
        case "restart":
            return actions.restart(work)
        case "help":
            return TextReply(text=help_text())
        case "quit":
            return SessionEnded(text=f"Saved. Go on with:\n{resume(work.folder)}")
        case "stop":
            return TextReply(text="Nothing is running. Ctrl-C stops a step while it runs.")
        case "approve":
            return queries.not_possible("Nothing waits for an answer.")
        case "thanks":
            return TextReply(text="Good to hear. Nothing was changed.")
        case "decline":
            return actions.declined(work)
        case _:
            assert_never(intent.name)


def _on_candidate(work: SessionState, intent: OnCandidate, text: str) -> Reply:
    match intent.name:
        case "why_slow" | "profile":
            return queries.profile(work, intent, text)
        case "roofline":
            return queries.roofline(work, intent)
        case "explain_kernel":
            return queries.explain_kernel(work, intent)
        case "why_rejected":
            return queries.why_rejected(work, intent)
        case "show_candidate":
            return queries.show_candidate(work, intent)
        case "show_kernel":
            return queries.show_kernel(work, intent)
        case "return_to":
            return actions.return_to(work, intent)
        case "fork":
            return actions.fork(work, intent)
        case "keep":
            return actions.keep(work, intent)
        case "reject":
            return actions.reject(work, intent)
        case "verify":
            return files.verify(work, intent)
        case "certificate":
            return files.certificate(work, intent)
        case "repair":
            return actions.repair(work, intent, text)
        case _:
            assert_never(intent.name)


def _export(work: SessionState, intent: WriteTo) -> Reply:
    turns = work.store.turns()
    settings = work.settings
    facts = (
        ("module", work.module.name),
        ("inputs", work.module.shape_sets[0].label),
        ("target", settings.target or "the local GPU, else h100"),
        ("precision", settings.goals.precision),
        ("coder", settings.coder),
        ("session", work.id),
    )
    texts = {
        PAGE: as_markdown(work.module.name, facts, turns),
        JSON_LINES: as_jsonl(turns),
        SCRIPT: as_script(turns),
    }
    return actions.export(work, intent, texts)


def help_text() -> str:
    """A sentence for every request, a line each."""
    return "\n".join(EXAMPLES.values())


BUSY_S = 2.0
"""How long another process that is about to end may still hold the session."""


class Session:
    """An open session: one process at a time, one turn after the other.

    Every turn is kept in `session.sqlite` as it ends, with the tree that it left. A context
    manager; nothing is lost where it is not closed. After `close` a turn raises RunNotFound.
    """

    def __init__(self, work: SessionState, cleanup: ExitStack) -> None:
        """Use `begin` or `reopen`. Raises TypeError where somebody calls it with a module."""
        if not isinstance(work, SessionState):
            raise TypeError(
                f"Session({type(work).__name__}, ...) is not how a session begins. "
                "Expected agentkernel.open_session(module, example_inputs). Next: call that."
            )
        self._work = work
        self._cleanup = cleanup
        self._closed = False

    @classmethod
    def begin(
        cls,
        problem: LoadedProblem,
        settings_for: SettingsFor,
        *,
        on_event: OnEvent = ignore,
        approve: Approve | None = None,
        workshop: RunFactory | None = None,
        estimates: EstimateCache | None = None,
    ) -> Self:
        """A new session in a new folder `NAME-chat-STAMP/` of the settings' `runs`. `settings_for`
        puts dotted keys over the user's settings and refuses what is wrong, `estimates` what is
        known of the problem already. Raises OutputError, ProblemError, SettingError."""
        settings = settings_for({})
        _recorded(settings.runs)
        if problem.problem.path:
            path = _recorded(str(Path(problem.problem.path).resolve()))
            problem = replace(problem, problem=problem.problem.evolve(path=path))
        folder = create_folder(Path(settings.runs), problem.problem.name)
        if problem.live is not None:
            write_live(folder, problem.live, problem.live_inputs)
        known = estimates or EstimateCache()

        def begun(store: SessionStore) -> SessionState:
            store.begin(problem.problem, settings)
            callers = on_event, approve, workshop, known
            return SessionState(folder, store, settings_for, Tree(), *callers, {"": problem})

        return cls._open(folder, SessionStore, begun)

    @classmethod
    def reopen(
        cls,
        folder: Path | str,
        settings_for: SettingsFor | None = None,
        *,
        on_event: OnEvent = ignore,
        approve: Approve | None = None,
        workshop: RunFactory | None = None,
        estimates: EstimateCache | None = None,
    ) -> Self:
        """The session in `folder` as its last turn left it; a step that a kill cut off is finished
        first. `settings_for` None: over the settings that it began with.

        Raises RunNotFound for none or a damaged one, RunBusy where another process has it.
        """
        known = estimates or EstimateCache()

        def found(store: SessionStore) -> SessionState:
            tree, chosen = store.tree(), settings_for or settings_overlay(store.settings())
            callers = on_event, approve, workshop, known
            return SessionState(Path(folder), store, chosen, tree, *callers)

        session = cls._open(Path(folder), open_store, found)
        session._finish_what_was_cut_off()
        return session

    @classmethod
    def _open(
        cls,
        folder: Path,
        opened: Callable[[Path], SessionStore],
        state: Callable[[SessionStore], SessionState],
    ) -> Self:
        with ExitStack() as cleanup:
            if folder.is_dir():
                cleanup.enter_context(lock_run(folder, BUSY_S))
            store = opened(folder)
            cleanup.callback(store.close)
            return cls(state(store), cleanup.pop_all())

    def __repr__(self) -> str:
        """Its name, where it stands and what it has, in one line."""
        if self._closed:
            return f"<Session {self.id}, closed>"
        made, place = len(self.tree.nodes), label(self.tree.place.candidate)
        return f"<Session {self.id}: at {place}, {made} candidate{'' if made == 1 else 's'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder; a second call does nothing."""
        self._closed = True
        self._cleanup.close()

    def _opened(self) -> SessionState:
        """What is in hand. Raises RunNotFound after `close`."""
        if self._closed:
            raise RunNotFound(
                f"The session {self.id!r} is closed. Expected an open one. "
                "Next: Session.reopen(session.folder)."
            )
        return self._work

    @property
    def id(self) -> str:
        """The session's name, which is its folder's."""
        return self._work.id

    @property
    def folder(self) -> Path:
        """Where it lives."""
        return self._work.folder

    @property
    def tree(self) -> Tree:
        """Every candidate, and where the session stands."""
        return self._work.tree

    @property
    def problem(self) -> LoadedProblem:
        """The problem in force, loaded on first use. Raises ProblemError."""
        return self._work.problem

    @property
    def settings(self) -> Settings:
        """What is in force."""
        return self._work.settings

    @property
    def context(self) -> IntentContext:
        """What a sentence may refer to."""
        return self._work.context

    def transcript(self) -> tuple[Turn, ...]:
        """Every turn so far, of all processes. Raises RunNotFound after `close`."""
        return self._opened().store.turns()

    def say(self, text: str) -> tuple[Reply, ...]:
        """Do what a line asks for, in plain English; a pasted candidate is judged. A user's mistake
        is an answer: Said with `ok` False. Raises ProblemError for what is no text."""
        if not isinstance(text, str):
            raise ProblemError(
                f"The line to say is {one_line(repr(text), 40)}, a {type(text).__name__}. Expected "
                "a text. Next: give it in words, such as 'optimize it for h100'."
            )
        found = classify_input(text)
        if isinstance(found, Unreadable):
            return self._turn(found.kept, lambda: (TextReply(text=found.why, ok=False),))
        if isinstance(found, Pasted):
            given = HandWritten(found.source, "pasted")
            return self._turn(
                found.source,
                lambda: (actions.offer(self._work, given, None, "a pasted candidate"),),
            )
        return self._turn(found.text, lambda: self._understood(found.text))

    def do(self, intent: Intent, text: str = "") -> Reply:
        """Do one thing. `text` is what stands in the transcript, "" for a sentence that asks for
        it."""
        asked = text or sentence(intent)
        return self._turn(asked, lambda: (answer(self._work, intent, asked, run_now=True),))[0]

    def offer(self, source: str, base: int | None, origin: Literal["edited", "pasted"]) -> Reply:
        """Judge a candidate written by hand, made from candidate `base`: the same judge, the same
        profile, the same tree."""
        text = f"a candidate {origin} by hand"
        given = HandWritten(readable(source), origin)
        shown = given.source if 0 < len(given.source.strip()) <= MOST_SOURCE else text
        return self._turn(shown, lambda: (actions.offer(self._work, given, base, text),))[0]

    def set(self, changes: Changes, text: str) -> Reply:
        """Work with other settings from here on; None takes one back to what the session began
        with."""
        return self._turn(text, lambda: (actions.change(self._work, changes),))[0]

    def _turn(self, text: str, asked: Callable[[], tuple[Reply, ...]]) -> tuple[Reply, ...]:
        """Answer, and keep the turn with its tree in one transaction."""
        self._opened().approved.clear()
        try:
            replies = asked()
        except KeyboardInterrupt:
            replies = (TextReply(text="Stopped.", ok=False),)
        except AgentKernelError as error:
            replies = (TextReply(text=str(error), ok=False),)
        try:
            said = tuple(self._work.approved)
            turn = Turn(text=readable(text), replies=replies, at=now(), approved=said)
            self._work.store.add_turn(turn, self._work.tree)
        except AgentKernelError as error:
            replies = (*replies, TextReply(text=f"This turn is not kept: {error}", ok=False))
        return replies

    def _understood(self, text: str) -> tuple[Reply, ...]:
        context = self._work.context
        options, self._work.options = self._work.options, ()
        found = understand(text, context)
        chosen = pick_option(text, found, options)
        known = None if isinstance(found, Understood) else limits.advice(self._work, text)
        match found:
            case _ if chosen is not None:
                return self._all(chosen, text)
            case Understood(intents=(Plain(name="approve"),)) if len(options) > 1:
                return self._which(options)
            case Understood(intents=(Plain(name="decline"),)) if options:
                return (TextReply(text="Nothing is done."),)
            case Understood():
                return (*self._all(found.intents, text), *self._offered(found.offers))
            case Ambiguous() | NotUnderstood() if known is not None:
                return (known,)
            case Ambiguous(asked=False) if (meant := as_said(text, found.options)) is not None:
                return self._all(meant, text)
            case Ambiguous():
                return self._which(found.options, asked=found.asked)
            case NotUnderstood():
                return self._asked_of_model(text, found)

    def _offered(self, offers: tuple[Intent, ...]) -> tuple[Reply, ...]:
        """What a question is about, with the words that do it."""
        if not offers:
            return ()
        self._work.options = (offers,)
        return (TextReply(text=f"Say {sentences(offers)!r}, or 'yes', to try it."),)

    def _which(
        self, options: tuple[tuple[Intent, ...], ...], *, asked: bool = False
    ) -> tuple[Reply, ...]:
        """Ask which of the readings is meant; the next sentence may answer."""
        self._work.options = options
        ask = "Do you mean this? 'yes' does it." if len(options) == 1 else "That may mean:"
        if asked:
            ask = f"A question changes nothing. Say {sentences(options[0])!r}, or 'yes', to do it."
        return (ClarificationNeeded(text=ask, options=tuple(sentences(item) for item in options)),)

    def _all(self, intents: tuple[Intent, ...], text: str) -> tuple[Reply, ...]:
        """One reply an intent; what starts work does so once, at the last that asks for it."""
        replies: list[Reply] = []
        if self._work.left_alone and intents == (Undo(),) and PUTS_BACK.search(text):
            return (
                TextReply(text=f"Nothing was changed: {self._stands} 'undo' goes a step back."),
            )
        stood = self._work.place
        self._work.last = intents
        wishes = tuple(item for item in intents if isinstance(item, SetKnob))
        for place, intent in enumerate(intents):
            if isinstance(intent, SetKnob) and intent != wishes[0]:
                continue  # judged with the first: one text, one candidate
            later = any(item.name in STARTERS for item in intents[place + 1 :])
            try:
                if isinstance(intent, SetKnob):
                    replies.append(knobs.set_knobs(self._work, wishes, text))
                else:
                    replies.append(answer(self._work, intent, text, run_now=not later))
            except AgentKernelError as error:
                replies.append(TextReply(text=str(error), ok=False))
            if getattr(replies[-1], "ok", True) is False or isinstance(
                replies[-1], ClarificationNeeded
            ):
                break
        self._work.left_alone = bool(wishes) and self._work.place == stood
        return tuple(replies)

    @property
    def _stands(self) -> str:
        number = self._work.place.candidate
        return f"still at {'the module' if number is None else label(number)}."

    def _asked_of_model(self, text: str, found: NotUnderstood) -> tuple[Reply, ...]:
        """What a model reads in the sentence, where one is configured; else the nearest things."""
        told: list[str] = []
        named = reading_model(self._work.settings)
        if named is not None:
            self._work.on_event(Noted(text=f"asking {named} what this means"))
            intents = self._read(named, text, told.append)
            if intents:
                self._work.on_event(Noted(text=f"read as: {sentences(intents)}"))
                return self._all(intents, text)
        return (
            ClarificationNeeded(text=_not_understood(found, named, told), nearest=found.nearest),
        )

    def _read(self, named: str, text: str, tell: Callable[[str], None]) -> tuple[Intent, ...]:
        """The model's reading; `tell` hears why there is none."""
        try:
            with self._work.model(named) as (model, sampling):
                return read_with(model, sampling, text, self._work.context, EXAMPLES, tell)
        except AgentKernelError as error:
            tell(str(error))
            return ()

    def _finish_what_was_cut_off(self) -> None:
        """Go on with the step that was running when the process ended; its answer is a turn."""
        for step in self._work.tree.steps:
            if step.state == "running":
                self._turn(step.text, partial(self._gone_on, step))

    def _gone_on(self, step: Step) -> tuple[Reply, ...]:
        return (continue_step(self._work, step),)


def _recorded(path: str) -> str:
    """`path`. Raises ProblemError for one that the session's records, which are UTF-8, cannot
    hold."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise ProblemError(
            f"The path {path!r} is no UTF-8. Expected one that a record can hold. "
            "Next: rename the file or the folder."
        ) from error
    return path


def _not_understood(found: NotUnderstood, named: str | None, told: list[str]) -> str:
    """Why a sentence was not understood; `told` is why the model `named` did not read it."""
    nor = f", nor does {named}" if named is not None and not told else ""
    why = f"I do not know what that asks for{nor}." if found.reason == UNKNOWN else found.reason
    return f"{why} ({'; '.join(told)})" if told else why
