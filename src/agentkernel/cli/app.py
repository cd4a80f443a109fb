"""The command tree, and the mapping of a failure to one line and an exit code.

Command modules are imported when the tree is built, so they import only typer and the standard
library at their tops; `--help` and `--version` load no torch.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from typer.core import TyperCommand

from agentkernel.cli.bench.redteam import redteam
from agentkernel.cli.bench.suite import bench
from agentkernel.cli.chat.command import chat
from agentkernel.cli.doctor import doctor
from agentkernel.cli.judge import judge, profile, verify
from agentkernel.cli.knowledge.maintenance import build, check_knowledge, evaluate_search, generate
from agentkernel.cli.knowledge.search import search, show_entry, stats
from agentkernel.cli.knowledge.transfer import add, export_file, import_file, import_kernelbook
from agentkernel.cli.nightly.batch import batch
from agentkernel.cli.nightly.library import library
from agentkernel.cli.optimize import optimize, resume
from agentkernel.cli.plan import plan, targets
from agentkernel.cli.runs import report, runs, show
from agentkernel.cli.terminal import (
    discard_output,
    interrupt_on_termination,
    print_failure,
    standard_streams,
)
from agentkernel.cli.train.data import data, pairs, problems, reviews
from agentkernel.cli.train.evaluate import evaluate_model
from agentkernel.cli.train.model import cost, rl, sft
from agentkernel.domain.errors import AgentKernelError, OutputLost, one_line
from agentkernel.storage.files import FULL, is_machine_fault
from agentkernel.version import __version__

KNOWLEDGE_COMMANDS: tuple[tuple[str, Callable[..., None]], ...] = (
    ("build", build),
    ("search", search),
    ("show", show_entry),
    ("stats", stats),
    ("add", add),
    ("import-kernelbook", import_kernelbook),
    ("generate", generate),
    ("eval", evaluate_search),
    ("export", export_file),
    ("import", import_file),
    ("doctor", check_knowledge),
)

knowledge = typer.Typer(
    name="knowledge",
    help="Search and look after what is known: pairs, kernels, notes, fixes, experience.",
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for name, knowledge_command in KNOWLEDGE_COMMANDS:
    knowledge.command(name, cls=TyperCommand)(knowledge_command)


TRAIN_COMMANDS: tuple[tuple[str, Callable[..., None]], ...] = (
    ("problems", problems),
    ("pairs", pairs),
    ("reviews", reviews),
    ("data", data),
    ("sft", sft),
    ("rl", rl),
    ("evaluate", evaluate_model),
    ("cost", cost),
)

train = typer.Typer(
    name="train",
    help="Make a small model that writes kernels: its data, its training.",
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for train_name, train_command in TRAIN_COMMANDS:
    train.command(train_name, cls=TyperCommand)(train_command)


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
INTERRUPTED = (
    "Interrupted. What was finished is kept. Next: the same command again, or 'agentkernel resume'."
)
COMMANDS: tuple[Callable[..., None], ...] = (
    optimize,
    resume,
    runs,
    show,
    plan,
    judge,
    profile,
    verify,
    redteam,
    targets,
    doctor,
    chat,
    batch,
    bench,
    report,
)

app = typer.Typer(
    name="agentkernel",
    help="A PyTorch module in, a faster Triton drop-in that can be trusted out.",
    epilog="Exit: 0 met, improved or verified; 3 a baseline kept; 1 failed; 2 your mistake; "
    "4 the environment's; 130 interrupted. A night's (batch ZOO.yaml): 0 fine, 5 a regression, "
    "6 something does not verify. --debug shows tracebacks.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in COMMANDS:
    app.command(cls=TyperCommand)(command)
app.add_typer(knowledge)
app.add_typer(library)
app.add_typer(train)


def show_version(asked: bool) -> None:
    """Print the version and leave."""
    if asked:
        print(f"agentkernel {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=show_version, is_eager=True),
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
        if isinstance(error, OutputLost):
            discard_output()
        elif debug and not isinstance(error, typer.Abort):
            raise
        line, exit_code = explain(error)
        print_failure(line, exit_code, type(error).__name__, as_json=as_json)
        return exit_code
    except KeyboardInterrupt:
        print_failure(INTERRUPTED, EXIT_INTERRUPTED, "KeyboardInterrupt", as_json=as_json)
        return EXIT_INTERRUPTED


def explain(error: Exception) -> tuple[str, int]:
    """The line and the exit code of a failure: whose it is, and what to do."""
    if isinstance(error, AgentKernelError):
        return str(error), error.exit_code
    if isinstance(error, typer.Abort):
        return INTERRUPTED, EXIT_INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return "The reader of what is said went away.", EXIT_ENVIRONMENT
    if isinstance(error, OSError) and (is_machine_fault(error) or error.errno in PATHS):
        return _explain_system(error)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's
        said = f"No memory was left: {one_line(error, 200)}."
        return f"{said} Next: end what else holds it, or ask at smaller sizes.", EXIT_ENVIRONMENT
    format_message = getattr(error, "format_message", None)
    if format_message is not None:
        return f"{format_message()} See 'agentkernel --help'.", EXIT_USER
    return (
        f"{type(error).__name__}: {error}. This is a bug; --debug shows where.",
        EXIT_FAILED,
    )


def _explain_system(error: OSError) -> tuple[str, int]:
    """What the system refused: the machine's fault, or a path that is no such."""
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    about = f" {path[:SHOWN_PATH]!r}" if path else ""
    said = f"Cannot use{about or ' a file'}: {error.strerror or error}."
    if error.errno in FULL:
        return f"{said} Next: make room, or name another --runs.", EXIT_ENVIRONMENT
    if is_machine_fault(error):
        return f"{said} Next: mend the machine, or name a folder elsewhere.", EXIT_ENVIRONMENT
    if isinstance(error, PermissionError):
        return f"{said} Next: name a file or folder that you may use.", EXIT_USER
    return f"{said} Next: check the path.", EXIT_USER
