"""Do the models' flags reach the settings, and is a mistake in them said before a run is made?"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from agentkernel.cli.app import run
from agentkernel.cli.configuration import usage_before, with_checked_models
from agentkernel.domain.exchange import Exchange, Message, ModelRequest, Reply, Sampling, Usage
from agentkernel.storage.configuration import default_tree
from agentkernel.storage.records import Records
from tests.cli.commands import Cli
from tests.workflows.fakes import FakeWorkshop, Script, settings, small_problem

GHOST = "chat:ghost:m"
"""A provider that no client knows: it fails at once."""


def made_run(folder: Path, *, answered: bool) -> Path:
    """A finished run in `folder`/runs; with an answer of a model in its records."""
    from agentkernel.workflows.optimize import run as optimize
    from agentkernel.workflows.state import OptimizeRequest

    chosen = settings(folder / "runs", "coder=chat:openai:m", "budget.tokens=9")
    request = OptimizeRequest(small_problem(folder), chosen)
    result = optimize(request, workshop=FakeWorkshop((Script("rows"),)))
    made = folder / "runs" / result.run
    if answered:
        records = Records(made / "run.sqlite")
        question = ModelRequest(
            agent="coder",
            round=1,
            messages=(Message(role="user", text="?"),),
            sampling=Sampling(temperature=0.0, max_tokens=10),
        )
        reply = Reply(texts=("a",), finish=("stop",), usage=Usage(prompt=7, completion=1))
        records.save_exchange("k", Exchange(model="chat:openai:m", question=question, reply=reply))
        records.close()
    return made


@pytest.mark.parametrize(
    ("words", "hints"),
    [
        (["--coder", "chat:openai"], ("coder", "chat:PROVIDER:MODEL")),
        (["--coder", "parrot"], ("parrot", "compiler")),
        (["--coder", "team:chat:openai:m,parrot"], ("coder: Unknown model 'parrot'",)),
        (["--planner", "parrot"], ("planner", "'parrot'", "chat:PROVIDER:MODEL")),
        (["--debugger", "chat:openai"], ("debugger: 'chat:openai' names no model",)),
        (["--reviewer", "compiler"], ("reviewer", "'compiler'", "local:")),
        (["--planner", "local:kernelbook-qwen"], ("planner", "lacks the adapter")),
        (["--base-url", "127.0.0.1:9"], ("models.base_url", "'127.0.0.1:9'", "http://")),
        (["--base-url", "http://[::1"], ("no URL",)),
        (["--planner", "chat:openai:m@ftp://h/v1"], ("planner", "ftp://h/v1", "no URL")),
        (["--replay", "nothing"], ("'nothing'", "agentkernel runs")),
        (["--samples", "0"], ("--samples",)),
        (["--temperature", "-1"], ("--temperature",)),
        (["--tokens", "0"], ("--tokens",)),
        (["--usd", "0"], ("--usd 0", "budget.usd")),
        (["--usd", "nan"], ("--usd nan", "finite")),
        (["--usd", "inf"], ("--usd inf", "finite")),
    ],
)
def test_a_mistake_makes_no_run(
    words: list[str],
    hints: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
) -> None:
    monkeypatch.chdir(tmp_path)
    small_problem(tmp_path)
    said = cli(["optimize", "plus.py", "--target", "h100", *words], 2).err
    assert said.count("\n") == 1
    assert all(hint in said for hint in hints), said
    assert not (tmp_path / "agentkernel-runs").exists()


@pytest.mark.parametrize("command", ["chat", "batch", "bench"])
def test_other_commands_refuse_the_same(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    small_problem(tmp_path)
    (tmp_path / "list.yaml").write_text("problems: [plus.py]\n")
    subject = {"chat": "plus.py", "batch": "list.yaml", "bench": "."}[command]
    words = [command, subject, "--target", "h100", "--debugger", "parrot"]
    assert "debugger: Unknown model 'parrot'" in cli(words, 2).err
    assert {item.name for item in tmp_path.iterdir()} == {"plus.py", "list.yaml"}


@pytest.mark.parametrize("flag", ["--base-url", "--coder"])
def test_a_password_in_a_url_is_refused_and_not_told(flag: str, tmp_path: Path, cli: Cli) -> None:
    small_problem(tmp_path)
    url = "http://user:hunter22@127.0.0.1:9/v1"
    value = url if flag == "--base-url" else f"chat:openai:m@{url}"
    words = ["optimize", str(tmp_path / "plus.py"), "--runs", str(tmp_path / "runs"), flag, value]
    shown = cli([*words, "--target", "h100"], 2)
    assert "environment" in shown.err
    assert "hunter22" not in shown.err + shown.out
    assert not (tmp_path / "runs").exists()


def test_flags_reach_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    small_problem(tmp_path)
    names = ["--coder", GHOST, "--planner", GHOST, "--debugger", GHOST, "--reviewer", GHOST]
    how = ["--samples", "3", "--temperature", "0.7", "--base-url", "http://127.0.0.1:9/v1"]
    limits = ["--tokens", "5000", "--usd", "0.5"]
    words = ["optimize", "plus.py", "--target", "h100", *names, *how, *limits]
    assert "ghost" in cli(words, 4).err
    (manifest,) = tmp_path.glob("agentkernel-runs/*/run.json")
    kept = json.loads(manifest.read_text())["settings"]
    assert kept["models"] == {
        "base_url": "http://127.0.0.1:9/v1",
        "planner": GHOST,
        "debugger": GHOST,
        "reviewer": GHOST,
        "replay": None,
        "timeout_s": None,
        "samples": 3,
        "temperature": 0.7,
        "max_tokens": None,
        "seed": None,
    }
    assert (kept["budget"]["tokens"], kept["budget"]["usd"]) == (5000, 0.5)


def test_the_run_to_replay_stays_the_same_one(tmp_path: Path) -> None:
    made = made_run(tmp_path, answered=True)
    found = with_checked_models(settings(tmp_path / "runs", "models.replay=last"))
    assert found.models.replay == str(made)


def test_a_run_without_answers_cannot_be_replayed(tmp_path: Path, cli: Cli) -> None:
    made = made_run(tmp_path, answered=False)
    words = ["optimize", str(tmp_path / "plus.py"), "--runs", str(made.parent)]
    assert f"{made.name!r} holds no answer" in cli([*words, "--replay", "last"], 2).err
    (made / "run.sqlite").write_bytes(b"no database at all, but long enough to look like one" * 40)
    assert run([*words, "--replay", "last"]) == 2
    assert [item.name for item in made.parent.iterdir()] == [made.name]


def test_a_run_that_goes_on_counts_what_it_took_before(tmp_path: Path) -> None:
    use = usage_before(made_run(tmp_path, answered=True))
    assert use.names == {"coder": "chat:openai:m"}
    assert use.tokens_limit == 9
    assert (use.uses["coder"].prompt, use.uses["coder"].unpriced) == (7, 1)


def test_show_tells_what_models_took(tmp_path: Path, cli: Cli) -> None:
    made = made_run(tmp_path, answered=True)
    words = ["show", "last", "--runs", str(made.parent)]
    lines = [" ".join(line.split()) for line in cli(words).out.splitlines()]
    assert "models questions requests tokens in out cached USD s GPU s" in lines
    assert "coder 1 1 7 1 0 no price known 0.0 –" in lines
    assert any("No price is known for 'openai:m'" in line for line in lines)
    assert cli.json([*words, "--json"])["models"]["total"]["prompt"] == 7


def test_show_of_a_run_without_models_says_nothing_of_them(tmp_path: Path, cli: Cli) -> None:
    made = made_run(tmp_path, answered=False)
    assert "models" not in cli(["show", "last", "--runs", str(made.parent)]).out
    assert cli.json(["show", "last", "--runs", str(made.parent), "--json"])["models"] is None


def test_every_flag_in_the_docs_is_one_of_the_commands(cli: Cli) -> None:
    text = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    told = dict(re.findall(r"^\| `(--[a-z-]+) [A-Z]+` \| `([a-z._]+)` \|", text, re.M))
    assert len(told) == 9
    shown = cli(["optimize", "--help"]).out
    assert [flag for flag in told if f"{flag} " not in shown and f"{flag}," not in shown] == []
    known = [item.partition(".") for item in told.values()]
    tree = default_tree()
    assert [key for key in known if key[2] not in tree[key[0]]] == []  # type: ignore[operator]
