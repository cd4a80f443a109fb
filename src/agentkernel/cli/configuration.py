"""The settings that a command line comes to, and checks of the models that they name.

The models are checked before a run folder is made for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from agentkernel.agents.coder_factory import check_coder, coder_models
from agentkernel.agents.models.chat import require_client
from agentkernel.agents.models.provider import CHAT, record_name
from agentkernel.cli.options import SettingsFlags
from agentkernel.cli.rendering.live import ModelUsage, usage_of
from agentkernel.domain.errors import RunNotFound, SettingError
from agentkernel.domain.settings import MODEL_PREFIXES, Settings
from agentkernel.storage.configuration import load_settings
from agentkernel.storage.records import read_records
from agentkernel.tools.run_store import find_run, read_manifest

if TYPE_CHECKING:
    from agentkernel.domain.exchange import AgentName, Exchange


def settings_from(flags: SettingsFlags, values: Mapping[str, object]) -> Settings:
    """The settings of a command line: its file, its `-c`, and the `values` of its own flags."""
    return load_settings(flags.config, flags.overrides or (), values)


def require_here(settings: Settings, command: str) -> None:
    """Raise SettingError where the settings name another machine, of which `command` knows
    nothing."""
    if settings.remote is not None:
        raise SettingError(
            f"The settings name another machine (remote), and {command!r} works on this one. "
            "Expected remote with optimize, judge, profile or doctor. Next: -c remote=null."
        )


def runs_path(runs: Path | None, flags: SettingsFlags) -> Path:
    """`--runs`, else what the settings say."""
    return Path(settings_from(flags, {"runs": None if runs is None else str(runs)}).runs)


class NamedModel(NamedTuple):
    """A model of the settings: who asks it, and what the user wrote."""

    agent: AgentName
    spec: str


def named_models(settings: Settings) -> Iterator[NamedModel]:
    """The models that `settings` name, each member of `team:MODEL,MODEL` by itself."""
    chosen = settings.models
    yield from (NamedModel("coder", item) for item in coder_models(settings.coder, settings.team))
    every: tuple[tuple[AgentName, str | None], ...] = (
        ("planner", chosen.planner),
        ("debugger", chosen.debugger),
        ("reviewer", chosen.reviewer),
    )
    for agent, spec in every:
        if spec is not None:
            yield NamedModel(agent, spec)


def with_checked_models(settings: Settings) -> Settings:
    """The same settings, with the run to replay by a name that stays true.

    Raises SettingError or RunNotFound for what cannot be tried.
    """
    check_endpoint("models.base_url", settings.models.base_url)
    for agent, spec in named_models(settings):
        check_model(agent, spec, settings.models.base_url)
        # A replay asks nobody: its answers are in the records.
        if spec.startswith(CHAT) and settings.models.replay is None:
            require_client(spec)
    check_coder(settings.coder, settings.team)
    replay = settings.models.replay
    if replay is None:
        return settings
    folder = run_to_replay(Path(settings.runs), replay)
    models = settings.models.evolve(replay=str(folder))
    return settings.evolve(models=models)


def check_model(agent: str, spec: str, base_url: str | None) -> None:
    """Raises SettingError, with the agent's name, where `spec` names no model."""
    try:
        found = record_name(spec, base_url)
    except SettingError as error:
        raise SettingError(f"{agent}: {str(error).removeprefix('Coder ')}") from error
    check_endpoint(agent, found.base_url)


def check_endpoint(where: str, url: str | None) -> None:
    """Raises SettingError for what is no http URL, or holds a password: run.json keeps it."""
    if url is None:
        return
    shown = url.rpartition("@")[2]
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise SettingError(
            f"{where}: endpoint {shown!r} is no URL. Expected e.g. http://127.0.0.1:8000/v1."
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        bare = shown.partition("?")[0].partition("#")[0]
        raise SettingError(
            f"{where}: the URL of {bare!r} holds a user, a password or a query. Expected none, as "
            "a run's folder keeps it. Next: put the key into the environment, see 'agentkernel "
            "doctor'."
        )


def run_to_replay(runs: Path, run: str) -> Path:
    """The folder of a run that holds answers. Raises RunNotFound.

    A folder, not a name such as "last": the run that is about to begin would be the last one.
    """

    folder = find_run(runs, run).resolve()
    if not recorded(folder):
        raise RunNotFound(
            f"Run {folder.name!r} holds no answer of a model. Expected a run with a coder, planner "
            "or debugger that is a model. Next: leave --replay out, or see 'agentkernel runs'."
        )
    return folder


def recorded(folder: Path) -> tuple[Exchange, ...]:
    """What the models of a run answered, as far as it can be read."""
    with closing(read_records(folder / "run.sqlite")) as records:
        return records.exchanges()


def model_usage(settings: Settings, before: tuple[Exchange, ...] = ()) -> ModelUsage:
    """What a screen shows of the models: who may be asked, and what they took `before`."""
    base_url = settings.models.base_url

    alone = settings.coder.startswith(MODEL_PREFIXES)
    names = {
        agent: record_name(spec, base_url).name
        for agent, spec in named_models(settings)
        if agent != "coder" or alone  # of a team, nobody says beforehand whose turn it is
    }
    return ModelUsage(
        names,
        usage_of(before),
        tokens_limit=settings.budget.tokens,
        usd_limit=settings.budget.usd,
        replay=settings.models.replay is not None,
    )


def usage_before(folder: Path) -> ModelUsage:
    """The same for a run that goes on. Raises RunNotFound."""
    return model_usage(read_manifest(folder).settings, recorded(folder))
