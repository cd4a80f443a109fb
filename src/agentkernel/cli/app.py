"""The command tree, and the mapping of a failure to one line and an exit code.

A command is a row of a table: its flags are imported once it is named, its body once it is called.
`--help` and `--version` load neither, and no torch.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from agentkernel.cli.command_table import COMMANDS, GROUPS, Command
from agentkernel.cli.terminal import (
    collector_off,
    discard_output,
    interrupt_on_termination,
    loading,
    print_failure,
    print_plain,
    standard_streams,
)
from agentkernel.domain.errors import AgentKernelError, OutputLost, one_line
from agentkernel.storage.files import FULL, is_machine_fault
from agentkernel.version import __version__


def of_cli(path: str) -> Any:
    """What "module:name" below `agentkernel.cli` names, imported now."""
    module, _, name = path.partition(":")
    return getattr(import_module(f"agentkernel.cli.{module}"), name)


def body(path: str) -> Callable[[object], None]:
    """The function that does what a command asks, imported once it is called."""

    def call(flags: object) -> None:
        try:
            with loading(silent=bool(getattr(flags, "as_json", False))), collector_off():
                if hasattr(flags, "subject"):
                    of_cli("early:check_early")(flags)
                found = of_cli(path)
            found(flags)
        except (KeyboardInterrupt, RuntimeError) as stop:
            if isinstance(stop, typer.Abort) or not _is_interruption(stop):
                raise  # an Abort has its words
            raise typer.Abort from stop  # typer would leave with 130 and without a word

    return call


def _is_interruption(error: BaseException | None) -> bool:
    """Also of one that came over it: threading.Condition, whose wait is interrupted while it takes
    its lock again, says that the lock is not held."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def build(row: Command) -> Any:
    """A command with its flags, whose module is imported now."""
    alone = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    flags = of_cli(row.flags)
    alone.command(row.name, cls=TyperCommand)(of_cli("options:command_of")(flags, body(row.body)))
    return typer.main.get_command(alone)


DOCS_WORDS = {"night": "batch", "nightly": "batch", "zoo": "batch"}
"""Words of the docs that are no commands, and the command that does what they name."""


class LazyGroup(TyperGroup):
    """A group whose list holds names and lines alone: the flags of a command are imported, and it
    is built, when it is asked for. So `--help` stays quick."""

    rows: ClassVar[Mapping[str, Command]] = {}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with."""
        meant = DOCS_WORDS.get(args[0], "") if args else ""
        if meant in self.rows and args[0] not in self.rows:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {meant!r}?")
        name, listed, rest = super().resolve_command(ctx, args)
        row = self.rows.get(name or "")
        return name, listed if row is None else build(row), rest


def group(
    name: str,
    help_text: str,
    commands: Sequence[Command],
    *,
    epilog: str | None = None,
    completion: bool = False,
) -> typer.Typer:
    """A group of commands in the order of its help; `completion`: with --install-completion."""
    found = typer.Typer(
        name=name,
        cls=type("Group", (LazyGroup,), {"rows": {row.name: row for row in commands}}),
        help=help_text,
        epilog=epilog,
        rich_markup_mode=None,
        add_completion=completion,
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    for row in commands:
        found.command(row.name, cls=TyperCommand, help=row.summary, hidden=row.hidden)(_listed)
    return found


def _listed() -> None:
    """A command in a list; `build` makes the one that is called."""


EXIT_FAILED, EXIT_USER, EXIT_ENVIRONMENT, EXIT_INTERRUPTED = 1, 2, 4, 130
PATHS = (
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.EACCES,
    errno.EPERM,
)
"""What the system says of a path that is wrong or not the user's."""
SHOWN_PATH = 120
INTERRUPTED = "Interrupted. What was finished is kept. Next: the same command again."
NOTHING_KEPT = "Interrupted: nothing is kept. Next: the same command again."
IN_ONE_PIECE = ("apply", "judge", "plan", "profile", "verify")
"""Commands that are done whole or not at all."""

app = group(
    "agentkernel",
    "A PyTorch module in, a faster Triton drop-in that can be trusted out.",
    COMMANDS,
    epilog="Exit: 0 met, improved or verified; 3 a baseline kept; 1 failed; 2 your mistake; "
    "4 the environment's; 130 interrupted. A night's (batch ZOO.yaml): 0 fine, 5 a regression, "
    "6 something does not verify. --debug shows tracebacks.",
    completion=True,
)
for commands in GROUPS:
    app.add_typer(group(*commands))


