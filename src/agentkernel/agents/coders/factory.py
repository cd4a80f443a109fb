"""Which coder does `--coder` name?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkernel.errors import SettingError

if TYPE_CHECKING:
    from agentkernel.agents.coders.compiler.coder import Writer
    from agentkernel.agents.models.factory import Desk
    from agentkernel.agents.protocols import Coder, Searcher

KNOWN = "compiler, chat:PROVIDER:MODEL[@URL], local:NAME_OR_PATH[+ADAPTER]"


def make_coder(
    spec: str, searcher: Searcher, writer: Writer | None = None, desk: Desk | None = None
) -> Coder:
    """The coder of `spec`; `searcher` ranks the schedules of a coder that drafts families, `writer`
    asks TorchInductor for one that lifts its code, `desk` gives a coder that is a model its model
    (None: one whose answers nobody keeps).

    Raises SettingError for a name that is not known.
    """
    if spec == "compiler":
        from agentkernel.agents.coders.compiler.coder import CompilerCoder

        return CompilerCoder(searcher, writer)
    if spec.startswith(("chat:", "local:")):
        return _model_coder(spec, desk)
    raise SettingError(
        f"Unknown coder {spec!r}. Known: {KNOWN}. Next: leave --coder out for the compiler coder."
    )


def _model_coder(spec: str, desk: Desk | None) -> Coder:
    from agentkernel.agents.coders.model import ModelCoder
    from agentkernel.agents.models.factory import Desk

    own = desk or Desk()
    model = own.model(spec)
    return ModelCoder(model.name, model, own.sampling(spec), own.prompt(spec), own.answered())
