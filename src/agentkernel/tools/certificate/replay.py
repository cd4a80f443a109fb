"""Replay of a certificate: signature, hashes, and the candidate judged and timed again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.domain.base import Frozen
from agentkernel.domain.certificate import Certificate, Versions
from agentkernel.domain.errors import ProblemError
from agentkernel.domain.profile import Profile, ProfileFailed
from agentkernel.domain.verdict import Verdict
from agentkernel.runtime.machine import installed_versions
from agentkernel.tools.certificate.record import (
    CertificateFile,
    drop_in_beside,
    hash_errors,
    read_certificate_file,
)
from agentkernel.tools.certificate.signing import SignatureState, is_known, is_own
from agentkernel.tools.judge.settings import NEWEST, JudgeSettings, fresh_seed, judge_sha256
from agentkernel.tools.own_files import LIVE, read_live, sha256_of
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import declared_problem, restore_problem
from agentkernel.tools.problem.module_graph import problem_graph
from agentkernel.tools.profiler import ProfileSettings, profile
from agentkernel.tools.targets import find_target

if TYPE_CHECKING:
    from agentkernel.tools.problem.capture import Captured
    from agentkernel.tools.problem.loading import LoadedProblem
    from agentkernel.tools.targets import ResolvedTarget

MOST_SEEDS = 32
"""A stranger's certificate may not keep this machine busy for days."""
UNSIGNED = "unsigned: nothing vouches for it"
CLAIMS = {"gradients": True, "repeatable": True, "kernelbench": True, "eval_only": False}
"""What a verdict says beside its finding, and the value that says most."""


class Difference(Frozen):
    """What is not as it was. A `decisive` one breaks the certificate; the others explain."""

    what: str
    then: str
    now: str
    decisive: bool = False


class Replay(Frozen):
    """What became of one certificate. `nothing` says why there was nothing to judge again;
    `undecided` why this machine cannot judge it."""

    certificate: str
    run: str = ""
    status: str = ""
    problem: str = ""
    candidate: str | None = None
    signature: SignatureState
    unsigned: str = ""
    signer: str | None = None
    signer_known: bool = False
    edited: tuple[str, ...] = ()
    """Entries that do not fit each other or the signature."""
    nothing: str = ""
    undecided: str = ""
    differences: tuple[Difference, ...] = ()
    verdict: Verdict | None = None
    """The judgement of now."""
    profile: Profile | ProfileFailed | None = None
    times_replayed: bool | None = None
    """Whether what was measured was measured again; None where nothing was."""

    @property
    def holds(self) -> bool:
        """True where a signature stands under it, nothing was edited and what was judged again came
        out the same."""
        return self.signature != "absent" and self.fits

    @property
    def fits(self) -> bool:
        """The same, whether or not somebody vouches for it."""
        return not self.edited and not any(item.decisive for item in self.differences)


def inspect_certificate(path: Path, live: Path | None = None) -> tuple[CertificateFile, Replay]:
    """Check signature and hashes; executes nothing. `live` is the pickle of a live module, where it
    does not lie beside the certificate. Raises RunNotFound for no certificate."""
    sealed = read_certificate_file(path)
    certificate, signature = sealed.certificate, sealed.signature
    edited: tuple[str, ...] = ("signature",) if sealed.state == "invalid" else ()
    edited += (f"values ({sealed.problem})",) if sealed.problem else ()
    found = Replay(
        certificate=str(path),
        signature=sealed.state,
        signer=signature.fingerprint if signature else None,
        signer_known=sealed.state == "valid" and signature is not None and is_known(signature),
        edited=edited,
    )
    if certificate is None:
        return sealed, found
    live = live or path.with_name(LIVE)
    return sealed, found.evolve(
        run=certificate.run,
        status=certificate.status,
        problem=certificate.problem.name,
        candidate=certificate.candidate_sha256,
        unsigned=certificate.unsigned,
        edited=(
            *edited,
            *hash_errors(certificate),
            *_other_module(live, certificate),
            *_other_drop_in(path, certificate),
        ),
        nothing=_nothing(certificate),
        times_replayed=False if certificate.basis == "measured" else None,
    )


