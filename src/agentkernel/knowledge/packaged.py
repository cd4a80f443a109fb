"""Which entries does the package itself bring?"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from agentkernel.domain.knowledge import Entry, EntryKind, Structure
from agentkernel.knowledge.documents import Document

StructureOf = Callable[[str], Structure | None]
"""The structure of a PyTorch module's source; None where it has none that can be read."""
KINDS: dict[str, EntryKind] = {"hardware": "note", "kernel": "kernel"}
REFERENCE = "Model"
CANDIDATE = "ModelNew"


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
    tree = ast.parse(text)
    kept = [node for node in tree.body if _of_the_reference(node)]
    return "\n\n\n".join(ast.unparse(node) for node in kept) + "\n"


def _of_the_reference(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return "triton" not in ast.unparse(node)
    if isinstance(node, ast.ClassDef):
        return node.name != CANDIDATE
    return isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs")
