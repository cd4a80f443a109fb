"""How does a fresh clone get a virtual environment with torch, without a second copy of it?

Runs under the bare interpreter, before anything is installed: standard library only.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import urllib.request
import venv
from pathlib import Path

OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 11)
NEW_PIP = "pip>=25.1"
"""The pip that Python 3.11 brings (23.2) tries one version after the other of what this project
needs, for a quarter of an hour and more; this one settles in a minute."""


def main(folder: str, requirement: str) -> int:
    """Make `folder` with a torch: the interpreter's own where it has one, else `requirement`."""
    if sys.version_info < OLDEST_PYTHON:
        found = ".".join(str(part) for part in sys.version_info[:3])
        print(
            f"Python {found} is too old. Expected 3.11 or newer. Next: make PYTHON=python3.11 ..."
        )
        return 4
    own = torch_here()
    target = Path(folder)
    venv.EnvBuilder(with_pip=True, upgrade_deps=False).create(target)
    python = target / "bin" / "python"
    subprocess.run([*pip(python), "install", "-qq", NEW_PIP], check=True)
    if own is None:
        announce(python, requirement)
        subprocess.run([*pip(python), "install", "-qq", requirement], check=True)
    else:
        print(f"torch {own} of {sys.executable} is used as it is.")
        share_site(python)
    (target / "torch-constraint.txt").write_text(f"torch=={installed(python)}\n")
    return 0


def torch_here() -> str | None:
    """The version of the torch that this interpreter has, None where it is missing or too old."""
    if importlib.util.find_spec("torch") is None:
        return None
    version = importlib.metadata.version("torch")
    match = re.match(r"(\d+)\.(\d+)", version)
    if match and (int(match[1]), int(match[2])) >= OLDEST_TORCH:
        return version
    print(f"torch {version} of {sys.executable} is older than 2.11 and is left alone.")
    return None


def share_site(python: Path) -> None:
    """Put this interpreter's site-packages behind the new environment's own, by a .pth file."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    inner = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    folders = {path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")}
    folders |= {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(inner.stdout.strip(), "zz_shared_torch.pth").write_text("\n".join(sorted(folders)) + "\n")


def announce(python: Path, requirement: str) -> None:
    """Say how many bytes installing `requirement` takes, before it starts."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        command = [*pip(python), "install", "-qq", "--dry-run", "--report", report, requirement]
        subprocess.run(command, check=True)
        items = json.loads(report.read_text())["install"]
    sizes = {item["metadata"]["name"]: size_of(item["download_info"]["url"]) for item in items}
    total = sum(sizes.values()) / 2**20
    print(f"Installing {requirement}: {total:.0f} MiB in {len(sizes)} packages.", flush=True)


def size_of(url: str) -> int:
    """Bytes of a wheel, on this disk or behind a server; 0 where the server does not say."""
    if url.startswith("file://"):
        return os.stat(urllib.request.url2pathname(url.removeprefix("file://"))).st_size
    try:
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.headers.get("Content-Length", 0))
    except OSError:
        return 0


def pip(python: Path) -> list[str | Path]:
    """The new environment's pip."""
    return [python, "-m", "pip", "--disable-pip-version-check"]


def installed(python: Path) -> str:
    """The version of the torch that the new environment imports."""
    code = "import importlib.metadata as m; print(m.version('torch'))"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
