"""Files that this user's earlier calls wrote: which may be replaced, which may be unpickled.

Only a file that an earlier call wrote may be replaced by another call. Reading the pickle of a
live module runs what its author put there: its bytes are hashed first, and read only where this
user's own key vouches for that hash. It names the user's modules and does not hold them: they are
looked for where they lay when it was written.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import cloudpickle
from pydantic import ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.certificate import Signature
from agentkernel.domain.errors import AgentKernelError, OutputError, RunNotFound, one_line
from agentkernel.storage.files import open_regular, read_regular, read_regular_text, write_atomic
from agentkernel.tools.certificate.signing import canonical_text, is_own, is_valid, sign
from agentkernel.tools.problem.packages import (
    import_folder,
    lies_in,
    pickle_by_value,
    search_path,
)

LIVE = "live.pkl"
SEAL = "live.json"
MOST_SEAL = 100_000
MOST_FOLDERS = 8


class Seal(Frozen):
    """`live.json`: whose key vouches for the SHA-256 of the pickle beside it, and for the folders
    that its modules are imported from."""

    sha256: str
    folders: tuple[str, ...] = ()
    signature: Signature


def write_live(folder: Path, live: object, inputs: object) -> str:
    """Keep a module with its inputs in `folder`, sealed; the SHA-256 of the pickle, and so of the
    weights in it. Raises OutputError."""
    data = cloudpickle.dumps((live, inputs))
    write_atomic(folder / LIVE, data)
    digest = hashlib.sha256(data).hexdigest()
    try:
        _write_seal(folder, digest, _module_folders(live))
    except AgentKernelError:
        # Without a key nothing is lost but the right to read it again unasked.
        (folder / SEAL).unlink(missing_ok=True)
    return digest


def trust_live(folder: Path) -> None:
    """Seal the pickle in `folder` with this user's key, whoever made it: it is code that runs from
    now on. Raises RunNotFound where there is none, and what `sign` raises."""
    path = folder / LIVE
    try:
        data = read_regular(path)
    except OSError as error:
        raise RunNotFound(f"No live module in {str(path)!r}: {_words(error)}.") from error
    _write_seal(folder, hashlib.sha256(data).hexdigest())


def read_live(path: Path, *, signed_sha256: str | None = None, unpickle: bool = False) -> object:
    """The module with its inputs in the pickle at `path`.

    Args:
        path: The pickle; its seal lies beside it.
        signed_sha256: The hash in a certificate that this user's own key signed.
        unpickle: Read it whoever made it.

    Raises:
        RunNotFound: It is not there or damaged, or nothing of this user's vouches for it.
    """
    try:
        # A stranger's pickle, of any size, is not held in memory.
        digest = _digest(path)
        data = read_regular(path) if _vouched(path, digest, signed_sha256) or unpickle else None
    except OSError as error:
        raise _unreadable(path, _words(error)) from error
    if data is None:
        raise RunNotFound(
            f"The pickle {str(path)!r} is not vouched for by your own key, and reading it runs "
            "whatever its author put there. Next: --unpickle, if you trust who made it."
        )
    if hashlib.sha256(data).hexdigest() != digest:
        raise _unreadable(path, "it was written while it was read")
    return _unpickled(path, data, _recorded_folders(path.with_name(SEAL), digest))


def _unpickled(path: Path, data: bytes, recorded: Sequence[Path]) -> object:
    """With the user's modules from the folders that are `recorded`, else, where nothing else has
    them, from the working folder; other processes then get them by value."""
    before = set(sys.modules)
    folders = recorded or [Path()]
    try:
        with search_path(*folders, last=not recorded):
            found: object = cloudpickle.loads(data)
    except ModuleNotFoundError as error:
        next_step = "run it in the folder of that module, or set PYTHONPATH to that folder"
        raise _unreadable(path, one_line(error), next_step) from error
    except (Exception, SystemExit) as error:
        # Whatever the user's own module raises when it is imported.
        raise _unreadable(path, one_line(error)) from error
    fresh = [
        sys.modules[name]
        for name in set(sys.modules) - before
        if name.partition(".")[0] not in sys.stdlib_module_names
    ]
    places = [folder.resolve() for folder in folders]
    pickle_by_value(*(item for item in fresh if any(lies_in(item, place) for place in places)))
    return found


def _module_folders(live: object) -> tuple[str, ...]:
    """What the classes of a module and of those inside of it are imported from."""
    from torch import nn

    kinds = {type(item) for item in live.modules()} if isinstance(live, nn.Module) else set()
    own = [sys.modules[kind.__module__] for kind in kinds if kind.__module__ in sys.modules]
    folders = sorted({str(folder) for item in own if (folder := import_folder(item)) is not None})
    # A name that is no UTF-8 has no place in the seal.
    return tuple(name for name in folders if name.isprintable())[:MOST_FOLDERS]


def _recorded_folders(seal: Path, digest: str) -> list[Path]:
    """The folders in this user's own seal that are there."""
    found = _own_seal(seal, digest)
    folders = [] if found is None else [Path(name) for name in found.folders]
    return [folder for folder in folders if folder.is_dir()]


