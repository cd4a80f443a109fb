"""What did the models of a run take, by agent and round, and did their words hold?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from agentkernel.agents.calibration import calibration
from agentkernel.agents.factory import coder_models
from agentkernel.agents.models.factory import record_name
from agentkernel.agents.models.ledger import Account, totals
from agentkernel.agents.models.local_presets import PREFIX
from agentkernel.agents.models.prices import unpriced
from agentkernel.agents.protocols import Attempt
from agentkernel.domain.errors import SettingError
from agentkernel.domain.settings import Settings
from agentkernel.tools.store import RunStore
from agentkernel.workflows import events
from agentkernel.workflows.report_models import DiagnosisEntry, ModelsSection, UsageTotals

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
        by_agent=tuple(usage_totals(item) for item in found.by_agent),
        by_round=tuple(usage_totals(item) for item in found.by_round),
        by_model=tuple(usage_totals(item) for item in found.by_model),
        total=usage_totals(found.total),
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


def usage_totals(account: Account) -> UsageTotals:
    """An account as the report knows it."""
    return UsageTotals.model_validate(account.model_dump())


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
