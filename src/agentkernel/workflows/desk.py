"""From where does a run get its models, and who hears what they took?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentkernel.agents.models.factory import ModelProvider
from agentkernel.agents.models.options import ChatOptions, packaged_options
from agentkernel.domain.settings import ModelOptions
from agentkernel.storage.records import Records, read_records
from agentkernel.tools.store import RunStore, find_run
from agentkernel.workflows import events
from agentkernel.workflows.events import OnEvent


@contextmanager
def open_model_provider(
    store: RunStore, emit: OnEvent, spent_s: Callable[[], float]
) -> Iterator[ModelProvider]:
    """The models of a run: every answer is kept in its records and told to `emit`; `spent_s` is the
    run's clock.

    Raises RunNotFound where the run to replay is not there.
    """
    settings = store.manifest.settings
    replayed = settings.models.replay
    desk = ModelProvider(
        records=store.records,
        base_url=settings.models.base_url,
        options=chat_options(settings.models),
        on_exchange=lambda exchange, reused: emit(events.model_asked(exchange, reused)),
        on_retry=lambda retry: emit(events.model_retried(retry)),
        on_piece=lambda piece: emit(events.model_writing(piece)),
        tell=lambda text: emit(events.ModelPassedOver(text=text)),
        left_s=lambda: left_s(settings.budget.time_s, spent_s()),
        said=_said(settings.models, "temperature", "max_tokens"),
        judge_key=store.manifest.judge_key,
        replay=_records_of(Path(settings.runs), replayed) if replayed else None,
    )
    try:
        yield desk
    finally:
        desk.close()


def left_s(limit_s: float | None, spent_s: float) -> float:
    """Seconds that a time limit leaves, inf where there is none."""
    return float("inf") if limit_s is None else limit_s - spent_s


def chat_options(chosen: ModelOptions) -> ChatOptions:
    """The packaged options with what the settings say."""
    said = _said(chosen, "samples", "temperature", "max_tokens", "seed", "timeout_s")
    return packaged_options().model_copy(update=said)


def _said(chosen: ModelOptions, *names: str) -> dict[str, float]:
    """Those of `names` that the settings give a value."""
    own = chosen.model_dump(include=set(names))
    return {name: value for name, value in own.items() if value is not None}


def _records_of(runs: Path, run: str) -> Records:
    return read_records(find_run(runs, run) / "run.sqlite")
