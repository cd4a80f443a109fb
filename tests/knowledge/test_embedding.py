import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from agentkernel.domain.errors import MissingDependency, SettingError
from agentkernel.knowledge.embedding import STATIC_FOLDER, StaticEmbedder, load_embedder


def test_vectors_have_unit_length_and_the_stated_width() -> None:
    vectors = load_embedder("static").embed(["softmax of rows", "matrix product"])
    assert vectors.shape == (2, 256)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


def test_an_empty_text_gives_zeros() -> None:
    assert not load_embedder("static").embed([""]).any()


@pytest.mark.parametrize(
    ("text", "near", "far"),
    [
        ("softmax of each row", "normalised exponential, softmax over the last dimension", "gemm"),
        ("matrix multiplication", "matmul of two matrices", "maximum pooling window"),
        ("sum of all elements", "reduce a tensor by addition", "convolution kernel size"),
    ],
)
def test_like_is_nearer_than_unlike(text: str, near: str, far: str) -> None:
    vectors = load_embedder("static").embed([text, near, far])
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.1


def test_the_packaged_files_are_small() -> None:
    assert sum(path.stat().st_size for path in STATIC_FOLDER.iterdir()) < 5_500_000


def test_the_fingerprint_is_that_of_the_files() -> None:
    assert StaticEmbedder().fingerprint == StaticEmbedder().fingerprint
    assert len(StaticEmbedder().fingerprint) == 64


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingDependency, match=r"tokenizer\.json"):
        StaticEmbedder(tmp_path)


@pytest.mark.parametrize("name", ["word2vec", "", "sentence-transformers:"])
def test_an_unknown_embedder_gets_one_line(name: str) -> None:
    with pytest.raises(SettingError, match="Expected 'static'") as caught:
        load_embedder(name)
    assert "\n" not in str(caught.value)


def test_the_static_embedder_imports_neither_torch_nor_sentence_transformers() -> None:
    code = (
        "import sys; from agentkernel.knowledge.embedding import load_embedder;"
        "load_embedder('static').embed(['x']);"
        "print([m for m in ('torch', 'sentence_transformers', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["all-MiniLM-L6-v2", "nobody/nothing", "/nowhere/at all"])
def test_a_model_that_is_not_here_gets_one_line_and_no_request(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = (
        "import sys; seen = []\n"
        "sys.addaudithook(lambda e, a: seen.append(e) if e == 'socket.getaddrinfo' else None)\n"
        "from agentkernel.domain.errors import SettingError\n"
        "from agentkernel.knowledge.embedding import load_embedder\n"
        "try: load_embedder('sentence-transformers:' + sys.argv[1])\n"
        "except SettingError as error: print(seen, error)"
    )
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", code, name], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"[] Cannot load the embedder {name!r}")
    assert done.stdout.count("\n") == 1


@pytest.mark.slow
def test_a_model_in_a_local_folder_is_used(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(STATIC_FOLDER / "tokenizer.json"))
    module = StaticEmbedding(tokenizer, embedding_dim=16)
    SentenceTransformer(modules=[module], device="cpu").save(str(tmp_path / "model"))
    vectors = load_embedder(f"sentence-transformers:{tmp_path / 'model'}").embed(
        ["softmax", "gemm"]
    )
    assert vectors.shape == (2, 16)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


@pytest.mark.slow
def test_sentence_transformers_computes_the_same_vectors() -> None:
    from safetensors.torch import load_file
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(STATIC_FOLDER / "tokenizer.json"))
    weight = load_file(STATIC_FOLDER / "model.safetensors")["embedding.weight"].float()
    module = StaticEmbedding(tokenizer, embedding_weights=weight.numpy())
    model = SentenceTransformer(modules=[module], device="cpu")
    texts = ["softmax over rows that are long", "fp32 matrix product on tensor cores"]
    expected = model.encode(texts, normalize_embeddings=True)
    assert np.allclose(load_embedder("static").embed(texts), expected, atol=1e-5)
