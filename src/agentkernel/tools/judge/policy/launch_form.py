"""The launch forms of a source: as a CUDA graph, or by launches that go past Triton's launcher."""

from __future__ import annotations

from agentkernel.tools.judge.policy import direct_form, graph_form

AS_GRAPH = "as a CUDA graph"
DIRECTLY = "launched directly"


def plain_form(source: str) -> str | None:
    """The plain text of a source in a launch form, line by line where it was; None for any other
    text."""
    return graph_form.plain_form(source) or direct_form.plain_form(source)


def form_name(source: str) -> str | None:
    """How a source in a launch form launches; None for any other text."""
    if graph_form.plain_form(source) is not None:
        return AS_GRAPH
    return DIRECTLY if direct_form.plain_form(source) is not None else None
