"""`agentkernel train evaluate`: how often is a model right on the held-out modules of its data?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agentkernel.cli.options import AsJson

if TYPE_CHECKING:
    from agentkernel.workflows.training.evaluate import PassAt
    from agentkernel.workflows.training.writer import Writer

DataFolder = Annotated[
    Path, typer.Argument(metavar="DATA", help="A folder that 'agentkernel train data' made.")
]
Models = Annotated[
    list[str],
    typer.Option(
        "--model",
        metavar="MODEL",
        help="local:PATH; untrained:PATH for its weights before; nearest for a copy of the "
        "nearest training kernel. May be repeated.",
    ),
]
Samples = Annotated[int, typer.Option("--samples", min=1, help="Answers to each module.")]
Problems = Annotated[
    int | None, typer.Option("--problems", min=1, help="So many of the modules, spread over all.")
]
Gpu = Annotated[str | None, typer.Option("--target", help="GPU that the modules are asked for.")]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Candidates judged at a time.")]
Device = Annotated[Literal["cpu", "cuda"], typer.Option("--device", help="Where they are judged.")]
Seed = Annotated[int, typer.Option("--seed", help="Of what the models draw.")]
OutFile = Annotated[
    Path | None, typer.Option("--out", help="JSON file for all figures, problem by problem.")
]


def evaluate(
    data: DataFolder,
    models: Models,
    samples: Samples = 10,
    problems: Problems = None,
    target: Gpu = None,
    jobs: Jobs = None,
    device: Device = "cpu",
    seed: Seed = 0,
    out: OutFile = None,
    as_json: AsJson = False,
) -> None:
    """Judge what models write for the held-out modules: pass@k, hacks, answers without a file."""
    from agentkernel.cli.knowledge_progress import shown
    from agentkernel.cli.output import console, print_json
    from agentkernel.errors import TrainingError
    from agentkernel.workflows.training.evaluate import pass_at, spread_over
    from agentkernel.workflows.training.judging import STRICT
    from agentkernel.workflows.training.rows import held_out_problems

    there = held_out_problems(data)
    if not there:
        raise TrainingError(
            f"{str(data)!r} has no held-out modules. Expected files in problems/held-out. "
            "Next: name a folder that 'agentkernel train data' made."
        )
    chosen = spread_over(there, problems or len(there))
    found: dict[str, PassAt] = {}
    for model in models:
        writer = writer_of(model, data, seed)
        with shown(model, silent=as_json) as show:
            found[model] = pass_at(
                writer,
                chosen,
                samples,
                target=target,
                verification=STRICT.model_copy(update={"device": device}),
                jobs=jobs,
                seed=seed,
                show=show,
            )
        if out is not None:
            write_figures(out, found)
        if not as_json:
            console().print(f"{model}: {found[model].line()}", markup=False)
    if as_json:
        whole = {
            name: item.model_dump(mode="json", exclude={"rows"}) for name, item in found.items()
        }
        print_json({"models": whole})


def writer_of(model: str, data: Path, seed: int) -> Writer:
    """Whoever answers under that name. Raises SettingError, ModelUnavailable, TrainingError."""
    from agentkernel.domain.exchange import Sampling
    from agentkernel.errors import SettingError
    from agentkernel.workflows.training.folder import read_record
    from agentkernel.workflows.training.nearest import NearestWriter
    from agentkernel.workflows.training.rows import read_rows
    from agentkernel.workflows.training.untrained import untrained
    from agentkernel.workflows.training.writer import LocalWriter

    kind, _, path = model.partition(":")
    if model == "nearest":
        return NearestWriter(read_rows(data, "train"))
    if kind == "local" and path:
        return LocalWriter(model, seed=seed)
    if kind == "untrained" and path:
        weights, record = untrained(Path(path)), read_record(Path(path))
        assert record is not None
        asked = record.settings.sampling
        sampling = Sampling(
            temperature=asked.temperature, top_p=asked.top_p, max_tokens=asked.most_tokens
        )
        return LocalWriter(weights, sampling, seed=seed)
    raise SettingError(
        f"Unknown model {model!r}. Expected local:PATH, untrained:PATH or nearest. "
        "Next: name one of these."
    )


def write_figures(path: Path, found: dict[str, PassAt]) -> None:
    """All figures so far in one JSON file. Raises OutputError."""
    import json

    from agentkernel.tools.atomic import write_atomic

    whole = {name: item.model_dump(mode="json") for name, item in found.items()}
    write_atomic(path, json.dumps(whole, indent=1))


__all__ = ["evaluate"]
