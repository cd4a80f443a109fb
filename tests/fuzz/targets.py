"""What reads files of others, as the commands call it: one function for each kind of file."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TypeVar, get_args

import typer

from agentkernel.agents.answers import read_answer
from agentkernel.chat.overview import explain as explain_source
from agentkernel.chat.store import open_store
from agentkernel.cli import app
from agentkernel.cli.chat.sessions import last_used, read_flags, sessions
from agentkernel.cli.knowledge import search
from agentkernel.cli.knowledge.options import EntriesFolder, ShowEntryFlags, StatsFlags
from agentkernel.cli.nightly import library
from agentkernel.cli.nightly.options import (
    LibraryExportFlags,
    LibraryListFlags,
    LibraryPruneFlags,
    LibraryShowFlags,
)
from agentkernel.cli.nightly.zoo import is_zoo, select_models
from agentkernel.cli.options import ReportFlags, RunsFlags, ShowFlags, VerifyFlags
from agentkernel.cli.report import report
from agentkernel.cli.runs import runs, show
from agentkernel.cli.verify import verify
from agentkernel.domain.errors import ProblemError
from agentkernel.domain.plain_text import plain
from agentkernel.domain.verdict import Policy
from agentkernel.knowledge.code_structure import structure_of_code
from agentkernel.knowledge.store import open_knowledge_store
from agentkernel.knowledge.transfer import ImportFilter, import_entries
from agentkernel.knowledge.vector_index import open_vectors
from agentkernel.nightly.zoo.reader import read_zoo
from agentkernel.storage.files import read_regular
from agentkernel.storage.source_text import compile_source, parse_source, read_source
from agentkernel.tools.certificate.record import read_certificate
from agentkernel.tools.judge.bounds import distinct_forms
from agentkernel.tools.judge.gradients import declares_gradients
from agentkernel.tools.judge.policy.check import check_policy
from agentkernel.tools.judge.policy.families import GraphOperators, Work
from agentkernel.tools.judge.policy.kernel_source import telling_sizes
from agentkernel.tools.judge.races import find_race
from agentkernel.tools.problem import loading
from agentkernel.tools.problem.inputs import parse_init, parse_input
from agentkernel.tools.problem.packages import package_of
from agentkernel.tools.profiler.session import kernel_names
from agentkernel.tools.run_store import list_runs, open_run
from agentkernel.workflows.run import DAMAGED, open_saver
from tests.knowledge.memory_store import HashEmbedder

T = TypeVar("T")

Touched = str
"""The names of the files that were edited, a line each: only what reads them is asked."""


EXPORT = "export.jsonl"
SORTING = GraphOperators(calls={"sort": Work(1)}, computes={"sort": 1})
"""What the original of every candidate calls."""


class Garbled(AssertionError):
    """A sign that steers a terminal, or half a surrogate, was printed or written."""


def certificate(folder: Path, touched: Touched) -> None:
    """`verify`, and what takes a drop-in from a certificate."""
    path = folder / "certificate.json"
    command(verify, VerifyFlags(path, no_replay=True))
    command(verify, VerifyFlags(path, as_json=True))
    with expected():
        read_certificate(path)


def run(folder: Path, touched: Touched) -> None:
    """`runs`, `show`, `report`, and the beginning of `resume` and `chat`."""
    place = folder / "runs"
    command(runs, RunsFlags(place, as_json=len(touched) % 2 == 0))
    if "night" in touched and command(report, ReportFlags(str(folder / "night.json"))):
        check_page(folder / "night.html")
    for found in sessions(place) if "chat" in touched else ():
        read_flags(Path(found.folder))
        with expected(), closing(open_store(Path(found.folder))) as session:
            session.settings()
            session.tree()
            session.turns()
            session.plan(1)
            for key in session.problems():
                session.problem(key)
    with expected(OSError):
        last_used(place)
    for item in list_runs(place) if place.is_dir() else ():
        if "runs/plus-2" in touched:
            _one_run(Path(item.folder), item.id, place)


def _one_run(folder: Path, name: str, place: Path) -> None:
    command(show, ShowFlags(str(folder), runs=place))
    command(show, ShowFlags(str(folder), runs=place, as_json=True))
    command(show, ShowFlags(str(folder), runs=place, source=True), raw=True)
    if command(report, ReportFlags(str(folder), runs=place)):
        check_page(folder / "report.html")
    with expected(), closing(open_run(place, str(folder))) as store:
        with expected(*DAMAGED), open_saver(store.checkpoint_path) as saver:
            saver.get_tuple({"configurable": {"thread_id": name}})
        for candidate in store.records.candidates():
            store.write_candidate(candidate)
        store.problem()


def stores(folder: Path, touched: Touched) -> None:
    """`library` and `knowledge`, and the index of vectors."""
    file, knowledge = folder / "library.sqlite", folder / "knowledge"
    if "library" in touched or "exported" in touched:
        command(library.list_kernels, LibraryListFlags(file))
        command(library.show, LibraryShowFlags("a", file))
        command(library.export, LibraryExportFlags(folder / "exported", file))
        command(library.prune, LibraryPruneFlags(file, withdrawn=True, yes=True))
        command(report, ReportFlags("20261121-100000-abcd", library=file))
    if "knowledge.sqlite" in touched or "export.jsonl" in touched:
        with expected(), open_knowledge_store(knowledge) as truth:
            border = ImportFilter(lambda name: truth.get(name, superseded=True))
            import_entries(lambda entries: truth.put(border.admitted(entries)), folder / EXPORT)
            truth.lexical("softmax row")
        folder_flags = EntriesFolder(knowledge)
        command(search.show_entry, ShowEntryFlags("e/1", knowledge=folder_flags))
        command(search.stats, StatsFlags(folder_flags))
    if "vectors" in touched or touched.endswith(("knowledge", "knowledge/lock")):
        with expected():
            index = open_vectors(knowledge, HashEmbedder())
            index.search(HashEmbedder().embed(["softmax 1"])[0], 3)


def zoo(folder: Path, touched: Touched) -> None:
    """What `batch ZOO.yaml` does before it imports a model."""
    path = folder / "zoo.yaml"
    is_zoo(path)
    with expected():
        found = read_zoo(path)
        select_models(found, [model.name for model in found.models])


def problem(folder: Path, touched: Touched) -> None:
    """What is done with a problem's text before it is run, which is the user's own code."""
    try:
        flags = json.loads(read_regular(folder / "flags.json", 10**6))
    except (OSError, ValueError, RecursionError, MemoryError):
        flags = {}
    flags = flags if isinstance(flags, dict) else {}
    inputs = flags.get("inputs")
    given = [str(item) for item in inputs] if isinstance(inputs, list) else []
    init, kwargs = str(flags.get("init", "")), str(flags.get("kwargs", ""))
    path = folder / "problem.py"
    for name in (str(path), f"{path}:Model", "problem:Model", "problem"):
        with expected():
            loading.load_problem(name, given, init, kwargs)
    for item in given:
        with expected():
            parse_input(item)
    with expected():
        parse_init(init)
    with expected(OSError, UnicodeDecodeError):
        text = read_source(path, "utf-8-sig")
        structure_of_code(text)
        with expected(SyntaxError):
            package_of(path, text, "")


def candidate(folder: Path, touched: Touched) -> None:
    """What the process of the judge reads of a candidate, which runs in the sandbox alone."""
    with expected(OSError, UnicodeDecodeError):
        text = read_source(folder / "candidate.py")
        policies = get_args(Policy)
        check_policy(text, policies[len(text) % len(policies)], None, SORTING)
        find_race(text)
        declares_gradients(text)
        kernel_names(text)
        distinct_forms([], text)
        structure_of_code(text)
        read_answer(f"Here it is:\n```python\n{text}\n```\n", parent=text)
        with expected(SyntaxError):
            telling_sizes(parse_source(text))
        explain_source(text)


TARGETS: dict[str, Callable[[Path, Touched], None]] = {
    "certificate": certificate,
    "run": run,
    "stores": stores,
    "zoo": zoo,
    "problem": problem,
    "candidate": candidate,
}


def command(function: Callable[[T], None], flags: T, *, raw: bool = False) -> bool:
    """Whether a command succeeds; what it raises and explains to nobody is raised. `raw`: it prints
    a file as it is."""
    out, errors = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(errors):
            function(flags)
    except typer.Exit as error:
        return error.exit_code == 0
    except Exception as error:
        if app.explain(error)[1] == app.EXIT_FAILED:
            raise
        return False
    finally:
        check_plain(errors.getvalue())
        check_plain("" if raw else out.getvalue())
    return True


def check_page(path: Path) -> None:
    """Raise Garbled for a page that was written with such signs."""
    check_plain(path.read_text())


def check_plain(text: str) -> None:
    """Raise Garbled where `text` holds what `plain` writes out."""
    if plain(text) != text:
        sign = next(one for one in text if plain(one) != one)
        at = text.index(sign)
        raise Garbled(f"{sign!r} in {text[max(0, at - 60) : at + 60]!r}")


@contextmanager
def expected(*kinds: type[Exception]) -> Iterator[None]:
    """What `kinds` end, and what the commands explain in one line."""
    try:
        yield
    except kinds:
        pass
    except Exception as error:
        if app.explain(error)[1] == app.EXIT_FAILED:
            raise


def run_no_problem() -> None:
    """Let a problem's text be compiled and no more: it is the user's own code, and runs."""

    def execute(source: str, path: Path, package: object = None) -> None:
        with expected(SyntaxError, ValueError):
            compile_source(source, "problem")
        raise ProblemError(f"{path.name} is not run here.")

    loading._execute = execute  # type: ignore[assignment]
