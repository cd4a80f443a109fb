"""How does a prompt file become the text that a model reads?"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def render(name: str, **values: object) -> str:
    """The prompt `name`.md.j2 with `values` filled in; a name that is missing there raises."""
    return _environment().get_template(f"{name}.md.j2").render(**values).strip() + "\n"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = str(resources.files(__name__))
    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )


__all__ = ["render"]