def sha256_of(path: Path) -> str | None:
    """The SHA-256 of the pickle at `path`, which is not read as one; None where there is none."""
    try:
        return _digest(path)
    except OSError:
        return None


def _digest(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def _vouched(path: Path, digest: str, signed_sha256: str | None) -> bool:
    return digest == signed_sha256 or _own_seal(path.with_name(SEAL), digest) is not None


def _write_seal(folder: Path, digest: str, folders: tuple[str, ...] = ()) -> None:
    signature = sign(_sealed(digest, folders))
    seal = Seal(sha256=digest, folders=folders, signature=signature)
    write_atomic(folder / SEAL, seal.model_dump_json(indent=2) + "\n")


def _own_seal(path: Path, digest: str) -> Seal | None:
    """The seal at `path`; None where this user's key does not vouch by it for `digest`."""
    try:
        seal = Seal.model_validate_json(read_regular(path, MOST_SEAL))
    except (OSError, ValidationError):
        return None
    signed = is_own(seal.signature) and is_valid(_sealed(digest, seal.folders), seal.signature)
    return seal if seal.sha256 == digest and signed else None


def _sealed(digest: str, folders: tuple[str, ...]) -> bytes:
    """What is signed; no certificate has such a text. The folders are part of it: what lies in them
    is imported."""
    named = {"folders": list(folders)} if folders else {}
    return canonical_text({"kind": "live module", "sha256": digest, **named}).encode()


def _unreadable(path: Path, why: str, next_step: str = "begin anew with the module") -> RunNotFound:
    return RunNotFound(
        f"Cannot restore the live module from {str(path)!r}: {why}. Expected the pickle that its "
        f"run wrote. Next: {next_step}."
    )


def _words(error: OSError) -> str:
    return error.strerror or str(error)


CERTIFICATE, REPORT, PICTURE = "certificate.json", "report.md", "roofline.svg"
RESULT_FILES = (CERTIFICATE, REPORT, PICTURE)
"""What a run writes beside its drop-in."""


def output_places(out: Path, drop_in: str) -> dict[str, Path]:
    """Where `--out` puts the files of a run, the one called `drop_in` among them: into a folder, or
    beside a drop-in of that path."""
    if out.suffix != ".py":
        return {key: out / key for key in (*RESULT_FILES, drop_in)}
    return {key: out.with_name(f"{out.stem}.{key}") for key in RESULT_FILES} | {drop_in: out}


def require_free_output(out: Path, drop_in: str = "") -> None:
    """Raise OutputError where a run with `--out` would write over somebody's file; "" for a drop-in
    whose name in a folder is not known yet."""
    places = output_places(out, drop_in)
    certificate, source = places.pop(CERTIFICATE), places.pop(drop_in)
    require_generated(source, is_drop_in(certificate))
    require_generated(certificate, is_certificate)
    require_all_generated(places.values(), certificate.is_file())


HEADER = "generated by agentkernel"
"""In the first line of a drop-in of the compiler."""
IsGenerated = Callable[[str], bool]
"""Whether a file of this text is one that the tool wrote."""


def require_generated(path: Path, ours: IsGenerated) -> None:
    """Raise OutputError where `path` is there and is somebody else's file, or one that was changed
    since it was written."""
    if not path.is_file() or ours(_text(path)):
        return  # a folder of that name is told where it is written to
    raise OutputError(
        f"{str(path)!r} is there and was not written by agentkernel, or was changed since. "
        "Expected a new file, or one that an earlier call wrote. Next: choose another with --out."
    )


def require_all_generated(paths: Iterable[Path], proven: bool) -> None:
    """The same for files that lie beside one that is `proven` to be the tool's, or is not."""
    for path in paths:
        require_generated(path, lambda _: proven)


def is_json_with(*keys: str) -> IsGenerated:
    """The predicate of a JSON object that has all of these."""

    def ours(text: str) -> bool:
        try:
            tree = json.loads(text)
        except (ValueError, RecursionError):
            return False
        return isinstance(tree, dict) and all(key in tree for key in keys)

    return ours


is_certificate = is_json_with("run", "problem_sha256", "candidate_sha256")
"""Whether a text is the record of a run."""


def is_drop_in(certificate: Path) -> IsGenerated:
    """The predicate of the drop-in that `certificate` records; without one, of any with the
    compiler's header."""

    def ours(text: str) -> bool:
        record = _text(certificate) if certificate.is_file() else ""
        source = json.loads(record)["candidate_source"] if is_certificate(record) else None
        return text == source if source is not None else HEADER in text.partition("\n")[0]

    return ours


def _text(path: Path) -> str:
    try:
        return read_regular_text(path)
    except (OSError, UnicodeDecodeError):
        return ""
