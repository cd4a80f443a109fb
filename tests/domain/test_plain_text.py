"""Does text of somebody else steer no terminal, fake no line, hide nothing where it is shown?"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.table import Table

from agentkernel.cli.rendering.text import PlainConsole
from agentkernel.cli.rendering.verdict import verdict_lines
from agentkernel.cli.terminal import json_line, print_failure, print_json, print_plain
from agentkernel.cli.verify import replay_lines
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import expected_of, one_line
from agentkernel.domain.plain_text import plain, plain_line, plain_values
from agentkernel.domain.verdict import RunFailed
from agentkernel.tools.certificate.replay import Replay
from agentkernel.tools.judge.comparison.compare import reply_strings
from agentkernel.tools.sandbox.protocol import parse_reply
from agentkernel.workflows.report import cell
from tests.workflows.fakes import verdict

PACKAGE = Path(__file__).parents[2] / "src" / "agentkernel"
UNKIND = "a\x1b]0;t\x07b\u202ec\ud800d\x9be\u200bf\u2028g\rh"
SHOWN = "a\\x1b]0;t\\x07b\\u202ec\\ud800d\\x9be\\u200bf\\u2028g\\rh"
PRINTS = re.compile(
    r"(?<![\w.])print\(|(?<![\w.])Console\(|sys\.std(?:out|err)\.write\(|typer\.echo"
)
OWN = {
    "cli/app.py": "the version",
    "cli/console.py": "rich's own lines, on a pipe",
    "cli/chat/screen.py": "rich's own lines of a screen, and JSON in ASCII",
    "cli/terminal.py": "the one place",
    "cli/runs.py": "a source, which a file or a program gets as it is",
    "cli/train/model.py": "its own figures",
    "mcp_server/serving.py": "its own address and token",
    "remote/probe.py": "JSON in ASCII, to the other machine",
    "runtime/machine.py": "JSON in ASCII, to the parent",
    "tools/judge/compute_sanitizer.py": "inside the sandbox",
    "tools/sandbox/lockdown.py": "JSON in ASCII, to the parent",
    "workflows/progress.py": "its own words, in a notebook",
}
"""Files that print themselves, and what."""
PAGES = re.compile(r"write_atomic\([^\n]*(?:\.html|\.markdown|\.junit|_csv|REPORT|PAGE|_svg)\b.*")


class Named(Frozen):
    """A value with a name of somebody's."""

    name: str


def test_what_does_not_print_is_written_out() -> None:
    assert plain(UNKIND) == SHOWN == plain_line(UNKIND)
    assert plain("a\tb\r\nc\n") == "a\tb\nc\n"
    assert plain_line("a\tb\nc") == "a\\tb\\nc"
    assert plain(SHOWN) == SHOWN
    for text in ("plain", "Größe 数 µs × 2", "a\u00a0b\u202fc"):
        assert plain(text) == plain_line(text) == text
    assert plain_values({UNKIND: [UNKIND, 1, None, {"x": UNKIND}]}) == {
        SHOWN: [SHOWN, 1, None, {"x": SHOWN}]
    }


def test_a_reason_and_a_cell_are_plain() -> None:
    assert one_line(ValueError(UNKIND)) == SHOWN.replace("\\u2028", " ").replace("\\r", " ")
    assert one_line("x" * 10_000_000) == "x" * 300
    assert cell(f"{UNKIND}|<`") == one_line(UNKIND) + "/‹'"


def test_what_a_worker_answers_is_plain() -> None:
    body = json.dumps({"log": UNKIND, UNKIND: [UNKIND]}).encode()
    assert parse_reply(body) == {"log": SHOWN, SHOWN: [SHOWN]}
    assert parse_reply(json.dumps({"log": "a\nb"}).encode()) == {"log": "a\nb"}
    assert parse_reply('{"log": "\u202e\x7f"}'.encode()) == {"log": "\\u202e\\x7f"}


def test_a_kernel_has_a_name_of_one_line() -> None:
    assert reply_strings(["one\n\raccepted", "x" * 300]) == ("one\\n\\raccepted", "x" * 200)


def test_a_candidate_begins_no_line_of_a_verdict() -> None:
    candidate = Candidate(source="x", coder="", round=0)
    failed = RunFailed(
        case="primary", reason="raised", log="\x1b[31mone\naccepted (on h100)\nholds"
    )
    found = verdict(candidate, failure=failed)
    lines = "\n".join(verdict_lines(found)).split("\n")
    assert "    accepted (on h100)" in lines
    assert "accepted (on h100)" not in lines
    told = Replay(certificate="c", signature="absent", unsigned="none\nholds", status="met")
    assert "holds" not in "\n".join(replay_lines(told, replayed=False)).split("\n")


def test_the_console_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()
    screen = PlainConsole(file=file, width=200, force_terminal=True, color_system="truecolor")
    table = Table(title=UNKIND)
    table.add_column(UNKIND)
    table.add_row(UNKIND, style="red")
    screen.print(UNKIND, markup=False)
    screen.print(table)
    text = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())
    assert text == plain(text)
    assert text.count("\\u202e") == 4
    print_plain(UNKIND)
    print_plain(UNKIND, error=True)
    print_failure(UNKIND, 2, "UserError", as_json=True)
    print_json(Named(name=UNKIND.replace("\ud800", "")))
    shown = capsys.readouterr()
    assert shown.out == plain(shown.out)
    assert shown.err == plain(shown.err)


def test_json_is_ascii_and_the_same_value() -> None:
    text = UNKIND.replace("\ud800", "")
    assert json_line(Named(name=text)).isascii()
    assert json.loads(json_line(Named(name=text))) == {"name": text}
    assert json.loads(json_line({"name": UNKIND})) == {"name": UNKIND}


def test_nothing_else_prints() -> None:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        calls = PRINTS.findall(path.read_text(encoding="utf-8"))
        if calls and name not in OWN and "knowledge/kernels" not in name:
            found[name] = calls
    assert found == {}


def test_what_people_read_is_written_plain() -> None:
    lines = {
        line
        for path in PACKAGE.rglob("*.py")
        for line in PAGES.findall(path.read_text(encoding="utf-8"))
        if "plain(" not in line
    }
    assert lines == set()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Input should be greater than 0", "Expected: greater than 0"),
        ("Value error, 'fp8' is no precision", "'fp8' is no precision"),
        ("Field required", "Field required"),
    ],
)
def test_what_pydantic_says_is_told_in_our_words(said: str, told: str) -> None:
    assert expected_of(said) == told
