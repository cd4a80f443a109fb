"""One run of the graph to its end, whatever happens to the process, the disk or the checkpoint.

Also what a run begins with beside its problem and settings, as its folder keeps it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command
from pydantic import ValidationError

from agentkernel.agents import protocols
from agentkernel.agents.coder_factory import file_coder_path, read_candidate_file
from agentkernel.agents.protocols import Attempt, Goals
from agentkernel.domain import candidate, plan, profile, settings, verdict
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import OutputError, ProblemError, RunNotFound, one_line
from agentkernel.domain.profile import Profile
from agentkernel.domain.settings import FILE_PREFIX, MODEL_PREFIXES, Settings
from agentkernel.domain.verdict import Verdict
from agentkernel.storage.files import explain_write_failure, read_regular_text
from agentkernel.storage.sqlite import connect
from agentkernel.tools.run_store import RunStore, set_aside
from agentkernel.workflows import approval, outcome, state
from agentkernel.workflows.approval import PendingApproval, check_approval
from agentkernel.workflows.deps import Context, RunStart
from agentkernel.workflows.events import ApprovalAsked, ApprovalGiven, Noted
from agentkernel.workflows.outcome import EARLIER, OUT_OF_TIME, Result
from agentkernel.workflows.results import conclude, saved_result
from agentkernel.workflows.state import Limits, LoopInput, LoopState, OptimizeRequest

GIVEN = "given"
"""The folder that a given file is copied to, under its own name."""
START = "start.json"
"""What earlier runs leave to this one; absent where they leave nothing."""


def start_files(request: OptimizeRequest) -> dict[str, str]:
    """What the folder of a new run is to keep: path below it -> text. Raises SettingError."""
    files: dict[str, str] = {}
    if request.settings.coder.startswith(FILE_PREFIX):
        path = file_coder_path(request.settings.coder)
        files[f"{GIVEN}/{path.name}"] = read_candidate_file(path)
    if request.history or request.focus is not None:
        start = RunStart(history=request.history, focus=request.focus)
        files[START] = start.model_dump_json(indent=1) + "\n"
    return files


def settings_of(store: RunStore) -> Settings:
    """The run's settings; a given file is the folder's own copy, whatever became of the file."""
    settings = store.manifest.settings
    if not settings.coder.startswith(FILE_PREFIX):
        return settings
    copy = store.folder.absolute() / GIVEN / file_coder_path(settings.coder).name
    return settings.evolve(coder=f"{FILE_PREFIX}{copy}")


def read_start(store: RunStore) -> RunStart:
    """What the run began with. Raises RunNotFound where the file is there but cannot be read."""
    path = store.folder / START
    if not os.path.lexists(path):
        return RunStart()
    try:
        return RunStart.model_validate_json(read_regular_text(path))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        problem = "is unreadable" if isinstance(error, OSError) else "is corrupt"
        raise RunNotFound(
            f"Run {store.id!r}: {str(path)!r} {problem}. Expected the earlier attempts that "
            "optimize wrote. Next: optimize again, or move the file away to go on without them."
        ) from error


def inherited_attempts(context: Context) -> tuple[Attempt, ...]:
    """The earlier attempts that hold in this run; each that does not is noted and left out, so that
    its text may be drafted and judged anew."""
    held = []
    for attempt in context.start.history:
        why = _disagreement(attempt, context)
        if why is not None:
            text = f"earlier candidate {attempt.candidate.id} is left out: {why}"
            context.emit(Noted(text=text))
            continue
        candidate = attempt.candidate.evolve(round=EARLIER)
        context.store.write_candidate(candidate)
        held.append(attempt.evolve(candidate=candidate))
    return tuple(held)


def _disagreement(attempt: Attempt, context: Context) -> str | None:
    """Why what is known of an attempt does not hold here; None where it does. Its keys say all;
    without them, what its verdict and profile say themselves must agree."""
    candidate, tools = attempt.candidate, context.tools
    if attempt.verdict is None:
        return None if attempt.aside not in ("", OUT_OF_TIME) else "it was not judged"
    if attempt.judge_key not in ("", tools.judge_key(candidate)):
        return "it was judged under other settings"
    if attempt.profile_key not in ("", tools.profile_key(candidate)):
        return "it was profiled under other settings"
    found = _verdict_differs(attempt.verdict, candidate, context)
    if found is None and attempt.profile is not None:
        found = _profile_differs(attempt.profile, candidate, context)
    return found


def _verdict_differs(verdict: Verdict, candidate: Candidate, context: Context) -> str | None:
    settings = context.store.manifest.settings
    if verdict.candidate != candidate.sha256:
        return "its verdict is about another text"
    if verdict.problem not in ("", context.problem.problem.sha256):
        return "it was judged for another problem"
    if verdict.interpreted is context.measurable:
        return "it was judged on another kind of device"
    pairs = (
        ("precision", verdict.precision, settings.goals.precision),
        ("policy", verdict.policy, settings.policy),
        (
            "seed",
            verdict.seed,
            verdict.seed if settings.judge.seed is None else settings.judge.seed,
        ),
    )
    named = (f"{name} {theirs}, not {ours}" for name, theirs, ours in pairs if theirs != ours)
    differs = next(named, None)
    return None if differs is None else f"it was judged with {differs}"


def _profile_differs(profile: Profile, candidate: Candidate, context: Context) -> str | None:
    if profile.candidate != candidate.sha256:
        return "its profile is about another text"
    if profile.target != context.target.name:
        return f"it was profiled for {profile.target}, not {context.target.name}"
    return None


Graph = CompiledStateGraph[LoopState, Context, LoopInput, LoopState]
GraphBuilder = Callable[[BaseCheckpointSaver[str]], Graph]
DAMAGED = (sqlite3.DatabaseError, ValidationError, ormsgpack.MsgpackDecodeError)
STEPS = 10_000
"""LangGraph's step limit: the budgets end a run, not this."""


