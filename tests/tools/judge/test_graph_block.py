"""The block of the graph form: what it records, what it replays, and what it leaves to launches."""

import copy
import gc
import pickle
import threading

import pytest
import torch
from torch import nn

from tests.tools.judge.recorded_device import Device, Stream, block_on, placed


class Counted(nn.Module):
    """x * weight ** power * factor + shift by one kernel; counts how often its text runs."""

    def __init__(self, device):
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 2.0))
        self.register_buffer("shift", torch.ones(4))
        self.power = 1.0
        self.device = [device]

    def plain_forward(self, x, factor=1.0):
        RUNS.append(1)
        output = placed(torch.empty(x.shape))
        weight, shift, power = self.weight.data, self.shift, self.power
        self.device[0].launch(lambda: output.copy_(x * weight**power * factor + shift))
        return output


RUNS: list[int] = []


@pytest.fixture
def device():
    RUNS.clear()
    return Device()


@pytest.fixture
def block(device):
    return block_on(device)


@pytest.fixture
def module(device):
    return Counted(device).eval()


def graphed(block, module, *arguments):
    with torch.no_grad():
        return block["graphed"](module, *arguments)


def rows(value, count=3):
    return placed(torch.full((count, 4), float(value)))


def test_a_form_is_recorded_once_and_replayed_for_new_values(block, module, device):
    for value in (1.0, 2.0, 3.0):
        assert torch.equal(graphed(block, module, rows(value)), rows(2 * value + 1))
    assert device.replays == 3
    assert len(RUNS) == 2  # to compile, then to record


def test_same_memory_with_new_contents_is_read_again(block, module):
    x = rows(1)
    graphed(block, module, x)
    x.mul_(5)
    assert torch.equal(graphed(block, module, x), rows(11))
    assert torch.equal(x, rows(5))


def test_kept_outputs_stay_what_they_were(block, module):
    first = graphed(block, module, rows(1))
    graphed(block, module, rows(7))
    assert torch.equal(first, rows(3))


def test_weights_changed_in_place_are_seen(block, module):
    graphed(block, module, rows(1))
    with torch.no_grad():
        module.weight.mul_(10)
    assert torch.equal(graphed(block, module, rows(1)), rows(21))
    assert len(RUNS) == 2


@pytest.mark.parametrize("change", ["assign", "data", "buffer", "turned", "number", "cut"])
def test_what_lies_elsewhere_is_recorded_anew(block, module, change):
    graphed(block, module, rows(1))
    wanted = 21.0
    if change == "assign":
        state = {"weight": torch.full((4,), 20.0), "shift": torch.ones(4)}
        module.load_state_dict(state, assign=True)
    elif change == "data":
        module.weight.data = torch.full((4,), 20.0)
    elif change == "buffer":
        module.shift = torch.full((4,), 19.0)
    elif change == "turned":
        module.weight.data = module.weight.data.as_strided((4,), (0,))
        wanted = 3.0
    elif change == "cut":
        module.weight.data = module.weight.data[:1]
        wanted = 3.0
    else:
        module.power = 2.0
        wanted = 5.0
    assert torch.equal(graphed(block, module, rows(1)), rows(wanted))
    assert len(RUNS) == 4


def test_the_mode_of_the_module_is_part_of_it(block, device):
    class Shifts(Counted):
        def plain_forward(self, x, factor=1.0):
            return super().plain_forward(x, factor + self.training)

    module = Shifts(device)
    assert torch.equal(graphed(block, module.train(), rows(1)), rows(5))
    assert torch.equal(graphed(block, module.eval(), rows(1)), rows(3))


def test_numbers_are_told_apart_by_their_text(block, module):
    assert torch.equal(graphed(block, module, rows(1), 1.0), rows(3))
    assert torch.equal(graphed(block, module, rows(1), 3.0), rows(7))
    nan = float("nan")
    for _ in range(3):
        graphed(block, module, rows(1), nan)
        nan += 1.0
    assert len(RUNS) == 6


def test_shapes_strides_and_types_have_graphs_of_their_own(block, module):
    wide = placed(torch.full((3, 8), 1.0)[:, ::2])
    given = [rows(1), rows(1, 5), wide, placed(torch.full((3, 4), 1.0, dtype=torch.float64))]
    for x in given:
        assert torch.equal(graphed(block, module, x), rows(3, x.shape[0]))
    assert len(RUNS) == 8


