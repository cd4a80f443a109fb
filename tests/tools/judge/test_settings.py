from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.domain.errors import SettingError
from agentkernel.domain.settings import Settings
from agentkernel.storage.configuration import load_settings, user_config_path
from agentkernel.workflows.run_factory import profile_settings


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text("target: l4\nbudget:\n  rounds: 5\njudge: {seeds: 7}\n")
    return path


def test_each_layer_overrides_the_one_below(user_file: Path) -> None:
    packaged = load_settings(user_file.parent / "config.yaml", (), {})
    assert (packaged.target, packaged.budget.rounds, packaged.judge.seeds) == ("l4", 5, 7)
    assert packaged.goals.speedup == 1.2, "what the user file leaves out stays as packaged"
    override = load_settings(user_file, ("budget.rounds=6", "target=h200"))
    assert (override.budget.rounds, override.target) == (6, "h200")
    flagged = load_settings(user_file, ("budget.rounds=6",), {"budget.rounds": 7, "target": None})
    assert (flagged.budget.rounds, flagged.target) == (7, "l4"), "None means not given"


def test_the_user_file_is_found_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load_settings().seed == 0
    user_config_path().parent.mkdir()
    user_config_path().write_text("seed: 3")
    assert load_settings().seed == 3
    user_config_path().write_text("")
    assert load_settings().seed == 0


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("judge.sed=3", ("'judge.sed'", "nearest known one is 'judge.seed'")),
        ("rounds=3", ("'rounds'", "'budget.rounds'")),
        ("time=3", ("nearest known one is 'budget.time_s'",)),
        ("foo.bar=3", ("'foo.bar'", "Known: target, coder")),
        ("goals.precision=loose", ("'goals.precision'", "'strict'", "loose")),
        ("budget.rounds=0", ("'budget.rounds'", "0")),
        ("budget.rounds=many", ("'budget.rounds'", "many")),
        ("rounds", ("key=value",)),
        ("=3", ("key=value",)),
        ("budget.rounds=[", ("YAML",)),
    ],
)
def test_errors_name_the_key_and_the_nearest(
    tmp_path: Path, override: str, words: tuple[str, ...]
) -> None:
    empty = tmp_path / "empty.yaml"
    empty.touch()
    with pytest.raises(SettingError) as caught:
        load_settings(empty, (override,))
    line = str(caught.value)
    assert "\n" not in line
    assert all(word in line for word in words), line


@pytest.mark.parametrize("text", ["- a\n- b\n", "target: [", "nothing: 3", "judge: 3"])
def test_a_wrong_user_file_is_one_line_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(SettingError) as caught:
        load_settings(path)
    assert "\n" not in str(caught.value)


def test_a_missing_named_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="absent"):
        load_settings(tmp_path / "absent.yaml")


def test_the_policy_in_force_follows_the_coder(tmp_path: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.touch()
    assert load_settings(empty).policy == "mixed"
    assert load_settings(empty, ("coder=chat:openai:x",)).policy == "triton"
    assert load_settings(empty, ("goals.policy=any",)).policy == "any"


def test_a_manifest_from_before_the_third_baseline_still_loads() -> None:
    settings = load_settings()
    old = settings.model_dump(mode="json", exclude={"profile"})
    assert Settings.model_validate(old).profile.max_autotune
    asked = load_settings(None, ("profile.autotune_limit_s=30",), {"profile.max_autotune": False})
    given = profile_settings(asked)
    assert (given.max_autotune, given.autotune_limit_s) == (False, 30.0)
