"""How does a text become a vector, with nothing fetched?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from agentkernel.domain.errors import MissingDependency, SettingError, one_line
from agentkernel.knowledge.documents import files_sha256

Vectors = NDArray[np.float32]
STATIC_FOLDER = Path(__file__).parent / "embedder"
OTHER_PREFIX = "sentence-transformers:"


class Embedder(Protocol):
    """Turns texts into unit vectors."""

    fingerprint: str
    """Identity of the weights: another fingerprint makes another index."""

    def embed(self, texts: Sequence[str]) -> Vectors: ...


class StaticEmbedder:
    """The mean of learned token vectors: BPE with 8,192 entries, 256 dimensions, fp16 on disk.

    `folder` holds `tokenizer.json` and `model.safetensors` (key `embedding.weight`), which
    `train_embedder.py` makes.
    """

    def __init__(self, folder: Path = STATIC_FOLDER) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        files = (folder / "tokenizer.json", folder / "model.safetensors")
        missing = [path.name for path in files if not path.is_file()]
        if missing:
            raise MissingDependency(
                f"The embedder lacks {missing[0]} in {str(folder)!r}. Expected it in the package. "
                "Next: reinstall agentkernel."
            )
        self._tokenizer = Tokenizer.from_file(str(files[0]))
        self._weight = load_file(str(files[1]))["embedding.weight"].astype(np.float32)
        self.fingerprint = files_sha256(files)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, float32 [len(texts), 256]; a text without known tokens gives zeros."""
        vectors = np.zeros((len(texts), self._weight.shape[1]), dtype=np.float32)
        for row, encoded in enumerate(
            self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        ):
            if encoded.ids:
                vectors[row] = self._weight[encoded.ids].mean(axis=0)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(norms, 1e-12), dtype=np.float32)


class SentenceTransformerEmbedder:
    """Any sentence-transformers model that lies on this machine, by name or folder."""

    def __init__(self, name: str) -> None:
        try:
            folder = _local_folder(name)
            from sentence_transformers import SentenceTransformer

            self._model = SentenceTransformer(str(folder), local_files_only=True)
        except (ImportError, OSError, ValueError) as error:
            line = one_line(error, 200)
            raise SettingError(
                f"Cannot load the embedder {name!r}: {line}. Expected a sentence-transformers "
                "model in a local folder or cache. Next: give its folder, or 'embedder: static'."
            ) from error
        self.fingerprint = f"{OTHER_PREFIX}{name}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, float32 [len(texts), the model's width]."""
        vectors = self._model.encode(
            list(texts), normalize_embeddings=True, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float32)


@cache
def _packaged() -> StaticEmbedder:
    """The package's own, read once a process: a question in a session waits for it otherwise."""
    return StaticEmbedder()


def _local_folder(name: str) -> Path:
    """`name` as a folder, or the cached copy of that model; the hub is never asked."""
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download

    full = name if "/" in name else f"sentence-transformers/{name}"
    return Path(snapshot_download(full, local_files_only=True))


def load_embedder(name: str = "static") -> Embedder:
    """`static` (packaged) or `sentence-transformers:NAME_OR_PATH`; else SettingError."""
    if name == "static":
        return _packaged()
    if name.startswith(OTHER_PREFIX) and name != OTHER_PREFIX:
        return SentenceTransformerEmbedder(name.removeprefix(OTHER_PREFIX))
    raise SettingError(
        f"Unknown embedder {name!r}. Expected 'static' or '{OTHER_PREFIX}NAME_OR_PATH'. "
        "Next: correct 'embedder' in the configuration."
    )
