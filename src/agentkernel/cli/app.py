"""The command tree, and the mapping of a failure to one line and an exit code.

A command is a row of a table: its flags, which are light, and its body, which `body` alone imports,
once the command is called. `--help` and `--version` load no torch.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from typer.core import TyperCommand

from agentkernel.cli.bench.options import BenchFlags, RedteamFlags
from agentkernel.cli.knowledge import options as knowledge_options
from agentkernel.cli.nightly import options as nightly_options
from agentkernel.cli.options import (
    ChatFlags,
    DoctorFlags,
    JudgeFlags,
    McpFlags,
    OptimizeFlags,
    PlanFlags,
    ProfileFlags,
    ReportFlags,
    ResumeFlags,
    RunsFlags,
    ShowFlags,
    SkillFlags,
    TargetsFlags,
    VerifyFlags,
    command_of,
)
from agentkernel.cli.terminal import (
    discard_output,
    interrupt_on_termination,
    loading,
    print_failure,
    print_plain,
    standard_streams,
)
from agentkernel.cli.train import options as train_options
from agentkernel.domain.errors import AgentKernelError, OutputLost, one_line
from agentkernel.storage.files import FULL, is_machine_fault
from agentkernel.version import __version__

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Command(NamedTuple):
    """A command: its flags, and the function of one value, "module:function", that is its body."""

    name: str
    flags: type[DataclassInstance]
    path: str


COMMANDS = (
    Command("optimize", OptimizeFlags, "agentkernel.cli.optimize:optimize"),
    Command("resume", ResumeFlags, "agentkernel.cli.resume:resume"),
    Command("runs", RunsFlags, "agentkernel.cli.runs:runs"),
    Command("show", ShowFlags, "agentkernel.cli.runs:show"),
    Command("plan", PlanFlags, "agentkernel.cli.plan:plan"),
    Command("judge", JudgeFlags, "agentkernel.cli.judge:judge"),
    Command("profile", ProfileFlags, "agentkernel.cli.judge:profile"),
    Command("verify", VerifyFlags, "agentkernel.cli.verify:verify"),
    Command("redteam", RedteamFlags, "agentkernel.cli.bench.redteam:redteam"),
    Command("targets", TargetsFlags, "agentkernel.cli.targets:targets"),
    Command("doctor", DoctorFlags, "agentkernel.cli.doctor:doctor"),
    Command("chat", ChatFlags, "agentkernel.cli.chat.command:chat"),
    Command("batch", nightly_options.BatchFlags, "agentkernel.cli.nightly.batch:batch"),
    Command("bench", BenchFlags, "agentkernel.cli.bench.suite:bench"),
    Command("report", ReportFlags, "agentkernel.cli.report:report"),
    Command("mcp", McpFlags, "agentkernel.cli.coding_agents:mcp"),
    Command("skill", SkillFlags, "agentkernel.cli.coding_agents:skill"),
)

_SEARCH, _TRANSFER = "agentkernel.cli.knowledge.search", "agentkernel.cli.knowledge.transfer"
_MAINTENANCE = "agentkernel.cli.knowledge.maintenance"
KNOWLEDGE_COMMANDS = (
    Command("build", knowledge_options.BuildFlags, f"{_MAINTENANCE}:build"),
    Command("search", knowledge_options.SearchFlags, f"{_SEARCH}:search"),
    Command("show", knowledge_options.ShowEntryFlags, f"{_SEARCH}:show_entry"),
    Command("stats", knowledge_options.StatsFlags, f"{_SEARCH}:stats"),
    Command("add", knowledge_options.AddFlags, f"{_TRANSFER}:add"),
    Command(
        "import-kernelbook",
        knowledge_options.ImportKernelbookFlags,
        f"{_TRANSFER}:import_kernelbook",
    ),
    Command(
        "generate", knowledge_options.GenerateFlags, "agentkernel.cli.knowledge.generate:generate"
    ),
    Command("eval", knowledge_options.EvaluateSearchFlags, f"{_MAINTENANCE}:evaluate_search"),
    Command("export", knowledge_options.ExportFlags, f"{_TRANSFER}:export_file"),
    Command("import", knowledge_options.ImportFlags, f"{_TRANSFER}:import_file"),
    Command("doctor", knowledge_options.CheckFlags, f"{_MAINTENANCE}:check_knowledge"),
)

_LIBRARY = "agentkernel.cli.nightly.library"
LIBRARY_COMMANDS = (
    Command("list", nightly_options.LibraryListFlags, f"{_LIBRARY}:list_kernels"),
    Command("show", nightly_options.LibraryShowFlags, f"{_LIBRARY}:show"),
    Command("verify", nightly_options.LibraryVerifyFlags, f"{_LIBRARY}:verify"),
    Command("export", nightly_options.LibraryExportFlags, f"{_LIBRARY}:export"),
    Command("prune", nightly_options.LibraryPruneFlags, f"{_LIBRARY}:prune"),
)

TRAIN_COMMANDS = (
    Command("problems", train_options.ProblemsFlags, "agentkernel.cli.train.pairs:problems"),
    Command("pairs", train_options.PairsFlags, "agentkernel.cli.train.pairs:pairs"),
    Command("reviews", train_options.ReviewsFlags, "agentkernel.cli.train.reviews:reviews"),
    Command("data", train_options.DataFlags, "agentkernel.cli.train.data:data"),
    Command("sft", train_options.SftFlags, "agentkernel.cli.train.model:sft"),
    Command("rl", train_options.RlFlags, "agentkernel.cli.train.model:rl"),
    Command(
        "evaluate", train_options.EvaluateFlags, "agentkernel.cli.train.evaluate:evaluate_model"
    ),
    Command("cost", train_options.CostFlags, "agentkernel.cli.train.cost:cost"),
)


def body(path: str) -> Callable[[object], None]:
    """The function that does what a command asks, imported once it is called."""

    def call(flags: object) -> None:
        module, _, name = path.partition(":")
        with loading(silent=bool(getattr(flags, "as_json", False))):
            found = import_module(module)
        getattr(found, name)(flags)

    return call


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
        help=help_text,
        epilog=epilog,
        rich_markup_mode=None,
        add_completion=completion,
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    for command in commands:
        found.command(command.name, cls=TyperCommand)(command_of(command.flags, body(command.path)))
    return found


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

app = group(
    "agentkernel",
    "A PyTorch module in, a faster Triton drop-in that can be trusted out.",
    COMMANDS,
    epilog="Exit: 0 met, improved or verified; 3 a baseline kept; 1 failed; 2 your mistake; "
    "4 the environment's; 130 interrupted. A night's (batch ZOO.yaml): 0 fine, 5 a regression, "
    "6 something does not verify. --debug shows tracebacks.",
    completion=True,
)
app.add_typer(
    group(
        "knowledge",
        "Search and look after what is known: pairs, kernels, notes, fixes, experience.",
        KNOWLEDGE_COMMANDS,
    )
)
app.add_typer(
    group(
        "library",
        "Look after the verified kernels that nights over a zoo have made.",
        LIBRARY_COMMANDS,
    )
)
app.add_typer(
    group(
        "train", "Make a small model that writes kernels: its data, its training.", TRAIN_COMMANDS
    )
)


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
        print_failure(INTERRUPTED, EXIT_INTERRUPTED, "KeyboardInterrupt", as_json=as_json)
        return EXIT_INTERRUPTED


def explain(error: Exception, words: Sequence[str] = ()) -> tuple[str, int]:
    """The line and the exit code of a failure: whose it is, and what to do. `words`: of the command
    line, of which a usage error names its own."""
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
