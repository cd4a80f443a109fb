"""Races between the programs of a launch: read from the source and found in the interpreter.

The static reading flags a load and a store of the same tensor, the one's value in the other,
where the address surely does not depend on the program that runs it and nothing lets only one
program through. Whatever is not understood counts as depending on the program: no honest kernel
is refused, and a disguised race may pass.

In the interpreter programs run one after the other, on a GPU side by side. Every stored element
carries the number of the store, and the store the number of its program: a load of what another
program has stored to, before or after its own, is a race, unless an atomic of the one came after
the store and an atomic of the other, on the same address, before the load.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from agentkernel.domain.verdict import RaceFound
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.policy.kernel_source import kernel_functions

Origin = int | str
"""Where a value comes from: an axis of the grid, "?" for anything unknown, "read NAME" for what
was loaded from the tensor NAME."""
UNKNOWN = "?"
PURE_SPACES = {"tl", "language", "libdevice", "math", "triton"}
PURE_NAMES = {"abs", "bool", "float", "int", "len", "max", "min", "range"}
FOLLOWED = {"make_block_ptr", "advance", "multiple_of", "max_contiguous", "broadcast_to", "cast"}
"""Calls whose first argument is the tensor that the result points to."""
AXES = (0, 1, 2)


def find_race(source: str) -> RaceFound | None:
    """The first unordered read-modify-write in `source`; None where none is sure."""
    try:
        tree = parse_source(source)
    except SyntaxError:
        return None
    grids = _single_axes(tree)
    found: list[RaceFound] = []
    for name, function in kernel_functions(tree):
        found += _Kernel(function, grids.get(name, set())).races()
    return min(found, key=lambda item: item.line, default=None)


@dataclass
class _Kernel:
    """One kernel; `single` are the axes along which some launch has one program."""

    function: ast.FunctionDef
    single: set[int]
    origins: dict[str, set[Origin]] = field(default_factory=dict)
    bases: dict[str, ast.expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parameters = {item.arg for item in self.function.args.args}
        self.used = {axis for node in ast.walk(self.function) for axis in _axes_of(node)}
        self.ordered = any(_called(node).startswith("atomic") for node in ast.walk(self.function))
        self._settle()

    def races(self) -> Iterator[RaceFound]:
        if self.ordered or UNKNOWN in self.used or not self.used - self.single:
            return
        for store, guards in self._stores(self.function.body, set()):
            yield from self._judge(store, guards)

    def _judge(self, store: ast.Call, guards: set[Origin]) -> Iterator[RaceFound]:
        address, value = _argument(store, 0, "pointer"), _argument(store, 1, "value")
        mask = _argument(store, 2, "mask")
        if address is None or value is None:
            return
        allowed = self.of(address) | guards | (self.of(mask) if mask is not None else set())
        base = self._base(address, 0)
        content = self.of(value)
        if UNKNOWN in allowed or base is None or f"read {base}" not in content:
            return
        missing = self.used - allowed - self.single
        uniform = not any(axis in allowed for axis in AXES)
        if missing and (uniform or missing & content):
            axes = ", ".join(str(axis) for axis in sorted(map(int, missing)))
            yield RaceFound(
                tool="scan",
                line=store.lineno,
                text=f"{self.function.name} loads from {base}, adds and stores to an address that "
                f"is the same for every program along axis {axes}: use tl.atomic_* or a place of "
                "its own for each program",
            )

    def _stores(
        self, body: Sequence[ast.stmt], guards: set[Origin]
    ) -> Iterator[tuple[ast.Call, set[Origin]]]:
        """Every tl.store with what decides whether a program reaches it."""
        for statement in body:
            if isinstance(statement, ast.If | ast.While):
                inner = guards | self.of(statement.test)
                yield from self._stores([*statement.body, *statement.orelse], inner)
                if _leaves(statement):
                    guards = inner
            elif isinstance(statement, ast.For | ast.With):
                yield from self._stores(statement.body, guards)
            else:
                for node in ast.walk(statement):
                    if isinstance(node, ast.Call) and _called(node) == "store":
                        yield node, guards

    def _settle(self) -> None:
        """Origins of every name, until nothing changes. A name that is assigned twice has both."""
        changed = True
        while changed:
            changed = False
            for names, value in _assignments(self.function):
                for name in names:
                    known = self.origins.setdefault(name, set())
                    more = self.of(value) - known
                    known |= more
                    changed = changed or bool(more)
                    self.bases.setdefault(name, value)

    def of(self, node: ast.AST) -> set[Origin]:
        """Where the value of an expression comes from."""
        if isinstance(node, ast.Name):
            return set(self.origins.get(node.id, set()))
        if isinstance(node, ast.Call):
            return self._of_call(node)
        if isinstance(node, ast.Lambda | ast.Await | ast.NamedExpr | ast.Yield):
            return {UNKNOWN}
        return self._of_all(ast.iter_child_nodes(node))

    def _of_all(self, nodes: Iterable[ast.AST]) -> set[Origin]:
        return set().union(*(self.of(node) for node in nodes))

    def _of_call(self, node: ast.Call) -> set[Origin]:
        name = _called(node)
        inputs = self._of_all([*node.args, *[item.value for item in node.keywords]])
        if name == "program_id":
            return set(_axes_of(node))
        if name == "num_programs":
            return set()
        if name == "load":
            base = self._base(node.args[0], 0) if node.args else None
            # The address may itself have been loaded: what is found there is not understood.
            return inputs | {UNKNOWN} | ({f"read {base}"} if base else set())
        if isinstance(node.func, ast.Attribute):
            root = _root(node.func)
            pure = root in PURE_SPACES or root in self.origins or root in self.parameters
            return inputs | self.of(node.func.value) | (set() if pure else {UNKNOWN})
        return inputs if name in PURE_NAMES else inputs | {UNKNOWN}

    def _base(self, node: ast.AST, depth: int) -> str | None:
        """The parameter that an address starts from; None where that is not plain."""
        if depth > 20:
            return None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            return self._base(node.left, depth + 1) or self._base(node.right, depth + 1)
        if isinstance(node, ast.Subscript):
            return self._base(node.value, depth + 1)
        if isinstance(node, ast.Call):
            if _called(node) in FOLLOWED and node.args:
                return self._base(node.args[0], depth + 1)
            return None
        if isinstance(node, ast.Name):
            if node.id in self.bases and node.id not in self.parameters:
                return self._base(self.bases[node.id], depth + 1)
            return node.id if node.id in self.parameters else None
        return None


def _assignments(function: ast.FunctionDef) -> Iterator[tuple[list[str], ast.expr]]:
    """Names with the expression that they are assigned, loop targets among them."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            yield [name for target in node.targets for name in _names(target)], node.value
        elif isinstance(node, ast.AugAssign | ast.AnnAssign) and node.value is not None:
            yield _names(node.target), node.value
        elif isinstance(node, ast.For):
            yield _names(node.target), node.iter
        elif isinstance(node, ast.NamedExpr):
            yield _names(node.target), node.value


