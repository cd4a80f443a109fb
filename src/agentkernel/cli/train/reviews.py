"""`agentkernel train reviews`: a teacher model asked what limits correct kernels.

The same call continues after a kill.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

from agentkernel.cli.configuration import check_endpoint, check_model
from agentkernel.cli.console import progress_bar
from agentkernel.cli.rendering.text import show_count, show_usd
from agentkernel.cli.terminal import print_json, print_plain
from agentkernel.cli.train.options import ReviewsFlags
from agentkernel.domain.errors import SettingError
from agentkernel.domain.plain_text import plain_line
from agentkernel.training.data.reviews import ReviewsReport, Teacher, make_reviews
from agentkernel.training.data.sources import origin_of
from agentkernel.training.settings import load_training


def reviews(flags: ReviewsFlags) -> None:
    """`agentkernel train reviews`."""
    if not flags.sources:
        raise SettingError(
            "reviews got no --from. Expected a file of pairs. Next: agentkernel train pairs --out "
            "pairs.jsonl.gz --count 1000 makes one."
        )
    check_endpoint("--base-url", flags.base_url)
    check_model("--teacher", flags.teacher, flags.base_url)
    licences = load_training(flags.training, flags.overrides or ()).data.licences
    origins = [origin_of(item, flags.licence) for item in flags.sources]
    asked = Teacher(
        flags.teacher, flags.base_url, flags.count, flags.usd, flags.jobs, flags.everything
    )
    with progress_bar("reviews", silent=flags.as_json) as show:
        made = make_reviews(origins, asked, flags.out, licences=licences, show=show)
    if flags.as_json:
        print_json({"out": str(flags.out), **made.model_dump(mode="json")})
    else:
        print_plain("\n".join(reviews_lines(made, flags.sources, flags.out)))
    raise typer.Exit(0 if made.kept or made.known else 1)


def reviews_lines(made: ReviewsReport, sources: list[str], out: Path) -> list[str]:
    """What the file holds, what came to nothing, and what it cost."""

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