def replay(
    path: Path,
    *,
    live: Path | None = None,
    allow_unsandboxed: bool = False,
    unpickle: bool = False,
) -> Replay:
    """Inspect the certificate at `path`, then judge its candidate again (and time it again where it
    was measured and a GPU is here). What was edited is not executed. `live` is the pickle of a live
    module where it does not lie beside the certificate; `unpickle` reads it whoever made it.

    The reference's own source runs in this process, as it does when it is judged from its file; the
    candidate stays in the sandbox. Raises RunNotFound for what is no certificate, ProblemError
    where the reference does not run here, SandboxUnavailable where nothing isolates the candidate.
    """
    live = live or path.with_name(LIVE)
    sealed, found = inspect_certificate(path, live)
    certificate = sealed.certificate
    if certificate is None or found.edited or found.nothing:
        return found
    loaded = load_certified_problem(live, sealed, unpickle=unpickle)
    return _judge_again(loaded, certificate, found, allow_unsandboxed=allow_unsandboxed)


def _other_module(live: Path, certificate: Certificate) -> tuple[str, ...]:
    """Whether another pickle lies there than the one that the certificate was made with."""
    there = sha256_of(live) if certificate.live_sha256 is not None else None
    return () if there in (None, certificate.live_sha256) else (LIVE,)


def _other_drop_in(path: Path, certificate: Certificate) -> tuple[str, ...]:
    """Whether the drop-in that lies beside the certificate at `path` is not the one judged."""
    file = drop_in_beside(path, certificate.problem)
    there = sha256_of(file) if certificate.candidate_sha256 is not None else None
    return () if there in (None, certificate.candidate_sha256) else (file.name,)


def _nothing(certificate: Certificate) -> str:
    if certificate.candidate_source is None:
        return f"status {certificate.status}: it hands over no candidate, there is none to judge"
    return ""


def _judge_again(
    loaded: LoadedProblem, certificate: Certificate, found: Replay, *, allow_unsandboxed: bool
) -> Replay:
    from agentkernel.tools.judge.judge import judge

    then, source = certificate.verdict, certificate.candidate_source
    assert then is not None
    assert source is not None
    captured = capture(loaded)
    resolved = find_target(None)
    settings = replay_settings(certificate, resolved, allow_unsandboxed=allow_unsandboxed)
    now = judge(loaded, captured, source, settings)
    again = _under_a_fresh_seed(loaded, captured, source, settings, then, now)
    versions = installed_versions()
    differences = [
        *version_differences(certificate.versions, versions),
        *_changed("judge", certificate.judge_sha256[:16], judge_sha256()[:16]),
        *record_differences(loaded, captured, certificate, versions),
        *verdict_differences(then, now),
        *(fresh_differences(then, again) if again is not None else ()),
    ]
    profile = None
    if certificate.basis == "measured" and settings.device == "cuda" and now.accepted:
        profile = _time_again(loaded, captured, source, resolved, settings)
        differences += timing_differences(certificate.profile, profile)
    return found.evolve(
        differences=tuple(differences),
        undecided=now.undecided or (again.undecided if again is not None else ""),
        verdict=now,
        profile=profile,
        times_replayed=profile is not None if certificate.basis == "measured" else None,
    )


def _under_a_fresh_seed(
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    settings: JudgeSettings,
    then: Verdict,
    now: Verdict,
) -> Verdict | None:
    """The same judgement under a seed that nobody knew when the candidate was written; None where
    the old one has not come out as it did."""
    from agentkernel.tools.judge.judge import judge

    if _finding(then) != _finding(now):
        return None
    return judge(loaded, captured, source, settings.evolve(seed=fresh_seed()))


def fresh_differences(then: Verdict, again: Verdict) -> list[Difference]:
    """What came out otherwise under a fresh seed, which the text names: it decides."""
    if again.undecided:
        return []
    what = f"verdict under the fresh seed {again.seed}"
    return _changed(what, _finding(then), _finding(again), decisive=True)


def load_certified_problem(
    live: Path, sealed: CertificateFile, *, unpickle: bool = False
) -> LoadedProblem:
    """The problem from the certificate itself; a live module from the pickle at `live`, where the
    user's own key vouches for that or `unpickle` is asked for.

    Raises RunNotFound where that is not there, ProblemError where the source does not load.
    """
    certificate, signature = sealed.certificate, sealed.signature
    assert certificate is not None
    if certificate.problem.origin != "live":
        return restore_problem(certificate.problem)
    own = sealed.state == "valid" and signature is not None and is_own(signature)
    value = read_live(
        live,
        signed_sha256=certificate.live_sha256 if own else None,
        unpickle=unpickle,
    )
    return restore_problem(certificate.problem, value)


def replay_settings(
    certificate: Certificate, resolved: ResolvedTarget, *, allow_unsandboxed: bool
) -> JudgeSettings:
    """As it was judged then, on what this machine has."""
    then = certificate.verdict
    assert then is not None
    seeds = JudgeSettings().seeds if certificate.seeds is None else certificate.seeds
    return JudgeSettings(
        precision=then.precision,
        rule=then.rule,
        policy=then.policy,
        device="cuda" if resolved.measurable and resolved.target.vendor == "nvidia" else "cpu",
        seed=then.seed,
        seeds=max(1, min(seeds, MOST_SEEDS)),
        declared_sizes=then.declared_sizes,
        kernelbench=then.kernelbench is not None,
        allow_unsandboxed=allow_unsandboxed,
    )


