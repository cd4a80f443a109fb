"""Training of the packaged embedder.

`python benchmarks/retrieval/train_embedder.py [--out FOLDER]` harvests pairs of texts that
belong together (name and signature with docstring, docstring's first sentence with the rest)
from the packages that are installed anyway (torch: BSD-3, numpy: BSD-3, scipy: BSD-3, triton:
MIT, scikit-learn: BSD-3, transformers and sentence-transformers: Apache-2.0) and from this
package's own documents and fixes, trains a BPE vocabulary on them, and then token vectors with
MultipleNegativesRankingLoss (in-batch negatives). Same packages and seed, same vectors.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import importlib.util
import itertools
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentkernel.knowledge.code_structure import structure_of_code
from agentkernel.knowledge.documents import PACKAGE, load_documents, load_fixes, packaged_entries
from agentkernel.knowledge.search import structure_words
from agentkernel.storage.source_text import parse_source

SEED = 20261121
VOCABULARY = 8192
DIMENSIONS = 256
BATCH = 256
EPOCHS = 3
OWN_COPIES = 12
"""How often the project's own few pairs go in beside the many harvested ones."""
LEARNING_RATE = 2e-2
PACKAGES = (
    "torch",
    "triton",
    "numpy",
    "scipy",
    "sklearn",
    "transformers",
    "sentence_transformers",
)
SKIPPED_FOLDERS = ("tests", "testing", "test")
MAX_WORDS = 96


class TextPair(NamedTuple):
    """Two texts that mean the same."""

    left: str
    right: str


def main() -> None:
    """Train and write `tokenizer.json`, `model.safetensors` and `training.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PACKAGE / "embedder")
    parser.add_argument("--pairs", type=int, default=120_000, help="harvested pairs at most")
    options = parser.parse_args()
    pairs = collect_pairs(options.pairs)
    options.out.mkdir(parents=True, exist_ok=True)
    train_vocabulary(pairs, options.out / "tokenizer.json")
    loss = train_vectors(pairs, options.out)
    record = {
        "seed": SEED,
        "pairs": len(pairs),
        "epochs": EPOCHS,
        "batch": BATCH,
        "learning_rate": LEARNING_RATE,
        "final_loss": round(loss, 4),
        "packages": {name: _version(name) for name in PACKAGES},
    }
    text = json.dumps(record, indent=1, sort_keys=True)
    (options.out / "training.json").write_text(f"{text}\n", encoding="utf-8")
    print(text)


def collect_pairs(limit: int) -> list[TextPair]:
    """Harvested pairs (at most `limit`, drawn by SEED) and the project's own, shuffled."""
    draw = random.Random(SEED)
    found = sorted(set(itertools.chain.from_iterable(map(harvest, PACKAGES))))
    draw.shuffle(found)
    pairs = found[:limit] + list(own_pairs()) * OWN_COPIES
    draw.shuffle(pairs)
    return pairs


