"""Are the outputs of timed calls the answers to those calls' inputs?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from agentkernel.tools.profiler.timing.arena import Layout, spans

if TYPE_CHECKING:
    import torch

SAMPLES = 512
"""Elements of each output that are looked at; leaving 1% undone escapes in one of 170 calls."""
ALLOWED = {"float16": 0.06, "bfloat16": 0.06}
"""Norm-wise relative distance to eager by dtype, on inputs that nobody chose. Coarse on purpose:
how exact a candidate is was the judge's question; here it is whether the work was done."""
ALLOWED_ELSE = 0.02
TELLING = 16
"""Floating elements that two different answers do not share by chance."""


class WrongOutput(NamedTuple):
    """A timed call without its right answer: the failure's name, and which one."""

    reason: str
    text: str


class OutputProbe:
    """Random places in each output, unknown to the timed process, and what lies there."""

    def __init__(self, layout: Layout, device: str, seed: int) -> None:
        import torch

        self._layout = layout
        chosen = torch.Generator().manual_seed(seed)
        self._places = [
            torch.randint(0, spec.extent, (min(SAMPLES, spec.extent),), generator=chosen).to(device)
            if spec.extent
            else torch.zeros(0, dtype=torch.int64, device=device)
            for spec in layout.outputs
        ]

    def at(self, data: torch.Tensor, rows: int) -> list[torch.Tensor]:
        """The first `rows` rows of slots at those places: [rows, places] on the CPU, per output.

        It waits for the device: a result that comes later than this is not in it.
        """
        found = spans(data, self._layout.outputs, rows)
        looked = [_select(item, places) for item, places in zip(found, self._places, strict=True)]
        return [item.cpu() for item in looked]


def _select(table: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Columns of `table`; one-byte floats, which few operators take, come as float32."""
    import torch

    if table.is_floating_point() and table.element_size() == 1:
        return table.view(torch.uint8).index_select(1, places).view(table.dtype).float()
    return table.index_select(1, places)


def check_all(
    found: Sequence[torch.Tensor], expected: Mapping[int, Sequence[torch.Tensor]]
) -> WrongOutput | None:
    """What can be seen in every call without knowing its answer. `found`: [calls, places] of each
    output; `expected`: eager's [places] of each output, for some of the calls."""
    import torch

    for number, rows in enumerate(found):
        known = torch.stack([item[number] for item in expected.values()])
        if rows.is_floating_point() and not known.isnan().any():
            empty = rows.isnan().all(dim=1).nonzero().flatten().tolist()
            if empty and rows.shape[1]:
                return WrongOutput(
                    "missing_output", f"output {number} of timed call {empty[0]} is absent"
                )
        telling = rows.is_floating_point() and rows.shape[1] >= TELLING
        if telling and len(known) > 1 and _all_differ(known) and not _all_differ(rows):
            return WrongOutput(
                "stale_output", f"output {number}: two timed calls gave the same answer"
            )
    return None


def check_one(
    call: int,
    found: Sequence[torch.Tensor],
    expected: Mapping[int, Sequence[torch.Tensor]],
    reason: str = "wrong_output",
) -> WrongOutput | None:
    """The outputs of timed call number `call` ([places] each) against eager's answers by call."""
    for number, values in enumerate(found):
        own = distance(values, expected[call][number])
        others = {
            other: distance(values, answers[number])
            for other, answers in expected.items()
            if other != call and distance(answers[number], expected[call][number]) > 0
        }
        nearest = min(others, key=others.__getitem__, default=None)
        close = nearest is not None and others[nearest] <= min(own / 2, allowed(values))
        if close:
            text = f"output {number} of timed call {call} is the answer to call {nearest}"
            return WrongOutput("stale_output", text)
        if own > allowed(values):
            text = (
                f"output {number} of timed call {call} lies {own:.3g} (relative norm) from "
                f"eager's answer to the same inputs; allowed {allowed(values):g}"
            )
            return WrongOutput(reason, text)
    return None


def allowed(values: torch.Tensor) -> float:
    """The largest distance that passes, by dtype."""
    return ALLOWED.get(str(values.dtype).removeprefix("torch."), ALLOWED_ELSE)


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """||found - expected|| / ||expected|| over finite places; 1 more where NaN or infinity differ.
    For integers and booleans the share of places that differ."""
    import torch

    if not expected.numel():
        return 0.0
    if not (expected.is_floating_point() or expected.is_complex()):
        return float((found != expected).double().mean())
    wide = torch.complex128 if expected.is_complex() else torch.float64
    a, b = found.to(wide), expected.to(wide)
    finite = a.isfinite() & b.isfinite()
    odd = ~finite & ~((a.isnan() & b.isnan()) | (a == b))
    gap = torch.linalg.vector_norm((a - b)[finite])
    size = torch.linalg.vector_norm(b[finite])
    ratio = float(gap / size) if float(size) > 0 else float(gap > 0)
    return ratio + float(odd.any())


def _all_differ(rows: torch.Tensor) -> bool:
    return len({tuple(item) for item in rows.tolist()}) == len(rows)
