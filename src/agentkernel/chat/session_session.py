"""How does one person work on one module with the tool: ask, look, steer, go back, keep?"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from agentkernel.chat import acts, setting
from agentkernel.chat.answers import STARTERS, answer
from agentkernel.chat.changes import SettingsFor, settings_overlay
from agentkernel.chat.choice import pick_option
from agentkernel.chat.domain_session import Changes, Step, Tree
from agentkernel.chat.intent import (
    Ambiguous,
    Intent,
    IntentContext,
    NotUnderstood,
    Plain,
    Understood,
)
from agentkernel.chat.language import EXAMPLES, understand
from agentkernel.chat.language.parts import UNKNOWN
from agentkernel.chat.model_reading import read_with, reading_model
from agentkernel.chat.outlook import EstimateCache
from agentkernel.chat.replies import ClarificationNeeded, Reply, TextReply, Turn
from agentkernel.chat.sentences import sentence, sentences
from agentkernel.chat.steps import HandWritten, continue_step
from agentkernel.chat.store import SessionStore, create_folder, now, open_store, save_live_module
from agentkernel.chat.typed import MOST_SOURCE, Pasted, Unreadable, classify_input, readable
from agentkernel.chat.work import Approve, SessionState
from agentkernel.domain.errors import AgentKernelError, ProblemError, RunNotFound
from agentkernel.domain.settings import Settings
from agentkernel.tools.store import lock_run
from agentkernel.workflows.events import ModelPassedOver, Noted, OnEvent, ignore

if TYPE_CHECKING:
    from agentkernel.tools.problem.problems import LoadedProblem
    from agentkernel.workflows.context import RunFactory

BUSY_S = 2.0
"""How long another process that is about to end may still hold the session."""


class Session:
    """An open session: one process at a time, one turn after the other.

    Every turn is kept in `session.sqlite` as it ends, with the tree that it left. A context
    manager; nothing is lost where it is not closed. After `close` a turn raises RunNotFound.
    """

    def __init__(self, work: SessionState, cleanup: ExitStack) -> None:
        """Use `begin` or `reopen`."""
        self._work = work
        self._cleanup = cleanup
        self._closed = False

    @classmethod
    def begin(
        cls,
        problem: LoadedProblem,
        settings_for: SettingsFor,
        runs: Path,
        *,
        on_event: OnEvent = ignore,
        approve: Approve | None = None,
        workshop: RunFactory | None = None,
        estimates: EstimateCache | None = None,
    ) -> Self:
        """A new session in a new folder `runs/NAME-chat-STAMP/`. `settings_for` puts dotted keys
        over the user's settings and refuses what is wrong, `estimates` what is known of the problem
        already. Raises OutputError, ProblemError, SettingError."""
        settings = settings_for({})
        _recorded(settings.runs)
        if problem.problem.path:
            path = _recorded(str(Path(problem.problem.path).resolve()))
            problem = replace(problem, problem=problem.problem.model_copy(update={"path": path}))
        folder = create_folder(runs, problem.problem.name)
        if problem.live is not None:
            save_live_module(folder, problem.live, problem.live_inputs)

        def fill(store: SessionStore) -> Tree:
            store.begin(problem.problem, settings)
            return Tree()

        session = cls._open(folder, SessionStore, fill, settings_for, on_event, approve, workshop)
        session._work.loaded[""] = problem
        session._work.estimates = estimates or EstimateCache()
        return session

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
        session = cls._open(
            Path(folder), open_store, SessionStore.tree, settings_for, on_event, approve, workshop
        )
        session._work.estimates = estimates or EstimateCache()
        session._finish_what_was_cut_off()
        return session

    @classmethod
    def _open(
        cls,
        folder: Path,
        opened: Callable[[Path], SessionStore],
        tree: Callable[[SessionStore], Tree],
        settings_for: SettingsFor | None,
        on_event: OnEvent,
        approve: Approve | None,
        workshop: RunFactory | None,
    ) -> Self:
        with ExitStack() as cleanup:
            if folder.is_dir():
                cleanup.enter_context(lock_run(folder, BUSY_S))
            store = opened(folder)
            cleanup.callback(store.close)
            first = tree(store)
            chosen = settings_for or settings_overlay(store.settings())
            work = SessionState(folder, store, chosen, first, on_event, approve, workshop)
            return cls(work, cleanup.pop_all())

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
        is an answer: Said with `ok` False."""
        found = classify_input(text)
        if isinstance(found, Unreadable):
            return self._turn(found.kept, lambda: (TextReply(text=found.why, ok=False),))
        if isinstance(found, Pasted):
            given = HandWritten(found.source, "pasted")
            return self._turn(
                found.source, lambda: (acts.offer(self._work, given, None, "a pasted candidate"),)
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
        return self._turn(shown, lambda: (acts.offer(self._work, given, base, text),))[0]

    def set(self, changes: Changes, text: str) -> Reply:
        """Work with other settings from here on; None takes one back to what the session began
        with."""
        return self._turn(text, lambda: (setting.change(self._work, changes),))[0]

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
        match found:
            case _ if chosen is not None:
                return self._all(chosen, text)
            case Understood(intents=(Plain(name="approve"),)) if len(options) > 1:
                return self._which(options)
            case Understood(intents=(Plain(name="decline"),)) if options:
                return (TextReply(text="Nothing is done."),)
            case Understood():
                return self._all(found.intents, text)
            case Ambiguous():
                return self._which(found.options)
            case NotUnderstood():
                return self._asked_of_model(text, found)

    def _which(self, options: tuple[tuple[Intent, ...], ...]) -> tuple[Reply, ...]:
        """Ask which of the readings is meant; the next sentence may answer."""
        self._work.options = options
        ask = "Do you mean this? 'yes' does it." if len(options) == 1 else "That may mean:"
        return (ClarificationNeeded(text=ask, options=tuple(sentences(item) for item in options)),)

    def _all(self, intents: tuple[Intent, ...], text: str) -> tuple[Reply, ...]:
        """One reply an intent; what starts work does so once, at the last that asks for it."""
        replies: list[Reply] = []
        for place, intent in enumerate(intents):
            later = any(item.name in STARTERS for item in intents[place + 1 :])
            try:
                replies.append(answer(self._work, intent, text, run_now=not later))
            except AgentKernelError as error:
                replies.append(TextReply(text=str(error), ok=False))
            if getattr(replies[-1], "ok", True) is False or isinstance(
                replies[-1], ClarificationNeeded
            ):
                break
        return tuple(replies)

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
        """The model's reading; its answers are kept in the session's own records."""
        from agentkernel.agents.models.factory import ModelProvider
        from agentkernel.storage.records import Records
        from agentkernel.workflows.desk import chat_options
        from agentkernel.workflows.events import model_asked, model_retried, model_writing

        work, chosen = self._work, self._work.settings.models
        records = Records(work.folder / "models.sqlite")
        provider = ModelProvider(
            records=records,
            base_url=chosen.base_url,
            options=chat_options(chosen),
            on_exchange=lambda exchange, reused: work.on_event(model_asked(exchange, reused)),
            on_retry=lambda retry: work.on_event(model_retried(retry)),
            on_piece=lambda piece: work.on_event(model_writing(piece)),
            tell=lambda line: work.on_event(ModelPassedOver(text=line)),
        )
        try:
            model, sampling = provider.model(named), provider.sampling(named)
            return read_with(model, sampling, text, work.context, EXAMPLES, tell)
        except AgentKernelError as error:
            tell(str(error))
            return ()
        finally:
            provider.close()
            records.close()

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
