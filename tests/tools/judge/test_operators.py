"""What is free by itself and adds up, which operators are foreign, and what was written to."""

import subprocess
import sys

import pytest
import torch

from agentkernel.tools.judge.execution.operators import (
    CAST_ELEMENTS,
    CAST_WORK,
    FILLED_PARTS,
    SMALL_WORK,
    TINY_ELEMENTS,
    Operators,
    _Sums,
    is_foreign,
    only_free,
    record_operators,
    with_uninitialized_memory,
    written_storages,
)
from agentkernel.tools.judge.execution.uninitialized_memory import POOL, UninitializedMemory
from agentkernel.tools.judge.policy.families import Work

FEW = 8


def recorded(work, **more):
    found = Operators(**more)
    record_operators(work, found)
    assert found.hidden == ""
    return found


def read_numbers(count):
    x = torch.ones(count)
    return lambda: [x[at].item() for at in range(count)]


def make_numbers(count):
    return lambda: torch.tensor([0.5] * count)


def fill_numbers(count):
    y = torch.empty(count)

    def fill():
        for at in range(count):
            y[at] = 0.5

    return fill


def cast(count):
    x = torch.ones(CAST_ELEMENTS)
    return lambda: [x.to(torch.float64) for _ in range(count)]


def add_numbers(count):
    x = torch.tensor(1.0)
    return lambda: [x + 1 for _ in range(count)]


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("work", "most", "kind"),
    [
        (read_numbers, TINY_ELEMENTS, "compute"),
        (make_numbers, SMALL_WORK, "compute"),
        (fill_numbers, SMALL_WORK, "compute"),
        (add_numbers, SMALL_WORK, "compute"),
        (cast, CAST_WORK // CAST_ELEMENTS, "moved"),
    ],
    ids=["numbers read", "a list of numbers", "numbers filled in", "numbers added", "small casts"],
)
def test_what_is_free_adds_up(work, most, kind):
    assert getattr(recorded(work(FEW if most > FEW else 2)), kind) == []
    assert getattr(recorded(work(most + 1)), kind)


def test_an_operator_of_another_namespace_counts():
    library = torch.library.Library("red_team_of_tests", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x.clone(), "CompositeExplicitAutograd")
    x = torch.ones(4)
    found = recorded(lambda: torch.ops.red_team_of_tests.twice(x))
    assert "red_team_of_tests::twice" in found.compute
    assert is_foreign("mkldnn::_linear_pointwise")
    assert not is_foreign("aten::mm")
    assert not is_foreign("autograd::engine::evaluate_function: MmBackward0")


def test_what_is_the_callers_and_written_to_is_named():
    x, y = torch.ones(4), torch.ones(4)
    owners = {x.untyped_storage().data_ptr(): "input 0"}
    assert recorded(lambda: y.copy_(x), owners=owners).wrote == []
    assert recorded(lambda: x[:2].zero_(), owners=owners).wrote == ["input 0"]
    assert recorded(lambda: torch.add(x, y, out=x), owners=owners).wrote == ["input 0"]


def test_a_stream_that_is_noted_for_a_tensor_is_no_write():
    x = torch.ones(4)
    assert list(written_storages(torch.ops.aten.record_stream.default, ((x, None), {}))) == []
    assert list(written_storages(torch.ops.aten.zero_.default, ((x,), {}))) != []


class OnDevice(torch.Tensor):
    """A tensor that says it lies on a GPU."""

    is_cuda = True


def test_an_output_goes_to_the_hosts_room_once() -> None:
    """The judge's own copy; whoever copies there as well has taken it to the host himself."""
    room, elsewhere = torch.zeros(100), torch.zeros(100)
    output = torch.zeros(100).as_subclass(OnDevice)
    found = Operators(rooms={room.untyped_storage().data_ptr()})
    sums = _Sums(found)
    sums.add("aten::copy_", [room, output], room)
    assert found.moved == []
    for target in (elsewhere, room):
        sums.add("aten::copy_", [target, output], target)
    assert found.moved == ["copy to the host (100 elements)"] * 2


class Raw:
    def __init__(self, name, shapes=()):
        self._name, self._shapes = name, list(shapes)

    def name(self):
        return self._name

    def shapes(self):
        return self._shapes


MARK = Raw("aten::erfinv", [[7, 1, 3]])


@pytest.mark.parametrize(
    ("names", "free"),
    [
        (["aten::empty", "aten::view", "cudaLaunchKernel"], True),
        (["aten::empty", "aten::add"], False),
        (["aten::matmul"], False),
        (["mkldnn::_linear_pointwise"], False),
        (["CompiledFunction"], False),
        (["aten::erfinv"], False),
    ],
)
def test_a_log_of_free_operators_is_read_no_further(names, free):
    events = [Raw(name, [[4, 4]]) for name in names]
    assert only_free([*events, MARK], [7, 1, 3]) is free
    assert not only_free(events, [7, 1, 3])


