"""Which coder does `--coder` name?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkernel.errors import SettingError

if TYPE_CHECKING:
    from agentkernel.agents.coders.compiler.coder import Writer
    from agentkernel.agents.protocols import Coder, Searcher

KNOWN = "compiler, chat:PROVIDER:MODEL, chat:PROVIDER:MODEL@URL"


def make_coder(spec: str, searcher: Searcher, writer: Writer | None = None) -> Coder:
    """The coder of `spec`; `searcher` ranks the schedules of a coder that drafts families, `writer`
    asks TorchInductor for one that lifts its code.

    Raises SettingError for a name that is not known.
    """
    if spec == "compiler":
        from agentkernel.agents.coders.compiler.coder import CompilerCoder

        return CompilerCoder(searcher, writer)
    if spec.startswith("chat:"):
        from agentkernel.agents.coders.chat import ChatCoder, parse_model

        model, base_url = parse_model(spec.removeprefix("chat:"))
        return ChatCoder(model, base_url)
    raise SettingError(
        f"Unknown coder {spec!r}. Known: {KNOWN}. Next: leave --coder out for the compiler coder."
    )
