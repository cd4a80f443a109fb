from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentkernel.domain.errors import RankLost, SettingError
from agentkernel.training import distributed as launching
from agentkernel.training.distributed import LAUNCHER, ends_with_its_launcher, gpus_of, launch
from tests.training.training_ranks import in_a_process

RANK = "import os, sys, time, signal; rank = int(os.environ['RANK']); place = sys.argv[1]; "


def words(place: Path, program: str) -> list[str]:
    return [sys.executable, "-c", RANK + program, str(place)]


def test_each_process_knows_its_rank(tmp_path: Path) -> None:
    program = (
        "names = ('LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR'); "
        "open(f'{place}/{rank}', 'w').write(' '.join(os.environ[name] for name in names))"
    )
    assert launch(words(tmp_path, program), 3) == 0
    assert [(tmp_path / str(rank)).read_text() for rank in range(3)] == [
        f"{rank} 3 127.0.0.1" for rank in range(3)
    ]


def test_a_mistake_keeps_its_exit_code_and_ends_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "GRACE_S", 0.3)
    begin = time.monotonic()
    assert launch(words(tmp_path, "time.sleep(60) if rank == 0 else sys.exit(2)"), 2) == 2
    assert time.monotonic() - begin < 20


def test_others_have_time_to_end_by_themselves(tmp_path: Path) -> None:
    program = "sys.exit(2) if rank else (time.sleep(1), open(f'{place}/done', 'w'), sys.exit(4))"
    assert launch(words(tmp_path, program), 2) == 2
    assert (tmp_path / "done").exists()


def test_where_one_is_killed_all_end_at_once(tmp_path: Path) -> None:
    program = (
        "open(f'{place}/{rank}', 'w').write(str(os.getpid())); "
        "time.sleep(60) if rank == 0 else os.kill(os.getpid(), signal.SIGKILL)"
    )
    with pytest.raises(RankLost, match=r"Process 1 of the 2 .* SIGKILL") as caught:
        launch(words(tmp_path, program), 2)
    assert "\n" not in str(caught.value)
    other = tmp_path / "0"
    if other.exists() and other.read_text():
        with pytest.raises(ProcessLookupError):
            os.kill(int(other.read_text()), 0)


WAITS = (
    "signal.signal(signal.SIGINT, lambda number, frame: "
    "(time.sleep(0.5), open(f'{place}/saved{rank}', 'w'), os._exit(130))); "
    "open(f'{place}/{rank}', 'w').write(str(os.getpid())); time.sleep(60)"
)


def _launched(place: Path, program: str) -> subprocess.Popen[bytes]:
    """A launcher in a process of its own, once all of its two ranks are ready."""
    found = subprocess.Popen(in_a_process(words(place, program), 2))
    _until(lambda: all((place / str(rank)).exists() for rank in range(2)))
    return found


def _until(is_so: object) -> None:
    assert callable(is_so)
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_signal_is_passed_on_and_waited_for(tmp_path: Path) -> None:
    launcher = _launched(tmp_path, WAITS)
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(60) == 130
    assert (tmp_path / "saved0").exists()
    assert (tmp_path / "saved1").exists()


@pytest.mark.slow
def test_nobody_outlives_a_killed_launcher(tmp_path: Path) -> None:
    program = (
        "from agentkernel.training.distributed import ends_with_its_launcher\n"
        "ends_with_its_launcher()\n"
    )
    launcher = _launched(tmp_path, program + WAITS)
    ranks = [int((tmp_path / str(rank)).read_text()) for rank in range(2)]
    launcher.kill()
    launcher.wait(60)
    _until(lambda: not any(_lives(rank) for rank in ranks))


def _lives(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
def test_a_launcher_that_is_gone_already_is_said() -> None:
    module = ends_with_its_launcher.__module__
    program = f"from {module} import ends_with_its_launcher; ends_with_its_launcher()"
    for launcher, code in (({}, 0), ({LAUNCHER: "1"}, 1)):
        found = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **launcher},
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == code
        assert ("RankLost" in found.stderr) == bool(launcher)


def test_how_many_gpus_are_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    assert (gpus_of("auto"), gpus_of("2"), gpus_of("4")) == (4, 2, 4)
    with pytest.raises(SettingError, match="more than the 4 that are here"):
        gpus_of("8")
    for wrong in ("0", "-1", "two"):
        with pytest.raises(SettingError, match="'auto'"):
            gpus_of(wrong)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert (gpus_of("auto"), gpus_of("2")) == (1, 2)
