"""`agentkernel train reviews`: what does a larger model say of the kernels to be improved?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkernel.cli.options import AsJson, BaseUrl, Overrides, UsdLimit
from agentkernel.cli.output import print_plain
from agentkernel.cli.train.train_data import Licence, Sources, Training

if TYPE_CHECKING:
    from agentkernel.training.data.reviews import ReviewsReport

TeacherName = Annotated[
    str,
    typer.Option(
        "--teacher",
        metavar="MODEL",
        help="chat:PROVIDER:MODEL[@URL] or local:PATH. The kernels are sent to it.",
    ),
]
ReviewsFile = Annotated[
    Path,
    typer.Option("--out", metavar="FILE.jsonl", help="The same call goes on in it after a kill."),
]
KernelCount = Annotated[
    int | None, typer.Option("--count", min=1, help="Kernels to ask about at most.")
]
Questions = Annotated[int, typer.Option("--jobs", min=1, help="Questions asked at once.")]
Everything = Annotated[
    bool,
    typer.Option("--all", help="Also kernels of which no faster one is known, after the others."),
]


def reviews(
    teacher: TeacherName,
    out: ReviewsFile,
    sources: Sources = None,
    licence: Licence = "",
    base_url: BaseUrl = None,
    count: KernelCount = None,
    usd: UsdLimit = None,
    jobs: Questions = 4,
    everything: Everything = False,
    training: Training = "small",
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Ask a teacher what holds right kernels back; the same call goes on after a kill, and asks
    nothing twice."""
    from agentkernel.cli.knowledge_progress import progress_bar
    from agentkernel.cli.models import check_endpoint, check_model
    from agentkernel.cli.output import print_json
    from agentkernel.domain.errors import SettingError
    from agentkernel.training.configuration import load_training
    from agentkernel.training.data.reviews import Teacher, make_reviews
    from agentkernel.training.data.sources import origin_of

    if not sources:
        raise SettingError(
            "reviews got no --from. Expected a file of pairs. Next: agentkernel train pairs --out "
            "pairs.jsonl.gz --count 1000 makes one."
        )
    check_endpoint("--base-url", base_url)
    check_model("--teacher", teacher, base_url)
    licences = load_training(training, overrides or ()).data.licences
    origins = [origin_of(item, licence) for item in sources]
    asked = Teacher(teacher, base_url, count, usd, jobs, everything)
    with progress_bar("reviews", silent=as_json) as show:
        made = make_reviews(origins, asked, out, licences=licences, show=show)
    if as_json:
        print_json({"out": str(out), **made.model_dump(mode="json")})
    else:
        print_plain("\n".join(reviews_lines(made, sources, out)))
    raise typer.Exit(0 if made.kept or made.known else 1)


def reviews_lines(made: ReviewsReport, sources: list[str], out: Path) -> list[str]:
    """What the file holds, what came to nothing, and what it cost."""
    import shlex

    from agentkernel.cli.rendering.quantities import show_count, show_usd
    from agentkernel.domain.plain_text import plain_line

    nothing = (
        (made.without_sections, "answered without sections"),
        (made.cut_off, "cut off"),
        (made.unanswered, "not answered"),
        (made.left, "left, as the money is spent"),
    )
    lines = [
        f"{made.known + made.kept} reviews of {made.kernels} kernels, {made.kept} of them new; "
        f"{made.asked} questions asked in {made.seconds:.0f} s"
    ]
    told = ", ".join(f"{number} {what}" for number, what in nothing if number)
    lines += [f"came to nothing: {told}"] if told else []
    taken = made.taken
    usd = show_usd(taken.cost_usd, taken.unpriced)
    lines.append(
        f"taken in all calls: {show_count(taken.prompt)} tokens in, {show_count(taken.completion)} "
        f"out; USD {usd}"
    )
    lines += [made.unpriced] if made.unpriced else []
    words = shlex.join(word for item in sources for word in ("--from", item))
    if made.known or made.kept:
        lines.append(f"Next: agentkernel train data {words} --from {out} --out DATA")
    return [plain_line(line) for line in lines]


__all__ = ["reviews"]
