"""A producer that knows how the log is laid out puts frames of it into payloads. Segments of the
log are used again and again, so that parts of old payloads lie open in them at the next start: they
must not be taken for the log, whatever they claim."""

import os

import pytest

from frames import forged_frame, old_frame

FAR = 1 << 62
PAYLOAD = 256 * 1024


def forge(synced=0, floor=0):
    """Whole records, as each format has them: an epoch, a number, and what they claim."""
    return [make(3, 0x4141414141414141, FAR + 1, synced, floor)
            for make in (old_frame, forged_frame)]


def payload(claims):
    """Frames start at multiples of 64, and where a payload does is not known: at 65 bytes from one
    to the next, one in 64 is at the right place."""
    run = [frame.ljust(65, b"\0") * 128 for frame in forge(**claims)]
    return (b"".join(run) * (PAYLOAD // len(run[0])))[:PAYLOAD]


def buffer_bytes(folder):
    """When a memtable is flushed, which lets go of the log: src/engine/local/store.c."""
    disk = os.statvfs(folder)
    return max(1 << 20, min(32 << 20, disk.f_blocks * disk.f_frsize // 64))


@pytest.mark.parametrize("claims, end", [({"synced": FAR}, "stop"), ({"synced": FAR}, "kill"),
                                         ({"floor": FAR}, "kill")], ids=lambda value: str(value))
def test_a_payload_cannot_speak_for_the_log(start, claims, end):
    """With `synced` the server would not start for damage; with `floor` it would forget what was
    acknowledged to somebody else."""
    server = start()
    evil, other = server.queue("evil"), server.queue("other")
    bytes_of = payload(claims)
    for _ in range(int(3.6 * buffer_bytes(server.data)) // PAYLOAD):
        answer = evil.client.request("POST", evil.path + "/messages", bytes_of,
                                     {"Content-Type": "application/octet-stream"})
        assert answer.status == 201, answer
    for number in range(50):
        other.put(number)
    getattr(server, end)()
    assert server.comes_up(), str(server.log)
    assert server.queue("other").take_payloads(50) == list(range(50))
