"""The optimisation graph, and a run from a module to a certificate, resumable after a kill."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph

from agentkernel.domain.errors import AgentKernelError, RunNotFound, SettingError
from agentkernel.domain.settings import Settings
from agentkernel.runtime import stages
from agentkernel.storage.files import make_folder
from agentkernel.tools.certificate.record import drop_in_name
from agentkernel.tools.own_files import require_free_output
from agentkernel.tools.problem.capture import check_call
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.run_store import (
    RunStore,
    create_run,
    extend_run,
    lock_run,
    open_run,
    run_folders,
)
from agentkernel.tools.targets import ResolvedTarget
from agentkernel.workflows import nodes, routing
from agentkernel.workflows.approval import Approve, check_approval
from agentkernel.workflows.deps import Context, RunClock, RunFactory
from agentkernel.workflows.events import (
    Event,
    Finished,
    ModelWriting,
    OnEvent,
    RemoteProgress,
    RunStarted,
    StagesTimed,
    ignore,
)
from agentkernel.workflows.models import open_model_provider
from agentkernel.workflows.outcome import Result
from agentkernel.workflows.results import saved_result
from agentkernel.workflows.run import Graph, drive_graph, read_start, settings_of, start_files
from agentkernel.workflows.run_factory import factory_of
from agentkernel.workflows.state import LoopInput, LoopState, OptimizeRequest


def build_graph(saver: BaseCheckpointSaver[str]) -> Graph:
    """retrieve -> plan -> draft -> judge -> (debug -> draft | profile) -> decide -> finish.

    Where the settings want it, somebody is asked after plan or before judge.
    """
    graph = StateGraph(LoopState, context_schema=Context, input_schema=LoopInput)
    graph.add_node("retrieve", nodes.observed("retrieve", nodes.retrieve))
    graph.add_node("plan", nodes.observed("plan", nodes.plan))
    graph.add_node("draft", nodes.observed("draft", nodes.draft))
    graph.add_node("judge", nodes.observed("judge", nodes.judge))
    graph.add_node("profile", nodes.observed("profile", nodes.profile))
    graph.add_node("debug", nodes.observed("debug", nodes.debug))
    graph.add_node("decide", nodes.observed("decide", nodes.decide))
    graph.add_node("finish", nodes.observed("finish", nodes.finish))
    graph.add_edge(START, "retrieve")
    graph.add_edge("retrieve", "plan")
    graph.add_conditional_edges("plan", routing.after_plan)
    graph.add_conditional_edges("draft", routing.after_draft)
    graph.add_conditional_edges("judge", routing.after_judge)
    graph.add_conditional_edges("debug", routing.after_debug)
    graph.add_node("approve_plan", nodes.approve_plan)
    graph.add_node("approve_candidate", nodes.approve_candidate)
    graph.add_conditional_edges("approve_plan", routing.after_approve_plan)
    graph.add_conditional_edges("approve_candidate", routing.after_approve_candidate)
    graph.add_edge("profile", "decide")
    graph.add_conditional_edges("decide", routing.after_decide)
    graph.add_edge("finish", END)
    return graph.compile(checkpointer=saver)


def run(
    request: OptimizeRequest,
    on_event: OnEvent = ignore,
    *,
    workshop: RunFactory | None = None,
    approve: Approve | None = None,
) -> Result:
    """Optimise one module in a new run folder. `approve` is asked where the settings want it.

    Raises AgentKernelError for what cannot be tried; before there is a folder where a module in a
    file cannot be built or called at its first sizes.
    """
    check_approval(request.settings, approve)
    if request.problem.live is None:
        check_call(request.problem)
    files = start_files(request)
    with _factory(workshop, request.settings, on_event) as factory:
        resolved = factory.resolve(request.settings)
        if request.out is not None:
            make_folder(request.out.parent if request.out.suffix == ".py" else request.out)
            require_free_output(request.out, drop_in_name(request.problem.problem))
        store = create_run(
            request.problem,
            request.settings,
            resolved,
            judge_sha256=factory.judge_sha256(),
            flags=request.flags,
            out=str(request.out) if request.out is not None else None,
            more=files,
        )
        return _work(store, request.problem, factory, resolved, on_event, approve, resumed=False)


def _factory(
    workshop: RunFactory | None, settings: Settings, on_event: OnEvent
) -> AbstractContextManager[RunFactory]:
    """Who builds the tools of a run: as given, else as the settings say."""
    if workshop is not None:
        return nullcontext(workshop)

    def tell(host: str, text: str) -> None:
        on_event(RemoteProgress(host=host, text=text))

    return factory_of(settings, tell)


def resume_newest(runs: Path, take_up: Callable[[str], Result]) -> Result | None:
    """What `take_up` makes of the newest readable run in `runs`; None where there is none."""
    for left in reversed(run_folders(runs)):
        try:
            return take_up(str(left))
        except RunNotFound:
            continue
    return None


def resume(
    run: str | Path,
    on_event: OnEvent = ignore,
    *,
    runs: Path = Path("./agentkernel-runs"),
    workshop: RunFactory | None = None,
    approve: Approve | None = None,
    more_s: float | None = None,
) -> Result:
    """Go on with a run (id, unique beginning, path or "last"); a finished one answers at once.

    `more_s`: wall seconds on top of those that are spent, also for a run that its time limit ended.
    Raises SettingError where a run ended for another reason.
    """
    store = open_run(runs, str(run))
    done = saved_result(store)
    if more_s is not None:
        try:
            store, done = _with_more_time(store, done, more_s), None
        except AgentKernelError:
            store.close()
            raise
    if done is not None:
        store.close()
        on_event(Finished(result=done))
        return done
    try:
        check_approval(store.manifest.settings, approve)
    except SettingError:
        store.close()
        raise
    settings = store.manifest.settings.evolve(target=store.manifest.target)
    with _factory(workshop, settings, on_event) as factory:
        resolved = factory.resolve(settings)
        return _work(store, store.problem(), factory, resolved, on_event, approve, resumed=True)


def _with_more_time(store: RunStore, done: Result | None, more_s: float) -> RunStore:
    if done is not None and not done.ended_by_time:
        raise SettingError(
            f"--time gives more to a run that its time limit ended, and {store.id!r} ended for "
            f"another reason: {done.reason}. Next: leave --time out to see its result, or optimize "
            "again."
        )
    return extend_run(store, store.records.spent_before() + more_s)


def _work(
    store: RunStore,
    loaded: LoadedProblem,
    factory: RunFactory,
    resolved: ResolvedTarget,
    on_event: OnEvent,
    approve: Approve | None,
    *,
    resumed: bool,
) -> Result:
    def emit(event: Event) -> None:
        if not isinstance(event, ModelWriting):  # the answer itself is kept, once it is whole
            store.records.add_event(event.kind, event.model_dump_json())
        on_event(event)

    settings: Settings = settings_of(store)
    try:
        start = read_start(store)
        session = RunClock(store.records.spent_before())
        with (
            stages.recording() as clock,
            lock_run(store.folder),
            open_model_provider(store, emit, session.spent) as desk,
            factory.equip(loaded, settings, resolved, desk) as (crew, tools),
        ):
            store.records.spend(session.seconds())  # who works on it is known from here on
            emit(_started(store, resolved, session, tools.warnings, resumed=resumed))
            context = Context(
                loaded, resolved.target, store, crew, tools, emit, session,
                start=start, approve=approve, measurable=resolved.measurable,
            )  # fmt: skip
            result = drive_graph(context, build_graph)
            emit(StagesTimed(wall_s=clock.wall_s(), stages=clock.times()))
            emit(Finished(result=result))
    finally:
        store.close()
    return result


def _started(
    store: RunStore,
    resolved: ResolvedTarget,
    session: RunClock,
    warnings: tuple[str, ...],
    *,
    resumed: bool,
) -> RunStarted:
    manifest = store.manifest
    return RunStarted(
        run=store.id,
        folder=str(store.folder),
        problem=manifest.problem.name,
        shapes=tuple(item.label for item in manifest.problem.shape_sets),
        target=resolved.target.name,
        note=resolved.note,
        measurable=resolved.measurable,
        rounds=manifest.settings.budget.rounds,
        time_limit_s=manifest.settings.budget.time_s,
        resumed=resumed,
        spent_s=session.spent_before_s,
        warnings=(*store.repaired, *warnings),
    )
