"""Compiled kernels on their way from one process's Triton cache to another's.

Triton keeps a kernel under a hash of its source, signature, constants, options, target and own
version: an entry that does not fit is never found, and its kernel is compiled again. So it is with
the modules in C that it compiles to talk to the driver, and up to 3.6 to launch kernels of one
signature: 0.15 s of a compiler each, which no process that times has to spend.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib
import itertools
import os
import sys
import tempfile
import types
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import triton.language as tl
from triton.runtime.cache import get_cache_manager
from triton.runtime.jit import JITFunction

from agentkernel.domain.base import sha256_text

if TYPE_CHECKING:
    from triton.compiler import CompiledKernel

KEPT = (".json", ".cubin")
"""What Triton reads of an entry to load its kernel; the texts on the way there are left out."""
Binary = dict[str, str]
"""`hash`, and by file name the content, compressed, in base64."""
Claim = Callable[[str], AbstractContextManager[object]]
"""Inside, no other process makes what the text names."""


@functools.cache
def key_by_content() -> None:
    """From now on Triton's key of a kernel has what the kernel names in place of the line on which
    it stands, where that and the rest of the key are all that it depends on: the same kernel is one
    further down in another source of a family, too. Else the line keeps apart what Triton's key
    does not tell: captured dtypes, functions of its language, defaults of helpers."""
    owner = next(kind for kind in JITFunction.__mro__ if "cache_key" in vars(kind))
    original = cast("Callable[[JITFunction], str]", vars(owner)["cache_key"].fget)

    def cache_key(self: JITFunction) -> str:
        named = _named_by(self) if self.hash is None else None
        if named is None:
            return original(self)
        line = self.starting_line_number
        self.starting_line_number = named
        try:
            return original(self)
        finally:
            self.starting_line_number = line

    setattr(owner, "cache_key", property(cache_key))  # noqa: B010 - a read-only property by its type


def _named_by(kernel: JITFunction) -> str | None:
    """The modules of Triton that a kernel names; None where it names, captures or defaults to
    anything else that is not in the key: other kernels are, and constants of their own kind."""
    function = kernel.fn
    code = function.__code__
    inner = any(isinstance(item, types.CodeType) for item in code.co_consts)
    if inner or code.co_freevars or function.__defaults__ or function.__kwdefaults__:
        return None
    modules: list[str] = []
    for name in sorted(code.co_names):
        value = function.__globals__.get(name, kernel)  # not there: an attribute, or Python's own
        if isinstance(value, types.ModuleType) and _is_tritons(value):
            modules.append(f"{name} {value.__name__}")
        elif not isinstance(value, JITFunction | tl.constexpr):
            return None
    return str(modules)


def _is_tritons(module: types.ModuleType) -> bool:
    name = module.__name__
    return name.partition(".")[0] == "triton" and sys.modules.get(name) is module


def taken(kernel: CompiledKernel) -> Binary:
    """The entry of a kernel that this process compiled; without files where it is none for an
    NVIDIA GPU."""
    folder = Path(get_cache_manager(kernel.hash).cache_dir)
    return {"hash": kernel.hash, **_files_of(folder, KEPT)}


MOST_KEPT = 8 << 20
"""Characters of all entries of a cache: a reply may have 16 MiB."""


def kept(most: int = MOST_KEPT) -> list[Binary]:
    """The kernels and modules in this process's cache, the smallest first, as many as `most`
    characters hold."""
    folders = Path(os.environ["TRITON_CACHE_DIR"]).glob("*/")
    found = sorted(filter(None, map(_entry, folders)), key=lambda binary: size_of([binary]))
    sizes = itertools.accumulate(size_of([binary]) for binary in found)
    return [binary for binary, size in zip(found, sizes, strict=True) if size <= most]


def _entry(folder: Path) -> Binary | None:
    """The kernel or the module that a folder of the cache holds; None where that is neither."""
    files = _files_of(folder, KEPT) or _files_of(folder, (".so",))
    return {"hash": _key_of(folder), **files} if files else None


def _files_of(folder: Path, kinds: tuple[str, ...]) -> Binary:
    """What Triton reads of an entry of its cache; nothing where one of the kinds is not there."""
    files = [
        path
        for path in sorted(folder.iterdir() if folder.is_dir() else ())
        if path.suffix in kinds and not path.name.startswith("__grp__")
    ]
    whole = {path.suffix for path in files} == set(kinds)
    return {path.name: _packed(path) for path in files} if whole else {}


class _Compiled(Exception):
    """Nothing is launched here: the module's text is all that was asked for."""


def launcher_of(kernel: CompiledKernel, claimed: Claim) -> Binary | None:
    """The module that launches kernels of this signature, compiled here unless another process of
    the family has done so; None where this Triton launches all by one, or it cannot be compiled."""
    driver = importlib.import_module("triton.backends.nvidia.driver")
    compile_module = getattr(driver, "compile_module_from_src", None)
    if not hasattr(driver, "make_launcher") or compile_module is None:
        return None
    keys: list[str] = []

    def compiled(src: str, name: str, **rest: object) -> object:
        keys.append(module_key(src))
        with claimed(keys[-1]):
            if not _modules_of(keys[-1]):
                compile_module(src=src, name=name, **rest)
        raise _Compiled

    setattr(driver, "compile_module_from_src", compiled)  # noqa: B010 - not every version has it
    try:
        # Without a driver it is compiled, cached, and then not loaded.
        with contextlib.suppress(Exception):
            driver.CudaLauncher(kernel.src, kernel.metadata)
    finally:
        setattr(driver, "compile_module_from_src", compile_module)  # noqa: B010
    found = [path for key in keys for path in _modules_of(key)]
    return {"hash": keys[0], **{path.name: _packed(path) for path in found}} if found else None


def _modules_of(key: str) -> list[Path]:
    return sorted(Path(get_cache_manager(key).cache_dir).glob("*.so"))


def module_key(source: str) -> str:
    """Under what Triton keeps the module that it compiles of this text in C (up to 3.6)."""
    build = importlib.import_module("triton.runtime.build")
    return sha256_text(source + build.platform_key())


class DriverBuild:
    """The modules that Triton's driver for NVIDIA compiles before its first launch, compiled by a
    process of their own while this one does something else."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.environ["TRITON_CACHE_DIR"] = self._folder.name
                importlib.import_module("triton.backends.nvidia.driver").CudaUtils()
            finally:
                os._exit(0)

    def result(self) -> list[Binary]:
        """What was compiled: nothing where there is no driver or no compiler."""
        os.waitpid(self._pid, 0)
        with self._folder as folder:
            found = sorted(Path(folder).glob("*/*.so"))
            return [{"hash": _key_of(path.parent), path.name: _packed(path)} for path in found]


def _key_of(folder: Path) -> str:
    """Under what Triton keeps the content of a folder of its cache."""
    name = folder.name
    return base64.b32decode(name + "=" * (-len(name) % 8)).hex()


def _packed(path: Path) -> str:
    return base64.b64encode(zlib.compress(path.read_bytes())).decode("ascii")


def enter(binaries: Sequence[Binary]) -> None:
    """Enter kernels into this process's cache, and modules that launch them."""
    for binary in binaries:
        cache = get_cache_manager(binary["hash"])
        files = {name: data for name, data in binary.items() if name != "hash"}
        if all(name.endswith(".so") and cache.get_file(name) is not None for name in files):
            continue
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
