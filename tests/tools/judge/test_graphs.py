"""Are kernels that a CUDA graph holds counted when it is replayed, and only then?"""

from agentkernel.tools.judge.graphs import Graphs


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
    graphs, begun, heard = Graphs(lambda: recording), [], []

    def replayed(kernels):
        heard.append(list(kernels))
        return muted

    graphs.watch(kind, lambda: begun.append(True), replayed)
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
    assert begun == [True]
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
