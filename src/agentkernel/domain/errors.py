"""Exceptions for expected failures, one class each; the base class gives the exit code.

AgentKernelError
├── UserError (exit 2)
│   ├── ProblemError          the module, its inputs or its file
│   ├── UnknownTarget         no such GPU
│   ├── SettingError          a configuration key or flag
│   ├── RunNotFound           no such run, or its folder is beyond repair
│   ├── RunBusy               another process works on the run (exit 4: again later)
│   ├── KernelRefused         a verified kernel that may not run in this module
│   ├── KnowledgeError        a knowledge file, an export or an entry id that cannot be used
│   ├── LibraryError          a library of kernels, or a kernel in it, that cannot be used
│   ├── TrainingError         training data or a training folder that cannot be used
│   └── OutputError           a folder that cannot be written
│       └── DiskFailure       a disk that is full, read-only or broken (exit 4)
├── TimeIsUp                  the time limit ended before an answer was there
└── EnvironmentFailure (exit 4)
    ├── MissingDependency     a package, a driver, a GPU
    ├── SandboxUnavailable    nothing here can isolate a candidate
    ├── RankLost              one of the processes that train together is gone
    ├── RemoteUnavailable     another machine that cannot be reached, or lacks something
    ├── OutputLost            a standard output that is closed, full or no longer read
    └── ModelUnavailable      a model that does not answer
        ├── PromptTooLong     a prompt that leaves no room for an answer
        └── NotRecorded       a replay that lacks an answer
"""

from __future__ import annotations

import traceback
from pathlib import Path

from agentkernel.domain.plain_text import plain_line

HERE = Path(__file__).parents[1]


class AgentKernelError(Exception):
    """A failure with one clear line for the user."""

    exit_code = 1


class UserError(AgentKernelError):
    """The user can fix it: the line names the value, what was expected and the next step."""

    exit_code = 2


class ProblemError(UserError):
    """The problem's file, module, constructor, forward or inputs."""


class UnknownTarget(UserError):
    """A target that no packaged file describes."""


class SettingError(UserError):
    """A configuration key, a flag or its value."""


class RunNotFound(UserError):
    """A run that is not there, or whose folder cannot be read."""


class RunBusy(UserError):
    """A run or a night that another process works on: nothing is wrong with the command."""

    exit_code = 4


class KernelRefused(UserError):
    """A kernel that is changed, withdrawn or not accepted, or that is not of this module."""


class KnowledgeError(UserError):
    """A knowledge file, an export or an entry's id that cannot be used."""


class LibraryError(UserError):
    """A library of verified kernels, or a kernel or night in it, that cannot be used."""


class TrainingError(UserError):
    """Training data that may not be learned from, or a folder that belongs to another training."""


class OutputError(UserError):
    """A file or folder that cannot be written."""


class DiskFailure(OutputError):
    """A disk that is full, read-only or broken, or a file that another process holds: the same
    command goes on once the machine is fixed."""

    exit_code = 4


class EnvironmentFailure(AgentKernelError):
    """The machine lacks something; the line names the command that fixes it."""

    exit_code = 4


class MissingDependency(EnvironmentFailure):
    """A package, a driver or a GPU that this step needs."""


class SandboxUnavailable(EnvironmentFailure):
    """No way to isolate a candidate on this machine."""


class RankLost(EnvironmentFailure):
    """One of the processes that train a model together was killed, or failed: the same command goes
    on from the last checkpoint."""


class RemoteUnavailable(EnvironmentFailure):
    """Another machine that cannot be reached, does not let the user in, or lacks what a worker
    needs."""


class OutputLost(EnvironmentFailure):
    """The standard output cannot be written: it is closed, full, or nobody reads it any more."""


class ModelUnavailable(EnvironmentFailure):
    """A chat or local model that cannot be reached or loaded."""


class PromptTooLong(ModelUnavailable):
    """A question that leaves no room for an answer in a local model's window."""


class NotRecorded(ModelUnavailable):
    """A run that is replayed holds no answer to a question: nobody may stand in for it."""


class TimeIsUp(AgentKernelError):
    """The time limit of a run ended before what it waited for."""


def one_line(error: object, most: int = 300) -> str:
    """The first `most` characters of what `error` says, on one line, as `plain_line` writes it."""
    # Cut first: the text may be anybody's, of any length.
    return plain_line(" ".join(str(error)[: 20 * most].split()))[:most]


def expected_of(message: str) -> str:
    """What pydantic says of a value, in the words of this package: "Input should be greater than 0"
    is "Expected: greater than 0"."""
    told = message.removeprefix("Value error, ").partition(", unable to parse")[0]
    wanted = told.removeprefix("Input should be ")
    return told if wanted == told else f"Expected: {wanted}"


def whole_words(line: str, most: int) -> str:
    """At most `most` characters of one line; a cut lies between words, and "..." tells of it."""
    if len(line) <= most:
        return line
    return f"{line[: most - 3].rpartition(' ')[0] or line[: most - 4]} ..."


def cause_of(line: str) -> str:
    """An error's line without its next step: another line that holds it has one of its own."""
    return line.partition(" Next: ")[0]


def raised_at(error: BaseException) -> str:
    """The place that raised `error`, as `file.py:12 in name`; "" where nobody did. A bug in a
    library has the last place of this package that called it as well."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(HERE)]
    return ", from ".join(dict.fromkeys(map(_place, (*frames[-1:], *own[-1:]))))


def _place(frame: traceback.FrameSummary) -> str:
    return f"{'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno} in {frame.name}"
