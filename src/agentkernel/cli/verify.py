"""`agentkernel verify`: the check of a certificate, whose judgement is replayed.

Exits 0 where it holds, else 3, as for a failed run's; 4 where this machine cannot decide it.
"""

from __future__ import annotations

from pathlib import Path

import typer

from agentkernel.cli.console import console
from agentkernel.cli.options import VerifyFlags
from agentkernel.cli.rendering.live import counting
from agentkernel.cli.rendering.verdict import verdict_lines
from agentkernel.cli.terminal import print_json
from agentkernel.storage.files import RUNS_FOLDER
from agentkernel.tools.certificate.replay import UNSIGNED, Replay, inspect_certificate, replay
from agentkernel.tools.own_files import CERTIFICATE
from agentkernel.tools.run_store import find_kernel_run, is_unfinished

EXIT_BROKEN, EXIT_UNDECIDED = 3, 4
NOT_TIMED = "but its measured times were not replayed"


def verify(flags: VerifyFlags) -> None:
    """`agentkernel verify`."""
    path = _certificate_file(flags.certificate)
    if flags.no_replay:
        _, found = inspect_certificate(path)
    else:
        with counting("verify", silent=flags.as_json):
            found = replay(
                path,
                allow_unsandboxed=flags.allow_unsandboxed,
                unpickle=flags.unpickle,
            )
    code = exit_code(found, known_signer=flags.known_signer)
    if flags.as_json:
        print_json({"holds": code == 0, **found.model_dump(mode="json")})
    else:
        screen = console()
        for line in replay_lines(found, replayed=not flags.no_replay):
            screen.print(line, markup=False)
        screen.print(_ending(found, code))
    raise typer.Exit(code)


def _certificate_file(given: Path) -> Path:
    """What a file is, a run's folder, or the name of a run below the usual folder."""
    if not given.suffix and not given.exists():
        given = find_kernel_run(Path(RUNS_FOLDER), str(given))
    return given / CERTIFICATE if given.is_dir() else given


def _ending(found: Replay, code: int) -> str:
    if found.status == "failed" and found.holds:
        return "untouched, but of a failed run: it hands nothing over"
    if code == 0 and found.nothing and is_unfinished(Path(found.certificate).parent):
        return f"holds so far: the run is unfinished. Next: agentkernel resume {found.run}"
    if code == 0 and found.nothing:
        return "holds: a baseline was kept, nothing is handed over"
    if code == 0:
        return f"holds, {NOT_TIMED}" if found.times_replayed is False else "holds"
    if code == EXIT_UNDECIDED:
        return "not decided here"
    return UNSIGNED if found.signature == "absent" and found.fits else "does not hold"


def exit_code(found: Replay, *, known_signer: bool) -> int:
    """3 outweighs 4: what was edited, has no signature or failed is so on any machine."""
    if not found.holds or found.status == "failed" or (known_signer and not found.signer_known):
        return EXIT_BROKEN
    return EXIT_UNDECIDED if found.undecided else 0


def replay_lines(found: Replay, *, replayed: bool) -> list[str]:
    """For people: who signed it, what was edited, what came out differently."""
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