def test_the_oldest_graph_is_dropped(block, module):
    for count in range(1, 11):
        graphed(block, module, rows(1, count))
    assert len(block["GRAPHS"][module].calls) == block["MOST_GRAPHS"]
    RUNS.clear()
    graphed(block, module, rows(1, 10))
    assert not RUNS
    graphed(block, module, rows(1, 1))
    assert len(RUNS) == 2


def test_recordings_come_to_an_end(block, module, device):
    graphed(block, module, rows(1))
    block["GRAPHS"][module].left = 1
    graphed(block, module, rows(1, 2))
    replays = device.replays
    assert torch.equal(graphed(block, module, rows(1, 9)), rows(3, 9))
    assert device.replays == replays
    graphed(block, module, rows(1))
    assert device.replays == replays + 1


def test_refused_recording_leaves_the_launches(block, module, device):
    class Waits(Counted):
        def plain_forward(self, x, factor=1.0):
            self.device[0].wait()
            return super().plain_forward(x, factor)

    module = Waits(device).eval()
    for value in (1.0, 2.0):
        assert torch.equal(graphed(block, module, rows(value)), rows(2 * value + 1))
    assert device.replays == 0
    assert device.recording == []
    assert len(RUNS) == 3  # to compile, and twice in earnest


@pytest.mark.parametrize("how", ["input", "part", "parameter", "bits"])
def test_outputs_that_are_views_leave_the_launches(block, device, how):
    class Views(Counted):
        def plain_forward(self, x, factor=1.0):
            if how == "bits":
                output = super().plain_forward(x, factor)
                return output, output.view(torch.int32)
            return {"input": x, "part": x[1:], "parameter": self.weight}[how]

    module = Views(device).eval()
    x = rows(1)
    for _ in range(2):
        result = graphed(block, module, x)
        if how == "bits":
            assert result[0].data_ptr() == result[1].data_ptr()
        else:
            owner = module.weight if how == "parameter" else x
            assert result.untyped_storage().data_ptr() == owner.untyped_storage().data_ptr()
    assert device.replays == 0


def test_outputs_keep_their_structure_and_strides(block, device):
    class Many(Counted):
        def plain_forward(self, x, factor=1.0):
            one, two = (Counted.plain_forward(self, x, factor) for _ in range(2))
            turned = placed(torch.empty(4, 3)).t()
            self.device[0].launch(lambda: turned.copy_(one))
            return {"one": one, "rest": (two, [turned])}

    result = graphed(block, Many(device).eval(), rows(1))
    assert torch.equal(result["one"], rows(3))
    assert torch.equal(result["rest"][1][0], rows(3))
    assert result["rest"][1][0].stride() == (1, 3)
    assert device.replays == 1


def test_an_output_with_gaps_is_a_view_of_a_copy(block, device):
    class Gaps(Counted):
        def plain_forward(self, x, factor=1.0):
            return super().plain_forward(x, factor)[:, 1::2]

    module = Gaps(device).eval()
    first, second = graphed(block, module, rows(1)), graphed(block, module, rows(2))
    assert first.stride() == second.stride() == (4, 2)
    assert torch.equal(first, rows(3)[:, 1::2])
    assert torch.equal(second, rows(5)[:, 1::2])
    assert device.replays == 2


def test_outputs_that_share_memory_share_that_of_one_copy(block, device):
    class Parts(Counted):
        def plain_forward(self, x, factor=1.0):
            output = super().plain_forward(x, factor)
            other = super().plain_forward(x, factor)
            return output[:, :1], other, output[1:].t(), output

    module = Parts(device).eval()
    results = [graphed(block, module, rows(value)) for value in (1, 2)]
    places = set()
    for (cut, other, turned, whole), value in zip(results, (3, 5), strict=True):
        assert torch.equal(cut, rows(value)[:, :1])
        assert torch.equal(other, rows(value))
        assert torch.equal(turned, rows(value)[1:].t())
        assert (cut.stride(), turned.stride()) == ((4, 1), (1, 4))
        memory = [x.untyped_storage().data_ptr() for x in (cut, other, turned, whole)]
        assert memory[0] == memory[2] == memory[3] != memory[1]
        places |= set(memory)
        assert turned.data_ptr() == whole.data_ptr() + 16
    assert len(places) == 4
    assert device.replays == 2


