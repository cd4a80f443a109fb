"""Does each slash command ask for what it says, and does a wrong one name the right one?"""

from __future__ import annotations

import pytest

from agentkernel.chat.requests import (
    AskDocs,
    Compare,
    Diff,
    Edit,
    ExplainLine,
    Intent,
    OnCandidate,
    Plain,
    Run,
    SetPrecision,
    SetTarget,
    SwitchBranch,
    TryIdea,
    Undo,
    WriteTo,
)
from agentkernel.chat.tree import SettingValue
from agentkernel.cli.chat.commands import (
    ALIASES,
    COMMANDS,
    HELP,
    Ask,
    Change,
    Help,
    InvalidCommand,
    known_keys,
    parse,
)

ASKED: dict[str, Intent] = {
    "/plan": Plain(name="plan"),
    "/ideas": Plain(name="ideas"),
    "/redo": Plain(name="redo"),
    "/tree": Plain(name="tree"),
    "/history": Plain(name="history"),
    "/status": Plain(name="status"),
    "/cost": Plain(name="cost"),
    "/quit": Plain(name="quit"),
    "/exit": Plain(name="quit"),
    "/set": Plain(name="settings"),
    "/target": Plain(name="targets"),
    "  /TREE  ": Plain(name="tree"),
    "/run": Run(),
    "/run 3": Run(rounds=3),
    "/run 3 rounds": Run(rounds=3),
    "/run 1 round": Run(rounds=1),
    "/run 10m": Run(seconds=600.0),
    "/run 1.5h": Run(seconds=5400.0),
    "/run 3 90s": Run(rounds=3, seconds=90.0),
    "/run 3 rounds 90 s": Run(rounds=3, seconds=90.0),
    "/try": TryIdea(idea="next"),
    "/try 2": TryIdea(idea=2),
    "/try last": TryIdea(idea="last"),
    "/profile": OnCandidate(name="profile"),
    "/profile c3": OnCandidate(name="profile", candidate=3),
    "/roofline fastest": OnCandidate(name="roofline", candidate="fastest"),
    "/show 3": OnCandidate(name="show_candidate", candidate=3),
    "/show original": OnCandidate(name="show_candidate", candidate="original"),
    "/verify C3": OnCandidate(name="verify", candidate=3),
    "/keep": OnCandidate(name="keep"),
    "/keep c12": OnCandidate(name="keep", candidate=12),
    "/reject last": OnCandidate(name="reject", candidate="last"),
    "/fork": OnCandidate(name="fork"),
    "/fork c2": OnCandidate(name="fork", candidate=2),
    "/switch": SwitchBranch(),
    "/switch 2": SwitchBranch(branch=2),
    "/switch c3": OnCandidate(name="return_to", candidate=3),
    "/switch previous": OnCandidate(name="return_to", candidate="previous"),
    "/diff": Diff(),
    "/diff c3": Diff(candidate=3),
    "/diff c3 c1": Diff(candidate=3, against=1),
    "/diff current original": Diff(candidate="current", against="original"),
    "/compare c2 c3": Compare(first=2, second=3),
    "/compare parent current": Compare(first="parent", second="current"),
    "/explain": OnCandidate(name="explain_kernel"),
    "/explain c3": OnCandidate(name="explain_kernel", candidate=3),
    "/explain 12": ExplainLine(line=12),
    "/explain line 12": ExplainLine(line=12),
    "/explain 12-20": ExplainLine(line=12, last_line=20),
    "/explain c3 12 - 20": ExplainLine(line=12, last_line=20, candidate=3),
    "/explain c3 lines 12 to 20": ExplainLine(line=12, last_line=20, candidate=3),
    "/edit": Edit(),
    "/edit c3": Edit(candidate=3),
    "/edit 12": Edit(line=12),
    "/edit original 12": Edit(candidate="original", line=12),
    "/target h200": SetTarget(target="h200"),
    "/precision tf32": SetPrecision(precision="tf32"),
    "/precision BF16": SetPrecision(precision="bf16"),
    "/undo": Undo(),
    "/undo 2": Undo(steps=2),
    "/ask-docs split-K for tall matrices": AskDocs(query="split-K for tall matrices"),
    "/save": WriteTo(name="save"),
    "/save out dir/fast.py": WriteTo(name="save", path="out dir/fast.py"),
    "/save 'a b.py'": WriteTo(name="save", path="a b.py"),
    "/export ~/x": WriteTo(name="export", path="~/x"),
}
CHANGED: dict[str, dict[str, SettingValue]] = {
    "/set budget.rounds 3": {"budget.rounds": 3},
    "/set budget.rounds=3": {"budget.rounds": 3},
    "/set budget.rounds = 3": {"budget.rounds": 3},
    "/set goals.speedup 1.5": {"goals.speedup": 1.5},
    "/set judge.kernelbench true": {"judge.kernelbench": True},
    "/set budget.time_s null": {"budget.time_s": None},
    "/set coder chat:openai:m@http://h/v1?a=b": {"coder": "chat:openai:m@http://h/v1?a=b"},
}
WRONG = {
    "/rooflin": ("Unknown command '/rooflin'", "Did you mean /roofline?"),
    "/compar c1 c2": ("Did you mean /compare?",),
    "/qqqqqqqq": ("Unknown command '/qqqqqqqq'. /help",),
    "/": ("Unknown command",),
    "/help nothing": ("Unknown command '/nothing'",),
    "/tree now": ("takes nothing, got 'now'", "Usage: /tree"),
    "/run often": ("'often' is no time span", "Usage: /run [ROUNDS] [TIME]"),
    "/run 0": ("'0' is not a number of rounds",),
    "/run 3 4": ("'4' is no time span",),
    "/run 0s": ("'0s' is no time span",),
    "/profile kernel": ("'kernel' is no candidate; expected c1, c2 ... or current",),
    "/show c0": ("'c0' is no candidate",),
    "/show c1 c2": ("takes at most 1",),
    "/show c99999999999": ("no candidate",),
    "/compare": ("needs two candidates", "Usage: /compare A B"),
    "/compare c1": ("needs two candidates",),
    "/compare c1 x": ("'x' is no candidate",),
    "/diff c1 c2 c3": ("takes at most 2",),
    "/explain c3 soon": ("'soon' is no line; expected e.g. 12 or 12-20",),
    "/explain 20-12": ("run backwards", "expected 12-20"),
    "/explain 0": ("'0' is no line",),
    "/edit 3 4": ("no line",),
    "/try third": ("'third' is not an idea's number",),
    "/undo all": ("'all' is not a number of steps",),
    "/switch main": ("'main' is not a branch's number",),
    "/precision": ("'' is no precision; expected strict, tf32, bf16",),
    "/precision fp8": ("'fp8' is no precision",),
    "/target a b": ("takes at most 1",),
    "/ask-docs": ("needs words",),
    "/set budget.round 3": ("unknown setting 'budget.round'", "'budget.rounds'"),
    "/set rounds 3": ("the nearest known one is 'budget.rounds'",),
    "/set goals.time": ("unknown setting 'goals.time'", "'budget.time_s'"),
    "/set budget.rounds": ("'budget.rounds' needs a value",),
    "/set budget.rounds [1, 2]": ("'[1, 2]' is no single value",),
    "/save " + "x" * 2000: ("at most 1024 characters",),
}