def fill_rows(count: int) -> None:
    for row in torch.ones(FILLED_PARTS + 2, 8)[:count]:
        row.zero_()


@pytest.mark.parametrize(("count", "seen"), [(FILLED_PARTS, False), (FILLED_PARTS + 1, True)])
def test_rows_that_are_filled_one_by_one_are_work(count: int, seen: bool) -> None:
    found = recorded(lambda: fill_rows(count))
    assert any("filled" in item for item in found.compute) is seen


@pytest.mark.parametrize("kind", ["neg", "conj"])
def test_a_copy_that_negates_or_conjugates_is_work(kind: str) -> None:
    x = torch.ones(128, dtype=torch.complex64 if kind == "conj" else torch.float32)
    view = x.conj() if kind == "conj" else x._neg_view()
    assert recorded(lambda: x.clone()).compute == []
    assert any("negates" in item for item in recorded(lambda: view.clone()).compute)
    room = torch.empty_like(x)
    assert any("negates" in item for item in recorded(lambda: room.copy_(view)).compute)


@pytest.mark.parametrize(("elements", "seen"), [(480, True), (100_000, False)])
def test_what_is_bookkeeping_depends_on_the_call(elements: int, seen: bool) -> None:
    rows = torch.ones(8, 60)

    def work() -> None:
        for row in rows:
            row.softmax(-1)

    found = recorded(work, elements=lambda: elements)
    assert any("few elements" in item for item in found.compute) is seen


@pytest.mark.slow
def test_a_log_does_not_import_torchs_compiler() -> None:
    """It takes as long as importing torch does, in every worker."""
    text = (
        "import sys, torch\n"
        "from agentkernel.tools.judge.execution.operators import Operators, record_operators\n"
        "found = Operators()\n"
        "record_operators(lambda: torch.ones(100) + 1, found)\n"
        "assert found.compute and not found.hidden\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_what_fresh_memory_holds_is_drawn(dtype):
    rooms = []

    def allocate():
        while len(rooms) < 64:
            room = torch.empty((3, POOL), dtype=dtype)
            rooms.append(room.t())

    torch.set_deterministic_debug_mode("warn")
    try:
        with_uninitialized_memory(allocate, UninitializedMemory("cpu").fill)
        own = torch.empty((POOL, 3), dtype=dtype)
    finally:
        torch.set_deterministic_debug_mode("default")
    alike = [bool(((x == own) | ((x != x) & (own != own))).all()) for x in rooms]
    assert 8 < sum(alike) < 56
    assert any(bool((room == 0).all()) for room in rooms)
    assert any(len(room.float().unique()) > 1 for room in rooms)
    assert all(room._version == 0 for room in rooms)


def test_what_fresh_memory_holds_can_be_had_again():
    found = []
    for seed in (7, 7, 8):
        leftovers = UninitializedMemory("cpu", seed)
        rooms = [torch.full((2 * POOL,), 5.0) for _ in range(32)]
        for room in rooms:
            leftovers.fill(room)
        found.append(torch.stack(rooms))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def in_runs(*works) -> Operators:
    """What is seen of one call whose runs of forward do these works."""
    found = Operators()

    def call() -> None:
        for place, work in enumerate(works):
            if place:
                found.begin_run()
            work()

    record_operators(call, found)
    assert found.hidden == ""
    return found


def best_of(times: int, rows: int = 8):
    x = torch.randn(rows, 40)
    return lambda: [torch.topk(x, 2) for _ in range(times)]


@pytest.mark.parametrize(
    ("times", "calls"), [((1, 1), 1), ((1, 1, 0), 1), ((0, 2), 2), ((1, 0, 1), 1), ((2,), 2)]
)
def test_each_run_of_forward_is_counted_by_itself(times: tuple[int, ...], calls: int) -> None:
    """The first call of a CUDA graph runs once to compile and once to record: a top-k was called
    twice where the original has one. A run that does more is seen among the others."""
    found = in_runs(*map(best_of, times))
    assert found.called == {"topk": Work(calls, calls * 8 * 40)}
    assert len(found.parts) == calls
    assert len(found.marks) == len(times) - 1


def test_of_runs_on_different_sizes_the_largest_counts() -> None:
    assert in_runs(best_of(1, 8), best_of(1, 16)).called == {"topk": Work(1, 16 * 40)}


def test_bookkeeping_of_two_runs_does_not_add_up() -> None:
    """Of one run as much as of two is work: nothing hides between them."""
    assert in_runs(add_numbers(400), add_numbers(400)).compute == []
    assert in_runs(add_numbers(800)).compute != []
    assert in_runs(read_numbers(40), read_numbers(40)).compute == []
    assert in_runs(read_numbers(80)).compute != []
    assert in_runs(read_numbers(10), read_numbers(80)).compute != []