@pytest.mark.parametrize(
    "given",
    [
        lambda: (torch.ones(3, 4),),
        lambda: (placed(torch.ones(0, 4)),),
        lambda: (rows(1), [1.0]),
        lambda: (nn.Parameter(torch.ones(3, 4)),),
    ],
    ids=["processor", "empty", "nested", "parameter on the processor"],
)
def test_other_arguments_are_launched(block, module, device, given):
    with torch.no_grad():
        form = block["form_of"](given())
    assert form == ()


def test_gradients_autocast_and_other_recordings_are_launched(block, module, device):
    with torch.enable_grad():
        block["graphed"](module, rows(1))
    torch.set_autocast_enabled("cuda", True)
    try:
        graphed(block, module, rows(1))
    finally:
        torch.set_autocast_enabled("cuda", False)
    outer = block["torch"].cuda.CUDAGraph()
    outer.capture_begin(capture_error_mode="thread_local")
    result = graphed(block, module, rows(1))
    outer.capture_end()
    outer.replay()
    assert torch.equal(result, rows(3))
    assert device.replays == 1
    assert module not in block["GRAPHS"]


def test_another_stream_waits_for_the_last_use(block, module, device):
    graphed(block, module, rows(1))
    first, second = Stream(device), Stream(device)
    device.log.clear()
    graphed(block, module, rows(1))
    assert device.log == []
    with device.on(first):
        graphed(block, module, rows(2))
        graphed(block, module, rows(2))
    assert device.log == [
        ("record", 0),
        ("wait_event", first.number, 0),
        ("record_stream", first.number),
        ("record", first.number),
        ("record", first.number),
    ]
    device.log.clear()
    with device.on(second):
        graphed(block, module, rows(2))
    graphed(block, module, rows(3))
    assert device.log == [
        ("wait_event", second.number, first.number),
        ("record_stream", second.number),
        ("record", second.number),
        ("wait_event", 0, second.number),
        ("record_stream", 0),
    ]


def test_recording_is_ordered_with_the_caller(block, module, device):
    graphed(block, module, rows(1))
    caller = device.current.number
    side = caller + 1
    assert device.log == [
        ("wait_stream", side, caller),
        ("wait_stream", caller, side),
        ("wait_event", caller, None),
        ("record_stream", caller),
    ]


def test_flags_that_change_results_are_part_of_the_form(block):
    form = block["form_of"]((rows(1),))
    before = torch.backends.cudnn.allow_tf32
    try:
        torch.backends.cudnn.allow_tf32 = not before
        assert block["form_of"]((rows(1),)) != form
    finally:
        torch.backends.cudnn.allow_tf32 = before
    torch.use_deterministic_algorithms(True)
    try:
        assert block["form_of"]((rows(1),)) != form
    finally:
        torch.use_deterministic_algorithms(False)


def test_copies_record_graphs_of_their_own(block, module):
    graphed(block, module, rows(1))
    twin = copy.deepcopy(module)
    with torch.no_grad():
        twin.weight.mul_(10)
    assert torch.equal(graphed(block, twin, rows(1)), rows(21))
    assert torch.equal(graphed(block, module, rows(1)), rows(3))
    assert set(vars(twin)) == set(vars(Counted(Device())))


def test_what_was_recorded_is_not_pickled(block, module):
    graphed(block, module, rows(1))
    module.device = []
    assert b"Graph" not in pickle.dumps(module.state_dict())
    assert "graph" not in repr(vars(module)).lower()


def test_graphs_go_with_their_module(block, device):
    module = Counted(device).eval()
    graphed(block, module, rows(1))
    assert len(block["GRAPHS"]) == 1
    del module
    gc.collect()
    assert len(block["GRAPHS"]) == 0


def test_threads_take_turns(block, module):
    wrong: list[float] = []

    def work(value):
        for x in range(value, value + 30):
            right = torch.equal(graphed(block, module, rows(x)), rows(2 * x + 1))
            wrong.extend([] if right else [x])

    threads = [threading.Thread(target=work, args=(100 * at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(RUNS) == 2
