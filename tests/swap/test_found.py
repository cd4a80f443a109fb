from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import agentkernel
from agentkernel.domain.base import sha256_text
from agentkernel.domain.certificate import Certificate
from agentkernel.domain.errors import KernelRefused, RunNotFound
from agentkernel.domain.nightly import Form, ModelRow, NightlyRun, RegionRow, RegionStatus
from agentkernel.domain.region import Kernel, RegionUse
from agentkernel.nightly.page.files import kernels_of_night
from agentkernel.swap.kernel import kernel_of_run
from agentkernel.tools.certificate.record import canonical_json, sign_certificate
from agentkernel.tools.certificate.signing import sign, signed_text
from agentkernel.workflows.outcome import Result
from tests.swap.applied_kernels import (
    NORM,
    VERSIONS,
    WRONG,
    block,
    example,
    make_kernel,
    norm_kernel,
)


def write_run(folder: Path, kernel: Kernel, *, kept: bool = False) -> Result:
    """The result of a run with its files, as `optimize` leaves them."""
    certificate = folder / "certificate.json"
    source = None if kept else kernel.source
    found = kernel.certificate.evolve(
        candidate_source=source,
        candidate_sha256=None if kept else kernel.sha256,
        status="kept_original" if kept else "verified",
    )
    certificate.write_text(canonical_json(sign_certificate(found)))
    candidate = folder / "drop_in.py"
    candidate.write_text(kernel.source)
    return Result(
        status=found.status, reason="", run="run-1", measured=False,
        candidate=None if kept else str(candidate), candidate_sha256=found.candidate_sha256,
        certificate=str(certificate), report=None, problem="layernorm", target="h100-sxm",
    )  # fmt: skip


def test_the_result_of_a_run_is_put_in(tmp_path: Path) -> None:
    model, x = block(), example()
    result = write_run(tmp_path, norm_kernel(WRONG))
    assert agentkernel.apply(model.norm, result).kernels == {"": sha256_text(WRONG)}
    model.norm(x)
    assert (agentkernel.counts(model)["norm"].kernel, agentkernel.restore(model)) == (1, 1)
    assert type(model.norm) is nn.LayerNorm


def test_a_kept_baseline_changes_nothing(tmp_path: Path) -> None:
    model = block()
    result = write_run(tmp_path, norm_kernel(), kept=True)
    assert agentkernel.apply(model.norm, result).paths == ()
    assert type(model.norm) is nn.LayerNorm
    with pytest.raises(KernelRefused, match="kept a baseline"):
        kernel_of_run(tmp_path / "certificate.json")


def test_a_failed_run_kept_nothing(tmp_path: Path) -> None:
    write_run(tmp_path, norm_kernel(), kept=True)
    path = tmp_path / "certificate.json"
    failed = Certificate.model_validate_json(path.read_text()).evolve(
        status="failed", reason="forward raised. Next: check shapes"
    )
    path.write_text(canonical_json(sign_certificate(failed)))
    with pytest.raises(KernelRefused, match="failed, it has no kernel: forward raised") as caught:
        kernel_of_run(path)
    assert str(caught.value).count("Next:") == 1


def test_a_model_with_equal_modules_is_told_of_apply_all(tmp_path: Path) -> None:
    result, model = write_run(tmp_path, norm_kernel()), block()
    with pytest.raises(
        KernelRefused, match=r"Equal modules inside: norm, last\..*apply_all"
    ) as caught:
        agentkernel.apply(model, result)
    assert str(caught.value).count("Next:") == 1
    assert agentkernel.counts(model) == {}
    with pytest.raises(KernelRefused, match="does not take the verified inputs: missing") as caught:
        agentkernel.apply(nn.Bilinear(8, 8, 8), result)
    assert str(caught.value).count("Next:") == 1


def test_an_edited_certificate_is_refused(tmp_path: Path) -> None:
    result = write_run(tmp_path, norm_kernel())
    path = tmp_path / "certificate.json"
    path.write_text(path.read_text().replace("1e-05", "1e-01"))
    with pytest.raises(RunNotFound, match="was changed"):
        agentkernel.apply(block().norm, result)


