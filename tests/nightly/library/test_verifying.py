"""Is a kernel that no longer verifies withdrawn, and one that cannot be judged here kept?"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import cloudpickle
import pytest
import torch

from agentkernel.domain.certificate import Certificate
from agentkernel.domain.region import Kernel, KernelKey
from agentkernel.nightly.library import Library
from agentkernel.nightly.library.maintenance import VerifiedKernel, verify_kernel
from agentkernel.nightly.library.rows import OTHER_CERTIFICATE, OTHER_SIGNATURE, UNREADABLE_ROW
from agentkernel.runtime.machine import installed_versions
from agentkernel.tools.certificate.record import sign_certificate
from agentkernel.tools.problem.loading import problem_from_module
from tests.nightly.library.library_rows import kernel, signature

HERE = installed_versions()
KEY = KernelKey(signature=signature(0), gpu="estimated:h200", torch=HERE.torch, triton=HERE.triton)
PLUS = """import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def plus_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) + ADDED, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        plus_kernel[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), BLOCK=4096)
        return y
"""
RIGHT = PLUS.replace("ADDED", "1")
WRONG = PLUS.replace("ADDED", "2")


class Plus(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    monkeypatch.setenv("AGENTKERNEL_HOME", str(tmp_path / "home"))
    with Library(tmp_path / "library.sqlite", pytest.fail) as opened:
        yield opened


def check(library: Library, runs: Path | None = None) -> VerifiedKernel:
    (line,) = library.lines()
    return verify_kernel(library, line, HERE, runs=runs)


def with_certificate(item: Kernel, **update: object) -> Kernel:
    changed = item.certificate.evolve(**update)
    return item.evolve(certificate=sign_certificate(changed))


def edit_certificate(library: Library, old: str, new: str) -> None:
    connection = sqlite3.connect(library.path)
    with connection:
        connection.execute("update certificates set value = replace(value, ?, ?)", (old, new))
    connection.close()


def test_a_right_kernel_holds_and_its_date_is_noted(library: Library) -> None:
    library.put(kernel(source=RIGHT, at=KEY, signed=True))
    assert check(library).state == "holds"
    found = library.find(KEY)
    assert found is not None
    assert found.verified > found.created


def test_a_wrong_one_is_withdrawn_with_the_reason(library: Library) -> None:
    library.put(kernel(source=WRONG, at=KEY, signed=True))
    found = check(library)
    assert found.state == "withdrawn"
    assert found.reason.startswith("verdict: accepted then, rejected at correctness")
    assert library.find(KEY) is None
    assert check(library) == VerifiedKernel(library.lines()[0], "withdrawn", found.reason)


def test_an_edited_certificate_withdraws_and_nothing_is_executed(library: Library) -> None:
    library.put(kernel(source=RIGHT, at=KEY, signed=True))
    edit_certificate(library, '"reason": ""', '"reason": "better"')
    found = check(library)
    assert (found.state, found.reason) == ("withdrawn", OTHER_SIGNATURE)
    assert library.find(KEY) is None


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"judge_sha256": "f', '"judge_sha256": "0', OTHER_CERTIFICATE),
        ('"status": "verified"', '"status": "splendid"', UNREADABLE_ROW),
    ],
)
def test_a_row_that_does_not_belong_together_is_withdrawn_for_good(
    old: str, new: str, reason: str, library: Library
) -> None:
    library.put(kernel(source=RIGHT, at=KEY, signed=True))
    edit_certificate(library, old, new)
    assert check(library).reason == reason
    assert library.lines()[0].withdrawn == reason


def test_a_kernel_for_another_torch_is_not_judged_by_this_one(library: Library) -> None:
    other = KEY.evolve(torch="1.0")
    library.put(kernel(source=WRONG, at=other, signed=True))
    found = check(library)
    assert (found.state, found.reason) == ("skipped", f"for torch 1.0 and triton {HERE.triton}")
    assert library.find(other) is not None
    edit_certificate(library, '"run": "plus-1"', '"run": "plus-2"')
    assert check(library).state == "withdrawn"


def live_kernel() -> tuple[Kernel, bytes]:
    x = torch.randn(4, 8)
    module = Plus()
    problem = problem_from_module(module, (x,)).problem
    item = kernel(source=RIGHT, at=KEY)
    verdict = item.certificate.verdict
    assert verdict is not None
    pickled = cloudpickle.dumps((module, (x,)))
    made = with_certificate(
        item,
        problem=problem,
        problem_sha256=problem.sha256,
        verdict=verdict.evolve(problem=problem.sha256),
        live_sha256=sha256(pickled).hexdigest(),
    )
    signed = sign_certificate(made.certificate)
    return made.evolve(certificate=signed), pickled


@pytest.mark.slow
def test_a_live_module_comes_from_its_put_or_from_its_run(library: Library, tmp_path: Path) -> None:
    made, pickled = live_kernel()
    library.put(made)
    found = check(library, tmp_path / "runs")
    assert found.state == "undecided"
    assert found.reason.startswith(f"its live module is neither beside {str(library.path)!r} nor")
    assert "agentkernel-verify-" not in found.reason
    assert library.find(KEY) is not None
    run = tmp_path / "runs" / made.run
    run.mkdir(parents=True)
    (run / "live.pkl").write_bytes(pickled)
    assert check(library, tmp_path / "runs").state == "holds"
    library.put(made, live=run / "live.pkl")
    (run / "live.pkl").unlink()
    assert check(library).state == "holds"


@pytest.mark.slow
def test_a_live_module_is_found_below_the_night_that_made_it(
    library: Library, tmp_path: Path
) -> None:
    made, pickled = live_kernel()
    library.put(made)
    run = tmp_path / "runs" / ".nights" / "20261123-1" / f"{KEY.signature}-1" / made.run
    run.mkdir(parents=True)
    (run / "live.pkl").write_bytes(b"another")
    found = check(library, tmp_path / "runs")
    assert found.state == "undecided"
    assert found.reason == f"{str(run / 'live.pkl')!r} is not the pickle it was made with"
    (run / "live.pkl").write_bytes(pickled)
    assert check(library, tmp_path / "runs").state == "holds"


def test_a_run_that_was_edited_into_a_path_is_not_unpickled(
    library: Library, tmp_path: Path
) -> None:
    made, pickled = live_kernel()
    (tmp_path / "live.pkl").write_bytes(pickled)
    (tmp_path / "runs").mkdir()
    library.put(made.evolve(run=".."))
    assert check(library, tmp_path / "runs").state == "undecided"


def test_a_reference_that_does_not_run_here_decides_nothing(library: Library) -> None:
    item = kernel(source=RIGHT, at=KEY)
    assert isinstance(item.certificate, Certificate)
    problem = item.certificate.problem.evolve(source="import nowhere\n")
    verdict = item.certificate.verdict
    assert verdict is not None
    library.put(
        with_certificate(
            item,
            problem=problem,
            problem_sha256=problem.sha256,
            verdict=verdict.evolve(problem=problem.sha256),
        )
    )
    found = check(library)
    assert found.state == "undecided"
    assert "nowhere" in found.reason
