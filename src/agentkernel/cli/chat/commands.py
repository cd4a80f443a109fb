"""The slash commands: their names, usage, help texts, and the request that each one makes."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from pydantic import ValidationError

from agentkernel.chat.requests import (
    AskDocs,
    CandidateName,
    CandidateRef,
    Compare,
    Diff,
    Edit,
    ExplainLine,
    Intent,
    OnCandidate,
    Plain,
    PlainName,
    Run,
    SetPrecision,
    SetTarget,
    SwitchBranch,
    TryIdea,
    Undo,
    WriteTo,
)
from agentkernel.chat.tree import Changes
from agentkernel.cli.chat import arguments as read
from agentkernel.cli.chat.arguments import InvalidArgument, setting_keys
from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import expected_of, one_line
from agentkernel.domain.verdict import Precision

ArgumentKind = Literal[
    "candidate", "branch", "path", "key", "value", "target", "precision", "idea", "command", "text"
]
"""What can be completed at a place of a command."""


class Ask(Frozen):
    """Something for the session to do."""

    intent: Intent


class Change(Frozen):
    """Settings to change, as dotted keys."""

    changes: Changes


class Help(Frozen):
    """Lines that need no session."""

    text: str


class InvalidCommand(Frozen):
    """One line on why the command cannot be done, with its usage."""

    text: str


Parsed: TypeAlias = Ask | Change | Help | InvalidCommand
Build: TypeAlias = Callable[[str], Intent | Changes]


@dataclass(frozen=True)
class Command:
    """`/name arguments`. `build` makes the request of the text behind the name; `kinds` says what
    stands at each place, the last one repeated where `repeats`."""

    name: str
    arguments: str
    help: str
    build: Build
    kinds: tuple[ArgumentKind, ...] = ()

    @property
    def usage(self) -> str:
        """As it is typed."""
        return f"/{self.name} {self.arguments}".rstrip()


def parse(line: str) -> Parsed:
    """What a line that begins with `/` asks for. Never raises."""
    name, _, rest = line.strip().removeprefix("/").partition(" ")
    name, rest = name.lower(), rest.strip()
    if name in ("help", "?"):
        return help_on(rest)
    command = COMMANDS.get(ALIASES.get(name, name))
    if command is None:
        return InvalidCommand(text=unknown(name))
    try:
        made = command.build(rest)
        return Change(changes=made) if isinstance(made, dict) else Ask(intent=made)
    except InvalidArgument as error:
        why = str(error)
    except ValidationError as error:
        wanted = expected_of(error.errors(include_url=False)[0]["msg"])
        why = f"{one_line(rest, 40)!r}: {wanted}"
    return InvalidCommand(text=f"/{command.name}: {why}. Usage: {command.usage}")


def unknown(name: str) -> str:
    """The line for a name that no command has, with the nearest one."""
    near = difflib.get_close_matches(name, [*COMMANDS, "help"], n=1, cutoff=0.5)
    hint = f" Did you mean /{near[0]}?" if near else ""
    return f"Unknown command {'/' + name[:40]!r}.{hint} /help lists them."


def help_on(name: str) -> Help | InvalidCommand:
    """All commands, or one."""
    if not name:
        return Help(text=HELP)
    plain = name.removeprefix("/").lower()
    command = COMMANDS.get(ALIASES.get(plain, plain))
    if command is None:
        return InvalidCommand(text=unknown(plain))
    return Help(text=f"{command.usage}\n  {command.help}")


def _plain(name: PlainName) -> Build:
    def build(text: str) -> Intent:
        if text:
            raise InvalidArgument(f"takes nothing, got {text[:40]!r}")
        return Plain(name=name)

    return build


def _on_candidate(name: CandidateName) -> Build:
    def build(text: str) -> Intent:
        return OnCandidate(name=name, candidate=_only(text))

    return build


def _only(text: str) -> CandidateRef:
    """The one candidate of a command, else the current one."""
    words = _words(text, 1)
    return read.candidate(words[0]) if words else "current"


def _words(text: str, most: int) -> list[str]:
    words = text.split()
    if len(words) > most:
        raise InvalidArgument(f"takes at most {most}, got {' '.join(words)[:60]!r}")
    return words


def _run(text: str) -> Intent:
    rounds, seconds = read.span(text)
    return Run(rounds=rounds, seconds=seconds)


def _explain(text: str) -> Intent:
    first, rest = _leading_candidate(text)
    if not rest:
        return OnCandidate(name="explain_kernel", candidate=first)
    begin, end = read.lines(rest)
    return ExplainLine(line=begin, last_line=end, candidate=first)


def _edit(text: str) -> Intent:
    first, rest = _leading_candidate(text)
    line = read.lines(rest).first if rest else None
    return Edit(candidate=first, line=line)


def _leading_candidate(text: str) -> tuple[CandidateRef, str]:
    """A candidate at the front of `text`, and the rest. A bare number is a line."""
    head, _, rest = text.partition(" ")
    if not head or head[0].isdigit() or head.lower() in ("line", "lines"):
        return "current", text
    return read.candidate(head), rest.strip()


def _diff(text: str) -> Intent:
    named = [read.candidate(word) for word in _words(text, 2)]
    if not named:
        return Diff()
    return Diff(candidate=named[0], against=named[1] if len(named) > 1 else "parent")


def _compare(text: str) -> Intent:
    words = _words(text, 2)
    if len(words) != 2:
        raise InvalidArgument("needs two candidates")
    return Compare(first=read.candidate(words[0]), second=read.candidate(words[1]))


def _set(text: str) -> Intent | Changes:
    if not text:
        return Plain(name="settings")
    key, equals, value = text.partition("=")
    if not equals or " " in key.strip():
        key, _, value = text.partition(" ")
    key, value = key.strip(), value.strip()
    if key not in known_keys():
        raise InvalidArgument(_unknown_key(key))
    if not value:
        raise InvalidArgument(f"{key[:40]!r} needs a value")
    return {key: read.setting(value)}


def known_keys() -> tuple[str, ...]:
    """The dotted keys of the settings."""
    return setting_keys()


def _unknown_key(key: str) -> str:
    known = known_keys()
    last = key.rpartition(".")[2]
    near = [name for name in known if last and name.rpartition(".")[2].startswith(last)]
    near = near or difflib.get_close_matches(key, known, n=1, cutoff=0.4)
    hint = f"; the nearest known one is {near[0]!r}" if near else ""
    return f"unknown setting {key[:40]!r}{hint}"


def _target(text: str) -> Intent:
    words = _words(text, 1)
    return SetTarget(target=words[0]) if words else Plain(name="targets")


def _precision(text: str) -> Intent:
    known: tuple[Precision, ...] = get_args(Precision)
    found = next((item for item in known if item == text.lower()), None)
    if found is None:
        raise InvalidArgument(f"{text[:40]!r} is no precision; expected {', '.join(known)}")
    return SetPrecision(precision=found)


def _undo(text: str) -> Intent:
    words = _words(text, 1)
    return Undo(steps=read.number(words[0], "a number of steps from 1 on")) if words else Undo()


def _switch(text: str) -> Intent:
    words = _words(text, 1)
    if not words:
        return SwitchBranch()
    if words[0][0] in "cC" or words[0].lower() in read.PLACES:
        return OnCandidate(name="return_to", candidate=read.candidate(words[0]))
    return SwitchBranch(branch=read.number(words[0], "a branch's number, or a candidate like c3"))


def _try(text: str) -> Intent:
    words = _words(text, 1)
    return TryIdea(idea=read.idea(words[0]) if words else "next")


def _ask_docs(text: str) -> Intent:
    if not text:
        raise InvalidArgument("needs words to search for")
    return AskDocs(query=text)


def _write(name: Literal["save", "export"]) -> Build:
    def build(text: str) -> Intent:
        return WriteTo(name=name, path=read.path(text))

    return build


def _never(text: str) -> Intent:
    raise InvalidArgument(text)


TABLE = (
    Command("run", "[ROUNDS] [TIME]", "draft, judge, measure: /run 3, /run 10m", _run),
    Command("plan", "", "the plan in force, and what it rests on", _plain("plan")),
    Command("ideas", "", "what could be tried next, numbered", _plain("ideas")),
    Command("try", "[N|next|last]", "draft from that idea of the plan", _try, ("idea",)),
    Command(
        "profile", "[CANDIDATE]", "where its time goes", _on_candidate("profile"), ("candidate",)
    ),
    Command(
        "roofline",
        "[CANDIDATE]",
        "how close it is to the GPU's limits",
        _on_candidate("roofline"),
        ("candidate",),
    ),
    Command("show", "[CANDIDATE]", "its source", _on_candidate("show_candidate"), ("candidate",)),
    Command(
        "diff",
        "[CANDIDATE] [AGAINST]",
        "what changed against its parent",
        _diff,
        ("candidate", "candidate"),
    ),
    Command(
        "explain",
        "[CANDIDATE] [LINE[-LINE]]",
        "what the kernel, or a line of it, does",
        _explain,
        ("candidate",),
    ),
    Command(
        "compare",
        "A B",
        "two candidates side by side",
        _compare,
        ("candidate", "candidate"),
    ),
    Command(
        "edit",
        "[CANDIDATE] [LINE]",
        "change it in $EDITOR; then it is judged",
        _edit,
        ("candidate",),
    ),
    Command(
        "verify",
        "[CANDIDATE]",
        "replay its certificate here",
        _on_candidate("verify"),
        ("candidate",),
    ),
    Command(
        "keep", "[CANDIDATE]", "this is the one: write it", _on_candidate("keep"), ("candidate",)
    ),
    Command("reject", "[CANDIDATE]", "not this one", _on_candidate("reject"), ("candidate",)),
    Command("set", "[KEY VALUE]", "change a setting; alone: show them", _set, ("key", "value")),
    Command("target", "[NAME]", "another GPU; alone: those known", _target, ("target",)),
    Command(
        "precision",
        "strict|tf32|bf16",
        "the rounding that is allowed",
        _precision,
        ("precision",),
    ),
    Command("undo", "[N]", "one step back, or N", _undo),
    Command("redo", "", "forward again", _plain("redo")),
    Command(
        "fork",
        "[CANDIDATE]",
        "a new branch from here, or there",
        _on_candidate("fork"),
        ("candidate",),
    ),
    Command(
        "switch",
        "[BRANCH|CANDIDATE]",
        "to a branch (2) or a candidate (c3)",
        _switch,
        ("branch",),
    ),
    Command("tree", "", "all candidates, and where you are", _plain("tree")),
    Command("history", "", "what was tried, and what came of it", _plain("history")),
    Command("status", "", "where things stand", _plain("status")),
    Command("cost", "", "time and money so far", _plain("cost")),
    Command("ask-docs", "WORDS", "search kernels, notes and fixes", _ask_docs, ("text",)),
    Command("save", "[PATH]", "write the drop-in", _write("save"), ("path",)),
    Command(
        "export",
        "[PATH]",
        "write drop-in, proof and the session",
        _write("export"),
        ("path",),
    ),
    Command("help", "[COMMAND]", "this list, or one command", _never, ("command",)),
    Command("quit", "", "end; all of it is saved", _plain("quit")),
)
COMMANDS = {command.name: command for command in TABLE}
ALIASES = {"exit": "quit", "q": "quit", "bye": "quit"}
_WIDTH = max(len(command.usage) for command in TABLE)
HELP = "\n".join(
    (
        *(f"{command.usage:<{_WIDTH}}  {command.help}" for command in TABLE),
        "",
        "Or in plain words: 'why is it slow?', 'allow tf32', 'go back to c3', 'keep it'.",
        f"CANDIDATE: c1 ..., {', '.join(read.PLACES[:4])},",
        f"{', '.join(read.PLACES[4:])}.",
        "A pasted file with ModelNew is judged like any other; in a script, put it",
        "between a line <<< and a line >>>.",
        "Tab completes. Ctrl-C stops a step, Ctrl-D ends; nothing is lost.",
    )
)
