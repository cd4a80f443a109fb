"""Training of the two classifiers of requests on the written example sentences.

`python benchmarks/chat/train_classifier.py` writes weights.npz, of the requests that the grammar
has, and ranking.npz, of every request. With `--check` it reports for how many sentences of each
blind set the likeliest label is right, by weights learned without that set; with `--families` how
the ranking fares on phrasings that it has not learned. The same sentences give the same weights.

The sentences of the ranking stand in `sentences/every_request`: below `= label` a phrasing family a
line, `(a|b)` for what may be said either way, and below `~ register` how it is said (plain, terse,
asked, chatty, odd). Families and registers are held out whole.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import yaml

from agentkernel.chat.language import phrases, understanding
from agentkernel.chat.language.classifier import (
    NONE,
    RANKING_FILE,
    VOCABULARY_BITS,
    WEIGHTS_FILE,
    Classifier,
    Floats,
    save,
    vector,
    word_bit,
)
from agentkernel.chat.language.grammar import EXAMPLES
from agentkernel.chat.language.phrases import with_polarity
from agentkernel.chat.language.ranking import label_of
from agentkernel.chat.language.slots import BUCKETS, features, words_of_tags
from agentkernel.chat.language.tagging import Tag, clean
from agentkernel.chat.language.wording import spelt_out
from agentkernel.chat.requests import IntentContext, Understood
from agentkernel.chat.user_input import FACTS, IMPOSSIBLE

SENTENCES = Path(__file__).with_name("sentences")
CONTEXT = IntentContext(
    targets=("a100", "b200", "h100", "h200", "l4", "l40s", "mi300x", "rtx4090", "rtx5090")
)
STEPS = 60
DECAY = 3e-6
"""L2 penalty of the weights."""
LABELS = {
    "try_harder": "more_aggressive", "use_less_memory": "less_memory",
    "allow_tf32": "precision=tf32", "allow_bf16": "precision=bf16",
    "strict_precision": "precision=strict", "change_target_gpu": "target",
    "other_shapes": "shapes", "what_tried": "history", "show_tree": "tree",
    "show_source": "show_candidate", "show_diff": "diff", "go_back": "return_to",
    "stop_at_speedup": "stop_at", "set_time_budget": "budget", "only_triton": "policy=triton",
    "library_ok": "policy=mixed", "show_plan": "plan", "optimise_energy": "less_energy",
    "optimise_latency": "lower_latency",
}  # fmt: skip
"""The blind sets' names of requests, where they differ from the grammar's."""
WRAPPED = (
    "please {}", "{} please", "ok {}", "so {}", "hey, {}", "{}, thanks", "could you {}",
    "I think {}", "well, {}", "{} now", "hmm, {}", "{} if you can", "{}!", "for now {}",
    "my boss is waiting, {}", "{}, it's for a demo", "right, {}", "and {}", "{} for me",
    "you know what, {}", "I've thought about it, {}", "{}, we are in a hurry", "also {}",
)  # fmt: skip
"""What people put around a sentence; each is learned from once more with one of these around it."""


@dataclass(frozen=True, slots=True)
class Example:
    """A sentence, its label, and the file that it stands in."""

    text: str
    label: str
    source: str


def examples() -> list[Example]:
    """Every sentence of the folder that has one meaning or none."""
    found: list[Example] = []
    for path in sorted(SENTENCES.glob("*.txt")):
        label = NONE
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("= "):
                label = line[2:]
            elif line:
                found.append(Example(line, label, path.stem))
    named = {"precision": "precision=tf32", "policy": "policy=triton"}
    found += [Example(text, named.get(name, name), "examples") for name, text in EXAMPLES.items()]
    for path in sorted(SENTENCES.glob("*.yaml")):
        for row in yaml.safe_load(path.read_text(encoding="utf-8")):
            if len(row["means"]) < 2:
                name = row["means"][0] if row["means"] else NONE
                found.append(Example(row["text"], LABELS.get(name, name), path.stem))
    return found


EVERY = SENTENCES / "every_request"
MOST_OF_A_FAMILY = 6
"""Sentences that one line with choices is written out to."""
CHOICE = re.compile(r"\(([^()]*\|[^()]*)\)")
GRAMMAR_LESS = ("fact=", "cannot=", "knob=", "gpu", "module", "thanks", "show_kernel", "sweep",
                "ask_docs")  # fmt: skip
"""What the older sentences know no label for: there it stands under `none`."""
CLEARLY = 0.25
"""The margin from which an older sentence under `none` is about one of these."""
SHARPNESS = 4.8
"""Scale of the margins, by which the likeliest label's share of a softmax is about how often it is
right: by families held out."""


def families() -> list[Example]:
    """Sentences of every request; `source` is the family, `register:file:line`."""
    found: list[Example] = []
    for path in sorted(EVERY.glob("*.txt")):
        label, register = NONE, "plain"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
            if line.startswith("= "):
                label, register = line[2:], "plain"
            elif line.startswith("~ "):
                register = line[2:]
            elif line:
                source = f"{register}:{path.stem}:{number}"
                found += [Example(text, label, source) for text in _written_out(line)]
    return found


def transcripts() -> list[Example]:
    """How a session writes a request down: what it reads again."""
    facts = [Example(text, f"fact={about}", "transcript") for about, text in FACTS.items()]
    return facts + [
        Example(text, f"cannot={about}", "transcript") for about, text in IMPOSSIBLE.items()
    ]


def _written_out(line: str) -> list[str]:
    """The line, or some of the sentences that its choices make; the inner ones are made first."""
    rng = random.Random(line)
    texts = [line] * (MOST_OF_A_FAMILY if CHOICE.search(line) else 1)
    while CHOICE.search(texts[0]):
        texts = [CHOICE.sub(lambda found: rng.choice(found[1].split("|")), text) for text in texts]
    return list(dict.fromkeys(" ".join(text.split()) for text in texts))


def every_example() -> list[Example]:
    """Those of the families, and the older ones; of these under `none` only what asks for nothing
    that has a label by now."""
    older = [row for row in examples() if row.label not in ("fact", "cannot", "knob")]
    known = [*families(), *transcripts(), *(row for row in older if row.label != NONE)]
    none = [row for row in older if row.label == NONE]
    rank = ranking(known, asides=False)
    return known + [
        row for row in none if not _has_a_label(rank.margins(ranking_tags(row.text)), rank)
    ]


AROUND = (
    "ok {}", "so {}", "hey, {}", "{} pls", "{}, thanks", "ok so {}", "and {}", "also {}", "btw {}",
    "hmm, {}", "alright, {}", "well {}", "sorry, {}", "quick one: {}", "{} please", "{} now",
    "one more thing: {}", "just curious, {}", "{}, just checking", "{} for this one", "now {}",
    "{}? asking for a colleague", "{}, my boss wants to know", "{}, I have a demo tomorrow",
    "{} if possible", "{} when you can", "{} actually", "{} then", "{} too", "ok, {}, thx",
    "before I forget, {}", "next: {}", "{} - that's all I need", "hi, {}", "right, {}", "oh and {}",
    "{} for now", "{} again", "I was wondering, {}", "tbh {}", "{}, it's for a paper", "um, {}",
    "{} here", "nice. {}", "good, {}", "great. {}", "thanks. {}", "{} with this kernel", "wait, {}",
    "{} for the kernel", "yeah {}", "no wait, {}", "in the meantime {}", "{}, no rush", "{} lol",
    "for my own understanding: {}", "first {}", "{}, I need this by friday", "{} as well", "ah, {}",
)  # fmt: skip
"""What people put around a sentence: each is learned from once more with one of these."""


def _with_asides(rows: Sequence[Example]) -> list[str]:
    """Each sentence with something around it, and every third with a letter turned or dropped."""
    wrapped = [AROUND[at % len(AROUND)].format(row.text) for at, row in enumerate(rows)]
    return [_mistyped(text, at) if at % 3 == 0 else text for at, text in enumerate(wrapped)]


def _mistyped(text: str, seed: int) -> str:
    words = text.split(" ")
    long = [at for at, word in enumerate(words) if word.isalpha() and len(word) > SHORT_WORD]
    if not long:
        return text
    at = long[seed % len(long)]
    word = words[at]
    place = 1 + seed % (len(word) - 2)
    turned = word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    words[at] = turned if seed % 2 else word[:place] + word[place + 1 :]
    return " ".join(words)


SHORT_WORD = 4
LOOSE = 0.1
"""Tolerance of the fit, as the margins are compared and not read."""
HELD = 2.0
"""Weight of a sentence on the wrong side of a margin; the families held out chose it."""


def sources_digest() -> str:
    """A name of all that the ranking is learned from."""
    return digest([*families(), *transcripts(), *examples()])


def _has_a_label(margins: Floats, rank: Classifier) -> bool:
    best, second = np.sort(margins)[::-1][:2]
    label = rank.labels[int(margins.argmax())]
    return label.startswith(GRAMMAR_LESS) and (best - second) / SHARPNESS > CLEARLY


def ranking_tags(text: str) -> list[Tag]:
    """The tags of a sentence, as the ranking sees them."""
    return tags_of(spelt_out(text))


def ranking(rows: Sequence[Example], *, asides: bool = True) -> Classifier:
    """One linear margin a label against all others, by support vectors; with `asides`, each
    sentence is learned from once more with something around it."""
    from scipy.sparse import csr_matrix  # type: ignore[import-untyped]
    from sklearn.svm import LinearSVC  # type: ignore[import-untyped]

    texts = [*(row.text for row in rows), *(_with_asides(rows) if asides else ())]
    tags = [ranking_tags(text) for text in texts]
    idf = _idf(tags)
    parts = [vector(each, idf) for each in tags]
    ends = np.cumsum([0, *(len(buckets) for buckets, _ in parts)])
    columns = np.concatenate([buckets for buckets, _ in parts])
    matrix = csr_matrix(
        (np.concatenate([values for _, values in parts]), columns, ends),
        shape=(len(texts), BUCKETS),
    )
    found = LinearSVC(random_state=0, tol=LOOSE, C=HELD).fit(
        matrix, [row.label for row in rows] * (1 + asides)
    )
    weights = (found.coef_.T * SHARPNESS).astype(np.float32)
    scale = np.maximum(np.abs(weights).max(axis=0), 1e-6) / 127
    return Classifier(
        labels=tuple(str(label) for label in found.classes_),
        weights=np.rint(weights / scale).astype(np.int8),
        scale=scale.astype(np.float32),
        bias=(found.intercept_ * SHARPNESS).astype(np.float32),
        idf=idf,
        vocabulary=_vocabulary(tags),
        digest=digest(rows),
    )


def digest(rows: Sequence[Example]) -> str:
    """A name of just these sentences, by which weights that are out of date are seen."""
    text = "\n".join(f"{row.label}\t{row.text}" for row in rows)
    return hashlib.sha256(text.encode()).hexdigest()


def tags_of(text: str) -> list[Tag]:
    """The tags of a sentence, as the readers see them."""
    return with_polarity(phrases.tags_of(clean(text), CONTEXT.targets))


def trained(rows: Sequence[Example]) -> Classifier:
    """Softmax regression by L-BFGS on the rows and on each of them once more with words around."""
    texts = [row.text for row in rows]
    wrapped = [WRAPPED[at % len(WRAPPED)].format(text) for at, text in enumerate(texts)]
    tags = [tags_of(text) for text in (*texts, *wrapped)]
    labels = tuple(sorted({row.label for row in rows}))
    wanted = torch.tensor([labels.index(row.label) for row in rows] * 2)
    idf = _idf(tags)
    weights, bias = _fitted(_matrix(tags, idf), wanted, len(labels))
    scale = np.maximum(np.abs(weights).max(axis=0), 1e-6) / 127
    return Classifier(
        labels=labels,
        weights=np.rint(weights / scale).astype(np.int8),
        scale=scale.astype(np.float32),
        bias=bias,
        idf=idf,
        vocabulary=_vocabulary(tags),
        digest=digest(rows),
    )


def _idf(tags: Sequence[Sequence[Tag]]) -> Floats:
    """[buckets]: the rarer a feature, the more it counts. In float16's steps, as it is stored."""
    seen = np.zeros(BUCKETS, np.float64)
    for each in tags:
        seen[list(features(each))] += 1
    raw = np.log((1 + len(tags)) / (1 + seen)) + 1
    return raw.astype(np.float16).astype(np.float32)


