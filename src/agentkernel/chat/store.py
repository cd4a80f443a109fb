"""Session file on disk, and the candidates gathered from the folders of its runs.

`session.sqlite` in the session's folder holds everything. Each turn is one transaction with the
tree of that moment, so that a kill costs the turn at most; candidates are written once.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pydantic import JsonValue, TypeAdapter, ValidationError

from agentkernel.agents.protocols import Attempt
from agentkernel.chat.replies import Reply, Turn
from agentkernel.chat.tree import Node, Origin, Tree, complete, grow, problem_of
from agentkernel.domain.base import INFINITE_AS_TEXT
from agentkernel.domain.errors import RunNotFound, one_line
from agentkernel.domain.plan import Plan
from agentkernel.domain.problem import Problem
from agentkernel.domain.profile import ProfileFailed
from agentkernel.domain.settings import Settings
from agentkernel.storage.files import explain_write_failure, make_folder
from agentkernel.storage.sqlite import connect
from agentkernel.tools.run_store import SESSION_FILE, RunStore, note_use, plain_name, stamp

FORMAT = "1"
NAME = SESSION_FILE
REPLIES: TypeAdapter[tuple[Reply, ...]] = TypeAdapter(tuple[Reply, ...], config=INFINITE_AS_TEXT)
APPROVED: TypeAdapter[tuple[bool, ...]] = TypeAdapter(tuple[bool, ...])
LOST = "Its runs are still there. Next: begin a session anew."
TURNS_LOST = (
    "Its candidates, settings and runs can be read: the session goes on. Next: 'save' writes a "
    "candidate."
)
SCHEMA = """
create table if not exists meta (name text primary key, value text not null);
create table if not exists problems (key text primary key, value text not null);
create table if not exists plans (step integer primary key, value text not null);
create table if not exists nodes (number integer primary key, value text not null);
create table if not exists tree (id integer primary key check (id = 1), value text not null);
create table if not exists approved (turn integer primary key, value text not null);
create table if not exists turns (
    id integer primary key, text text not null, replies text not null, at text not null);
