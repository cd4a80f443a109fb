"""Flags of the training commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from agentkernel.cli.options import AsJson, BaseUrl, Overrides, UsdLimit

DataFolder = Annotated[
    Path, typer.Argument(metavar="DATA", help="A folder that 'agentkernel train data' made.")
]
ModelFolder = Annotated[
    Path, typer.Option("--out", help="Folder for the model; the same call goes on in it.")
]
Training = Annotated[
    str,
    typer.Option(
        "--config",
        metavar="NAME|FILE.yaml",
        help="tiny, small, qwen2.5-coder-3b, llama-3.1-8b, or a file like them.",
    ),
]


Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the first module; the next has +1.")]


@dataclass(frozen=True)
class ProblemsFlags:
    """Write made modules as files; again at any time."""

    count: Annotated[int, typer.Option("--count", min=1, help="Different modules to write.")]
    out: Annotated[Path, typer.Option("--out", help="Folder for the modules.")]
    seed: Seed = 0
    as_json: AsJson = False


@dataclass(frozen=True)
class PairsFlags:
    """Draft kernels for modules, break some, have all judged; the same call goes on after a
    kill."""

    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE.jsonl.gz", help="The same call goes on in it after a kill."
        ),
    ]
    count: Annotated[
        int | None,
        typer.Option("--count", min=1, help="Rows in the file at most; needed for made modules."),
    ] = None
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Of the first module; the next has +1.")
    ] = 0
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="Made modules of this kind alone; of several, one of each in turn. 'all': of all.",
        ),
    ] = None
    path: Annotated[
        Path | None,
        typer.Option(
            "--problems",
            metavar="PATH",
            help="A folder of modules in the KernelBench convention, or KernelBook's shards, in "
            "place of made ones. They run.",
        ),
    ] = None
    licence: Annotated[
        str, typer.Option("--licence", help="Of the modules in a folder, by SPDX name.")
    ] = "Apache-2.0"
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Modules worked on at once.")
    ] = None
    target: Annotated[
        str | None,
        typer.Option("--target", help="GPU the kernels are for; the local one, else h100."),
    ] = None
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        typer.Option("--device", help="Where kernels are judged; auto is the GPU of the target."),
    ] = "auto"
    times: Annotated[
        Literal["estimated", "measured", "none"],
        typer.Option("--times", help="Of right kernels: rows of slow -> faster come from these."),
    ] = "estimated"
    schedules: Annotated[
        int,
        typer.Option("--schedules", min=0, help="Of each module, so many more right kernels."),
    ] = 1
    broken: Annotated[
        int,
        typer.Option(
            "--broken", min=0, help="Of each module, so many kernels with one mistake each."
        ),
    ] = 1
    as_json: AsJson = False


Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="PATH",
        help="Pairs, KernelBook's shards, a knowledge base, a folder of runs or a file of reviews; "
        "KIND:PATH says which. Repeat.",
    ),
]
Licence = Annotated[
    str, typer.Option("--licence", help="Of rows that name none, as of your own runs.")
]
DataTraining = Annotated[
    str,
    typer.Option("--config", metavar="NAME|FILE.yaml", help="Whose 'data:' holds; small."),
]


@dataclass(frozen=True)
class ReviewsFlags:
    """Ask a teacher what holds right kernels back; the same call goes on after a kill, and asks
    nothing twice."""

    teacher: Annotated[
        str,
        typer.Option(
            "--teacher",
            metavar="MODEL",
            help="chat:PROVIDER:MODEL[@URL] or local:PATH. The kernels are sent to it.",
        ),
    ]
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE.jsonl", help="The same call goes on in it after a kill."
        ),
    ]
    sources: Sources = None
    licence: Licence = ""
    base_url: BaseUrl = None
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="Kernels to ask about at most.")
    ] = None
    usd: UsdLimit = None
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Questions asked at once.")] = 4
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Also kernels of which no faster one is known, after the others."
        ),
    ] = False
    training: DataTraining = "small"
    overrides: Overrides = None
    as_json: AsJson = False


@dataclass(frozen=True)
class DataFlags:
    """Write rows of the three tasks, held-out modules and a card; the same call after a kill comes
    to the same bytes."""

    out: Annotated[Path, typer.Option("--out", help="A new folder, or a finished one.")]
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Pairs, KernelBook's shards, a knowledge base, a folder of runs or a file of "
            "reviews; KIND:PATH says which. Repeat.",
        ),
    ] = None
    licence: Annotated[
        str, typer.Option("--licence", help="Of rows that name none, as of your own runs.")
    ] = ""
    training: Annotated[
        str,
        typer.Option("--config", metavar="NAME|FILE.yaml", help="Whose 'data:' holds; small."),
    ] = "small"
    overrides: Overrides = None
    as_json: AsJson = False


@dataclass(frozen=True)
class EvaluateFlags:
    """Judge what models answer about the held-out modules: pass@k, debugging success, hacks,
    answers without a file; and how far each is from the first model."""

    data: DataFolder
    models: Annotated[
        list[str],
        typer.Option(
            "--model",
            metavar="MODEL",
            help="local:PATH; untrained:PATH for its weights before; nearest for a copy of the "
            "nearest training kernel. May be repeated: all others are compared with the first.",
        ),
    ]
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--task", help="What is asked: write (unless said), repair, optimise. May be repeated."
        ),
    ] = None
    samples: Annotated[int, typer.Option("--samples", min=1, help="Answers to each question.")] = 10
    problems: Annotated[
        int | None,
        typer.Option("--problems", min=1, help="So many of the modules, spread over all."),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            "--target", help="GPU that the task write asks for; the rows' own unless said."
        ),
    ] = None
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Candidates judged at a time.")
    ] = None
    device: Annotated[
        Literal["cpu", "cuda"], typer.Option("--device", help="Where they are judged.")
    ] = "cpu"
    budget: Annotated[
        float,
        typer.Option(
            "--budget", min=0.0, help="Seconds an answer for cases past those that must be judged."
        ),
    ] = 2.0
    seed: Annotated[int, typer.Option("--seed", help="Of what the models draw.")] = 0
    answers: Annotated[
        Path | None,
        typer.Option(
            "--answers",
            metavar="FOLDER",
            help="Keeps all answers; what lies there is not asked again, and needs no weights "
            "here.",
        ),
    ] = None
    out: Annotated[
        Path | None, typer.Option("--out", help="JSON file for all figures, problem by problem.")
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True)
class CostFlags:
    """Compute the memory and hours that sft and rl need, by method; nothing is run."""

    training: Training = "qwen2.5-coder-3b"
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="PATH", help="A folder of weights, in place of the config's."
        ),
    ] = None
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="GPUs of one machine.")] = 1
    target: Annotated[
        str | None, typer.Option("--target", help="The GPU; the local one, else h100.")
    ] = None
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows that are learned from.")] = 30_000
    tokens_a_row: Annotated[
        int, typer.Option("--tokens-a-row", min=2, help="Of question and answer, on the average.")
    ] = 1500
    judges: Annotated[
        int, typer.Option("--judges", min=1, help="Processes that judge while rl runs.")
    ] = 16
    only: Annotated[
        Literal["sft", "rl"] | None, typer.Option("--only", help="One of the two trainings.")
    ] = None
    overrides: Overrides = None
    as_json: AsJson = False


@dataclass(frozen=True)
class SftFlags:
    """Fine-tune a model, or make a new one, on judged kernels; the same call goes on after a
    kill."""

    context: typer.Context
    data: DataFolder
    out: ModelFolder
    training: Training = "small"
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME_OR_PATH",
            help="Weights to begin with, in place of the config's.",
        ),
    ] = None
    older: Annotated[
        Path | None,
        typer.Option("--older", metavar="DATA", help="Older data; sft.replay says how much of it."),
    ] = None
    target: Annotated[
        str | None, typer.Option("--target", help="GPU that held-out modules are asked for.")
    ] = None
    evaluations: Annotated[
        int,
        typer.Option(
            "--evaluations", min=1, help="How often held-out modules are judged, the end included."
        ),
    ] = 1
    samples: Annotated[
        int, typer.Option("--samples", min=1, help="Answers to each held-out module.")
    ] = 4
    gpus: Annotated[
        str,
        typer.Option(
            "--gpus",
            metavar="N|auto",
            help="GPUs to train on together, each with its own batches; auto: all that are here.",
        ),
    ] = "1"
    overrides: Overrides = None
    as_json: AsJson = False


@dataclass(frozen=True)
class RlFlags:
    """Let a model practise on the training modules, several turns each, rewarded by the judge; the
    same call goes on after a kill."""

    data: DataFolder
    model: Annotated[
        str,
        typer.Option(
            "--model", metavar="NAME_OR_PATH", help="Weights to begin with, as of 'train sft'."
        ),
    ]
    out: ModelFolder
    training: Training = "small"
    target: Annotated[
        str | None,
        typer.Option("--target", help="GPU that speedups are of; the local one, else h100."),
    ] = None
    device: Annotated[
        Literal["cpu", "cuda"] | None,
        typer.Option("--device", help="Where answers are judged; cpu is the interpreter."),
    ] = None
    speed: Annotated[
        Literal["measured", "estimated", "none"] | None,
        typer.Option("--speed", help="How fast right kernels are; measured where a GPU is."),
    ] = None
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Processes that judge; one a processor.")
    ] = None
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="Judge on a Ray cluster: auto, local, ray://HOST:10001.",
        ),
    ] = None
    overrides: Overrides = None
    as_json: AsJson = False