def _matrix(tags: Sequence[Sequence[Tag]], idf: Floats) -> torch.Tensor:
    """[sentences, buckets], sparse."""
    parts = [vector(each, idf) for each in tags]
    rows = np.repeat(np.arange(len(parts)), [len(buckets) for buckets, _ in parts])
    columns = np.concatenate([buckets for buckets, _ in parts])
    values = np.concatenate([values for _, values in parts])
    places = torch.from_numpy(np.stack([rows, columns]))
    shape = (len(parts), BUCKETS)
    found = torch.sparse_coo_tensor(places, torch.from_numpy(values), shape, check_invariants=True)
    return found.coalesce()


def _fitted(matrix: torch.Tensor, wanted: torch.Tensor, labels: int) -> tuple[Floats, Floats]:
    """Weights [buckets, labels] and bias [labels]."""
    weights = torch.zeros(BUCKETS, labels, requires_grad=True)
    bias = torch.zeros(labels, requires_grad=True)
    search = torch.optim.LBFGS(
        [weights, bias], max_iter=STEPS, history_size=8, line_search_fn="strong_wolfe"
    )

    def loss() -> torch.Tensor:
        search.zero_grad()
        logits = torch.sparse.mm(matrix, weights) + bias
        value = torch.nn.functional.cross_entropy(logits, wanted, label_smoothing=0.02)
        value = value + DECAY * weights.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    search.step(loss)  # type: ignore[no-untyped-call]
    return weights.detach().numpy(), bias.detach().numpy()