"""


class SessionStore:
    """An open session file. Every method that writes is one transaction."""

    def __init__(self, folder: Path) -> None:
        """Open or create the file in `folder`. Raises RunNotFound for a damaged one."""
        self.folder = folder
        self.path = folder / NAME
        self._lock = threading.Lock()
        self._written: dict[int, Node] = {}
        with explain_write_failure(self.path):
            self._db = connect(self.path)
            try:
                self._db.execute("pragma journal_mode=wal")
                self._db.executescript(SCHEMA)
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError as error:
                self._db.close()
                raise damaged(folder, error) from error

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._db.close()

    def begin(self, problem: Problem, settings: Settings) -> None:
        """Write what a new session starts from."""
        rows = {
            "format": FORMAT,
            "created": now(),
            "settings": settings.model_dump_json(),
        }
        with explain_write_failure(self.path), self._lock, self._db:
            self._db.execute("begin")
            for item in rows.items():
                self._db.execute("insert or replace into meta values (?,?)", item)
            self._put_problem("", problem)
            self._put_tree(Tree())

    def meta(self, name: str) -> str:
        """A value that `begin` wrote. Raises RunNotFound where it is missing."""
        row = self._row("select value from meta where name=?", name)
        if row is None:
            raise damaged(self.folder, f"it has no {name!r}")
        return row

    def settings(self) -> Settings:
        """What the session began with."""
        with _reading(self.folder):
            return Settings.model_validate_json(self.meta("settings"))

    def problem(self, key: str) -> Problem:
        """The problem as it came (""), or one that was derived from it."""
        row = self._row("select value from problems where key=?", key)
        if row is None:
            raise damaged(self.folder, f"it has no problem {key!r}")
        with _reading(self.folder):
            return Problem.model_validate_json(row)

    def problems(self) -> tuple[str, ...]:
        """The keys of all problems, the module's own first."""
        rows = self._db.execute("select key from problems order by rowid").fetchall()
        return tuple(str(row[0]) for row in rows)

    def add_problem(self, key: str, problem: Problem) -> None:
        """Keep a derived problem."""
        with explain_write_failure(self.path), self._lock, self._db:
            self._put_problem(key, problem)

    def plan(self, step: int) -> Plan | None:
        """The plan of a step's run."""
        row = self._row("select value from plans where step=?", step)
        with _reading(self.folder):
            return None if row is None else Plan.model_validate_json(row)

    def save_plan(self, step: int, plan: Plan) -> None:
        """Keep the plan of a step's run."""
        with explain_write_failure(self.path), self._lock, self._db:
            self._db.execute(
                "insert or replace into plans values (?,?)", (step, plan.model_dump_json())
            )

    def save_tree(self, tree: Tree) -> None:
        """Keep the tree in the middle of a turn: a step has begun."""
        with explain_write_failure(self.path), self._lock, self._db:
            self._db.execute("begin")
            self._put_tree(tree)
        self._written = {item.number: item for item in tree.nodes}

    def add_turn(self, turn: Turn, tree: Tree) -> None:
        """Keep a turn that ended, with the tree that it left."""
        replies = REPLIES.dump_json(turn.replies).decode()
        with explain_write_failure(self.path), self._lock, self._db:
            self._db.execute("begin")
            self._put_tree(tree)
            kept = self._db.execute(
                "insert into turns (text, replies, at) values (?,?,?)",
                (turn.text, replies, turn.at),
            )
            if turn.approved:
                said = APPROVED.dump_json(turn.approved).decode()
                self._db.execute("insert into approved values (?,?)", (kept.lastrowid, said))
        self._written = {item.number: item for item in tree.nodes}
        note_use(self.folder)

    def tree(self) -> Tree:
        """The tree as it was last written."""
        with _reading(self.folder):
            row = self._row("select value from tree where id=?", 1)
            if row is None:
                raise damaged(self.folder, "it has no tree")
            rows = self._db.execute("select value from nodes order by number").fetchall()
            nodes = tuple(Node.model_validate_json(item[0]) for item in rows)
            self._written = {item.number: item for item in nodes}
            return Tree.model_validate_json(row).evolve(nodes=nodes)

    def turns(self) -> tuple[Turn, ...]:
        """All turns in order. Raises RunNotFound where one cannot be read."""
        with _reading(self.folder, "the turns of the session", TURNS_LOST):
            rows = self._db.execute(
                "select text, replies, at, coalesce(value, '[]') from turns "
                "left join approved on turn = id order by id"
            ).fetchall()
            return tuple(
                Turn(
                    text=row[0],
                    replies=_replies(row[1]),
                    at=row[2],
                    approved=APPROVED.validate_json(row[3]),
                )
                for row in rows
            )

    def _put_problem(self, key: str, problem: Problem) -> None:
        self._db.execute(
            "insert or replace into problems values (?,?)", (key, problem.model_dump_json())
        )

    def _put_tree(self, tree: Tree) -> None:
        for node in tree.nodes:
            if self._written.get(node.number) is not node:
                self._db.execute(
                    "insert or replace into nodes values (?,?)",
                    (node.number, node.model_dump_json()),
                )
        bare = tree.evolve(nodes=())
        self._db.execute("insert or replace into tree values (1,?)", (bare.model_dump_json(),))

    def _row(self, query: str, value: str | int) -> str | None:
        with _reading(self.folder):
            row = self._db.execute(query, (value,)).fetchone()
            return None if row is None else str(row[0])


def _replies(text: str) -> tuple[Reply, ...]:
    """A turn's replies. Where an infinite or NaN figure was once written as null, it is NaN."""
    try:
        return REPLIES.validate_json(text)
    except ValidationError as error:
        lost = [item["loc"] for item in error.errors() if item["input"] is None]
        if len(lost) < error.error_count():
            raise
        written = json.loads(text)
        for place in lost:
            _put_nan(written, place)
        return REPLIES.validate_json(json.dumps(written))


