"""pass@k of a model on held-out modules, with 95% intervals by family of module.

A model writes a file anew, repairs a broken one, or makes a correct one faster; the judge
decides. Intervals are Wilson's score interval for shares and percentile bootstraps for means.
Many questions are answered at once, unlike `LocalModel`, which asks one at a time as the loop
does.
"""

from __future__ import annotations

import ast
import math
import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pydantic import Field

from agentkernel.agents.answers import extract_module
from agentkernel.agents.models.local import Sample, prompt_ids, read_sample
from agentkernel.agents.models.local_presets import LocalPreset, parse_local
from agentkernel.agents.models.local_weights import Weights, load_weights
from agentkernel.domain.base import Frozen
from agentkernel.domain.exchange import Message, Sampling
from agentkernel.domain.verdict import Policy
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.speedup import pass_at_k
from agentkernel.training.data.conversations import HeldOutQuestion, HeldOutQuestions
from agentkernel.training.decoding import OnAnswer, TokenSampling, answer_all
from agentkernel.training.settings import SamplingSettings, Show, Task
from agentkernel.training.worker_pool import JudgedSubmission, Submission, SubmissionJudge

FAMILIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("attention", ("attention",)),
    ("convolution", ("conv1d", "conv2d", "conv3d", "conv_transpose")),
    ("matmul", ("matmul", "linear", ".bmm", ".mm(", "einsum", " @ ", "addmm", "baddbmm")),
    ("norm", ("norm(", "norm1d", "norm2d", "layernorm", "rmsnorm", "batchnorm", "groupnorm")),
    ("softmax", ("softmax", "logsumexp")),
    ("loss", ("loss", "cross_entropy", "kl_div", "nll")),
    ("pool", ("pool",)),
    ("scan", ("cumsum", "cumprod", "cummax", "sort", "topk")),
    ("reduction", (".sum(", ".mean(", ".amax(", ".max(", ".var(", ".std(", ".prod(")),
    ("reduction", ("argmax", "argmin", ".amin(", ".min(", ".any(", ".all(")),
    ("layout", ("transpose", "permute", "torch.cat", "gather", "embedding", "where(", "flip")),
    ("layout", ("roll(", "index_select", "stack(")),
)
"""The first whose word stands in a module's text says its kind."""


def module_family(text: str) -> str:
    """The kind of a module, by the heaviest operator that its text names; else "elementwise"."""
    lower = text.lower()
    for name, words in FAMILIES:
        if any(word in lower for word in words):
            return name
    return "elementwise"


Z95 = 1.959964
"""Half the width of a 95% interval of the standard normal distribution."""
DRAWS = 2000


class Interval(Frozen):
    """A figure with the ends of its 95% interval."""

    value: float
    low: float
    high: float

    def text(self) -> str:
        """`0.42 [0.31, 0.54]`."""
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def signed(self) -> str:
        """`+0.042 [+0.031, +0.054]`, for a difference."""
        return f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def wilson(hits: int, total: int) -> Interval:
    """The share of `hits` in `total` with Wilson's score interval (Wilson 1927); 0 to 1 for none.

    (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)
    """
    if total == 0:
        return Interval(value=0.0, low=0.0, high=1.0)
    share, spread = hits / total, Z95**2 / total
    middle = share + spread / 2
    half = Z95 * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    low, high = (middle - half) / (1 + spread), (middle + half) / (1 + spread)
    return Interval(value=share, low=max(min(low, share), 0.0), high=min(max(high, share), 1.0))


