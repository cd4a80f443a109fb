"""`agentkernel verify`: does this certificate hold, here and now?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkernel.cli.options import AllowUnsandboxed, AsJson, Unpickle

if TYPE_CHECKING:
    from agentkernel.tools.certificate.replay import Replay

EXIT_BROKEN, EXIT_UNDECIDED = 3, 4
NOT_TIMED = "but its measured times were not replayed"
CertificateFile = Annotated[
    Path, typer.Argument(metavar="CERTIFICATE", help="The certificate.json of a run.")
]
NoReplay = Annotated[
    bool, typer.Option("--no-replay", help="Check signature and hashes; execute nothing.")
]
KnownSigner = Annotated[
    bool, typer.Option("--known-signer", help="Exit 3 too where the signer is not known here.")
]


def verify(
    certificate: CertificateFile,
    no_replay: NoReplay = False,
    known_signer: KnownSigner = False,
    unpickle: Unpickle = False,
    allow_unsandboxed: AllowUnsandboxed = False,
    as_json: AsJson = False,
) -> None:
    """Check a certificate and replay its judgement; exit 0 it holds, 3 it does not."""
    from agentkernel.cli.output import console, print_json
    from agentkernel.tools.certificate.replay import inspect_certificate, replay

    if no_replay:
        _, found = inspect_certificate(certificate)
    else:
        found = replay(certificate, allow_unsandboxed=allow_unsandboxed, unpickle=unpickle)
    code = exit_code(found, known_signer=known_signer)
    if as_json:
        print_json({"holds": code == 0, **found.model_dump(mode="json")})
    else:
        screen = console()
        for line in replay_lines(found, replayed=not no_replay):
            screen.print(line, markup=False)
        screen.print(_ending(found, code))
    raise typer.Exit(code)


def _ending(found: Replay, code: int) -> str:
    from agentkernel.tools.certificate.replay import UNSIGNED

    if code == 0:
        return f"holds, {NOT_TIMED}" if found.times_replayed is False else "holds"
    if code == EXIT_UNDECIDED:
        return "not decided here"
    return UNSIGNED if found.signature == "absent" and found.fits else "does not hold"


def exit_code(found: Replay, *, known_signer: bool) -> int:
    """3 outweighs 4: what was edited, or has no signature, is so on any machine."""
    if not found.holds or (known_signer and not found.signer_known):
        return EXIT_BROKEN
    return EXIT_UNDECIDED if found.undecided else 0


def replay_lines(found: Replay, *, replayed: bool) -> list[str]:
    """For people: who signed it, what was edited, what came out differently."""
    from agentkernel.cli.judge import verdict_lines

    lines = []
    if found.status:
        name = (found.candidate or "none")[:10]
        lines.append(f"{found.problem}: {found.status}, candidate {name}, run {found.run}")
    lines.append(_signature_line(found))
    lines += [f"edited: {item} does not fit" for item in found.edited]
    if found.nothing:
        lines.append(f"nothing to replay: {found.nothing}")
    elif found.edited or not replayed:
        lines.append("not replayed")
    if found.verdict is not None:
        lines.append(f"replayed on {found.verdict.device}:")
        lines += [f"  {line}" for line in verdict_lines(found.verdict)]
        for item in found.differences:
            mark = "  <- decides" if item.decisive else ""
            lines.append(f"differs: {item.what}: {item.then} then, {item.now} now{mark}")
        if not found.differences:
            untimed = found.times_replayed is False
            lines.append(f"nothing differs, {NOT_TIMED}" if untimed else "nothing differs")
    if found.undecided:
        lines.append(f"not decided: {found.undecided}")
    # A name in the file begins no line of its own.
    return [line.replace("\n", "\n    ") for line in lines]


def _signature_line(found: Replay) -> str:
    signer = f"{(found.signer or 'nobody')[:16]}"
    if found.signature == "absent":
        return f"not signed{f': {found.unsigned}' if found.unsigned else ''}"
    if found.signature == "invalid":
        return f"signature invalid: the file was edited after {signer} signed it"
    known = "a key known here" if found.signer_known else "a key not known here"
    return f"signature valid: signed by {known} ({signer})"
