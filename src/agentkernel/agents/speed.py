"""Why is a right candidate not faster: which bound, how near to it, and what stands in the way?"""

from __future__ import annotations

import math
from typing import Literal

from agentkernel.agents.evidence import Fact
from agentkernel.domain.base import Frozen
from agentkernel.domain.plan import Analysis
from agentkernel.domain.profile import KernelResources, Measurement, Profile
from agentkernel.domain.target import Target

LOW_OCCUPANCY = 0.25
FULL = 0.9
MANY_LAUNCHES = 3
MOST_KERNELS = 8


class KernelPart(Frozen):
    """One launch: its share of the bytes that all launches touch (an estimate of its share of the
    time; nobody times launches apart), and its resources."""

    name: str
    grid: tuple[int, int, int]
    byte_share: float | None
    registers: int | None
    spill_bytes: int | None
    shared_bytes: int
    occupancy: float | None
    num_warps: int
    num_stages: int
    tensor_core: str | None


class SpeedEvidence(Frozen):
    """Where a candidate's time goes. `basis` says whether a GPU was asked."""

    kind: Literal["speed"] = "speed"
    basis: Literal["measured", "estimated"]
    bound: str
    time_us: float
    possible_us: float | None
    """The roofline; None where nobody knows it."""
    vs_eager: float | None
    vs_compile: float | None
    gb_per_s: float | None
    copy_gb_per_s: float | None
    tflops: float | None
    launches: int
    own_kernel_share: float | None
    kernels: tuple[KernelPart, ...]
    library_ops: tuple[str, ...]
    findings: tuple[str, ...]
    """What stands in the way, the gravest first."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The evidence, a line each."""
        possible = self.possible_us
        rows: list[tuple[str, str]] = [
            ("bound by", self.bound),
            ("time", f"{self.time_us:.1f} us, {self.basis}"),
            ("possible", "" if possible is None else f"{possible:.1f} us on the roofline"),
            ("reached", _share(possible, self.time_us)),
            ("speedup over eager", _times(self.vs_eager)),
            ("speedup over torch.compile", _times(self.vs_compile)),
            ("bandwidth", _bandwidth(self.gb_per_s, self.copy_gb_per_s)),
            ("arithmetic", "" if self.tflops is None else f"{self.tflops:.2f} TFLOP/s"),
            ("launches", str(self.launches)),
            ("own kernels' share", _share(self.own_kernel_share, 1.0)),
            ("library calls", ", ".join(self.library_ops)),
        ]
        rows += [(f"kernel {item.name}", _kernel(item)) for item in self.kernels[:MOST_KERNELS]]
        rows += [("in the way", item) for item in self.findings]
        return tuple(Fact(name, value) for name, value in rows if value)


def speed_evidence(
    profile: Profile, analysis: Analysis | None = None, target: Target | None = None
) -> SpeedEvidence:
    """What `profile` says of its primary shapes; `analysis` brings the roofline class."""
    primary = profile.measurements[0] if profile.measurements else None
    report = profile.report
    kernels = report.kernels if report else ()
    library = report.library_ops if report else ()
    launches = primary.launches if primary else len(kernels) + len(library)
    bound = analysis.roofline if analysis else profile.estimate.bound
    roofline_us = analysis.bound_us if analysis else None
    return SpeedEvidence(
        basis="measured" if primary else "estimated",
        bound=bound,
        time_us=primary.candidate.median_us if primary else profile.estimate.time_us,
        possible_us=primary.roofline_us if primary else roofline_us,
        vs_eager=primary.vs_eager.value if primary else None,
        vs_compile=primary.vs_compile.value if primary and primary.vs_compile else None,
        gb_per_s=primary.achieved_gb_per_s if primary else None,
        copy_gb_per_s=primary.copy_gb_per_s if primary else None,
        tflops=primary.achieved_tflops if primary else None,
        launches=launches,
        own_kernel_share=primary.own_kernel_share if primary else None,
        kernels=_parts(kernels),
        library_ops=library,
        findings=_findings(kernels, library, primary, launches, bound, target),
    )


def _parts(kernels: tuple[KernelResources, ...]) -> tuple[KernelPart, ...]:
    total = sum(item.bytes_touched for item in kernels)
    return tuple(
        KernelPart(
            byte_share=item.bytes_touched / total if total else None,
            **item.model_dump(include=set(KernelPart.model_fields) - {"byte_share"}),
        )
        for item in kernels
    )


def _findings(
    kernels: tuple[KernelResources, ...],
    library: tuple[str, ...],
    primary: Measurement | None,
    launches: int,
    bound: str,
    target: Target | None,
) -> tuple[str, ...]:
    found = [words for item in kernels for words in _of_kernel(item, bound, target)]
    if primary and primary.roofline_fraction >= FULL:
        found.append(f"nothing much: {primary.roofline_fraction:.0%} of the roofline is reached")
    if launches >= MANY_LAUNCHES:
        found.append(f"{launches} launches, each reading what the one before wrote: fuse them")
    if primary and primary.own_kernel_share is not None and primary.own_kernel_share < FULL:
        rest = 1 - primary.own_kernel_share
        found.append(f"{rest:.0%} of the time is not in the own kernels: {', '.join(library)}")
    return tuple(dict.fromkeys(found))


def _of_kernel(kernel: KernelResources, bound: str, target: Target | None) -> list[str]:
    found = []
    if not kernel.fits:
        found.append(f"{kernel.name} does not fit the target: {kernel.error}")
    if kernel.spill_bytes:
        found.append(
            f"{kernel.name} spills {kernel.spill_bytes} bytes a thread: smaller tile, more warps"
        )
    if kernel.occupancy is not None and kernel.occupancy < LOW_OCCUPANCY:
        found.append(
            f"{kernel.name} keeps {kernel.occupancy:.0%} of an SM's warps resident "
            f"({kernel.registers} registers, {kernel.shared_bytes} bytes of shared memory)"
        )
    programs = math.prod(kernel.grid)
    if target is not None and programs < target.sm_count.value:
        found.append(
            f"{kernel.name} starts {programs} programs on {target.sm_count.value:.0f} SMs: split "
            "the work finer"
        )
    if bound == "compute" and kernel.tensor_core is None:
        found.append(f"{kernel.name} uses no tensor cores in a compute-bound problem")
    return found


def _kernel(item: KernelPart) -> str:
    words = [
        f"grid {'x'.join(map(str, item.grid))}",
        f"{item.num_warps} warps, {item.num_stages} stages",
        "" if item.registers is None else f"{item.registers} registers",
        "" if item.spill_bytes is None else f"{item.spill_bytes} bytes spilled",
        f"{item.shared_bytes} bytes shared" if item.shared_bytes else "",
        "" if item.occupancy is None else f"occupancy {item.occupancy:.0%}",
        item.tensor_core or "",
        "" if item.byte_share is None else f"{item.byte_share:.0%} of the bytes (estimated)",
    ]
    return ", ".join(word for word in words if word)


def _bandwidth(achieved: float | None, possible: float | None) -> str:
    if achieved is None:
        return ""
    limit = f" of {possible:.0f} GB/s that a copy reaches" if possible else ""
    return f"{achieved:.0f} GB/s{limit}"


def _share(part: float | None, whole: float) -> str:
    return "" if part is None or not whole else f"{part / whole:.0%}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"