def _names(target: ast.AST) -> list[str]:
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]


def _called(node: ast.AST) -> str:
    """`tl.load(...)` -> "load"; "" for what is no call of a name."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _axes_of(node: ast.AST) -> Iterator[Origin]:
    if _called(node) == "program_id" and isinstance(node, ast.Call):
        axis = _argument(node, 0, "axis")
        known = isinstance(axis, ast.Constant) and axis.value in AXES
        yield axis.value if known else UNKNOWN  # type: ignore[union-attr]


def _argument(node: ast.Call, position: int, name: str) -> ast.expr | None:
    if len(node.args) > position:
        return node.args[position]
    return next((item.value for item in node.keywords if item.arg == name), None)


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _leaves(statement: ast.stmt) -> bool:
    kinds = ast.Return | ast.Break | ast.Continue
    return any(isinstance(node, kinds) for node in ast.walk(statement))


def _single_axes(tree: ast.Module) -> dict[str, set[int]]:
    """By kernel: axes along which some launch, as written, has one program."""
    tuples = {
        name: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        for name in _names(target)
    }
    found: dict[str, set[int]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            grid: ast.expr = node.func.slice
            if isinstance(grid, ast.Name):
                grid = tuples.get(grid.id, grid)
            for name in _names(node.func.value):
                found.setdefault(name, set()).update(_ones(grid))
    return found


def _ones(grid: ast.expr) -> set[int]:
    if isinstance(grid, ast.Lambda):
        grid = grid.body
    if not isinstance(grid, ast.Tuple | ast.List):
        return set(AXES) if isinstance(grid, ast.Constant) and grid.value == 1 else set()
    sizes = [item.value if isinstance(item, ast.Constant) else None for item in grid.elts]
    return {axis for axis in AXES if axis >= len(sizes) or sizes[axis] == 1}


Places = npt.NDArray[np.uint64]
Lanes = npt.NDArray[np.int64]
OF_ANOTHER_PROGRAM = "loads what another program of the launch stores, without an atomic"
OF_OTHER_LANES = "loads what other lanes of its program store, with no tl.debug_barrier() between"
FLAGS = 8
"""An atomic on so many addresses may order programs; one on more does work."""


@dataclass
class StorageAccesses:
    """One storage of a launch. `last` has the number of the last store to each element, negative
    where another program had stored there before, `lanes` which of the elements of that store it
    was; None until a kernel stores to it."""

    start: int
    end: int
    size: int
    last: npt.NDArray[np.int32] | None = None
    lanes: npt.NDArray[np.int32] | None = None


@dataclass
class LaunchAccesses:
    """The stores and atomics of the current launch. `races` are kept over launches."""

    races: list[str] = field(default_factory=list)
    storages: list[StorageAccesses] = field(default_factory=list)
    program: int = 0
    first: int = 1
    """The number that the first store of the program at hand has, or will have."""
    settled: int = 0
    """The number of its last store that all of its lanes have waited for."""
    programs: list[int] = field(default_factory=lambda: [-1])
    """The program of each store, by its number; stores count from 1."""
    released: dict[int, dict[int, int]] = field(default_factory=dict)
    """For each address of an atomic: which stores, up to which number, of which programs are done
    for whoever meets them there."""
    acquired: dict[int, dict[int, int]] = field(default_factory=dict)
    """The same for each program that has met others."""

    def launch(self) -> None:
        """A launch begins."""
        self.storages, self.programs = [], [-1]
        self.released, self.acquired = {}, defaultdict(dict)
        self.begin(0)

    def begin(self, program: int) -> None:
        """The next program of the launch begins."""
        self.program, self.first = program, len(self.programs)
        self.settle()

    def settle(self) -> None:
        """The lanes of the program at hand wait for each other."""
        self.settled = len(self.programs) - 1

    def add(self, start: int, end: int, size: int) -> None:
        """A tensor of the launch, of elements of `size` bytes, lies between these addresses."""
        for item in self.storages:
            if item.start == start:
                item.size = min(item.size, size)
                return
        self.storages.append(StorageAccesses(start, end, size))

    def store(self, places: Places, size: int, lanes: Lanes | None = None) -> int | None:
        """The program at hand stores elements of `size` bytes at `places`, of which `lanes` says
        which of the tile's they are, None that they are all. Gives the address of their storage;
        None where they lie in none, or in several."""
        storage = self._at(places)
        if storage is None or size < storage.size:
            return None if storage is None else storage.start
        number = len(self.programs)
        self.programs.append(self.program)
        if storage.last is None:
            count = (storage.end - storage.start) // storage.size + 1
            storage.last, storage.lanes = np.zeros((2, count), dtype=np.int32)
        assert storage.lanes is not None
        at = self._elements(storage, places)
        over = self._unordered(storage.last[at])
        storage.last[at] = number
        if over is not None:
            storage.last[at[over]] = -number
        storage.lanes[at] = np.arange(places.size) if lanes is None else lanes
        return storage.start

    def load(self, places: Places, where: Callable[[], str], lanes: Lanes | None = None) -> None:
        """The program at hand loads from `places`, by `lanes` as in `store`; `where` says in which
        line."""
        storage = self._at(places)
        if storage is None:
            return
        if places.size == 1 and int(places.flat[0]) in self.released:
            self._meet(int(places.flat[0]))
        if storage.last is None:
            return
        at = self._elements(storage, places)
        if self._unordered(storage.last[at]) is not None:
            self._race(f"{where()}: {OF_ANOTHER_PROGRAM}")
        if self._of_other_lanes(storage, at, lanes):
            self._race(f"{where()}: {OF_OTHER_LANES}")

    def _race(self, text: str) -> None:
        if text not in self.races:
            self.races.append(text)

    def _of_other_lanes(
        self, storage: StorageAccesses, at: npt.NDArray[np.int64], lanes: Lanes | None
    ) -> bool:
        """Whether the program at hand has stored some of it by other lanes, which are other
        threads, and no barrier came since."""
        assert storage.last is not None
        assert storage.lanes is not None
        own = np.abs(storage.last[at]) > self.settled
        if not own.any():
            return False
        mine = np.arange(at.size) if lanes is None else lanes
        return bool((own & (storage.lanes[at] != mine)).any())

    def atomic(self, places: Places) -> None:
        """The program at hand comes after those that were here, and before those to come."""
        self.settle()
        if places.size > FLAGS:
            return
        for place in places.flat:
            self._meet(int(place))
            mine = self.released.setdefault(int(place), {})
            mine.update(self.acquired[self.program])
            mine[self.program] = len(self.programs) - 1

    def storage_of(self, places: Places) -> int | None:
        """The address of the storage that all of `places` lie in."""
        storage = self._at(places)
        return None if storage is None else storage.start

    def _meet(self, place: int) -> None:
        known = self.acquired[self.program]
        for program, number in self.released.get(place, {}).items():
            known[program] = max(number, known.get(program, 0))

    def _unordered(self, stores: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_] | None:
        """Which of these stores, 0 for none, another program made and nothing orders before this
        moment; None where there is none."""
        # Programs run one after the other: what is older than the first store of this one is not
        # its own.
        older = (stores != 0) & (stores < self.first)
        if not older.any():
            return None
        known = self.acquired.get(self.program)
        if known:
            for number in np.unique(stores[older]).tolist():
                if 0 < number <= known.get(self.programs[number], 0):
                    older &= stores != number
        return older if older.any() else None

    def _at(self, places: Places) -> StorageAccesses | None:
        if places.size == 0:
            return None
        low, high = int(places.min()), int(places.max())
        return next((item for item in self.storages if item.start <= low and high < item.end), None)

    @staticmethod
    def _elements(storage: StorageAccesses, places: Places) -> npt.NDArray[np.int64]:
        return ((places - np.uint64(storage.start)) // np.uint64(storage.size)).astype(np.int64)