@pytest.mark.parametrize("line", ASKED)
def test_a_command_asks_for(line: str) -> None:
    assert parse(line) == Ask(intent=ASKED[line])


@pytest.mark.parametrize("line", CHANGED)
def test_set_changes(line: str) -> None:
    assert parse(line) == Change(changes=CHANGED[line])


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_says_so_in_one_line(line: str) -> None:
    found = parse(line)
    assert isinstance(found, InvalidCommand)
    assert "\n" not in found.text
    for part in WRONG[line]:
        assert part in found.text


def test_every_command_has_a_test() -> None:
    tried = {line.strip().split(" ")[0].removeprefix("/").lower() for line in (*ASKED, *CHANGED)}
    assert tried >= set(COMMANDS) - {"help"}
    assert set(ALIASES.values()) <= set(COMMANDS)


def test_help_has_every_command_within_80_columns() -> None:
    found = parse("/help")
    assert found == Help(text=HELP)
    for command in COMMANDS.values():
        assert command.usage in HELP
        assert isinstance(parse(f"/help {command.name}"), Help)
    assert max(len(line) for line in HELP.splitlines()) <= 80
    assert parse("/help /save") == Help(text="/save [PATH]\n  write the drop-in")


def test_the_keys_are_those_of_the_packaged_settings() -> None:
    from agentkernel.storage.configuration import _flatten, default_tree

    assert set(known_keys()) == {key for key, _ in _flatten(default_tree())}


@pytest.mark.parametrize("line", ["/show \x00", "/\x1b[2J", "/set \x1b x", "/undo ²"])
def test_control_characters_and_odd_digits_are_no_crash(line: str) -> None:
    found = parse(line)
    assert isinstance(found, InvalidCommand)
    assert found.text.isprintable()
