"""Prompt templates and their loader: Jinja files rendered with strict undefined names."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from agentkernel.agents.safe_text import fenced, inline, shortened

if TYPE_CHECKING:
    from jinja2 import Environment


def render(name: str, **values: object) -> str:
    """The prompt `name`.md.j2 with `values` filled in; a name that is missing there raises.

    Values are text, never templates. In a prompt file what others wrote goes through the filter
    `fenced`, or `inline` where it is a few words in a sentence.
    """
    return _environment().get_template(f"{name}.md.j2").render(**values).strip() + "\n"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = str(resources.files(__name__))
    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["fenced"] = fenced
    environment.filters["inline"] = inline
    return environment


__all__ = ["fenced", "inline", "render", "shortened"]
