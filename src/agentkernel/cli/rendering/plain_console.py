"""A console that shows what others wrote without being steered by it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from agentkernel.domain.plain_text import plain


class PlainConsole(Console):
    """A rich console whose texts all pass `plain`; rich's own control codes are no texts."""

    def render_str(self, text: str, **styles: Any) -> Text:
        """A text, before anyone measures how wide it is."""
        return super().render_str(plain(text), **styles)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of what is no string."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else plain(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style)