def harvest(package: str) -> Iterator[TextPair]:
    """Pairs from the sources of an installed package; nothing is imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return
    root = Path(spec.origin).parent
    for path in sorted(root.rglob("*.py")):
        if any(part in SKIPPED_FOLDERS for part in path.relative_to(root).parts):
            continue
        try:
            tree = parse_source(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError, ValueError):
            continue
        yield from _pairs_of(tree, path.stem)


def _pairs_of(tree: ast.Module, module: str) -> Iterator[TextPair]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            about = ast.get_docstring(node)
            if about:
                yield from _text_pairs(_label(node, module), about)
        elif isinstance(node, ast.Call) and "add_docstr" in ast.unparse(node.func):
            texts = [item.value for item in node.args if isinstance(item, ast.Constant)]
            if len(node.args) > 1 and texts and isinstance(texts[-1], str):
                yield from _text_pairs(ast.unparse(node.args[0]), texts[-1])


def _label(node: ast.FunctionDef | ast.ClassDef, module: str) -> str:
    if isinstance(node, ast.ClassDef):
        return f"{module} {node.name}"
    arguments = " ".join(item.arg for item in node.args.args if item.arg != "self")
    return f"{module} {node.name} {arguments}"


def _text_pairs(label: str, about: str) -> Iterator[TextPair]:
    first, _, rest = about.strip().partition("\n\n")
    first, rest = _clean(first), _clean(rest)
    if len(first.split()) >= 3:
        yield TextPair(_clean(re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", label)), first)
    if len(first.split()) >= 4 and len(rest.split()) >= 8:
        yield TextPair(first, rest)


def own_pairs() -> Iterator[TextPair]:
    """Pairs from the packaged notes, kernels and fixes: title, tags or ops with each passage, and
    a fix's passages (error lines, symptoms) with its text and with each other."""
    for document in load_documents():
        tags = " ".join((*document.patterns, *document.architectures)).replace("_", " ")
        for passage in document.passages:
            yield TextPair(document.title, _clean(passage))
            yield TextPair(_clean(f"{tags} {document.summary}"), _clean(passage))
            yield from _parts_of(passage)
    for entry in packaged_entries(load_documents(), structure_of_code):
        if entry.structure is not None:
            ops = structure_words(entry.structure)
            yield from (
                TextPair(ops, _clean(passage)) for passage in (entry.title, *entry.passages)
            )
    for fix in load_fixes():
        texts = [
            _clean(part) for part in re.split(r"\n\n+|^#+ .*$", fix.answer, flags=re.MULTILINE)
        ]
        for passage in map(_clean, fix.passages):
            yield TextPair(passage, fix.title)
            yield from (TextPair(passage, text) for text in texts if len(text.split()) >= 8)
        passages = [_clean(passage) for passage in fix.passages]
        yield from (TextPair(one, other) for one, other in itertools.pairwise(passages))


def _parts_of(passage: str) -> Iterator[TextPair]:
    """A passage's first sentence with the rest."""
    first, _, rest = passage.partition(". ")
    if len(first.split()) >= 3 and len(rest.split()) >= 8:
        yield TextPair(_clean(first), _clean(rest))


def _clean(text: str) -> str:
    words = re.sub(r"[^\w\s.,:+\-*/=]", " ", text).split()
    return " ".join(words[:MAX_WORDS])


def train_vocabulary(pairs: list[TextPair], out: Path) -> None:
    """A lower-case byte-level BPE of VOCABULARY entries."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation("isolated"), pre_tokenizers.ByteLevel(add_prefix_space=True)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["[PAD]"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(itertools.chain.from_iterable(pairs), trainer)
    tokenizer.save(str(out), pretty=False)


def train_vectors(pairs: list[TextPair], out: Path) -> float:
    """Write fp16 token vectors [VOCABULARY, DIMENSIONS]; returns the last 50 steps' mean loss."""
    import torch
    from safetensors.torch import save_file
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    torch.manual_seed(SEED)
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    static = StaticEmbedding(tokenizer, embedding_dim=DIMENSIONS)
    model = SentenceTransformer(modules=[static], device="cpu")
    objective = MultipleNegativesRankingLoss(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    steps = EPOCHS * (len(pairs) // BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, steps)
    draw = random.Random(SEED)
    losses: list[float] = []
    for _ in range(EPOCHS):
        draw.shuffle(pairs)
        for start in range(0, len(pairs) - BATCH + 1, BATCH):
            batch = pairs[start : start + BATCH]
            sides = ([pair.left for pair in batch], [pair.right for pair in batch])
            loss = objective([model.preprocess(side) for side in sides], torch.empty(0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
    weight = static.embedding.weight.detach().half().contiguous()
    save_file({"embedding.weight": weight}, str(out / "model.safetensors"))
    return sum(losses[-50:]) / len(losses[-50:])


def _version(package: str) -> str:
    name = {"sklearn": "scikit-learn", "sentence_transformers": "sentence-transformers"}
    return importlib.metadata.version(name.get(package, package))


if __name__ == "__main__":
    main()
