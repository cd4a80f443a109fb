"""Kernels that a CUDA graph holds are counted when it is replayed, and only then."""

from agentkernel.tools.judge.execution.launches import CudaGraphs


class Graph:
    """What torch.cuda.CUDAGraph is to a recorder."""

    def __init__(self):
        self.replays = 0

    def capture_begin(self):
        """Recording begins."""

    def capture_end(self):
        """It ends."""

    def replay(self):
        self.replays += 1


def watched(recording=True, muted=False):
    kind = type("Kind", (Graph,), dict(vars(Graph)))
    graphs, begun, heard = CudaGraphs(lambda: recording), [], []

    def replayed(kernels):
        heard.append(list(kernels))
        return muted

    graphs.watch(kind, lambda: begun.append("begun"), lambda: begun.append("ended"), replayed)
    return kind(), graphs, begun, heard


def test_what_is_recorded_counts_with_each_replay():
    graph, graphs, begun, heard = watched()
    assert not graphs.take(0)
    graph.capture_begin()
    assert graphs.take(1)
    assert graphs.take(2)
    graph.capture_end()
    assert not graphs.take(3)
    graph.replay()
    graph.replay()
    assert begun == ["begun", "ended"]
    assert heard == [[1, 2], [1, 2]]
    assert graph.replays == 2


def test_a_launch_beside_the_recording_stream_runs_at_once():
    graph, graphs, _, heard = watched(recording=False)
    graph.capture_begin()
    assert not graphs.take(1)
    graph.capture_end()
    graph.replay()
    assert heard == [[]]


def test_a_silenced_graph_does_nothing():
    graph, graphs, _, heard = watched(muted=True)
    graph.capture_begin()
    graphs.take(4)
    graph.capture_end()
    graph.replay()
    assert heard == [[4]]
    assert graph.replays == 0


def test_a_graph_from_elsewhere_is_noted_when_it_is_replayed():
    class Base(Graph):
        """What torch.cuda.CUDAGraph hands its calls to."""

    class Kind(Base):
        def capture_begin(self):
            super().capture_begin()

        def capture_end(self):
            super().capture_end()

        def replay(self):
            super().replay()

    graphs, unseen = CudaGraphs(lambda: True), []
    graphs.watch(Kind, lambda: None, lambda: None, lambda kernels: False)
    graphs.watch_base(Base, lambda: unseen.append(True))
    known, strange, raw = Kind(), Kind(), Base()
    known.capture_begin()
    known.capture_end()
    known.replay()
    assert unseen == []
    super(Kind, strange).capture_begin()
    strange.replay()
    raw.replay()
    assert unseen == [True, True]
    assert (known.replays, strange.replays, raw.replays) == (1, 1, 1)
