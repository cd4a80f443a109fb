"""How often did an expectation hold?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentkernel.agents.protocols import Attempt
from agentkernel.domain.plan import Calibration

ROOM = 1.1
"""A measured time up to this many times the predicted one is within the prediction."""


def calibration(attempts: Sequence[Attempt]) -> tuple[Calibration, ...]:
    """Predicted against measured time for each who predicted; estimates do not count as measured.

    A candidate counts once, with the last that is known of it.
    """
    latest = {item.candidate.sha256: item for item in attempts}
    ratios: dict[str, list[float]] = {}
    for item in latest.values():
        ratio = measured_over_predicted(item)
        if ratio is not None:
            ratios.setdefault(item.predicted_by, []).append(ratio)
    return tuple(
        Calibration(
            predicted_by=name,
            predictions=len(found),
            within=sum(ratio <= ROOM for ratio in found),
            ratio=math.exp(sum(map(math.log, found)) / len(found)),
        )
        for name, found in sorted(ratios.items())
    )


def measured_over_predicted(attempt: Attempt) -> float | None:
    """The ratio on the primary shapes; None where one of the two is missing."""
    measured = measured_us(attempt)
    if not measured or not attempt.predicted_us:
        return None
    return measured / attempt.predicted_us


def measured_us(attempt: Attempt) -> float | None:
    """Median device time of one call on the primary shapes; None where no GPU ran it."""
    profile = attempt.profile
    return profile.measurements[0].candidate.median_us if profile and profile.measurements else None