def checkpoint_types() -> tuple[tuple[str, str], ...]:
    """(module, class) of every value type that may stand in a checkpoint."""
    modules = (candidate, plan, profile, settings, verdict, protocols, state, outcome, approval)
    values = tuple(
        (module.__name__, name)
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Frozen)
        and value.__module__ == module.__name__
    )
    return (*values, (approval.__name__, "Asked"))


@contextmanager
def open_saver(path: Path) -> Iterator[SqliteSaver]:
    """LangGraph's SQLite saver on `path`, which restores our own types and no others."""
    with explain_write_failure(path):
        connection = connect(path, isolation="DEFERRED")
    try:
        serde = JsonPlusSerializer(allowed_msgpack_modules=checkpoint_types())
        yield SqliteSaver(connection, serde=serde)
    finally:
        connection.close()


def drive_graph(context: Context, build: GraphBuilder) -> Result:
    """Run or go on with the graph of `context`'s store.

    A damaged checkpoint is set aside; the loop then starts again and finds what was finished in
    `run.sqlite`. Ctrl-C hands back the best so far. A crash leaves the best so far in the run
    folder and is raised on.
    """
    try:
        return _run_graph(context, build)
    except DAMAGED:
        if not context.store.checkpoint_path.is_file() or not _is_damaged(context, build):
            raise
        set_aside(context.store.checkpoint_path)
        return _run_graph(context, build)


