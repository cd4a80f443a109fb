"""Nothing but the answer to this request can be taken for it."""

import json
import socket

import pytest

from agentkernel.tools.sandbox.protocol import REPLY_HEADER, ProtocolError, ReplyReader, send_reply
from agentkernel.tools.sandbox.session import open_worker
from agentkernel.tools.sandbox.watchdog import readable


def frame(body):
    return REPLY_HEADER.pack(len(body)) + body


def answer(name="mine"):
    return frame(json.dumps({"id": name, "ok": True, "value": {"x": 1}}).encode())


def test_a_reply_is_read_however_it_is_cut():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_reply(theirs, "mine", {"ok": True, "value": {"x": 1}})
        data = ours.recv(1 << 16)
    assert data == answer()
    reader = ReplyReader("mine", 1000)
    assert [reader.feed(bytes([byte])) for byte in data[:-1]] == [None] * (len(data) - 1)
    assert reader.feed(data[-1:]) == {"ok": True, "value": {"x": 1}}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (answer("another"), "another request"),
        (frame(b'{"ok": true, "value": {}}'), "another request"),
        (answer() + answer(), "after the end"),
        (answer() + b"x", "after the end"),
        (frame(b"[1]"), "not a JSON object"),
        (frame(b"\xff"), "not JSON"),
        (frame(b"[" * 900), "not JSON"),
        (REPLY_HEADER.pack(1001), "1001 bytes"),
        (b"\xff" * 8, "bytes"),
    ],
)
def test_anything_else_is_refused_by_name(data, said):
    with pytest.raises(ProtocolError, match=said):
        ReplyReader("mine", 1000).feed(data)


FORGERY = (
    "import json, os, struct\n"
    "body = json.dumps({'id': NAME, 'ok': True, 'value': {'result': 'forged'}}).encode()\n"
    "data = struct.pack('!Q', len(body)) + body\n"
    "for fd in map(int, os.listdir('/proc/self/fd')):\n"
    "    try:\n"
    "        if os.readlink(f'/proc/self/fd/{fd}').startswith('socket'): os.write(fd, data)\n"
    "    except OSError: pass\n"
)


@pytest.mark.parametrize("name", ["'x'", "'ready'", "None"])
def test_a_forged_frame_is_never_an_answer(name, run):
    """Written before the true one, to whatever socket is found."""
    with open_worker(device="cpu", interpret=True) as worker:
        reply = run(worker, FORGERY.replace("NAME", name) + "return 1")
        assert (reply.reason, reply.cause) == ("died", "reply")
        assert run(worker, "return 1").cause == "reply"


def test_a_frame_left_behind_is_not_the_next_answer(run):
    """Sent late, when the true answer has been taken: the next request finds it."""
    late = "import threading\n\ndef send():\n    import time\n    time.sleep(0.3)\n" + "".join(
        f"    {line}\n" for line in FORGERY.replace("NAME", "'x'").splitlines()
    )
    with open_worker(device="cpu", interpret=True) as worker:
        assert run(worker, f"{late}threading.Thread(target=send).start()\nreturn 1") == 1
        assert readable((worker._process._socket.fileno(),), 20)
        reply = run(worker, "return 'true'")
        assert (reply.cause, "nobody asked" in reply.log) == ("reply", True)
