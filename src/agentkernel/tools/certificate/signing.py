"""Signatures of certificates by a local Ed25519 key."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError

from agentkernel.domain.certificate import Certificate, Signature
from agentkernel.domain.errors import MissingDependency, OutputError, SettingError
from agentkernel.tools.sandbox.isolation import hidden_folders, visible_folders

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SignatureState = Literal["valid", "invalid", "absent"]
HOME = "AGENTKERNEL_HOME"
OPEN_TO_OTHERS = 0o077


def data_folder() -> Path:
    """`$AGENTKERNEL_HOME`, else `$XDG_DATA_HOME/agentkernel`, else `~/.local/share/agentkernel`."""
    chosen = os.environ.get(HOME)
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(base) / "agentkernel"


def key_path() -> Path:
    """Where the private key lies; its public half is beside it as `signing.pub`."""
    return data_folder() / "keys" / "signing.pem"


def sign(content: bytes) -> Signature:
    """Sign with this user's key, made on first use. The same content gives the same signature.

    Raises SettingError where the key's place is unsafe or the key unreadable, OutputError where it
    cannot be written, MissingDependency without the package `cryptography`.
    """
    private = _private_key(key_path())
    public = private.public_key().public_bytes_raw()
    return Signature(
        key=public.hex(), fingerprint=fingerprint(public), value=private.sign(content).hex()
    )


def is_valid(content: bytes, signature: Signature) -> bool:
    """Whether the key that `signature` names signed exactly `content`."""
    _require_cryptography()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        public = bytes.fromhex(signature.key)
        Ed25519PublicKey.from_public_bytes(public).verify(bytes.fromhex(signature.value), content)
    except (InvalidSignature, ValueError):
        return False
    return fingerprint(public) == signature.fingerprint


def read_tree(text: str) -> dict[str, object]:
    """The values of a certificate's text. Raises ValueError or RecursionError for what is no
    object, or has a key twice: it could be read one way here and another way elsewhere."""
    tree = json.loads(text, object_pairs_hook=_no_repeats)
    if not isinstance(tree, dict):
        raise ValueError(f"it holds a {type(tree).__name__}, not an object")
    return tree


def canonical_text(tree: Mapping[str, object]) -> str:
    """Sorted keys, two spaces, one final newline: equal trees have equal bytes."""
    return json.dumps(tree, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def signed_text(tree: Mapping[str, object]) -> str:
    """What the signature stands under: all of the file's values but the signature itself.

    Made from the file's own values, not from a Certificate: fields that a later version adds must
    not break the signatures of before.
    """
    return canonical_text({key: value for key, value in tree.items() if key != "signature"})


def signature_of(tree: Mapping[str, object]) -> Signature | None:
    """None where there is none, or one that is no signature."""
    try:
        return Signature.model_validate(tree.get("signature"))
    except ValidationError:
        return None


def signature_state(tree: Mapping[str, object]) -> SignatureState:
    """Whether the values of a certificate's file carry a signature, and it fits them."""
    if tree.get("signature") is None:
        return "absent"
    signature = signature_of(tree)
    if signature is None:
        return "invalid"
    try:
        content = signed_text(tree).encode()
    except UnicodeEncodeError:
        return "invalid"
    return "valid" if is_valid(content, signature) else "invalid"


def certificate_signature(certificate: Certificate) -> SignatureState:
    """`signature_state` of a certificate that was read already: about a millisecond at 20 kB.

    Whether it is about one kernel's text is another question: `library.evidence.why_unfit`.
    """
    return signature_state(json.loads(certificate.model_dump_json()))


def is_known(signature: Signature) -> bool:
    """Whether the signer is this user, or one whose `.pub` file lies in `keys/trusted`."""
    folder = key_path().parent
    files = [folder / "signing.pub", *sorted((folder / "trusted").glob("*.pub"))]
    for path in files:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if path.read_text(encoding="ascii").strip() == signature.key:
                return True
    return False


def is_own(signature: Signature) -> bool:
    """Whether the signer is this user."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        own = key_path().with_suffix(".pub").read_text(encoding="ascii").strip()
        return own == signature.key
    return False


def fingerprint(public: bytes) -> str:
    """SHA-256 in hex of a raw public key."""
    return hashlib.sha256(public).hexdigest()


def _no_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _private_key(path: Path) -> Ed25519PrivateKey:
    _require_cryptography()
    _require_hidden(path)
    if not path.is_file():
        _create(path)
    private = _read(path)
    _publish(path.with_suffix(".pub"), private.public_key().public_bytes_raw().hex())
    return private


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            "Certificates are signed with the package 'cryptography', which is not installed. "
            "Next: pip install cryptography."
        ) from error


def _require_hidden(path: Path) -> None:
    """Candidates see the whole file system but for some folders: the key has to lie in those."""
    real = Path(os.path.realpath(path))
    hidden = any(real.is_relative_to(item) for item in hidden_folders())
    shown = any(real.is_relative_to(item) for item in visible_folders())
    if shown or not hidden:
        raise SettingError(
            f"The signing key would lie in {str(real.parent)!r}, where a candidate can read it. "
            f"Expected a folder below one of {', '.join(hidden_folders())}. Next: set {HOME}."
        )


def _read(path: Path) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        if path.stat().st_mode & OPEN_TO_OTHERS:
            raise SettingError(
                f"The signing key {str(path)!r} can be read by others. Expected mode 600. "
                "Next: remove it if anyone may have read it (a new one is made), else chmod 600."
            )
        found = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise SettingError(
            f"Cannot read the signing key {str(path)!r}: {type(error).__name__}. Expected an "
            "Ed25519 key in PEM. Next: move it away; a new one is made."
        ) from error
    if not isinstance(found, Ed25519PrivateKey):
        raise SettingError(
            f"The signing key {str(path)!r} is no Ed25519 key. Next: move it away; a new one is "
            "made."
        )
    return found


def _create(path: Path) -> None:
    """Write a new key whole or not at all; of two processes at once, the first one's stays."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    text = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(number, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error


def _publish(path: Path, key: str) -> None:
    try:
        if not path.is_file() or path.read_text(encoding="ascii").strip() != key:
            path.write_text(f"{key}\n", encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: Exception) -> OutputError:
    reason = getattr(error, "strerror", None) or error
    return OutputError(
        f"Cannot keep the signing key in {str(path.parent)!r}: {reason}. Expected a folder that "
        f"can be written. Next: set {HOME}."
    )