def grouped_interval(
    groups: Sequence[Sequence[float]], seed: int = 0, *, least: float = 0.0, most: float = 1.0
) -> Interval | None:
    """The mean of all values, which lie between `least` and `most`, with its percentile bootstrap
    interval (Efron 1979); None for none. Whole groups are drawn: values of one group may hang
    together (the cluster bootstrap: Davison and Hinkley 1997, section 3.8).

    Where all values are the same nothing can be drawn from them. Then `n` groups leave room for a
    share of others that Wilson's interval has for 0 in `n`, at the far ends of the scale.
    """
    whole = [(math.fsum(group), len(group)) for group in groups if group]
    if not whole:
        return None
    count = len(whole)
    mean = math.fsum(total for total, _ in whole) / sum(size for _, size in whole)
    if len({value for group in groups for value in group}) == 1:
        others = wilson(0, count).high
        low, high = mean - others * (mean - least), mean + others * (most - mean)
    else:
        draw = random.Random(seed)
        means = sorted(_mean(draw.choices(whole, k=count)) for _ in range(DRAWS))
        low, high = means[int(DRAWS * 0.025)], means[int(DRAWS * 0.975)]
    return Interval(value=mean, low=min(low, mean), high=max(high, mean))


def _mean(drawn: Sequence[tuple[float, int]]) -> float:
    return math.fsum(total for total, _ in drawn) / sum(size for _, size in drawn)


class Writer(Protocol):
    """Whoever answers many conversations, `samples` times each: draws, or, where `ranked`, from the
    best down."""

    @property
    def ranked(self) -> bool: ...

    def write(
        self, conversations: Sequence[Sequence[Message]], samples: int, wrote: OnAnswer
    ) -> list[list[Sample]]:
        """The answers to each conversation, in order."""
        ...


def sampling_of(settings: SamplingSettings) -> Sampling:
    """How the finished model is asked, as its folder says."""
    return Sampling(
        temperature=settings.temperature, top_p=settings.top_p, max_tokens=settings.most_tokens
    )


class LocalWriter:
    """The model that `local:...` names, or weights that are in memory already."""

    ranked = False

    def __init__(
        self,
        model: str | Weights,
        sampling: Sampling | None = None,
        rows: int | None = None,
        seed: int = 0,
    ) -> None:
        preset: LocalPreset | None = None
        if isinstance(model, str):
            preset = parse_local(model)
            self.weights = load_weights(preset)
        else:
            self.weights = model
        self._chat_template = preset.chat_template if preset else True
        chosen = sampling or (preset.sampling() if preset else None)
        self._sampling = chosen or Sampling(temperature=0.8, top_p=0.95, max_tokens=1500)
        self._rows, self._seed = rows, seed

    def write(
        self,
        conversations: Sequence[Sequence[Message]],
        samples: int,
        wrote: OnAnswer = lambda number, total: None,
    ) -> list[list[Sample]]:
        """The same seed gives the same texts for the same questions on the same machine. One whose
        question fills the window has an empty answer that is cut."""
        weights, sampling = self.weights, self._sampling
        prompts = [
            prompt_ids(weights.tokenizer, messages, self._chat_template)
            for messages in conversations
        ]
        if not weights.on_device:
            weights.model.to(weights.device)
        answers = answer_all(
            weights.model,
            [tokens for tokens in prompts for _ in range(samples)],
            TokenSampling(
                sampling.temperature, sampling.top_p, sampling.max_tokens, weights.ends, self._seed
            ),
            window=weights.window,
            rows=self._rows,
            wrote=wrote,
        )
        found = [self._read(answer) for answer in answers]
        return [found[begin : begin + samples] for begin in range(0, len(found), samples)]

    def _read(self, answer: list[int]) -> Sample:
        """One that nothing ended is as long as it may be."""
        weights = self.weights
        if not answer:
            return Sample("", "length", 0)
        return read_sample(
            weights.tokenizer, answer, weights.ends, self._sampling.stop, len(answer)
        )


KS = (1, 10)
UNCHANGED = "unchanged"
"""Why an answer is wrong that is the very file that was to be fixed or made faster."""


class QuestionCounts(Frozen):
    """What became of one question's samples; `case` tells several about one module apart."""

    problem: str
    case: str = ""
    family: str
    samples: int
    correct: int
    hacks: int
    no_file: int
    undecided: int
    reasons: dict[str, int] = Field(default_factory=dict)
    ranked: tuple[bool, ...] = ()
    """Whether each answer is right, the first first, where the writer ranks its answers; empty
    where they are draws."""