def show_version(asked: bool) -> None:
    """Print the version and leave."""
    if asked:
        print(f"agentkernel {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Show the version.", callback=show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """A PyTorch module in, a faster Triton drop-in that can be trusted out."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        with standard_streams(), interrupt_on_termination():
            code = run(words, debug=debug)
    except OutputLost as error:
        print_failure(str(error), error.exit_code, "OutputLost", as_json=False)
        code = error.exit_code
    sys.exit(code)


def run(words: list[str], *, debug: bool = False) -> int:
    """The exit code of one command line; failures are printed as one line unless `debug`."""
    as_json = "--json" in words
    try:
        code = app(args=words, prog_name="agentkernel", standalone_mode=False, obj=debug)
        return code if isinstance(code, int) else 0
    except Exception as error:  # the border: every failure becomes a line and a number
        if type(error).__name__ == "NoArgsIsHelpError":  # typer has no name for it
            print_plain(str(error).rstrip())
            return 0
        if isinstance(error, OutputLost):
            discard_output()
        elif debug and not isinstance(error, typer.Abort):
            raise
        line, exit_code = explain(error, words)
        print_failure(line, exit_code, type(error).__name__, as_json=as_json)
        return exit_code
    except KeyboardInterrupt:
        line = _interrupted(words)
        print_failure(line, EXIT_INTERRUPTED, "KeyboardInterrupt", as_json=as_json)
        return EXIT_INTERRUPTED


def _interrupted(words: Sequence[str]) -> str:
    return NOTHING_KEPT if words and words[0] in IN_ONE_PIECE else INTERRUPTED


def explain(error: Exception, words: Sequence[str] = ()) -> tuple[str, int]:
    """The line and the exit code of a failure: whose it is, and what to do. `words`: of the command
    line, of which a usage error names its own."""
    if isinstance(error, AgentKernelError):
        return str(error), error.exit_code
    if isinstance(error, typer.Abort):
        return str(error) or _interrupted(words), EXIT_INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return "The reader of what is said went away.", EXIT_ENVIRONMENT
    if isinstance(error, OSError) and (is_machine_fault(error) or error.errno in PATHS):
        return _explain_system(error)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's
        said = f"No memory was left: {one_line(error, 200)}."
        return f"{said} Next: end what else holds it, or ask at smaller sizes.", EXIT_ENVIRONMENT
    format_message = getattr(error, "format_message", None)
    if format_message is not None:
        return _explain_usage(error, format_message(), words), EXIT_USER
    return (
        f"{type(error).__name__}: {error}. This is a bug; --debug shows where.",
        EXIT_FAILED,
    )


NO_NUMBER = re.compile(r"Input should be a valid (number|integer), unable to parse string.*")


def _explain_usage(error: Exception, message: str, words: Sequence[str]) -> str:
    """What is wrong with which word, and the command whose help says what is right."""
    command = getattr(getattr(error, "ctx", None), "command_path", "agentkernel")
    given = _given(getattr(getattr(error, "param", None), "opts", ()), words)
    said = f"it is {given!r}, expected " if given is not None else "expected "
    message = NO_NUMBER.sub(lambda found: f"{said}{ARTICLES[found[1]]}", message)
    end = "" if message.endswith((".", "?")) else "."
    return f"{message}{end} See '{command} --help'."


ARTICLES = {"number": "a number", "integer": "a whole number"}


def _given(options: Sequence[str], words: Sequence[str]) -> str | None:
    """The word that was given for one of `options`."""
    for word, following in zip(words, [*words[1:], None], strict=True):
        name, equal, value = word.partition("=")
        if name in options:
            return value if equal else following
    return None


def _explain_system(error: OSError) -> tuple[str, int]:
    """What the system refused: the machine's fault, or a path that is no such."""
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    about = f" {path[:SHOWN_PATH]!r}" if path else ""
    said = f"Cannot use{about or ' a file'}: {error.strerror or error}."
    if error.errno in FULL:
        return f"{said} Next: make room, or name another --runs.", EXIT_ENVIRONMENT
    if is_machine_fault(error):
        return f"{said} Next: fix the machine, or name a folder elsewhere.", EXIT_ENVIRONMENT
    if isinstance(error, PermissionError):
        return f"{said} Next: name a file or folder that you may use.", EXIT_USER
    return f"{said} Next: check the path.", EXIT_USER
