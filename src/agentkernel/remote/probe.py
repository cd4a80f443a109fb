"""What a machine has, as one line of JSON. Any Python from 3.7 on runs it there from its stdin."""

import json
import os
import platform
import shutil
import subprocess
import sys


def version(name: str) -> str:
    """The installed version of a distribution; "" where there is none."""
    try:
        from importlib import metadata

        return metadata.version(name)
    except Exception:  # noqa: BLE001 - no such package, or Python 3.7
        return ""


def gpu() -> str:
    """Name and driver of the first GPU; "" where nvidia-smi lists none."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        out = subprocess.run(query, capture_output=True, timeout=30)
        lines = out.stdout.decode(errors="replace").strip().splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return lines[0] if lines and out.returncode == 0 else ""


def main() -> None:
    """Print it."""
    place = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    while not os.path.exists(place):
        place = os.path.dirname(place)
    found = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "agentkernel": version("agentkernel-triton"),
        "torch": version("torch"),
        "triton": version("triton"),
        "gpu": gpu(),
        "sandbox": shutil.which("bwrap") or "",
        "disk": place,
        "free_gb": shutil.disk_usage(place).free / 1e9,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