class Family(Frozen):
    """The modules of one kind."""

    problems: int
    pass_at: dict[int, float]


class PassAt(Frozen):
    """What a writer is worth on held-out modules, with 95% intervals: of pass@k over problems, of
    the rates over samples.

    pass@1 of the task "repair" is debugging success: the share of broken files that the first
    answer fixes. Of "optimise" it is the share of right answers, however fast: nobody timed them.
    """

    task: Task = "write"
    problems: int
    questions: int | None = None
    """As many as problems, or more where several are about one; None in older records."""
    samples: int
    policy: Policy
    target: str
    pass_at: dict[int, Interval]
    """By k; a k of more than `samples` is left out."""
    hack_rate: Interval
    no_file_rate: Interval
    undecided: int
    """Samples that the judge came to no answer on: they count as wrong."""
    by_family: dict[str, Family]
    writing_s: float
    judging_s: float
    budget_s: float | None = None
    """Seconds that each answer had for cases past the required ones; None in older records."""
    held_out_sha256: str = ""
    """Of the held-out part that the questions are from; "" where they are from elsewhere."""
    rows: tuple[QuestionCounts, ...] = ()

    def line(self) -> str:
        """One line for a terminal."""
        passed = ", ".join(f"pass@{k} {item.text()}" for k, item in self.pass_at.items())
        asked = f"{self.problems} problems"
        if self.questions is not None and self.questions != self.problems:
            asked = f"{self.questions} questions on {asked}"
        undecided = f", undecided {self.undecided}" if self.undecided else ""
        return (
            f"{passed}; hacks {self.hack_rate.value:.1%}, no file {self.no_file_rate.value:.1%}"
            f"{undecided} ({asked} x {self.samples} samples)"
        )


def run_evaluation(
    writer: Writer,
    questions: HeldOutQuestions,
    samples: int,
    judge: SubmissionJudge,
    *,
    ks: Sequence[int] = KS,
    seed: int = 0,
    show: Show = lambda done, total, words: None,
) -> PassAt:
    """Ask `writer` for `samples` files to each question, in the words that it was taught with, and
    judge every one; each counts once, right or not (Chen et al., arXiv 2107.03374). An answer that
    only repeats the file that it was given is wrong.

    Raises ModelUnavailable.
    """
    begin = time.monotonic()
    posed = questions.items
    answers = writer.write(
        questions.conversations,
        samples,
        lambda done, total: show(done, total, "answers written"),
    )
    files = [
        [extract_module(sample.text, parent=item.given) for sample in several]
        for item, several in zip(posed, answers, strict=True)
    ]
    written = time.monotonic()
    asked = [
        Submission(item.path, source)
        for item, several in zip(posed, files, strict=True)
        for source in several
        if source is not None and not _same(source, item.given)
    ]
    judged = dict(
        zip(
            asked,
            judge.judge(asked, lambda done, total: show(done, total, "candidates judged")),
            strict=True,
        )
    )
    rows = tuple(
        _counted(item, several, judged, ranked=writer.ranked)
        for item, several in zip(posed, files, strict=True)
    )
    end = time.monotonic()
    found = summarize(
        rows,
        samples,
        ks,
        judge.verification.policy,
        questions.target,
        task=questions.task,
        seed=seed,
    )
    return found.evolve(
        writing_s=written - begin,
        judging_s=end - written,
        budget_s=judge.verification.budget_s,
    )


def _same(source: str, given: str | None) -> bool:
    """Whether they are one file, comments and layout aside."""
    return given is not None and _form(source) == _form(given)


def _form(source: str) -> str:
    try:
        return ast.dump(parse_source(source))
    except SyntaxError:
        return source.strip()


