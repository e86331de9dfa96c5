"""The frames of the local engine's log, read and written without a line of the server: for those
who forge them, and for data directories as older versions left them. src/engine/local/frame.h has
the layout."""

import ctypes
import os
import struct

ALIGN = 64
SUM_SECRET = 192  # bytes
HEAD = {1: 56, 2: 64}  # by format
XXH3 = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
XXH3.restype = ctypes.c_uint64
XXH3.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def checksum(data):
    return struct.pack(">Q", XXH3(data, len(data)))


def old_frame(kind, epoch, seq, synced, floor, body=b""):
    """Of format 1, which anybody can make."""
    rest = b"TWAL" + bytes([kind, 1, 0, 0]) + \
        struct.pack(">QQQQQ", len(body), epoch, seq, synced, floor) + body
    return checksum(rest) + rest


def forged_frame(kind, epoch, seq, synced, floor):
    """Of format 2 with an empty body, as well as one can without the secret."""
    rest = b"TWAL" + bytes([kind, 2, 0, 0]) + \
        struct.pack(">QQQQQ", 0, epoch, seq, synced, floor) + checksum(b"")
    return checksum(rest) + rest


WORD = (1 << 64) - 1
XXH3_WITH_SECRET = ctypes.CDLL("libxxhash.so.0").XXH3_64bits_withSecret
XXH3_WITH_SECRET.restype = ctypes.c_uint64
XXH3_WITH_SECRET.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]


def rotated(word, by):
    return (word << by | word >> (64 - by)) & WORD


def siphash(key, data):
    """SipHash-2-4."""
    k0, k1 = struct.unpack("<QQ", key)
    a, b = k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d
    c, d = k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573

    def rounds(count):
        nonlocal a, b, c, d
        for _ in range(count):
            a, c = (a + b) & WORD, (c + d) & WORD
            b, d = rotated(b, 13) ^ a, rotated(d, 16) ^ c
            a = rotated(a, 32)
            c, a = (c + b) & WORD, (a + d) & WORD
            b, d = rotated(b, 17) ^ c, rotated(d, 21) ^ a
            c = rotated(c, 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        d ^= word
        rounds(2)
        a ^= word
    c ^= 255
    rounds(4)
    return a ^ b ^ c ^ d


def sealed_frame(secret, kind, epoch, seq, synced, floor, body=b""):
    """Of format 2, for who knows the secret."""
    long = b"".join(struct.pack(">Q", siphash(secret[16:], struct.pack(">Q", at)))
                    for at in range(0, SUM_SECRET, 8))
    head = b"TWAL" + bytes([kind, 2, 0, 0]) + \
        struct.pack(">QQQQQQ", len(body), epoch, seq, synced, floor,
                    XXH3_WITH_SECRET(body, len(body), long, len(long)))
    return struct.pack(">Q", siphash(secret[:16], head)) + head + body


def frames_in(data):
    """(offset, kind, epoch, seq, synced, floor, body) of each frame of a segment."""
    at = 0
    while at + HEAD[2] <= len(data):
        if data[at + 8:at + 12] != b"TWAL" or data[at + 13] != 2:
            at += ALIGN
            continue
        size, *numbers = struct.unpack(">QQQQQ", data[at + 16:at + 56])
        body = at + HEAD[2]
        yield (at, data[at + 12], *numbers, data[body:body + size])
        at = (body + size + ALIGN - 1) // ALIGN * ALIGN


def make_format_two(folder):
    """The data directory of a server that is down, as the version before would have left it: the
    log unsealed, with shorter heads, and no secret."""
    log = os.path.join(folder, "log")
    for name in os.listdir(log):
        path = os.path.join(log, name)
        with open(path, "rb") as file:
            data = file.read()
        old = bytearray(len(data))
        for at, *frame in frames_in(data):
            bytes_of = old_frame(*frame)
            old[at:at + len(bytes_of)] = bytes_of
        with open(path, "wb") as file:
            file.write(old)
    os.unlink(os.path.join(folder, "KEY"))
    with open(os.path.join(folder, "FORMAT"), "w") as file:
        file.write("2\n")
