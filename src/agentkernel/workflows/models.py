"""Models of a run: how they are opened, and what they cost by agent and round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agentkernel.agents.coder_factory import coder_models
from agentkernel.agents.history import calibration
from agentkernel.agents.models.costs import Account, totals, unpriced
from agentkernel.agents.models.local_presets import PREFIX
from agentkernel.agents.models.protocol import ChatOptions, either, packaged_options
from agentkernel.agents.models.provider import ModelProvider, record_name
from agentkernel.agents.protocols import Attempt
from agentkernel.domain.errors import SettingError
from agentkernel.domain.settings import ModelOptions, Settings
from agentkernel.storage.records import read_records
from agentkernel.tools.run_store import RunStore, find_run
from agentkernel.workflows import events
from agentkernel.workflows.events import OnEvent
from agentkernel.workflows.report import DiagnosisEntry, ModelsSection


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
        note=lambda text: emit(events.Noted(text=text)),
        left_s=lambda: left_s(settings.budget.time_s, spent_s()),
        said=settings.models,
        judge_key=store.manifest.judge_key,
        replay=read_records(find_run(Path(settings.runs), replayed) / "run.sqlite")
        if replayed
        else None,
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
    options = packaged_options()
    return options.evolve(
        samples=either(chosen.samples, options.samples),
        temperature=either(chosen.temperature, options.temperature),
        max_tokens=either(chosen.max_tokens, options.max_tokens),
        seed=either(chosen.seed, options.seed),
        timeout_s=either(chosen.timeout_s, options.timeout_s),
    )


PASSED_OVER = '{"kind":"model_passed_over",'
DIAGNOSED = '{"kind":"diagnosis",'
"""How the records of that event begin: no text within another one can."""


def models_section(store: RunStore, history: Sequence[Attempt]) -> ModelsSection | None:
    """What the report says of models; None where none was asked."""
    exchanges, told = store.records.exchanges(), store.records.events()
    stood_in = passed_over(told)
    if not exchanges and not stood_in:
        return None
    settings = store.manifest.settings
    found = totals(exchanges)
    replayed = settings.models.replay
    return ModelsSection(
        by_agent=found.by_agent,
        by_round=found.by_round,
        by_model=found.by_model,
        total=found.total,
        unpriced=tuple(price_lines(found.by_model, settings)),
        calibration=calibration(history),
        diagnoses=diagnoses(told),
        replayed=Path(replayed).name if replayed else None,
        passed_over=stood_in,
    )


def recorded_attempts(store: RunStore) -> tuple[Attempt, ...]:
    """What is known of each candidate where no loop is under way; what was expected is not."""
    verdicts = {item.candidate: item for item in store.records.verdicts()}
    profiles = {item.candidate: item for item in store.records.profiles()}
    return tuple(
        Attempt(
            candidate=item, verdict=verdicts.get(item.sha256), profile=profiles.get(item.sha256)
        )
        for item in store.records.candidates()
    )


def price_lines(accounts: Sequence[Account], settings: Settings) -> Iterator[str]:
    """A line for each model of which some cost is not known."""
    for item in accounts:
        if not item.unpriced:
            continue
        if item.label.startswith(PREFIX):
            yield f"`{item.label}` runs in this process: what it costs is its GPU's time."
        elif not item.prompt + item.completion:
            yield f"`{item.label}` counts no tokens: what it costs is not known."
        elif item.unpriced < item.questions:
            count = f"{item.unpriced} of {item.questions} answers of `{item.label}`"
            yield f"{count} have no known price: their cost is not counted."
        else:
            yield unpriced(priced_as(item.label, settings))


def priced_as(model: str, settings: Settings) -> str:
    """The name in the price table of the model with this name."""
    chosen = settings.models
    coders = coder_models(settings.coder, settings.team)
    for spec in (*coders, chosen.planner, chosen.debugger, chosen.reviewer, model):
        try:
            found = record_name(spec or "", chosen.base_url)
        except SettingError:
            continue  # a coder that is no model
        if found.name == model:
            return found.priced_as
    return model


def passed_over(told: Sequence[str]) -> tuple[str, ...]:
    """Where rules stood in for a model, each reason once."""
    found = (text for text in told if text.startswith(PASSED_OVER))
    said = (events.ModelPassedOver.model_validate_json(text).text for text in found)
    return tuple(dict.fromkeys(said))


def diagnoses(told: Sequence[str]) -> tuple[DiagnosisEntry, ...]:
    """Each refused candidate's last diagnosis, of all sessions."""
    found = [
        events.Diagnosed.model_validate_json(text) for text in told if text.startswith(DIAGNOSED)
    ]
    latest = {item.candidate: item for item in found}
    return tuple(
        DiagnosisEntry(
            candidate=item.candidate,
            round=item.round,
            failure_class=item.failure_class,
            action=item.action,
            advice=item.advice,
            by=item.by,
        )
        for item in latest.values()
    )
