"""What does a module's source compute, read from its syntax alone and never executed?"""

from __future__ import annotations

import ast
import warnings
from contextlib import suppress
from functools import lru_cache

from agentkernel.domain.knowledge import Structure
from agentkernel.knowledge.code_inputs import inputs_of
from agentkernel.knowledge.code_library import LimitReached
from agentkernel.knowledge.code_program import Program
from agentkernel.knowledge.code_reader import Reader
from agentkernel.knowledge.op_names import strongest
from agentkernel.storage.source_text import parse_source

MOST_CHARACTERS = 400_000


@lru_cache(maxsize=4)
def parsed(source: str) -> ast.Module | None:
    """The syntax tree, None where there is none; the last few are kept, and not to be changed."""
    if len(source) > MOST_CHARACTERS:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return parse_source(source, walked=False)
        except SyntaxError:
            return None


def structure_of_code(source: str, entry_point: str | None = None) -> Structure | None:
    """What the module class `entry_point` of `source` computes, in canonical ops.

    Without an entry point (or with one that is not there): `Model`, else the last module class that
    no other one uses. None where the source does not parse or holds no module with a forward.
    """
    tree = parsed(source)
    if tree is None:
        return None
    program = Program(tree)
    name = program.entry(entry_point)
    if name is None:
        return None
    facts = inputs_of(tree)
    reader = Reader(program, facts.rank)
    with suppress(LimitReached, RecursionError):
        reader.read(name, program.constructor_arguments())
    record = reader.record
    return Structure(
        ops=tuple(record.ops),
        reduction=strongest(record.reductions) if record.ops else None,
        dtypes=facts.dtypes,
        rank=facts.rank,
    )


def module_class(source: str, entry_point: str | None = None) -> ast.ClassDef | None:
    """The class that `structure_of_code` reads; None where it finds none."""
    tree = parsed(source)
    if tree is None:
        return None
    program = Program(tree)
    name = program.entry(entry_point)
    return None if name is None else program.classes[name]
