"""Answers to a client: a job's text in pages that fit a model's context, with the next step."""

from __future__ import annotations

import re
from typing import cast

from agentkernel.domain.errors import cause_of
from agentkernel.domain.formatting import told_apart
from agentkernel.domain.plain_text import plain, plain_line
from agentkernel.mcp_server.jobs import Job

MOST = 4000
"""Characters of one answer."""
PAGE = 3200
"""Characters of a job's text in one answer: what is said around it takes the rest."""
ERROR_MOST = 1200

NEXT = {
    ("plan", 0): "write a Triton drop-in (search_knowledge has kernels and notes) and judge it, "
    "or let optimize(module) search.",
    ("judge", 0): "profile the same candidate to learn how fast it is.",
    ("judge", 3): "correct what the judge names (search_knowledge with the error), judge again.",
    ("judge", 4): "nothing is known against it: judge it where a GPU is, or at smaller sizes.",
    ("profile", 0): "keep this file if it is faster than both baselines; else draft another one.",
    ("profile", 3): "the judge refused it: correct what it names, then judge again.",
    ("optimize", 0): "verify the run, then apply_check(run, module).",
    ("optimize", 3): "a baseline was kept: show the run to see why each candidate was left out.",
    ("verify", 0): "apply_check(run, module), then use the drop-in.",
    ("verify", 3): "do not use this kernel; optimize the module again.",
    ("apply_check", 0): "use it: agentkernel.apply_all(model, RUN_FOLDER) in your program.",
    ("apply_check", 3): "keep the original module; the lines above say why.",
    ("search_knowledge", 0): "show(ID) gives an entry whole; then judge a draft.",
    ("show", 0): "of a run: verify it, or read agentkernel://runs/RUN/report.",
}
RESULT_FIGURES = (
    "speedup_vs_eager",
    "speedup_vs_compile",
    "speedup_ci95",
    "time_us",
    "estimated_time_us",
    "estimated_speedup_vs_eager",
    "roofline_fraction",
    "error_vs_oracle",
    "eager_error_vs_oracle",
)
FAILED = 1
FACTS = ("round", "node", "candidate", "gate", "accepted", "reason", "text")


LONG_FIGURE = re.compile(r"(?<![\w.])\d+\.\d{3,}(?:[eE][-+]?\d+)?(?![\w.]*\w)")
NUMBER = r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
EXPECTED_FOUND = re.compile(rf"(expected:? )({NUMBER})(,?\s+found:? )({NUMBER})(?![\w.]*\w)")
"""The two values of a mismatch, which differ."""
SHORT_DIGITS = 4
WHOLE_FROM = 1e4
"""From here on a figure is written without decimals: it has four digits and more before them."""
COMMANDS_NEXT = re.compile(r"\s*Next: ")
AS_WRITTEN = frozenset({"show", "search_knowledge"})
"""Tools whose text may be source, in which a constant keeps its digits."""


def short_figures(text: str) -> str:
    """`text` with its long decimals at four significant digits, what was expected and what was
    found with as many as tell them apart."""
    parts, end = [], 0
    for pair in EXPECTED_FOUND.finditer(text):
        expected, found = told_apart(float(pair[2]), float(pair[4]), SHORT_DIGITS)
        parts += [_shortened(text[end : pair.start()]), f"{pair[1]}{expected}{pair[3]}{found}"]
        end = pair.end()
    return "".join([*parts, _shortened(text[end:])])


def _shortened(text: str) -> str:
    return LONG_FIGURE.sub(lambda found: _short(float(found[0])), text)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= WHOLE_FROM else f"{value:.{SHORT_DIGITS}g}"


def clipped(text: str, most: int, how: str) -> str:
    """`text`, or its beginning and `how` to get the rest."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[cut: {len(text) - most} of {len(text)} characters; {how}]"


def job_text(job: Job) -> str:
    """What a finished job says: of a search its result, of other commands their lines."""
    if job.tool in AS_WRITTEN:
        return _lines(job.text())
    if job.tool != "optimize":
        # The next step of a command line is none of a client's, who gets its own below.
        said = [line for line in _lines(job.text()).splitlines() if not COMMANDS_NEXT.match(line)]
        return short_figures("\n".join(said))
    result = next((item for item in reversed(job.events()) if "status" in item), {})
    figures = {name: result[name] for name in RESULT_FIGURES if result.get(name) is not None}
    lines = [
        f"{result.get('status')}: {result.get('reason')}",
        *(f"{name}: {result[name]}" for name in ("run", "candidate", "report") if name in result),
        f"measured: {result.get('measured')}; target: {result.get('target')}",
        *(f"{name}: {value}" for name, value in figures.items()),
    ]
    return short_figures(plain("\n".join(lines)))


def _lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in plain(text).splitlines())


def page_of(job: Job, page: int) -> str:
    """A page of a finished job's text, counted from 1, between its state and the next step."""
    text = job_text(job)
    pages = max(1, -(-len(text) // PAGE))
    if page > pages:
        there = "is one page" if pages == 1 else f"are {pages} pages"
        return _framed(job, f"No page {page}: there {there}.")
    part = text[(page - 1) * PAGE : page * PAGE]
    left = f"\n[page {page} of {pages}; more: result(run_id, page={page + 1})]"
    return _framed(job, part + (left if page < pages else ""))


def progress_text(job: Job) -> str:
    """Where a job at work is: its last event, else its seconds."""
    told = [item for item in job.events() if item.get("kind") != "stages_timed"]
    if not told:
        said = job.text("stderr").strip().splitlines()
        return plain_line(": ".join([f"at work for {job.seconds():.0f} s", *said[-1:]])[:400])
    last = told[-1]
    words = ", ".join(f"{name} {last[name]}" for name in FACTS if last.get(name) is not None)
    told_last = short_figures(f"{last.get('kind')}, {words}")
    return plain_line(f"at work for {job.seconds():.0f} s: {told_last}"[:400])


def status_of(job: Job) -> str:
    """The state of a job in few lines, whatever it is."""
    if job.state() == "running":
        return _framed(job, progress_text(job))
    if job.state() == "done":
        return _framed(job, f"ended after {job.seconds():.0f} s with exit code {job.exit_code}")
    return _framed(job, failure(job))


def failure(job: Job) -> str:
    """The one line of a job that failed or was cancelled, without the command line's next step: a
    client gets its own."""
    said = [line for line in plain(job.text("stderr")).splitlines() if line.strip()]
    if job.cancelled:
        return "Cancelled."
    last = said[-1] if said else f"{job.tool} was killed."
    cause = cause_of(last.removeprefix("agentkernel: "))
    return clipped(cause, ERROR_MOST, "the server's folder .agentkernel-jobs has the whole line")


def next_step(job: Job) -> str:
    """What is worth doing now."""
    state, run = job.state(), job.run_name()
    if state == "running":
        return f"result(run_id={job.id!r}, wait_s=50), or do something else first."
    if state == "done":
        return NEXT.get((job.tool, cast(int, job.exit_code)), "show('last').")
    # A run that came to a failure of its own says the same again.
    left = run if job.exit_code != FAILED else None
    kept = f"; 'agentkernel resume {left}' goes on with what is kept" if left else ""
    before = "" if state == "cancelled" else "correct the call and "
    return f"{before}start {job.tool} again{kept}."


def _framed(job: Job, text: str) -> str:
    run = job.run_name() if job.tool == "optimize" else None
    named = f"  run: {run}" if run else ""
    head = f"run_id: {job.id}  state: {job.state()}{named}"
    return f"{head}\n{text.strip()}\nNext: {next_step(job)}"
