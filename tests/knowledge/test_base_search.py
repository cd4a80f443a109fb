"""Does a search over what the package brings find it, and what is remembered beside it?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.domain.errors import OutputError
from agentkernel.domain.knowledge import Entry, Filters, Gain, Query, Structure
from agentkernel.knowledge.base import KnowledgeBase, open_base

OPEN = """
import sys
from pathlib import Path
from agentkernel.domain.knowledge import Query
from agentkernel.knowledge.base import open_base
with open_base(Path(sys.argv[1]), say=print) as base:
    base.refresh()
    print(base.search(Query(text="softmax of rows"))[0].entry.id)
"""
WATCHED = """
import sys
seen = []
def watch(event, details):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.Request"):
        seen.append(f"{event} {details[1:]}")
        raise OSError("this test has no network")
sys.addaudithook(watch)
"""
SOFTMAX = Query(text="softmax of rows")
KERNELS = Filters(kinds=("kernel",))
QUERIES = (
    ("normalise each row to zero mean and unit variance, layer norm", "layernorm"),
    ("root mean square norm with a weight", "rmsnorm"),
    ("add the residual and then apply RMS norm", "residual_rmsnorm"),
    ("softmax over the vocabulary, the row is too long for one tile", "softmax_online"),
    ("softmax along the channel dimension of a strided tensor", "softmax_strided"),
    ("few very long rows, split each softmax over several programs", "softmax_split"),
    ("cross entropy loss of logits with class labels", "cross_entropy"),
    ("binary cross entropy with logits", "bce_logits_loss"),
    ("smooth l1 or huber loss", "huber_loss"),
    ("KL divergence between two distributions", "kl_div_loss"),
    ("fp32 matrix multiplication on tensor cores with tf32x3", "gemm_fp32"),
    ("batched matrix multiply bmm", "gemm_batched"),
    ("small output, long inner dimension, split K", "gemm_split_k"),
    ("matrix vector product", "gemv"),
    ("causal attention with masked future keys", "attention_causal"),
    ("gated linear unit with silu", "swiglu"),
    ("rotary position embedding of queries and keys", "rope"),
    ("2d max pooling of images", "max_pool2d"),
    ("prefix sum along the last dimension", "row_cumsum"),
    ("group norm over channel groups of an image", "group_norm"),
    ("sum the rows of a matrix for each column", "column_sum"),
    ("quantise activations to int8 with a scale per row", "quantise_rows"),
    ("look up token embeddings in a table", "embedding"),
    ("transpose a matrix", "transpose"),
)


def ids(base: KnowledgeBase, text: str, filters: Filters, limit: int = 3) -> list[str]:
    return [hit.entry.id for hit in base.search(Query(text=text, filters=filters, limit=limit))]


@pytest.mark.parametrize(("query", "expected"), QUERIES)
def test_a_natural_query_finds_its_kernel(base: KnowledgeBase, query: str, expected: str) -> None:
    assert f"kernels/{expected}" in ids(base, query, KERNELS)


@pytest.mark.parametrize(
    ("query", "family"),
    [
        ("how many warps and registers does an A100 SM have", "ampere"),
        ("L2 cache of the RTX 4090 and L40S", "ada"),
        ("wgmma operand layouts on H100", "hopper"),
        ("tcgen05 tensor memory of the B200", "blackwell"),
        ("LDS and MFMA of the MI300X", "cdna3"),
    ],
)
def test_a_question_about_hardware_finds_its_note_without_being_told(
    base: KnowledgeBase, query: str, family: str
) -> None:
    assert f"notes/{family}" in ids(base, query, Filters(kinds=("note", "kernel")))


def test_a_kernel_for_other_architectures_is_not_offered(base: KnowledgeBase) -> None:
    def first(family: str) -> list[str]:
        filters = Filters(kinds=("kernel",), architecture=family)
        return ids(base, "fp32 matrix multiplication on tensor cores with tf32x3", filters)

    assert "kernels/gemm_fp32" in first("hopper")
    assert "kernels/gemm_fp32" not in first("cdna3")


def experience(name: str, time_us: float) -> Entry:
    return Entry(
        id=f"experience/{name}",
        kind="experience",
        title="a row softmax",
        problem="the same module",
        answer=f"a kernel by {name}",
        passages=("a softmax of rows that won",),
        source="run 1",
        licence="not stated",
        structure=Structure(ops=("softmax",)),
        architectures=("hopper",),
        triton="3.6.0",
        gain=Gain(gpu="NVIDIA H200", time_us=time_us),
        created=f"2026-11-23T00:00:0{name}",
    )


def test_what_is_remembered_is_found_at_once_and_the_better_one_stays(tmp_path: Path) -> None:
    with open_base(tmp_path) as base:
        base.refresh()
        own = Filters(kinds=("experience",))
        assert base.remember(experience("1", 10.0)) == "experience/1"
        assert ids(base, "softmax", own) == ["experience/1"]
        assert base.remember(experience("2", 12.0)) == "experience/1"
        assert ids(base, "softmax", own) == ["experience/1"]
        assert base.remember(experience("3", 8.0)) == "experience/3"
        assert ids(base, "softmax", own) == ["experience/3"]
        assert base.get("experience/1") is None
        assert base.truth.get("experience/1", superseded=True) is not None


def test_a_removed_entry_is_not_found_and_comes_back_when_it_is_put_again(tmp_path: Path) -> None:
    with open_base(tmp_path) as base:
        base.refresh()
        first = base.search(SOFTMAX)[0].entry
        base.truth.remove(first.id, "a test")
        assert base.search(SOFTMAX)[0].entry.id != first.id
        base.truth.put([first.evolve(summary="another one")])
        base.refresh()
        assert base.search(SOFTMAX)[0].entry.id == first.id


def test_a_second_opening_writes_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    with open_base(tmp_path, say=said.append) as base:
        base.refresh()
    with open_base(tmp_path, say=said.append) as base:
        assert base.refresh().packaged.same == base.truth.count()
    assert said == []


def test_damaged_vectors_are_made_again_with_one_line(tmp_path: Path) -> None:
    with open_base(tmp_path) as base:
        base.refresh()
        before = base.search(SOFTMAX)[0].entry.id
    for database in tmp_path.rglob("chroma.sqlite3"):
        database.write_bytes(b"not a database" * 1000)
    said: list[str] = []
    with open_base(tmp_path, say=said.append) as base:
        base.refresh()
        assert base.search(SOFTMAX)[0].entry.id == before
    assert len(said) == 1
    assert "\n" not in said[0]


@pytest.mark.slow
def test_nothing_is_fetched_and_nothing_reported(tmp_path: Path) -> None:
    code = f"{WATCHED}\n{OPEN}\nprint(seen, 'posthog' in sys.modules, 'onnxruntime' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[-2] == "[] False False"


def test_the_network_watch_sees_a_connection() -> None:
    code = f"{WATCHED}\nimport socket\ntry: socket.create_connection(('127.0.0.1', 9))\n"
    code += "except OSError: pass\nprint(len(seen) > 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.slow
def test_processes_that_open_at_once_share_one_base(tmp_path: Path) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    answers = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], answers
    assert [answer[0].strip() for answer in answers] == ["kernels/softmax_row"] * 3


def test_a_folder_that_cannot_be_made_gets_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="Expected a folder that can be written") as caught:
        open_base(tmp_path / "file" / "below")
    assert "\n" not in str(caught.value)


def test_a_search_goes_on_without_vectors_that_fail(
    base: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chromadb.errors import InternalError

    def fail(*_: object) -> None:
        raise InternalError("disk I/O error")

    said: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(base, "_say", said.append)
        patch.setattr(base._dense, "search", fail)
        assert base.search(SOFTMAX)
    assert len(said) == 1
    assert said[0].startswith("The vectors cannot be searched: disk I/O error.")
