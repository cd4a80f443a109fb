"""Exchanges of a run are kept as they were."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

from agentkernel.domain.exchange import Exchange, Message, ModelRequest, Reply, Sampling
from agentkernel.storage.records import Records


def exchange(round_number: int, text: str = "Yes.") -> Exchange:
    return Exchange(
        model="m",
        question=ModelRequest(
            agent="coder",
            round=round_number,
            messages=(Message(role="user", text="Write."),),
            sampling=Sampling(temperature=0.2, max_tokens=10),
        ),
        reply=Reply(texts=(text,), finish=("stop",)),
    )


def test_round_trip_in_order(tmp_path: Path) -> None:
    records = Records(tmp_path / "run.sqlite")
    assert records.exchange("b") is None
    records.save_exchange("b", exchange(2))
    records.save_exchange("a", exchange(1))
    again = Records(tmp_path / "run.sqlite")
    assert again.exchange("b") == exchange(2)
    assert again.exchanges() == (exchange(2), exchange(1))
    rows = sqlite3.connect(records.path).execute("select key, agent, round from exchanges")
    assert rows.fetchall() == [("b", "coder", 2), ("a", "coder", 1)]


def test_a_first_answer_is_never_replaced(tmp_path: Path) -> None:
    records = Records(tmp_path / "run.sqlite")
    records.save_exchange("a", exchange(1))
    records.save_exchange("a", exchange(1, "No."))
    assert records.exchanges() == (exchange(1),)


CLOSED_BY_ANOTHER = """
import sys, threading, time
from pathlib import Path
from sqlite3 import ProgrammingError
from agentkernel.storage.records import Records

def work(records):
    try:
        while True:
            records.add_event("k", "{}")
            records.silence("x")
    except ProgrammingError:
        pass

for number in range(20):
    records = Records(Path(sys.argv[1]) / f"{number}.sqlite")
    threads = [threading.Thread(target=work, args=(records,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.01)
    records.close()
    for thread in threads:
        thread.join()
"""


def test_closed_while_other_threads_write_it_is_an_error_and_no_crash(tmp_path: Path) -> None:
    words = [sys.executable, "-c", CLOSED_BY_ANOTHER, str(tmp_path)]
    found = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert (found.returncode, found.stderr) == (0, "")
