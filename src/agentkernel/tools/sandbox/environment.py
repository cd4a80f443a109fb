"""Which environment does a worker see? These variables and no others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

PASSED_ON = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")
SEARCH_PATH = "/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def worker_environment(
    scratch: Path, device: Literal["cpu", "cuda"], interpret: bool, threads: int
) -> dict[str, str]:
    """Names and values; caches and temporary files all lie in `scratch`."""
    if interpret:
        threads = 1  # many small products: waiting threads cost more than they bring
    values = {
        "PATH": SEARCH_PATH,
        "LANG": "C.UTF-8",
        "TMPDIR": f"{scratch}/tmp",
        "TRITON_HOME": str(scratch),
        "TRITON_CACHE_DIR": f"{scratch}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{scratch}/inductor",
        "CUDA_CACHE_PATH": f"{scratch}/cuda",
        "TRITON_DEFAULT_FP_FUSION": "1",
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
    }
    if device == "cuda" and "CUDA_VISIBLE_DEVICES" not in os.environ:
        del values["CUDA_VISIBLE_DEVICES"]
    if device == "cpu":
        values["CUDA_VISIBLE_DEVICES"] = ""
    if interpret:
        values["TRITON_INTERPRET"] = "1"
    return values | {key: os.environ[key] for key in PASSED_ON if key in os.environ}
