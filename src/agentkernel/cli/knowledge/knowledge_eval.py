"""`agentkernel knowledge eval`: does the search find what helps?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkernel.cli.knowledge.knowledge_options import Chroma, EmbedderName, Where
from agentkernel.cli.options import AsJson, ConfigFile, Overrides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from agentkernel.domain.knowledge import Query
    from agentkernel.knowledge.base import KnowledgeBase
    from agentkernel.knowledge.evaluation import LabelledQuestion, SearchOutcome

Questions = Annotated[
    Path, typer.Argument(help="Folder with questions and judgements.", metavar="[FOLDER]")
]


def evaluate_search(
    folder: Questions = Path("benchmarks/retrieval"),
    where: Where = None,
    chroma: Chroma = None,
    embedder: EmbedderName = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Ask labelled questions: recall, MRR and time by words only, by meaning only, by all."""
    from agentkernel.cli.knowledge.knowledge_options import (
        open_knowledge,
        place_of,
        require_if_named,
    )
    from agentkernel.cli.knowledge_progress import indexing_progress
    from agentkernel.cli.output import console, print_json
    from agentkernel.knowledge.code_structure import structure_of_code
    from agentkernel.knowledge.evaluation import read_questions

    questions = read_questions(folder, structure_of_code)
    place = require_if_named(place_of(where, chroma, embedder, overrides, config))
    with open_knowledge(place) as base:
        with indexing_progress(silent=as_json) as progress:
            base.refresh(progress)
        found = outcomes(base, questions)
    gaps = sum(not question.answers for question in questions)
    if as_json:
        print_json({"gaps": gaps, "outcomes": [item.model_dump(mode="json") for item in found]})
        return
    screen = console()
    screen.print(table(found))
    screen.print(f"{gaps} of {len(questions)} questions have no answer here and are not asked")
    screen.print(f"not among the first 5: {', '.join(found[-1].missed) or 'none'}", markup=False)


def outcomes(
    base: KnowledgeBase, questions: Sequence[LabelledQuestion]
) -> tuple[SearchOutcome, ...]:
    """A library's BM25 tuned on the same questions, the dense index alone, and all of it."""
    from agentkernel.domain.knowledge import Filters
    from agentkernel.knowledge.evaluation import evaluate as ask
    from agentkernel.knowledge.lexical_baseline import tuned_bm25
    from agentkernel.knowledge.retrieval import DENSE_ONLY

    def search(query: Query) -> list[str]:
        return [hit.entry.id for hit in base.search(query)]

    def dense(query: Query) -> list[str]:
        return [hit.entry.id for hit in base.search(query, DENSE_ONLY)]

    tuning, lexical = tuned_bm25(tuple(base.truth.select(Filters())), questions)
    name = f"words only (BM25, k1 {tuning.k1:g}, b {tuning.b:g}, {tuning.field})"
    return (
        lexical.model_copy(update={"name": name}),
        ask("meaning only", questions, dense),
        ask("all", questions, search),
    )


def table(found: Sequence[SearchOutcome]) -> Table:
    """A row a way of searching and kind of question."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False)
    shown.add_column("search")
    shown.add_column("questions")
    for heading in ("n", "recall@1", "recall@5", "recall@10", "MRR", "p50 ms", "p95 ms"):
        shown.add_column(heading, justify="right")
    for item in found:
        for kind, score in item.by_kind.items():
            shown.add_row(
                item.name if kind == "all" else "",
                kind,
                str(score.questions),
                *(f"{score.recall[depth]:.2f}" for depth in sorted(score.recall)),
                f"{score.mrr:.2f}",
                f"{score.p50_ms:.1f}",
                f"{score.p95_ms:.1f}",
            )
    return shown