def version_differences(then: Versions, now: Versions) -> list[Difference]:
    """Of everything that the result was made with."""
    return [
        difference
        for name in Versions.model_fields
        for difference in _changed(
            name, str(getattr(then, name) or "none"), str(getattr(now, name) or "none")
        )
    ]


def record_differences(
    loaded: LoadedProblem, captured: Captured, certificate: Certificate, now: Versions
) -> list[Difference]:
    """Where what the certificate says of the problem is not what its source gives: a verdict at
    other sizes or on another class decides, and the graph of another module under the same torch;
    another one captures another graph."""
    found = []
    if loaded.problem.origin == "file":
        told, declared = (
            f"{problem.class_name} at {' and '.join(item.label for item in problem.shape_sets)}"
            for problem in (loaded.problem, declared_problem(loaded))
        )
        found += _changed("problem", told, declared, decisive=True)
    if certificate.graph is not None:
        try:
            graph = problem_graph(loaded, captured)
        except ProblemError:
            return found
        same = certificate.versions.torch == now.torch
        found += _changed("graph", certificate.graph.signature, graph.signature, decisive=same)
        if certificate.graph.free is not None:
            here = graph.free.label if graph.free is not None else "none"
            found += _changed("free sizes", certificate.graph.free.label, here)
    return found


def verdict_differences(then: Verdict, now: Verdict) -> list[Difference]:
    """Where it was judged, what was found (decisive), how large the errors were. On the same device
    a claim that goes further than what is found now decides too."""
    found = _changed("device", then.device, now.device)
    found += _changed("precision rule", str(then.rule), str(NEWEST.version))
    if not now.undecided:
        found += _changed("verdict", _finding(then), _finding(now), decisive=True)
    if now.accepted:
        for name, claim in CLAIMS.items():
            before, after = getattr(then, name), getattr(now, name)
            further = before is claim and then.device == now.device
            found += _changed(name, str(before), str(after), decisive=further)
        found += _changed("kernels", ", ".join(then.launches), ", ".join(now.launches))
        found += _changed("error", _error(then.worst_error), _error(now.worst_error))
        found += _changed(
            "eager's error", _error(then.worst_eager_error), _error(now.worst_eager_error)
        )
    return found


def timing_differences(
    then: Profile | None, now: Profile | ProfileFailed | None
) -> list[Difference]:
    """Of the speedups of the primary shape set. A candidate that cannot be timed any more is
    decisive, another ratio is not: it says something about the machine too."""
    if then is None or now is None or not then.measurements:
        return []
    before = then.measurements[0]
    if isinstance(now, ProfileFailed):
        text = f"{now.side}: {now.reason}"
        was = _ratio(before.vs_eager.low, before.vs_eager.high)
        return [Difference(what="timing", then=was, now=text, decisive=now.side == "candidate")]
    after = now.measurements[0]
    pairs = [("speedup over eager", before.vs_eager, after.vs_eager)]
    if before.vs_compile is not None and after.vs_compile is not None:
        pairs.append(("speedup over torch.compile", before.vs_compile, after.vs_compile))
    return [
        Difference(what=what, then=_ratio(one.low, one.high), now=_ratio(two.low, two.high))
        for what, one, two in pairs
        if one.low > two.high or two.low > one.high
    ]


def _time_again(
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    resolved: ResolvedTarget,
    settings: JudgeSettings,
) -> Profile | ProfileFailed:
    return profile(
        loaded,
        captured,
        source,
        resolved,
        ProfileSettings(
            seed=settings.seed,
            precision=settings.precision,
            shape_sets=(0,),
            allow_unsandboxed=settings.allow_unsandboxed,
        ),
    )


def _finding(verdict: Verdict) -> str:
    if verdict.failure is None:
        return "accepted" if verdict.accepted else f"rejected at {verdict.gate}"
    return f"rejected at {verdict.gate} ({verdict.failure.kind})"


def _error(value: float | None) -> str:
    return "none" if value is None else f"{value:.1e}"


def _ratio(low: float, high: float) -> str:
    return f"{low:.3f}x to {high:.3f}x"


def _changed(what: str, then: str, now: str, *, decisive: bool = False) -> list[Difference]:
    return [] if then == now else [Difference(what=what, then=then, now=now, decisive=decisive)]
