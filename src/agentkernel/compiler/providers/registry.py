"""The table from kinds of steps to their providers."""

from __future__ import annotations

from typing import cast

from agentkernel.compiler.attention import AttentionStep
from agentkernel.compiler.convolutions.statistics import StatisticsStep
from agentkernel.compiler.convolutions.step import ConvolutionStep
from agentkernel.compiler.fusion import LibraryStep, Region
from agentkernel.compiler.products.joined import JoinedStep
from agentkernel.compiler.products.pairs import PairStep
from agentkernel.compiler.products.row_parts import RowPartsStep
from agentkernel.compiler.products.step import ProductStep
from agentkernel.compiler.providers.attention import Attention
from agentkernel.compiler.providers.convolution import Convolution, ConvolutionStatistics
from agentkernel.compiler.providers.library import Library
from agentkernel.compiler.providers.linear import Linear, LinearStep
from agentkernel.compiler.providers.product import Joined, Pair, Product, RowParts
from agentkernel.compiler.providers.protocol import Provider
from agentkernel.compiler.providers.recurrence import Recurrent
from agentkernel.compiler.providers.rows import Rows
from agentkernel.compiler.providers.scan import Scan
from agentkernel.compiler.providers.written import Written, WrittenStep
from agentkernel.compiler.recurrence import RecurrenceStep

PROVIDERS: dict[type, object] = {
    Region: Rows(),
    ConvolutionStep: Convolution(),
    StatisticsStep: ConvolutionStatistics(),
    ProductStep: Product(),
    PairStep: Pair(),
    JoinedStep: Joined(),
    RowPartsStep: RowParts(),
    AttentionStep: Attention(),
    RecurrenceStep: Recurrent(),
    LibraryStep: Library(),
    LinearStep: Linear(),
    WrittenStep: Written(),
}


SCANS = Scan()
"""Serves regions along whose columns scans run."""


def provider_of(step: object) -> Provider[object]:
    """Who serves a step."""
    if isinstance(step, Region) and step.scans:
        return cast("Provider[object]", SCANS)
    return cast("Provider[object]", PROVIDERS[type(step)])
