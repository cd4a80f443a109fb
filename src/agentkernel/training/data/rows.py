"""Admission and reading of training rows.

A row passes by its label, split and licence, and only while the file in its completion is the
one that was judged; a row that says otherwise ends the training. The text of a module is read,
never executed, before it may run outside the sandbox: whatever is not plainly a module of torch
operators is refused, since files, processes, the network and the interpreter are reached
through names that such a module has no use for.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import random
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.errors import TrainingError, one_line
from agentkernel.domain.exchange import Message
from agentkernel.domain.verdict import Policy
from agentkernel.storage.files import sha256_of_file
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.policy.check import check_policy
from agentkernel.tools.judge.policy.names import BANNED_ATTRIBUTES, HARMLESS_DUNDERS, is_banned
from agentkernel.training.settings import TASKS, JudgedKernel, Label, Split, Task, TrainingRow
from agentkernel.training.worker_pool import is_undecided

IMPORTS = {"torch", "torch.nn", "torch.nn.functional", "math", "typing", "__future__"}
FROM = {"torch": {"nn", "Tensor"}, "torch.nn": {"functional", "Parameter"}}
"""What may be imported out of a package by name; of math, typing and __future__ anything."""
SPACES = {"torch.nn", "torch.nn.functional", "torch.linalg", "torch.special"}
"""Below torch, the packages that hold operators and layers alone."""
NEITHER = {
    *("compile", "load", "save", "hub", "jit", "ops", "classes", "library", "utils", "export"),
    *("package", "distributed", "multiprocessing", "from_file", "cuda", "os", "sys", "torch"),
    *("import_ir_module", "fx", "overrides", "storage", "serialization", "apply_", "map_"),
    *("register_hook", "share_memory_", "numpy", "modules", "backends", "set_default_device"),
}
"""Names that no module of operators has after a dot."""
TOP = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.Assign, ast.AnnAssign)
LONGEST = 20_000


def module_refusal(text: str, licence: str, allowed: Collection[str]) -> str | None:
    """Why the module `text` is neither run nor taught with; None where nothing speaks against it.

    `allowed` are the licences by SPDX name, in any case.
    """
    if licence.lower() not in {item.lower() for item in allowed}:
        return f"licence {licence!r} is not among those that allow it"
    if len(text) > LONGEST:
        return f"{len(text)} characters are more than {LONGEST}"
    try:
        tree = parse_source(text)
    except SyntaxError as error:
        return f"no Python: {type(error).__name__}"
    return next(_objections(tree), None)


def _objections(tree: ast.Module) -> Iterator[str]:
    for place, statement in enumerate(tree.body):
        documented = place == 0 and _is_text(statement)
        if not isinstance(statement, TOP) and not documented:
            yield f"line {statement.lineno}: a statement that runs at import"
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            yield from _call_objections(statement)
        if isinstance(statement, ast.ClassDef):
            yield from _class_objections(statement)
    modules = dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _import_objections(node, modules)
    dotted = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        yield from _name_objections(node, modules, dotted)


def _call_objections(statement: ast.stmt) -> Iterator[str]:
    if any(isinstance(node, ast.Call) for node in ast.walk(statement)):
        yield f"line {statement.lineno}: a call at import"


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _class_objections(node: ast.ClassDef) -> Iterator[str]:
    if node.decorator_list or node.keywords:
        yield f"line {node.lineno}: a class with a decorator or a metaclass"
    for item in node.body:
        if not isinstance(item, ast.FunctionDef | ast.Pass) and not _is_text(item):
            yield f"line {item.lineno}: a statement that runs at import"


def _import_objections(node: ast.Import | ast.ImportFrom, modules: dict[str, str]) -> Iterator[str]:
    for alias in node.names:
        if isinstance(node, ast.Import):
            full = alias.name
            known = full in IMPORTS
            modules[alias.asname or full.split(".")[0]] = full if alias.asname else "torch"
        else:
            full = f"{node.module}.{alias.name}"
            names = FROM.get(node.module or "")
            known = node.module in IMPORTS and not node.level and alias.name != "*"
            known = known and (names is None or alias.name in names)
            known = known and (names is not None or node.module in ("math", "typing", "__future__"))
            if full in SPACES:
                modules[alias.asname or alias.name] = full
        if not known:
            yield f"line {node.lineno}: imports {full}"


def _name_objections(
    node: ast.AST, modules: dict[str, str], dotted: Collection[int]
) -> Iterator[str]:
    if isinstance(node, ast.Name):
        if is_banned(node.id) or _dunder(node.id):
            yield f"line {node.lineno}: the name {node.id}"
        elif node.id in modules and id(node) not in dotted:
            yield f"line {node.lineno}: the package {node.id} under another name"
    elif isinstance(node, ast.Attribute):
        hidden = node.attr.startswith("_") and node.attr not in HARMLESS_DUNDERS
        if hidden or node.attr in BANNED_ATTRIBUTES or node.attr in NEITHER:
            yield f"line {node.lineno}: the attribute {node.attr}"
    elif isinstance(node, ast.FunctionDef):
        if node.decorator_list or (_dunder(node.name) and node.name not in HARMLESS_DUNDERS):
            yield f"line {node.lineno}: the method {node.name}"
        defaults = [*node.args.defaults, *(item for item in node.args.kw_defaults if item)]
        if any(isinstance(x, ast.Call) for item in defaults for x in ast.walk(item)):
            yield f"line {node.lineno}: a call at import"
    elif isinstance(node, ast.AsyncFunctionDef | ast.Global | ast.Nonlocal | ast.Try | ast.While):
        yield f"line {node.lineno}: {type(node).__name__}"


def _dunder(name: str) -> bool:
    return name.startswith("__") and name not in HARMLESS_DUNDERS


RIGHT: tuple[Label, ...] = ("gpu", "interpreter")
"""Labels of kernels that the judge accepted."""


def permitted_licence(licence: str, allowed: Collection[str]) -> str | None:
    """`licence` as `allowed` spells it, of several joined by a comma each; None where one of them
    is not allowed, or none is named."""
    known = {item.lower(): item for item in allowed}
    found = [known.get(item.strip().lower()) for item in licence.split(",")]
    return None if None in found else ", ".join(item for item in found if item)


def row_objection(row: JudgedKernel, allowed: Collection[str]) -> str | None:
    """Why nothing is made of `row`, in a few words that are the same for all of a kind; None where
    nothing speaks against it. What a row says of itself is held against its verdict."""
    if permitted_licence(row.licence, allowed) is None:
        return f"licence {row.licence or 'not stated'}"
    if row.label == "not-judged":
        return None
    found = row.verdict
    if found is None:
        return "says that it was judged, without a verdict"
    if found.candidate != row.sha256:
        return "its verdict is about another text"
    if found.policy != row.policy:
        return "judged under another policy than it says"
    if row.label == "refused":
        if found.accepted or found.failure is None:
            return "says refused, and its verdict does not"
        return "the judge came to no answer" if is_undecided(found.failure) else None
    if not found.accepted or found.failure is not None or found.gate != "accepted":
        return "says accepted, and its verdict does not"
    if found.interpreted != (row.label == "interpreter"):
        return "says that it was judged elsewhere than its verdict does"
    broken = _violation(row.kernel, row.policy)
    return None if broken is None else f"a cheat by the static policy: {broken}"


@lru_cache(maxsize=64)
def _violation(kernel: str, policy: Policy) -> str | None:
    found = check_policy(kernel, policy)
    return None if found is None else found.rule


@lru_cache(maxsize=64)
def module_objection(problem: str) -> str | None:
    """Why the module is not taught with: reinforcement and bench run it. None for a plain one."""
    found = module_refusal(problem, "", ("",))
    if found is None:
        return None
    head, _, words = found.partition(": ")
    return f"module: {words if head.startswith('line ') and words else found}"


FILES: dict[Split, str] = {"train": "train.jsonl.gz", "held-out": "held-out.jsonl.gz"}
HELD_OUT = Path("problems") / "held-out"
FENCE = re.compile(r"^(`{3,})python\n(.*?)^\1[ \t]*$", re.M | re.S)


def read_rows(folder: Path, split: Split) -> Iterator[TrainingRow]:
    """The rows of one split in their order. Raises TrainingError, which names file and line."""
    path = folder / FILES[split]
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                yield _row(line, path, number)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise TrainingError(
            f"Cannot read {str(path)!r}: {one_line(error)}. Expected the rows that 'agentkernel "
            "train data' writes. Next: name that folder, or make it again."
        ) from error


def _row(line: str, path: Path, number: int) -> TrainingRow:
    try:
        return TrainingRow.model_validate_json(line)
    except ValidationError as error:
        raise TrainingError(
            f"Line {number} of {str(path)!r} is no row: {one_line(error)}. Expected one row of "
            "JSON a line. Next: make the data again."
        ) from error


def held_out_problems(folder: Path) -> tuple[Path, ...]:
    """The modules that nothing in training resembles, in the order of their names."""
    return tuple(sorted((folder / HELD_OUT).glob("*.py")))


def fingerprint(folder: Path) -> str:
    """Hex SHA-256 of the training rows as they lie there. Raises TrainingError where there are
    none, or others than those that the folder's card was written beside."""
    path = folder / FILES["train"]
    try:
        found = sha256_of_file(path)
    except OSError as error:
        raise TrainingError(
            f"{str(folder)!r} holds no training data: {one_line(error)}. Expected a folder with "
            f"{FILES['train']}. Next: 'agentkernel train data' makes one."
        ) from error
    _require_same(found, _hash_in_card(folder, "train_sha256"), path, "rows that were admitted")
    return found