def _put_nan(written: JsonValue, place: tuple[int | str, ...]) -> None:
    """NaN at `place`, which names the kinds of unions' members besides keys and indices."""
    held, last = written, place[-1]
    for key in place[:-1]:
        if isinstance(held, list) and isinstance(key, int):
            held = held[key]
        elif isinstance(held, dict) and key in held:
            held = held[str(key)]
    if isinstance(held, dict):
        held[str(last)] = "NaN"


@contextmanager
def _reading(folder: Path, what: str = "the session", left: str = LOST) -> Iterator[None]:
    """Turns what a damaged file raises into one clear line."""
    try:
        yield
    except (sqlite3.DatabaseError, ValidationError) as error:
        raise damaged(folder, error, what, left) from error


def damaged(folder: Path, why: object, what: str = "the session", left: str = LOST) -> RunNotFound:
    """The line for a session file of which `what` cannot be read; `left` is what to do."""
    return RunNotFound(
        f"Cannot read {what} {str(folder / NAME)!r}: {one_line(why, 120)}. Expected what "
        f"'agentkernel chat' wrote. {left}"
    )


def create_folder(runs: Path, name: str) -> Path:
    """Make `runs/NAME-chat-STAMP/`. Raises OutputError."""
    make_folder(runs)
    folder = runs / f"{plain_name(name) or 'module'}-chat-{stamp(datetime.now(UTC))}"
    with explain_write_failure(folder):
        folder.mkdir()
    note_use(folder)
    return folder


def open_store(folder: Path) -> SessionStore:
    """The store of a session that is there. Raises RunNotFound for none, a damaged one, or one that
    a later version wrote."""
    if not (folder / NAME).is_file():
        raise RunNotFound(
            f"No session in {str(folder)!r}. Expected a folder with {NAME}. "
            "Next: begin one with 'agentkernel chat FILE'."
        )
    store = SessionStore(folder)
    try:
        written = store.meta("format")
        if written != FORMAT:
            raise RunNotFound(
                f"The session {str(folder)!r} has format {written!r}, this version reads "
                f"{FORMAT!r}. Next: open it with the version that wrote it."
            )
    except RunNotFound:
        store.close()
        raise
    return store


def now() -> str:
    """The time in ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class RunCandidates(NamedTuple):
    """The tree with a run's candidates. `made` are new; `seen` are all of the run, in order."""

    tree: Tree
    made: tuple[int, ...]
    seen: tuple[int, ...]


class RunEnding(NamedTuple):
    """How a run came to its end, as its events tell it. `planned`: strategies of the last plan,
    `barren`: (strategy, why nothing came of it), `node`: what it did last."""

    planned: tuple[str, ...] = ()
    barren: tuple[tuple[str, str], ...] = ()
    stop: str = ""
    node: str = ""


def ending_of(store: RunStore) -> RunEnding:
    """The same of a run that may have been cut off."""
    plan = plan_in(store)
    begun = _events(store, ("node_started",))
    decisions = _events(store, ("decision",))
    drafts = _events(store, ("candidate_drafted",))
    return RunEnding(
        planned=tuple(item.strategy for item in plan.hypotheses) if plan is not None else (),
        barren=tuple(
            (str(item["strategy"]), str(item["reason"])) for item in drafts if not item["candidate"]
        ),
        stop=str(decisions[-1]["stop"] or "") if decisions else "",
        node=str(begun[-1]["node"]) if begun else "",
    )


def attempts_in(store: RunStore) -> tuple[Attempt, ...]:
    """Every candidate of a run with what became of it, also where the run was cut off."""
    records = store.records
    verdicts = {item.candidate: item for item in records.verdicts()}
    profiles = {item.candidate: item for item in records.profiles()}
    asides: dict[str, str] = {}
    missed: dict[str, ProfileFailed] = {}
    for event in _events(store, ("candidate_set_aside", "profile_missed")):
        name = str(event["candidate"])
        if event["kind"] == "candidate_set_aside":
            asides[name] = str(event["reason"])
        else:
            missed[name] = ProfileFailed(
                side=str(event["side"]), reason=str(event["reason"]), log=str(event["log"])
            )
    return tuple(
        Attempt(
            candidate=item,
            verdict=verdicts.get(item.sha256),
            profile=profiles.get(item.sha256),
            unprofiled=None if item.sha256 in profiles else missed.get(item.id),
            aside="" if item.sha256 in verdicts else asides.get(item.id, ""),
        )
        for item in records.candidates()
    )


