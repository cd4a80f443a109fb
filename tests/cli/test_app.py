"""Does a failure become one line and the right number, and does --help stay cheap?"""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
import typer

from agentkernel import __version__
from agentkernel.cli.app import explain, of_cli, run
from agentkernel.cli.command_table import COMMANDS, GROUPS, Command
from agentkernel.domain.errors import (
    DiskFailure,
    MissingDependency,
    OutputError,
    ProblemError,
    RunBusy,
)
from tests.cli.commands import Cli

HELP = [sys.executable, "-m", "agentkernel", "--help"]
BARE = [sys.executable, "-c", "import typer, rich"]


def seconds(command: list[str]) -> float:
    """Processor seconds of a process: what else runs here does not count. Not by os.times, which
    counts in hundredths of a second, a fifth of what is measured here."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime


@pytest.mark.slow
def test_help_takes_at_most_three_times_its_libraries() -> None:
    pairs = [(seconds(HELP), seconds(BARE)) for _ in range(7)]
    assert min(first for first, _ in pairs) <= 3.0 * min(second for _, second in pairs)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from agentkernel.cli.app import run\n"
        "from agentkernel.cli import app\n"
        "words = [[], *([command.name] for command in app.COMMANDS)]\n"
        "words += [[group.name, row.name] for group in app.GROUPS for row in group.commands]\n"
        "assert not any(run([*named, '--help']) for named in words)\n"
        "heavy = {'torch', 'triton', 'langgraph', 'langchain', 'chromadb', 'numpy'}\n"
        "rooms = ('agents', 'bench', 'knowledge', 'nightly', 'tools', 'training', 'workflows')\n"
        "own = {name for name in sys.modules for room in rooms\n"
        "       if name.startswith(f'agentkernel.{room}')}\n"
        "print('found', sorted(own | heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "found []"


def test_the_list_of_commands_imports_the_flags_of_none() -> None:
    code = (
        "import sys\n"
        "from agentkernel.cli.app import run\n"
        "assert not run(['--help'])\n"
        "print(*sorted(name for name in sys.modules if name.startswith('agentkernel')))\n"
        "print(*sorted({'asyncio', 'inspect', 'pydantic', 'rich'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    own, others = done.stdout.split("\n")[-3:-1]
    assert len(own.split()) <= 11, own
    assert others == "inspect"


EVERY = [*COMMANDS, *(row for group in GROUPS for row in group.commands)]


@pytest.mark.parametrize("row", EVERY, ids=lambda row: row.body)
def test_the_line_of_a_command_begins_its_own_help(row: Command) -> None:
    said = " ".join(str(of_cli(row.flags).__doc__).split())
    assert said.startswith(row.summary.rstrip("."))
    assert len(row.summary) <= 66


def test_every_command_is_listed(cli: Cli) -> None:
    shown = cli(["--help"]).out
    hidden = [command.name for command in COMMANDS if f"\n  {command.name} " not in shown]
    assert hidden == [command.name for command in COMMANDS if command.hidden] == ["remote-worker"]


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(flag: str, cli: Cli) -> None:
    assert cli([flag]).out == f"agentkernel {__version__}\n"


@pytest.mark.parametrize("words", [[], ["library"]])
def test_nothing_said_is_the_help(words: list[str], cli: Cli) -> None:
    shown = cli(words).out
    assert shown == cli([*words, "--help"]).out == cli([*words, "-h"]).out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["optimize", "x.py", "--speedup", "fast"],
            "Invalid value for '--speedup': it is 'fast', expected a number. "
            "See 'agentkernel optimize --help'.",
        ),
        (
            ["optimize", "x.py", "--rounds=2.5"],
            "Invalid value for '--rounds': it is '2.5', expected a whole number. "
            "See 'agentkernel optimize --help'.",
        ),
        (["library", "lst"], "Did you mean 'list'? See 'agentkernel library --help'."),
        (["plan"], "Missing argument 'FILE[:CLASS]'. See 'agentkernel plan --help'."),
    ],
)
def test_a_usage_error_names_its_own_commands_help(words: list[str], line: str, cli: Cli) -> None:
    assert cli.refused(words).endswith(f"{line}\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProblemError("no Model"), 2),
        (MissingDependency("no driver"), 4),
        (DiskFailure("no room"), 4),
        (RunBusy("another one"), 4),
        (OutputError("not a folder"), 2),
        (typer.Abort(), 130),
        (OSError(errno.ENOSPC, "No space left on device"), 4),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 2),
        (MemoryError(), 4),
        (torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 8 GiB"), 4),
        (ZeroDivisionError("division by zero"), 1),
    ],
)
def test_failures_map_to_exit_codes(error: Exception, code: int) -> None:
    line, found = explain(error)
    assert found == code
    assert line
    assert "\n" not in line
    assert ("bug" in line) == (code == 1)


@pytest.mark.parametrize(
    "words",
    [["nothing"], ["optimize"], ["optimize", "x.py", "--rounds", "many"], ["plan", "--wrong"]],
)
def test_usage_mistakes_are_one_line(words: list[str], cli: Cli) -> None:
    said = cli.refused(words)
    assert said.startswith("agentkernel: ")


def test_a_failure_is_an_object_with_json(cli: Cli) -> None:
    found = cli.json(["plan", "nowhere.py", "--json"], 2)
    assert found["exit_code"] == 2
    assert found["kind"] == "ProblemError"
    assert "nowhere.py" in found["error"]


def test_debug_raises() -> None:
    with pytest.raises(ProblemError):
        run(["plan", "nowhere.py"], debug=True)


def test_folders_that_cannot_be_read_do_not_drown_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2000):
        (tmp_path / f"plus-20260101-000000-{number:04x}").mkdir()
        (tmp_path / f"stray-{number}").mkdir()
    began = time.process_time()
    assert run(["runs", "--runs", str(tmp_path)]) == 0
    assert time.process_time() - began < 3.0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1] == "1980 more that cannot be read; --json names them."
    assert len(shown) == 22


@pytest.mark.parametrize("word", ["zoo", "nightly"])
def test_a_word_of_the_docs_names_its_command(word: str, cli: Cli) -> None:
    assert f"No such command {word!r}. Did you mean 'batch'?" in cli([word, "zoo.yaml"], 2).err


def test_an_interrupted_command_says_so(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(flags: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agentkernel.cli.targets.targets", stop)
    assert "Interrupted. What was finished is kept." in cli(["targets"], 130).err


def test_an_interrupted_command_may_have_words_of_its_own(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(flags: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as interruption:
            raise typer.Abort("Interrupted. Kept of it: a half.") from interruption

    monkeypatch.setattr("agentkernel.cli.targets.targets", stop)
    assert "Interrupted. Kept of it: a half." in cli(["targets"], 130).err


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_lock_lost_by_an_interruption_is_one(
    interrupted: bool, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(flags: object) -> None:
        try:
            raise KeyboardInterrupt if interrupted else ValueError
        finally:
            threading.Lock().release()

    monkeypatch.setattr("agentkernel.cli.targets.targets", stop)
    said = cli(["targets"], 130 if interrupted else 1).err
    assert ("Interrupted." in said) == interrupted
    assert ("This is a bug" in said) != interrupted