def held_out_hash(folder: Path) -> str:
    """Hex SHA-256 of the held-out modules, in the order of their names, and of the held-out rows.
    Raises TrainingError where they are not those that the folder's card was written beside."""
    digest = hashlib.sha256()
    try:
        for path in held_out_problems(folder):
            digest.update(f"{path.name} {sha256_text(path.read_bytes().decode())}\n".encode())
        rows = folder / FILES["held-out"]
        if rows.is_file():
            digest.update(rows.read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(
            f"Cannot read what {str(folder)!r} holds out: {one_line(error)}. Expected modules in "
            f"{HELD_OUT}. Next: make the data again."
        ) from error
    found = digest.hexdigest()
    known = _hash_in_card(folder, "held_out_sha256")
    _require_same(found, known, folder / HELD_OUT, "modules that were held out")
    return found


def _require_same(found: str, known: str | None, path: Path, expected: str) -> None:
    if known not in (None, found):
        raise TrainingError(
            f"{str(path)!r} was changed after it was made: its SHA-256 is {found[:12]}, and "
            f"card.json says {str(known)[:12]}. Expected the {expected}. Next: remove "
            "the folder and make the data again."
        )


def _hash_in_card(folder: Path, name: str) -> str | None:
    """What the card says under `name`; None where there is none, or none that says it. Raises
    TrainingError for a card that cannot be read."""
    path = folder / "card.json"
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8")).get(name) or None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, AttributeError) as error:
        raise TrainingError(
            f"{str(path)!r} cannot be read: {one_line(error)}. Expected the card that was written "
            "beside the rows. Next: remove the folder and make the data again."
        ) from error


def admitted(
    rows: Iterable[TrainingRow], licences: Sequence[str], tasks: Sequence[Task]
) -> Iterator[TrainingRow]:
    """The rows of `tasks`, each of them one that may be learned from. Raises TrainingError at the
    first that may not be, whatever its task."""
    for row in rows:
        why = row_refusal(row, licences)
        if why is not None:
            raise TrainingError(
                f"Row {row.id[:12]} ({row.task}, problem {row.problem_sha256[:12]}) may not be "
                f"learned from: {why}. Next: leave it out, or make the data again."
            )
        assert row.label in RIGHT
        assert row.split == "train"
        assert permitted_licence(row.licence, licences) is not None
        if row.task in tasks:
            yield row


def is_held_back(problem_sha256: str, share: float) -> bool:
    """Whether a module is among the `share` that fine-tuning leaves to practice: by its hash, so
    that both know it without a word."""
    return share > 0 and int(sha256_text(problem_sha256)[:8], 16) < share * 2**32


def row_refusal(row: TrainingRow, licences: Sequence[str]) -> str | None:
    """Why nobody may learn from `row`; None where one may."""
    if row.label not in RIGHT:
        return f"its kernel is labelled {row.label!r}, expected {' or '.join(RIGHT)}"
    if row.split != "train":
        return f"it belongs to the split {row.split!r}, expected 'train'"
    if permitted_licence(row.licence, licences) is None:
        return f"its licence is {row.licence!r}, expected one of {', '.join(licences)}"
    kernel = kernel_of(row.completion)
    if kernel is None:
        return "its completion holds no file, expected the kernel in a ```python fence"
    if row.kernel_sha256 not in map(sha256_text, _spellings(kernel)):
        return (
            f"the file in its completion is not the judged one ({row.kernel_sha256[:12]}), "
            "expected the very text that the judge read"
        )
    return None


def kernel_of(completion: str) -> str | None:
    """The last fenced file of a completion, without running or parsing anything."""
    found = FENCE.findall(completion)
    return str(found[-1][1]) if found else None


def _spellings(fenced: str) -> tuple[str, ...]:
    """A fence keeps all of a file but how many newlines it begins and ends with."""
    bare = fenced.strip("\n")
    return f"{bare}\n", bare, fenced, f"\n{bare}\n"


def with_replay(
    rows: Sequence[TrainingRow], older: Sequence[TrainingRow], share: float, seed: int
) -> tuple[TrainingRow, ...]:
    """`rows` and so many of `older` that they are `share` of all; each older row at most once, the
    same choice for the same `seed`."""
    if not older or share <= 0:
        return tuple(rows)
    wanted = min(len(older), round(len(rows) * share / (1 - share)))
    return (*rows, *random.Random(seed).sample(list(older), wanted))


class RlProblem(Frozen):
    """A module to practise on: its text, and the turn in which the rows ask for it."""

    text: str
    task: Message
    structure: str

    @property
    def sha256(self) -> str:
        """Identity of the module's text."""
        return sha256_text(self.text)


def training_problems(
    data: Path, licences: Sequence[str], spared: float = 0.0
) -> tuple[RlProblem, ...]:
    """The modules of the training rows, each once, in the order of their hashes; where a share is
    `spared`, those alone that fine-tuning left out.

    Raises TrainingError where a row may not be learned from, where its module is a held-out one or
    has the structure of one, and where no module is left.
    """
    held_out_hash(data)  # raises where it is not that of the card
    hashes, structures = held_out_keys(data)
    found: dict[str, RlProblem] = {}
    for row in admitted(read_rows(data, "train"), licences, TASKS):
        if row.problem_sha256 in hashes or (row.structure and row.structure in structures):
            raise TrainingError(
                f"Row {row.id[:12]} asks for module {row.problem_sha256[:12]}, which is held out "
                "or built like one that is. Expected modules of the training part alone. Next: "
                "make the data again."
            )
        if row.problem_sha256 not in found and (
            not spared or is_held_back(row.problem_sha256, spared)
        ):
            found[row.problem_sha256] = _problem(row)
    if not found:
        raise TrainingError(
            f"{str(data)!r} has no module to practise on (rl.spared={spared}). Expected some in "
            f"{FILES['train']}. Next: 'agentkernel train data' makes rows; -c rl.spared=0 takes "
            "all modules."
        )
    return tuple(found[key] for key in sorted(found))


def held_out_keys(data: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Hashes and structures of all that is held out, of the rows and of the modules' files."""
    rows: Iterable[TrainingRow] = ()
    if (data / FILES["held-out"]).is_file():
        rows = tuple(read_rows(data, "held-out"))
    files = (path.read_text(encoding="utf-8") for path in held_out_problems(data))
    hashes = {row.problem_sha256 for row in rows} | {sha256_text(text) for text in files}
    return frozenset(hashes), frozenset(row.structure for row in rows if row.structure)


def _problem(row: TrainingRow) -> RlProblem:
    """The module as it stands in the row's first turn. Raises TrainingError where that is another
    text than the row says."""
    task = row.messages[0]
    text = module_in(task.text, row.problem_sha256)
    if text is None:
        raise TrainingError(
            f"The first turn of row {row.id[:12]} does not hold its module "
            f"({row.problem_sha256[:12]}). Expected the very text in a ```python fence. Next: make "
            "the data again."
        )
    return RlProblem(text=text, task=task, structure=row.structure)


def module_in(turn: str, sha256: str) -> str | None:
    """The fenced text of that hash; a fence keeps all but the newlines at a text's ends."""
    texts = (text for _, fenced in FENCE.findall(turn) for text in _spellings(fenced))
    return next((text for text in texts if sha256_text(text) == sha256), None)


def chosen_at(
    problems: Sequence[RlProblem], step: int, count: int, seed: int
) -> tuple[RlProblem, ...]:
    """The `count` problems of a step (from 0): all are seen once before any is seen again, in
    another order each time. The same arguments give the same problems, so that nothing about it has
    to be kept for a training that goes on."""
    begin, total = step * count, len(problems)
    passes = range(begin // total, (begin + count - 1) // total + 1)
    orders = {number: _order(total, f"{seed}/{number}") for number in passes}
    places = (divmod(number, total) for number in range(begin, begin + count))
    return tuple(problems[orders[number][place]] for number, place in places)


def _order(total: int, seed: str) -> list[int]:
    order = list(range(total))
    random.Random(seed).shuffle(order)
    return order