def spread_over(problems: Sequence[Path], most: int) -> tuple[Path, ...]:
    """At most `most` of them, as far apart in their order as they can be."""
    count = min(most, len(problems))
    return tuple(problems[place * len(problems) // count] for place in range(count))


def difference(found: PassAt, first: PassAt, seed: int = 0) -> Interval | None:
    """pass@1 of `found` less that of `first`, question by question, with the interval over modules;
    None where they have no question in common.

    Both were asked the very same, so what makes a module hard for both falls out.
    """
    before = {(row.problem, row.case): _of(row, 1) for row in first.rows}
    groups: dict[str, list[float]] = defaultdict(list)
    for row in found.rows:
        mine, other = _of(row, 1), before.get((row.problem, row.case))
        if mine is not None and other is not None:
            groups[row.problem].append(mine - other)
    return grouped_interval(list(groups.values()), seed, least=-1.0, most=1.0)


def _of(row: QuestionCounts, k: int) -> float | None:
    """Answers that are ranked are no draws: the first `k` are the first `k`."""
    if row.ranked:
        return float(any(row.ranked[:k])) if k <= row.samples else None
    return pass_at_k(row.samples, row.correct, k)


def _counted(
    question: HeldOutQuestion,
    files: Sequence[str | None],
    judged: Mapping[Submission, JudgedSubmission],
    *,
    ranked: bool,
) -> QuestionCounts:
    path = question.path
    there = [source for source in files if source is not None]
    found = [
        judged[Submission(path, source)] for source in there if not _same(source, question.given)
    ]
    right = tuple(
        source is not None
        and not _same(source, question.given)
        and judged[Submission(path, source)].accepted is True
        for source in files
    )
    reasons: dict[str, int] = defaultdict(int)
    for item in found:
        if not item.accepted:
            reasons[item.reason.partition(":")[0][:40] or "unknown"] += 1
    if len(found) < len(there):
        reasons[UNCHANGED] = len(there) - len(found)
    return QuestionCounts(
        problem=path.stem,
        case=question.case,
        family=module_family(path.read_text(encoding="utf-8")),
        samples=len(files),
        correct=sum(item.accepted is True for item in found),
        hacks=sum(item.hack is not None for item in found),
        no_file=len(files) - len(there),
        undecided=sum(item.accepted is None for item in found),
        reasons=dict(reasons),
        ranked=right if ranked else (),
    )


def summarize(
    rows: Sequence[QuestionCounts],
    samples: int,
    ks: Sequence[int],
    policy: Policy,
    target: str,
    *,
    task: Task = "write",
    seed: int = 0,
) -> PassAt:
    """The figures of many questions, without what they took."""
    known = tuple(k for k in ks if k <= samples)
    total = sum(row.samples for row in rows)
    groups: dict[str, list[QuestionCounts]] = defaultdict(list)
    for row in rows:
        groups[row.family].append(row)
    return PassAt(
        task=task,
        problems=_modules(rows),
        questions=len(rows),
        samples=samples,
        policy=policy,
        target=target,
        pass_at={
            k: interval
            for k in known
            if (interval := grouped_interval(_by_module(rows, k), seed)) is not None
        },
        hack_rate=wilson(sum(row.hacks for row in rows), total),
        no_file_rate=wilson(sum(row.no_file for row in rows), total),
        undecided=sum(row.undecided for row in rows),
        by_family={
            name: Family(
                problems=_modules(group),
                pass_at={k: sum(_passed(group, k)) / len(group) for k in known},
            )
            for name, group in sorted(groups.items())
        },
        writing_s=0.0,
        judging_s=0.0,
        rows=tuple(rows),
    )


def _modules(rows: Sequence[QuestionCounts]) -> int:
    return len({row.problem for row in rows})


def _passed(rows: Sequence[QuestionCounts], k: int) -> list[float]:
    return [value for row in rows if (value := _of(row, k)) is not None]


def _by_module(rows: Sequence[QuestionCounts], k: int) -> list[list[float]]:
    """Files of one module are broken alike, and fixed alike: they are no news of each other."""
    groups: dict[str, list[QuestionCounts]] = defaultdict(list)
    for row in rows:
        groups[row.problem].append(row)
    return [_passed(group, k) for group in groups.values()]
