"""Compiled kernels on their way from one process's Triton cache to another's.

Triton keeps a kernel under a hash of its source, signature, constants, options, target and own
version: an entry that does not fit is never found, and its kernel is compiled again.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from triton.runtime.cache import get_cache_manager

if TYPE_CHECKING:
    from triton.compiler import CompiledKernel

KEPT = (".json", ".cubin")
"""What Triton reads of an entry to load its kernel; the texts on the way there are left out."""
Binary = dict[str, str]
"""`hash`, and by file name the content, compressed, in base64."""


def taken(kernel: CompiledKernel) -> Binary:
    """The entry of a kernel that this process compiled; without files where it is none for an
    NVIDIA GPU."""
    folder = Path(get_cache_manager(kernel.hash).cache_dir)
    files = [
        path
        for path in sorted(folder.iterdir() if folder.is_dir() else ())
        if path.suffix in KEPT and not path.name.startswith("__grp__")
    ]
    if {path.suffix for path in files} != set(KEPT):
        return {"hash": kernel.hash}
    packed = {path.name: base64.b64encode(zlib.compress(path.read_bytes())) for path in files}
    return {"hash": kernel.hash, **{name: data.decode("ascii") for name, data in packed.items()}}


def enter(binaries: Sequence[Binary]) -> None:
    """Enter kernels into this process's cache."""
    for binary in binaries:
        cache = get_cache_manager(binary["hash"])
        files = {name: data for name, data in binary.items() if name != "hash"}
        group = {
            name: cache.put(zlib.decompress(base64.b64decode(data)), name)
            for name, data in files.items()
        }
        for name in group:
            if name.endswith(".json"):
                cache.put_group(name, cast("Mapping[str, str]", group))


def size_of(binaries: Sequence[Binary]) -> int:
    """Characters that they take in a message."""
    return sum(len(data) for binary in binaries for data in binary.values())