def _vocabulary(tags: Sequence[Sequence[Tag]]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    bits = np.zeros(VOCABULARY_BITS, np.uint8)
    for each in tags:
        bits[[word_bit(word) for word in words_of_tags(each)]] = 1
    return np.packbits(bits, bitorder="little")


class Score(NamedTuple):
    """Of sentences: read rightly, asked back or refused, and read as something else."""

    right: int
    asked: int
    misread: tuple[tuple[str, str, str], ...]


def check_families(most: int, *, show: bool = False, folds: int = 5) -> None:
    """Print how the ranking's likeliest label, and the whole reader, fare where whole phrasing
    families, then whole registers, were held out, in the first `most` of these groups; `show`
    prints what was misread."""
    rows = every_example()
    held = [row for row in rows if ":" in row.source]
    names = sorted({row.source for row in held})
    shuffled = [names[int(at)] for at in np.random.default_rng(0).permutation(len(names))]
    groups = {f"fold {at + 1}": set(shuffled[at::folds]) for at in range(folds)}
    for register in ("plain", "terse", "asked", "chatty", "odd", "mixed", "third"):
        groups[f"register {register}"] = {name for name in names if name.startswith(register + ":")}
    for name, group in list(groups.items())[:most]:
        rank = ranking([row for row in rows if row.source not in group])
        left = [row for row in held if row.source in group]
        best = [rank.labels[int(rank.margins(ranking_tags(row.text)).argmax())] for row in left]
        likeliest = np.mean([found == row.label for found, row in zip(best, left, strict=True)])
        score = read_with(rank, left)
        print(
            f"{name}, {len(left)} sentences: likeliest label right {likeliest:.3f}; whole reader: "
            f"understood {score.right / len(left):.3f}, asked back or refused "
            f"{score.asked / len(left):.3f}, misread {len(score.misread) / len(left):.3f}",
            flush=True,
        )
        if show:
            print(
                *(f"    {text} | {label} | {found}" for text, label, found in score.misread),
                sep="\n",
            )


def read_with(rank: Classifier, rows: Sequence[Example]) -> Score:
    """How the whole reader fares with this ranking in place of the shipped one."""
    right, asked = 0, 0
    misread: list[tuple[str, str, str]] = []
    shipped, understanding._ranking = understanding._ranking, lambda: rank
    for row in rows:
        found = understanding.understand(row.text, CONTEXT)
        items = found.intents if isinstance(found, Understood) else ()
        labels = {label_of(item) for item in items}
        if row.label != NONE and (labels == {row.label} or labels == {row.label, "run"}):
            right += 1
        elif not items or (
            row.label == NONE and labels <= {"thanks", "approve", "decline", "quit"}
        ):
            right, asked = right + (row.label == NONE), asked + (row.label != NONE)
        else:
            misread.append((row.text, row.label, " ".join(sorted(labels))))
    understanding._ranking = shipped
    return Score(right, asked, tuple(misread))


def main() -> None:
    """Write the weights, or report how they fare on sentences that they were not learned from."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="leave one source out instead")
    parser.add_argument("--families", action="store_true", help="leave phrasing families out")
    parser.add_argument("--ranking", action="store_true", help="write ranking.npz only")
    parser.add_argument("--show", action="store_true", help="with --families: what was misread")
    parser.add_argument("--groups", type=int, default=12, help="with --families: so many groups")
    chosen = parser.parse_args()
    if chosen.families:
        check_families(chosen.groups, show=chosen.show)
        return
    if not chosen.check:
        save(replace(ranking(every_example()), digest=sources_digest()), RANKING_FILE)
        if not chosen.ranking:
            save(trained(examples()), WEIGHTS_FILE)
        return
    rows = examples()
    for source in ("blind_1", "blind_2"):
        learned = trained([row for row in rows if row.source != source])
        left = [row for row in rows if row.source == source]
        best = [
            learned.labels[int(learned.probabilities(tags_of(row.text)).argmax())] for row in left
        ]
        right = sum(found == row.label for found, row in zip(best, left, strict=True))
        print(f"{source}: {right} of {len(left)} labels right")


if __name__ == "__main__":
    main()
