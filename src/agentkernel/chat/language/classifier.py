"""Linear classifier of requests by the words of a sentence.

The weights [bucket, label] are made by benchmarks/chat/train_classifier.py and shipped beside this
file as weights.npz.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agentkernel.chat.language.slots import features, words_of_tags
from agentkernel.chat.language.tagging import Tag

WEIGHTS_FILE = Path(__file__).with_name("weights.npz")
"""Of the requests that the grammar has, for its second reader."""
RANKING_FILE = Path(__file__).with_name("ranking.npz")
"""Of every request."""
NONE = "none"
"""The label of sentences that ask for none of the requests."""
VOCABULARY_BITS = 2**16
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Classifier:
    """`weights`: [buckets, labels] in steps of `scale` ([labels]); `idf`: [buckets]; `bias`:
    [labels]; `vocabulary`: which hashed words stand in the sentences learned from, packed bits."""

    labels: tuple[str, ...]
    weights: NDArray[np.int8]
    scale: Floats
    bias: Floats
    idf: Floats
    vocabulary: NDArray[np.uint8]
    digest: str

    def probabilities(self, tags: Sequence[Tag]) -> Floats:
        """Of each label, in their order; they add up to 1."""
        logits = self.margins(tags)
        raised = np.exp(logits - logits.max())
        return np.asarray(raised / raised.sum(), np.float32)

    def margins(self, tags: Sequence[Tag]) -> Floats:
        """Of each label, before they are made to add up to 1."""
        buckets, values = vector(tags, self.idf)
        found = values @ (self.weights[buckets] * self.scale) + self.bias
        return np.asarray(found, np.float32)

    def unknown(self, tags: Sequence[Tag]) -> int:
        """How many words stand in no sentence that was learned from."""
        bits = [word_bit(word) for word in words_of_tags(tags) if word.isalpha()]
        return sum(not self.vocabulary[bit // 8] >> (bit % 8) & 1 for bit in bits)


def vector(tags: Sequence[Tag], idf: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Buckets, and their TF-IDF weights at length 1."""
    found = features(tags)
    buckets = np.fromiter(found, np.int64, len(found))
    counts = np.fromiter(found.values(), np.float32, len(found))
    values = np.sqrt(counts) * idf[buckets]
    length = float(np.sqrt(values @ values))
    return buckets, (values / length if length else values).astype(np.float32)


def word_bit(word: str) -> int:
    """The place of a word in the vocabulary's bits."""
    return zlib.crc32(word.encode()) % VOCABULARY_BITS


def save(classifier: Classifier, path: Path) -> None:
    """Write it as a compressed .npz."""
    np.savez_compressed(
        path,
        labels=np.array(classifier.labels),
        weights=classifier.weights,
        scale=classifier.scale,
        bias=classifier.bias,
        idf=classifier.idf.astype(np.float16),
        vocabulary=classifier.vocabulary,
        digest=np.array(classifier.digest),
    )


@cache
def load(path: Path = WEIGHTS_FILE) -> Classifier:
    """The shipped classifier, read once."""
    with np.load(path, allow_pickle=False) as stored:
        return Classifier(
            labels=tuple(str(label) for label in stored["labels"]),
            weights=stored["weights"],
            scale=stored["scale"],
            bias=stored["bias"],
            idf=stored["idf"].astype(np.float32),
            vocabulary=stored["vocabulary"],
            digest=str(stored["digest"]),
        )
