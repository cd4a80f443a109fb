"""How long do the baselines of a problem take here, if that was measured before?"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pydantic import ValidationError

from agentkernel.bench.rows import Times
from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.certificate import Versions
from agentkernel.domain.profile import Ratio
from agentkernel.storage.atomic import make_folder, write_atomic

DERIVED: dict[str, object] = {
    "autotune_derived": True,
    "autotune_note": "its cached time, times eager's drift",
}


class BaselineKey(Frozen):
    """All that a baseline's time depends on."""

    problem_sha256: str
    gpu: str
    torch: str
    triton: str
    driver: str | None

    @property
    def file_name(self) -> str:
        """Its file in the cache."""
        return f"{sha256_text(self.model_dump_json())[:24]}.json"


class CachedTimes(Frozen):
    """One file of the cache: the key in full, so that a person can read what it is of."""

    key: BaselineKey
    times: Times


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/agentkernel/bench`, below `~/.cache` where that is not set."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "agentkernel" / "bench"


def baseline_key(problem_sha256: str, gpu: str, versions: Versions) -> BaselineKey:
    """The key of a problem on a GPU under the versions that are installed."""
    return BaselineKey(
        problem_sha256=problem_sha256,
        gpu=gpu,
        torch=versions.torch,
        triton=versions.triton,
        driver=versions.driver,
    )


def cached_times(folder: Path, key: BaselineKey) -> Times | None:
    """What the cache has; None where it has nothing, or nothing that can be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError, ValidationError):
        text = (folder / key.file_name).read_text(encoding="utf-8")
        found = CachedTimes.model_validate_json(text)
        return found.times if found.key == key else None
    return None


def keep_times(folder: Path, key: BaselineKey, times: Times) -> None:
    """Put the times into the cache, unless it has some: drift is told against the first ones.

    A first time of max-autotune joins them as it would have been in their session, by eager's.
    """
    cached = cached_times(folder, key)
    kept = times if cached is None else _joined(cached, times)
    if kept != cached:
        make_folder(folder)
        plain = kept.model_copy(update={"eager_drift": None, "compiled_drift": None})
        content = CachedTimes(key=key, times=plain).model_dump_json(indent=1)
        write_atomic(folder / key.file_name, content)


def _joined(cached: Times, now: Times) -> Times:
    drift = _ratio(now.eager_us, cached.eager_us)
    if cached.autotune_us is not None or now.autotune_us is None or drift is None:
        return cached
    update = {"autotune_us": now.autotune_us / drift, "autotune_note": now.autotune_note}
    return cached.model_copy(update=update)


def with_drift(now: Times | None, cached: Times | None) -> Times:
    """This session's times, and the cache's where it has none, with the drift between them.

    A time of max-autotune from the cache is scaled by eager's drift and marked as derived.
    """
    if cached is None:
        return now or Times()
    if now is None:
        return cached if cached.autotune_us is None else cached.model_copy(update=DERIVED)
    drift = _ratio(now.eager_us, cached.eager_us)
    found = now.model_copy(
        update={
            "compiled_us": now.compiled_us or cached.compiled_us,
            "eager_drift": drift,
            "compiled_drift": _ratio(now.compiled_us, cached.compiled_us),
        }
    )
    if now.autotune_us is not None or cached.autotune_us is None or drift is None:
        return found
    return found.model_copy(update={"autotune_us": cached.autotune_us * drift, **DERIVED})


def derived_ratio(vs_eager: Ratio, cached: Times) -> Ratio | None:
    """A speedup over max-autotune that nobody timed beside the candidate: that over eager, times
    what the cache says of the two. Its interval is that of `vs_eager`; None without both times."""
    factor = _ratio(cached.autotune_us, cached.eager_us)
    if factor is None:
        return None
    return Ratio(
        value=vs_eager.value * factor, low=vs_eager.low * factor, high=vs_eager.high * factor
    )


def _ratio(now: float | None, then: float | None) -> float | None:
    return now / then if now and then else None