def _run_graph(context: Context, build: GraphBuilder) -> Result:
    store = context.store
    config: RunnableConfig = {"configurable": {"thread_id": store.id}, "recursion_limit": STEPS}
    with open_saver(store.checkpoint_path) as saver:
        graph = build(saver)
        begun = saver.get_tuple(config) is not None
        start = loop_input(store) if begun else first_input(context)
        try:
            with explain_write_failure(store.checkpoint_path):
                graph.invoke(
                    None if begun else start,
                    config,
                    context=context,
                    durability="sync",
                )
                while (asked := _asked(graph, config)) is not None:
                    answer: Command[str] = Command(resume=_answer(context, asked))
                    graph.invoke(answer, config, context=context, durability="sync")
        except KeyboardInterrupt:
            return conclude(context, _state(graph, config, start), interrupted=True)
        except OutputError:
            raise
        except ProblemError as error:
            # The inputs belong to the run: to go on with it would raise the same again.
            state = _state(graph, config, start)
            early = state.plan is None and not state.history
            conclude(context, state, interrupted=not early, crash=one_line(error, 400))
            raise
        except Exception as error:
            line = f"the run ended early: {type(error).__name__}: {one_line(error)}"
            conclude(context, _state(graph, config, start), interrupted=True, crash=line[:400])
            raise
        end = _state(graph, config, start)
    return saved_result(store) or conclude(context, end)


def _asked(graph: Graph, config: RunnableConfig) -> PendingApproval | None:
    """What the graph waits for; None where it came to its end."""
    found = graph.get_state(config).interrupts
    return PendingApproval.model_validate(found[0].value) if found else None


def _answer(context: Context, asked: PendingApproval) -> bool:
    """Somebody's word. Raises SettingError where there is nobody."""
    check_approval(context.store.manifest.settings, context.approve)
    assert context.approve is not None
    context.emit(
        ApprovalAsked(
            about=asked.kind,
            round=asked.round,
            strategy=asked.hypothesis.strategy,
            candidate=asked.candidate.id if asked.candidate is not None else None,
        )
    )
    with context.session.waiting():
        approved = bool(context.approve(asked))
    context.emit(ApprovalGiven(approved=approved))
    return approved


def _state(graph: Graph, config: RunnableConfig, start: LoopInput) -> LoopState:
    """The state of the last checkpoint, `start` where there is none yet."""
    values = graph.get_state(config).values
    return LoopState.model_validate(values or dict(start))


def _is_damaged(context: Context, build: GraphBuilder) -> bool:
    """True where the checkpoint itself cannot be read."""
    store = context.store
    config: RunnableConfig = {"configurable": {"thread_id": store.id}}
    try:
        with open_saver(store.checkpoint_path) as saver:
            answer = saver.conn.execute("pragma quick_check").fetchone()
            _state(build(saver), config, LoopInput())
    except DAMAGED:
        return True
    return answer is None or answer[0] != "ok"


def first_input(context: Context) -> LoopInput:
    """What the loop begins with: the settings', and what earlier runs leave to it."""
    return loop_input(context.store).evolve(
        history=inherited_attempts(context), focus=context.start.focus
    )


def loop_input(store: RunStore) -> LoopInput:
    """Goals and limits from the run's settings."""
    chosen = store.manifest.settings
    by_model = chosen.coder.startswith(MODEL_PREFIXES)
    limits = Limits(
        rounds=chosen.budget.rounds,
        # A given file is offered as it stands: nobody would write it anew.
        repairs=0 if chosen.coder.startswith(FILE_PREFIX) else chosen.budget.repairs,
        time_s=chosen.budget.time_s,
        headroom=chosen.budget.headroom,
        tokens=chosen.budget.tokens,
        usd=chosen.budget.usd,
        patience=chosen.budget.patience,
        # A model has something to try as long as it has rounds.
        replans=chosen.budget.rounds if chosen.in_turns or by_model else 1,
    )
    return LoopInput(goals=goals_of(chosen), limits=limits, approve=chosen.approve)


def goals_of(chosen: Settings) -> Goals:
    """What these settings aim at."""
    return Goals(
        speedup=chosen.goals.speedup,
        baseline=chosen.goals.baseline,
        objective=chosen.goals.objective,
        max_memory_bytes=chosen.goals.max_memory_bytes,
        precision=chosen.goals.precision,
        policy=chosen.policy,
    )
