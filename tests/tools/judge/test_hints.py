"""Hints to the compiler that do not hold are found, and those that hold left alone."""

import numpy as np
import pytest

from agentkernel.tools.judge.interpreter.type_cache import false_hint

LANES = np.arange(64)
TRUE = {
    "a multiple": ("tt.divisibility", np.int64(96), [16], 1),
    "a tile that starts at one": ("tt.divisibility", LANES + 128, [64], 1),
    "every one": ("tt.divisibility", LANES * 16, [16], 1),
    "a run": ("tt.contiguity", LANES + 7, [64], 1),
    "runs of eight": ("tt.contiguity", LANES // 8 * 100 + LANES % 8, [8], 1),
    "a run of addresses": ("tt.contiguity", (LANES * 4 + 4096).astype(np.uint64), [64], 4),
    "rows that begin anew": ("tt.contiguity", (LANES + 64) % 100, [64], 1),
    "fours alike": ("tt.constancy", LANES // 4, [4], 1),
    "a mask": ("tt.constancy", LANES < 48, [16], 1),
    "one number for each dimension": ("tt.contiguity", np.stack([LANES, LANES]), [1, 64], 1),
    "floats": ("tt.constancy", LANES * 0.5, [64], 1),
    "another hint": ("tt.other", LANES, [3], 1),
}
FALSE = {
    "no multiple": ("tt.divisibility", np.int64(97), [16], 1),
    "a tile that starts beside one": ("tt.divisibility", LANES + 8, [64], 1),
    "an odd one": ("tt.divisibility", LANES * 8, [16], 1),
    "a step of two": ("tt.contiguity", LANES * 2, [2], 1),
    "a run in the other dimension": ("tt.contiguity", np.stack([LANES, LANES]), [2, 1], 1),
    "addresses with gaps": ("tt.contiguity", LANES * 8, [4], 4),
    "threes alike": ("tt.constancy", LANES // 3, [4], 1),
    "a mask that ends within": ("tt.constancy", LANES < 41, [16], 1),
}


@pytest.mark.parametrize("name", TRUE)
def test_a_hint_that_holds_passes(name):
    kind, data, values, step = TRUE[name]
    assert false_hint(kind, np.asarray(data), values, step) is None


@pytest.mark.parametrize("name", FALSE)
def test_a_false_hint_is_named(name):
    kind, data, values, step = FALSE[name]
    found = false_hint(kind, np.asarray(data), values, step)
    assert found is not None
    assert str(values[0]) in found
