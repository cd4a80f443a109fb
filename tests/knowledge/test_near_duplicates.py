import random

import numpy as np
import pytest

from agentkernel.knowledge.pairs import MOST_IN_BUCKET, NearDuplicates, Signature, signature_of
from tests.knowledge.kernelbook_rows import make_module, near_copy

CODE = make_module(random.Random(3), "GatedNorm")


def likeness(a: Signature, b: Signature) -> float:
    """Estimated Jaccard similarity, in [0, 1]."""
    return float((a == b).mean())


def test_other_names_comments_and_docstrings_make_no_other_source() -> None:
    changed = near_copy(CODE, 9).replace("A made-up", "Quite another text about")
    assert changed != CODE
    assert np.array_equal(signature_of(CODE), signature_of(changed))


@pytest.mark.parametrize(
    ("old", "new"), [("return h", "return 2 * torch.tanh(x) + h"), ("(self, x, y)", "(self, x)")]
)
def test_other_code_makes_another_signature(old: str, new: str) -> None:
    assert likeness(signature_of(CODE), signature_of(CODE.replace(old, new))) < 1


def test_an_op_is_no_mere_name() -> None:
    plain = "def forward(self, x):\n    return torch.relu(x)\n"
    assert likeness(signature_of(plain), signature_of(plain.replace("relu", "tanh"))) < 0.8


def test_the_estimate_is_near_the_jaccard_similarity() -> None:
    left = [f"{number}" for number in range(400)]
    right = left[:300] + [f"{number}" for number in range(1000, 1100)]
    shingles = [
        {tuple(tokens[index : index + 5]) for index in range(len(tokens) - 4)}
        for tokens in (left, right)
    ]
    true = len(shingles[0] & shingles[1]) / len(shingles[0] | shingles[1])
    estimate = likeness(signature_of(" ".join(left)), signature_of(" ".join(right)))
    assert estimate == pytest.approx(true, abs=0.15)


def test_a_near_copy_is_refused_and_the_rest_kept() -> None:
    choose = random.Random(1)
    sources = [make_module(choose, f"Gate{index}") for index in range(300)]
    seen = NearDuplicates()
    kept = sum(seen.add(source) for source in sources)
    assert kept == len(seen) > 280
    assert not any(seen.add(near_copy(source, 7)) for source in sources)
    assert len(seen) == kept


def test_it_is_made_again_from_what_was_kept() -> None:
    choose = random.Random(2)
    sources = [make_module(choose, f"Gate{index}") for index in range(50)]
    again = NearDuplicates.of(sources)
    assert not any(again.add(source) for source in sources)


@pytest.mark.parametrize("source", ["", "x", "\n\n", "'''unclosed", "\x00\ud800", "é = ñ"])
def test_any_text_has_a_signature(source: str) -> None:
    assert signature_of(source).shape == (128,)
    seen = NearDuplicates()
    assert seen.add(source)
    assert not seen.add(source)


def test_it_grows_past_its_first_room() -> None:
    seen = NearDuplicates(threshold=1.1)
    for number in range(1100):
        seen.add(f"{number} {number + 1} {number + 2} {number} 7")
    assert len(seen) == 1100


def test_a_bucket_is_bounded() -> None:
    seen = NearDuplicates(threshold=1.1)
    for _ in range(3 * MOST_IN_BUCKET):
        seen.add(CODE)
    assert {len(rows) for rows in seen._buckets.values()} == {MOST_IN_BUCKET}
