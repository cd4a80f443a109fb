"""How do a session's settings follow from those that it began with, and how are they told?"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from pydantic import ValidationError

from agentkernel.chat.domain_session import Changes, SettingValue
from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import SettingError
from agentkernel.domain.settings import Settings

SettingsFor = Callable[[Changes], Settings]
FIXED = {"runs": "the folder of the session", "models.replay": "a whole run's"}
"""What cannot be changed on the way, and why."""
WORDS = {
    "target": "target",
    "coder": "coder",
    "goals.precision": "precision",
    "goals.objective": "what is made small",
    "goals.speedup": "goal",
    "goals.max_memory_bytes": "memory limit in bytes",
    "goals.policy": "policy",
    "budget.rounds": "rounds",
    "budget.time_s": "seconds",
    "budget.usd": "US dollars",
}


def settings_overlay(began: Settings) -> SettingsFor:
    """Puts dotted keys over the settings that a session began with. Raises SettingError."""
    known = keys_of(began)

    def settings_for(changes: Changes) -> Settings:
        made = began.model_dump(mode="json")
        for key, value in changes.items():
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
                hint = f"The nearest known one is {near[0]!r}." if near else "See 'settings'."
                raise SettingError(f"Unknown setting {key!r}. {hint}")
            _put(made, key, value)
        try:
            return Settings.model_validate(made)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(str(part) for part in first["loc"])
            raise SettingError(f"Setting {key!r} is {first['input']!r}. {first['msg']}.") from error

    return settings_for


def keys_of(settings: Settings) -> tuple[str, ...]:
    """The dotted keys of all settings, in order."""
    return tuple(_keys(settings, ""))


def _keys(value: Frozen, prefix: str) -> list[str]:
    found: list[str] = []
    for name in type(value).model_fields:
        inner = getattr(value, name)
        if isinstance(inner, Frozen):
            found += _keys(inner, f"{prefix}{name}.")
        else:
            found.append(f"{prefix}{name}")
    return found


def value_of(settings: Settings, key: str) -> object:
    """What `key` is set to. Raises SettingError for an unknown one."""
    value: object = settings
    for name in key.split("."):
        if not isinstance(value, Frozen) or name not in type(value).model_fields:
            near = difflib.get_close_matches(key, keys_of(settings), n=1, cutoff=0.4)
            hint = f"The nearest known one is {near[0]!r}." if near else "See 'settings'."
            raise SettingError(f"Unknown setting {key!r}. {hint}")
        value = getattr(value, name)
    return value


def merge_changes(old: Changes, new: Mapping[str, SettingValue]) -> Changes:
    """`old` with `new`; None takes a change back. Raises SettingError for what stays as it is."""
    fixed = next((key for key in new if key in FIXED), None)
    if fixed is not None:
        raise SettingError(
            f"Setting {fixed!r} is {FIXED[fixed]}: it stays as it is in a session. "
            "Next: begin another session with it."
        )
    joined = {**old, **new}
    return {key: value for key, value in joined.items() if value is not None}


def difference(old: Settings, new: Settings) -> tuple[str, ...]:
    """Each setting that is another one, as `precision: strict -> tf32`."""
    lines = []
    for key in keys_of(new):
        before, after = effective_value(old, key), effective_value(new, key)
        if before != after:
            lines.append(
                f"{WORDS.get(key, key)}: {display_value(before)} -> {display_value(after)}"
            )
    return tuple(lines)


def effective_value(settings: Settings, key: str) -> object:
    """The value that counts: a policy that is not set follows from who drafts."""
    return settings.policy if key == "goals.policy" else value_of(settings, key)


def display_value(value: object) -> str:
    """A setting's value for people."""
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _put(tree: dict[str, object], key: str, value: SettingValue) -> None:
    *sections, last = key.split(".")
    node: object = tree
    for section in sections:
        node = node[section] if isinstance(node, dict) else {}
    if isinstance(node, dict):
        node[last] = value
