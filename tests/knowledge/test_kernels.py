import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.knowledge.documents import load_documents

HERE = Path(__file__).parent
KERNELS = {
    item.id.removeprefix("kernels/"): item for item in load_documents() if item.kind == "kernel"
}
TF32X3_REFUSED = {
    name
    for name, item in KERNELS.items()
    if item.architectures and "cdna3" not in item.architectures
}


def run(script: str, *words: str, **environment: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, str(HERE / script), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report: dict[str, str] = json.loads(done.stdout)
    return report


@pytest.mark.slow
def test_every_kernel_is_right_in_the_interpreter() -> None:
    assert run("verify_kernels.py", "cpu", TRITON_INTERPRET="1") == dict.fromkeys(KERNELS, "")


@pytest.mark.gpu
def test_every_kernel_is_right_on_the_gpu() -> None:
    assert run("verify_kernels.py", "cuda") == dict.fromkeys(KERNELS, "")


@pytest.mark.slow
def test_every_kernel_compiles_for_hopper() -> None:
    report = run("cross_compile_kernels.py", "cuda", "90", "32")
    assert report == dict.fromkeys(KERNELS, "")


@pytest.mark.slow
def test_kernels_for_cdna3_compile_for_it() -> None:
    report = run("cross_compile_kernels.py", "hip", "gfx942", "64")
    refused = {name for name, note in report.items() if note}
    assert refused == TF32X3_REFUSED