def test_the_kernel_of_a_run_holds_for_the_verified_layout(tmp_path: Path) -> None:
    module = nn.Linear(8, 8, bias=False).eval()
    module.weight = nn.Parameter(module.weight.detach().t())
    write_run(tmp_path, make_kernel(NORM, module, example().t().contiguous().t()))
    found = kernel_of_run(tmp_path / "certificate.json")
    assert (found.parameters, found.parameter_strides) == (("weight",), ((1, 8),))
    assert found.input_strides == ((1, 4),)


def region(kernel: Kernel, status: RegionStatus, *uses: RegionUse) -> RegionRow:
    return RegionRow(
        signature=kernel.key.signature, name="layernorm", ops=("layer_norm",),
        shapes="x float32[4, 8]", uses=uses, basis="estimated", share=0.1, headroom=0.5,
        eager_us=2.0, bound_us=1.0, status=status, sha256=kernel.sha256,
    )  # fmt: skip


def write_night(
    folder: Path, form: Form = "regions", status: RegionStatus = "new", dropped: bool = False
) -> Path:
    kernel = norm_kernel(WRONG)
    signed = sign_certificate(kernel.certificate)
    kernel = kernel.evolve(certificate=signed)
    own = ("weight", "bias")
    uses = (
        RegionUse(model="one", path="norm", parameters=own),
        RegionUse(model="two", path="last", parameters=own),
    )
    left_out = (kernel.key.signature,) if dropped else ()
    night = NightlyRun(
        id="night-1",
        zoo="tiny",
        zoo_sha256="",
        target="h100-sxm",
        gpu=None,
        workers=1,
        started="",
        versions=VERSIONS,
        models=tuple(
            ModelRow(name=name, basis="estimated", form=form, dropped=left_out)
            for name in ("one", "two")
        ),
        regions=(region(kernel, status, *uses),),
    )
    record = {
        "format": 1,
        "night": json.loads(night.model_dump_json()),
        "comparison": {"night": night.id, "against": None},
        "kernels": {kernel.sha256: json.loads(kernel.model_dump_json())},
    }
    (folder / "night.json").write_text(json.dumps(record))
    return folder


def test_a_nights_kernels_go_to_their_model(tmp_path: Path) -> None:
    model = block()
    applied = agentkernel.apply(model, write_night(tmp_path), name="two")
    assert applied.paths == ("last",)
    with torch.no_grad():
        model(example())
    assert agentkernel.counts(model)["last"].kernel == 1


@pytest.mark.parametrize(
    ("form", "status", "dropped"),
    [("eager", "new", False), ("regions", "kept", False), ("regions", "new", True)],
)
def test_what_was_not_handed_over_is_not_put_in(
    tmp_path: Path, form: Form, status: RegionStatus, dropped: bool
) -> None:
    assert kernels_of_night(write_night(tmp_path, form, status, dropped), "one").kernels == {}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"form": "eager", "error": "The forward of one raised KeyError. Next: run it."},
            "model 'one' failed in night 'night-1': The forward of one raised KeyError.",
        ),
        ({"form": "eager", "why": "nothing is faster"}, "kept eager: nothing is faster."),
        ({"form": "regions", "dropped": ["all"]}, "handed no kernel over."),
    ],
)
def test_a_model_that_got_nothing_in_the_night_is_told_why(
    tmp_path: Path, row: dict[str, object], words: str
) -> None:
    file = write_night(tmp_path) / "night.json"
    record = json.loads(file.read_text())
    if "dropped" in row:
        row = row | {"dropped": [record["night"]["regions"][0]["signature"]]}
    record["night"]["models"][0] |= row
    file.write_text(json.dumps(record))
    applied = agentkernel.apply(block(), tmp_path, name="one")
    assert applied.paths == ()
    assert applied.note.startswith("No kernel was put in: model 'one'")
    assert applied.note.endswith(words)


