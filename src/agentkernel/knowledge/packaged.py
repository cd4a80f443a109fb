"""Which entries does the package itself bring, and what are they made from?"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator

from agentkernel.domain.base import sha256_text
from agentkernel.domain.knowledge import Entry, EntryKind, Structure
from agentkernel.knowledge.documents import PACKAGE, Document, files_sha256, load_documents
from agentkernel.knowledge.fixes import load_fixes
from agentkernel.storage.source_text import parse_source

StructureOf = Callable[[str], Structure | None]
"""The structure of a PyTorch module's source; None where it has none that can be read."""
KINDS: dict[str, EntryKind] = {"hardware": "note", "kernel": "kernel"}
REFERENCE = "Model"
CANDIDATE = "ModelNew"


ORIGINS = ("notes/", "kernels/", "fixes/")
"""How the ids of what the package brings begin."""
MADE_FROM = ("notes/*.md", "kernels/*.py", "fixes/*.md", "*.py", "../domain/knowledge.py")
"""Below the package of knowledge: the texts, and all code that may have a part in reading them."""


def packaged_sha256() -> str:
    """One hash of what the packaged entries are made from; with another one they may be others.

    Names and bytes of the texts and of the code that reads them, and Python's version, whose `ast`
    writes the modules.
    """
    files = files_sha256(path for pattern in MADE_FROM for path in PACKAGE.glob(pattern))
    return sha256_text(f"{files}\0{sys.version_info[:2]}")


def all_packaged() -> tuple[Entry, ...]:
    """Every entry that the package brings, read anew (0.1 s)."""
    # A search that finds them in the truth does without what reads code.
    from agentkernel.knowledge.code_structure import structure_of_code

    return (*packaged_entries(load_documents(), structure_of_code), *load_fixes())


def packaged_entries(documents: Iterable[Document], structure_of: StructureOf) -> Iterator[Entry]:
    """One entry a document. A kernel example holds its module as `Model` and the drop-in as
    `ModelNew`: the first is the problem, the whole file the answer."""
    for document in documents:
        problem = reference_source(document.text) if document.kind == "kernel" else ""
        yield Entry(
            id=document.id,
            kind=KINDS[document.kind],
            title=document.title,
            summary=document.summary,
            problem=problem,
            answer=document.text,
            passages=document.passages,
            source=document.source,
            licence=document.licence,
            verified="interpreter" if document.kind == "kernel" else "no",
            structure=structure_of(problem) if problem else None,
            architectures=document.architectures,
            hints=dict(document.hints),
        )


def reference_source(text: str) -> str:
    """The part of a kernel example that runs without Triton: imports of torch, the module and its
    inputs. Parsed, never executed."""
    tree = parse_source(text)
    kept = [node for node in tree.body if _of_the_reference(node)]
    return "\n\n\n".join(ast.unparse(node) for node in kept) + "\n"


def _of_the_reference(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return "triton" not in ast.unparse(node)
    if isinstance(node, ast.ClassDef):
        return node.name != CANDIDATE
    return isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs")
