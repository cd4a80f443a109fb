"""Is a row that says something else than its signed certificate found out?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.agents.protocols import Attempt
from agentkernel.domain.base import sha256_text
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.profile import Ratio
from agentkernel.domain.region import Kernel
from agentkernel.nightly.library.rows import (
    OTHER_CERTIFICATE,
    OTHER_SIGNATURE,
    OTHER_SOURCE,
    certificate_mismatch,
    figures_of,
)
from agentkernel.tools.certificate.signing import certificate_signature
from agentkernel.workflows.results import _with_figures
from tests.nightly.library.library_rows import certificate, kernel, key
from tests.workflows.fakes import measurement, profile, timing
from tests.workflows.test_outcome import PLAIN


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTKERNEL_HOME", str(tmp_path / "home"))


def edited(item: Kernel, **update: object) -> Kernel:
    return item.evolve(**update)


def forged(item: Kernel, source: str) -> Kernel:
    """Another text whose hashes were all replaced."""
    sha256 = sha256_text(source)
    proof = item.certificate.evolve(candidate_source=source, candidate_sha256=sha256)
    return edited(item, source=source, sha256=sha256, certificate=proof)


def test_what_was_signed_and_is_whole_fits() -> None:
    assert certificate_mismatch(kernel(signed=True), signed=True) is None
    assert certificate_signature(kernel(signed=True).certificate) == "valid"


def test_a_kernel_without_signature_fits_unless_it_must_have_one() -> None:
    assert certificate_signature(kernel().certificate) == "absent"
    assert certificate_mismatch(kernel()) is None
    assert certificate_mismatch(kernel(), signed=True) == "its certificate is not signed"


def test_another_text_with_its_hashes_replaced_does_not_fit_the_signature() -> None:
    wrong = forged(kernel(signed=True), "class ModelNew: import os\n")
    assert certificate_signature(wrong.certificate) == "invalid"
    assert certificate_mismatch(wrong) == OTHER_SIGNATURE


def test_another_source_or_certificate_is_told_apart() -> None:
    whole = kernel(signed=True)
    assert certificate_mismatch(edited(whole, source="x\n")) == OTHER_SOURCE
    other = kernel(1, signed=True).certificate
    assert certificate_mismatch(edited(whole, certificate=other)) == OTHER_CERTIFICATE


@pytest.mark.parametrize(
    ("update", "names"),
    [
        ({"basis": "estimated"}, "basis"),
        ({"speedup": 9.9}, "speedup"),
        ({"speedup": None}, "speedup"),
        ({"speedup_low": 1.95, "time_us": 1.0}, "speedup_low, time_us"),
        ({"baseline_us": 99.0}, "baseline_us"),
        ({"key": key(gpu="NVIDIA B200")}, "gpu"),
        ({"key": key(torch="2.14.0")}, "torch"),
        (
            {"key": key().evolve(triton="9", precision="tf32")},
            "triton, precision",
        ),
    ],
)
def test_edited_figures_and_keys_are_named(update: dict[str, object], names: str) -> None:
    found = certificate_mismatch(edited(kernel(signed=True), **update))
    assert found is not None
    assert found.startswith(names)
    assert found.endswith("not as in its certificate")


def test_an_estimate_that_calls_itself_measured_does_not_fit() -> None:
    """Also where the certificate has no figures of its own."""
    bare = kernel(speedup=None, signed=True)
    assert certificate_mismatch(bare) is None
    assert certificate_mismatch(edited(bare, basis="measured")) == "basis not as in its certificate"


def test_the_estimates_target_is_the_gpu_of_the_key() -> None:
    item = kernel(at=key(gpu="estimated:h200"), speedup=None)
    candidate = Candidate(source=item.source, coder="scripted", round=1)
    proof = item.certificate.evolve(profile=profile(candidate))
    whole = edited(item, certificate=proof, time_us=2.5, baseline_us=5.0)
    assert certificate_mismatch(whole) is None
    gpu = edited(whole, key=key(gpu="NVIDIA H200"))
    assert certificate_mismatch(gpu) == "gpu not as in its certificate"


def test_a_certificates_figures_are_those_that_its_run_hands_over() -> None:
    candidate = Candidate(source="x\n", coder="scripted", round=1)
    one = measurement(
        Ratio(value=3.0, low=2.9, high=3.1), Ratio(value=1.4, low=1.35, high=1.45)
    ).evolve(
        vs_autotune=Ratio(value=1.5, low=1.3, high=1.7),
        autotuned=timing(15.0),
    )
    found = profile(candidate, one)
    told = _with_figures(PLAIN, Attempt(candidate=candidate, profile=found), None)
    proof = certificate("x\n", "2026-11-23T00:00:00+00:00").evolve(profile=found, basis="measured")
    figures = figures_of(proof)
    ratios = (told.speedup_vs_eager, told.speedup_vs_compile, told.speedup_vs_autotune)
    times = (told.eager_us, told.compiled_us, told.autotuned_us)
    assert figures.speedup == min(item for item in ratios if item is not None) == 1.4
    assert told.speedup_ci95 is not None
    assert figures.speedup_low == told.speedup_ci95[0] == 1.3
    assert figures.time_us == told.time_us
    assert figures.baseline_us == min(item for item in times if item is not None) == 14.0