def test_a_whole_and_its_regions_are_never_both_put_in(tmp_path: Path) -> None:
    """Nor a region within another, whether or not it was dropped."""
    file = write_night(tmp_path) / "night.json"
    record = json.loads(file.read_text())
    (norm,) = record["night"]["regions"]
    record["night"]["models"][0] |= {"form": "one-region", "dropped": ["a" * 16]}
    record["night"]["regions"] += [
        norm | {"signature": name, "uses": [{"model": "one", "path": path}]}
        for name, path in (("a" * 16, "mlp"), ("b" * 16, ""), ("c" * 16, "mlp.up"))
    ]
    file.write_text(json.dumps(record))
    assert list(kernels_of_night(tmp_path, "one").kernels) == [""]
    for form, dropped, paths in (
        ("regions", ["b" * 16], ["mlp", "norm"]),
        ("regions", ["a" * 16, "b" * 16], ["norm"]),
        ("torch.compile", ["a" * 16], []),
    ):
        record["night"]["models"][0] |= {"form": form, "dropped": dropped}
        file.write_text(json.dumps(record))
        assert list(kernels_of_night(tmp_path, "one").kernels) == paths


def test_what_came_in_the_place_of_a_withdrawn_kernel_is_put_in(tmp_path: Path) -> None:
    found = kernels_of_night(write_night(tmp_path, "regions", "withdrawn"), "one")
    assert list(found.kernels) == ["norm"]


def rewritten(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The night in `folder` with `change` made to its one kernel."""
    file = write_night(folder) / "night.json"
    record = json.loads(file.read_text())
    (kernel,) = record["kernels"].values()
    change(kernel)
    new = sha256_text(kernel["source"])
    file.write_text(json.dumps(record).replace(sha256_text(WRONG), new))
    return folder


def another_text(kernel: dict[str, Any]) -> None:
    kernel["source"] += "raise SystemExit('must not run')\n"
    kernel["certificate"]["candidate_source"] = kernel["source"]


def another_text_unsigned(kernel: dict[str, Any]) -> None:
    another_text(kernel)
    kernel["certificate"]["signature"] = None


def another_verdict(kernel: dict[str, Any]) -> None:
    kernel["certificate"]["reason"] = "as I say"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (another_text, "its signature does not fit"),
        (another_verdict, "its signature does not fit"),
        (another_text_unsigned, "is not signed: no signature is there"),
    ],
)
def test_a_nights_kernel_that_was_edited_is_not_imported(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    model = block()
    with pytest.raises(KernelRefused, match=words):
        agentkernel.apply(model, rewritten(tmp_path, change), name="two")
    assert type(model.last) is nn.LayerNorm


def test_a_field_that_a_later_version_adds_breaks_no_signature(tmp_path: Path) -> None:
    folder = write_night(tmp_path)
    file = folder / "night.json"
    record = json.loads(file.read_text())
    (kernel,) = record["kernels"].values()
    certificate = kernel["certificate"]
    for key in ("unsigned", "signature"):
        del certificate[key]
    signature = sign(signed_text(certificate).encode())
    certificate["signature"] = json.loads(signature.model_dump_json())
    file.write_text(json.dumps(record))
    assert list(kernels_of_night(folder, "one").kernels) == ["norm"]


def test_a_folder_without_the_night_or_the_model(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match="neither certificate"):
        agentkernel.apply(block(), tmp_path)
    write_night(tmp_path)
    with pytest.raises(RunNotFound, match=r"names no model.*one, two"):
        agentkernel.apply(block(), str(tmp_path))
    with pytest.raises(RunNotFound, match=r"no model 'three'"):
        agentkernel.apply(block(), tmp_path, name="three")
    file = tmp_path / "night.json"
    record = json.loads(file.read_text())
    record["kernels"] = {}
    file.write_text(json.dumps(record))
    with pytest.raises(RunNotFound, match="lacks kernel"):
        agentkernel.apply(block(), tmp_path, name="two")