def plan_in(store: RunStore) -> Plan | None:
    """The plan of a run as it stood last, None where it came to none."""
    found = _events(store, ("planned",))
    return Plan.model_validate(found[-1]["plan"]) if found else None


def _events(store: RunStore, kinds: tuple[str, ...]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = [json.loads(item) for item in store.records.events()]
    return [item for item in found if item["kind"] in kinds]


def add_attempts(
    tree: Tree, step: int, attempts: Sequence[Attempt], origin: Origin = "drafted"
) -> RunCandidates:
    """The tree with `attempts` of that step: known ones are completed, others get numbers."""
    made: list[int] = []
    seen: list[int] = []
    for attempt in attempts:
        known = _known(tree, step, attempt)
        if known is None:
            tree = grow(tree, (_node(tree, step, attempt, origin),))
            made.append(tree.nodes[-1].number)
            seen.append(tree.nodes[-1].number)
            continue
        seen.append(known.number)
        if _says_more(attempt, known):
            tree = complete(tree, _told(_asked_anew(tree, step, known, attempt), attempt))
    return RunCandidates(tree, tuple(made), tuple(seen))


def attempt_of(node: Node) -> Attempt:
    """The same as a run's history knows it."""
    return Attempt(
        candidate=node.candidate,
        verdict=node.verdict,
        profile=node.profile,
        unprofiled=node.unprofiled,
        aside=node.aside,
    )


def _node(tree: Tree, step: int, attempt: Attempt, origin: Origin) -> Node:
    asked = tree.step(step)
    base = asked.base if asked is not None else None
    node = Node(number=1, parent=base, step=step, origin=origin, candidate=attempt.candidate)
    parents = [item for item in tree.nodes if item.candidate.sha256 == attempt.candidate.parent]
    if parents:
        node = node.evolve(parent=parents[-1].number)
    return _told(node, attempt)


def _asked_anew(tree: Tree, step: int, known: Node, attempt: Attempt) -> Node:
    """A candidate that was left unjudged belongs to the step that judges it."""
    asked = tree.step(step)
    if known.verdict is not None or attempt.verdict is None or asked is None or known.step == step:
        return known
    parent = asked.base if asked.base not in (None, known.number) else known.parent
    if attempt.candidate.parent is not None:
        parent = known.parent
    return known.evolve(step=step, parent=parent)


def _told(node: Node, attempt: Attempt) -> Node:
    return node.evolve(
        verdict=attempt.verdict,
        profile=attempt.profile,
        unprofiled=attempt.unprofiled,
        aside=attempt.aside,
    )


def _known(tree: Tree, step: int, attempt: Attempt) -> Node | None:
    """The candidate of the same text, sizes, target and rules that the session has."""
    asked = tree.step(step)
    problem = asked.problem if asked is not None else ""
    same = (
        item
        for item in tree.nodes
        if item.candidate.sha256 == attempt.candidate.sha256
        and problem_of(tree, item) == problem
        and _alike(item, attempt)
    )
    return next(same, None)


def _alike(node: Node, attempt: Attempt) -> bool:
    if node.verdict is not None and attempt.verdict is not None:
        old, new = node.verdict, attempt.verdict
        judged = (old.precision, old.policy, old.device) == (new.precision, new.policy, new.device)
        if not judged:
            return False
    if node.profile is not None and attempt.profile is not None:
        return (node.profile.target, node.profile.measured_on) == (
            attempt.profile.target,
            attempt.profile.measured_on,
        )
    return True


def _says_more(attempt: Attempt, node: Node) -> bool:
    judged = node.verdict is None and attempt.verdict is not None
    timed = node.profile is None and attempt.profile is not None
    return judged or timed
