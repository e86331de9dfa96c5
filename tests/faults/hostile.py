"""Requests that somebody made up to do harm: framing that two parsers may read differently, heads
that are not HTTP, JSON that hurts. Built from parts, so that every part meets every other."""

import json

TARGET = b"/v1/queues/hostile/messages"
SECRET = b'{"payload":"smuggled"}'
SMUGGLED = b"POST /v1/queues/smuggled/messages HTTP/1.1\r\nHost: localhost\r\n" \
           b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(SECRET) + SECRET
HEAD = b"POST " + TARGET + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"

# Two ways to say where a body ends: for each, a front and a back may disagree about what follows.
LENGTHS = [
    b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n",
    b"Content-Length: 5\r\nContent-Length: 0\r\n",
    b"Content-Length: 0\r\nContent-Length: 0\r\n",
    b"Content-Length: 0, 0\r\n", b"Content-Length: 5,5\r\n", b"Content-Length: +0\r\n",
    b"Content-Length: -0\r\n", b"Content-Length: 0x0\r\n", b"Content-Length: 0 0\r\n",
    b"Content-Length: \r\n", b"Content-Length: 0.0\r\n", b"Content-Length: 1e1\r\n",
    b"Content-Length: 00000000000000000000000000000000000\r\n",
    b"Content-Length: 18446744073709551616\r\n", b"Content-Length: 99999999999999999999\r\n",
    b"Content-Length: \xd9\xa1\r\n", b"Content-Length\x0b: 0\r\n", b"Content-Length : 0\r\n",
    b"Content-Length\t: 0\r\n", b"Content-Length: 0;\r\n", b"Content-Length: a\r\n",
    b"Transfer-Encoding: xchunked\r\n", b"Transfer-Encoding: chunked, identity\r\n",
    b"Transfer-Encoding: identity, chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding: \r\n",
    b"Transfer-Encoding : chunked\r\n", b"Transfer-Encoding\t: chunked\r\n",
    b"Transfer-Encoding:\x0bchunked\r\n", b"Transfer-Encoding: \x00chunked\r\n",
    b"Transfer-Encoding: chunked\x00\r\n", b"Transfer-Encoding: 'chunked'\r\n",
    b'Transfer-Encoding: "chunked"\r\n', b"Transfer-Encoding: chunked;q=1\r\n",
    b"Transfer-Encoding: chunked,\r\n", b"Transfer-Encoding: ,chunked\r\n",
    b"X: y\r\n Transfer-Encoding: chunked\r\n", b"X: y\nTransfer-Encoding: chunked\r\n",
    b"X: y\rTransfer-Encoding: chunked\r\n", b"Transfer-Encoding:\r\n chunked\r\n",
    b"Content-Length: 0\n", b"Content-Length:\n0\r\n", b"Content-Length: 0\r\n\tX: y\r\n",
    b"\x00Content-Length: 0\r\n", b"Content-Length: 0\x00\r\n",
    b"Content_Length: 5\r\nContent-Length: +5\r\n",
]

# Chunked bodies that end where only some think they end.
CHUNKS = [
    b"0x0\r\n\r\n", b"-0\r\n\r\n", b"+0\r\n\r\n", b" 0\r\n\r\n", b"0 \r\n\r\n", b"\t0\r\n\r\n",
    b"0\n\r\n", b"0\r\r\n", b"0\r\nX: y\r\n\r\n", b"0;a=b\r\n\r\n", b"0;\r\n\r\n", b"0;\n\r\n",
    b'0;a="\n"\r\n\r\n', b"g\r\n\r\n", b"\r\n\r\n", b"0,0\r\n\r\n", b"0.0\r\n\r\n",
    b"10000000000000000\r\n", b"fffffffffffffffff0\r\n", b"80000000\r\n", b"ffffffff\r\n",
    b"5\r\nhelloX\r\n0\r\n\r\n", b"5\r\nhello\n0\r\n\r\n", b"5\r\nhello0\r\n\r\n",
    b"5\nhello\r\n0\r\n\r\n", b"2\r\n{}\r0\r\n\r\n", b"1\r\n{\r\n1;x\r\n}\r\n0\r\n\r\n",
    b"00000000000000000000000\r\n\r\n",
    b"0\r\nContent-Length: 5\r\n\r\n", b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
]

LINES = [
    b"GET /healthz\r\n\r\n", b"GET /healthz HTTP/0.9\r\nHost: localhost\r\n\r\n",
    b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n", b"GET /healthz HTTP/1.2\r\nHost: localhost\r\n\r\n",
    b"GET /healthz HTTP/1.10\r\nHost: localhost\r\n\r\n", b"GET /healthz HTTP/01.1\r\nHost: localhost\r\n\r\n",
    b"GET /healthz http/1.1\r\nHost: localhost\r\n\r\n", b"GET /healthz HTTP/1.1 \r\nHost: localhost\r\n\r\n",
    b"GET  /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET\t/healthz\tHTTP/1.1\r\nHost: localhost\r\n\r\n",
    b" GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
    b"GET /healthz HTTP/1.1\rHost: localhost\r\r", b"GET /heal\x00thz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /heal thz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET \xff HTTP/1.1\r\nHost: localhost\r\n\r\n", b"G\x00T /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"G(T /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET\r\n\r\n", b"\r\r\n\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"CONNECT example.com:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    b"*1\r\n$4\r\nPING\r\n", b"put 0 0 10 5\r\nhello\r\n", b"\x00" * 64, b"\xff" * 64,
    b"EHLO example.com\r\n\r\n", b"{}\r\n\r\n",
]

HEADERS = [
    b": x\r\n", b"no colon\r\n", b" A: folded\r\n", b"A: b\r\n c\r\n", b"A: b\r\n\tc\r\n",
    b"A : b\r\n", b"A\x00: b\r\n", b"A: \x00\r\n", b"A: b\nC: d\r\n", b"A: b\rC: d\r\n",
    b"A(: b\r\n", b"A b: c\r\n", b"\xff: b\r\n", b"A: b\r\r\n", b"Host: y\r\n", b"Host : x\r\n",
    b"A: \x01\r\n", b"A: \x7f\r\n", b"A\r\n", b"\t: b\r\n", b"A:b\x0b\x0cc\x08\r\n",
]


def requests():
    """(name, bytes). Each must be refused, and what follows it must not be run."""
    for number, lengths in enumerate(LENGTHS):
        for ending, body in (("plain", b""), ("ended", b"0\r\n\r\n"), ("short", b"hello"),
                             ("chunked", b"5\r\nhello\r\n0\r\n\r\n")):
            yield f"length {number} {ending}: {lengths!r}", HEAD + lengths + b"\r\n" + body
    for number, chunks in enumerate(CHUNKS):
        yield f"chunk {number}: {chunks!r}", HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks
        yield f"chunk {number} after one: {chunks!r}", \
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n" + chunks
    for number, line in enumerate(LINES):
        yield f"line {number}: {line!r}", line
    for number, header in enumerate(HEADERS):
        yield f"header {number}: {header!r}", GET + header + b"\r\n"
        yield f"header {number} last: {header!r}", GET + b"B: c\r\n" + header + b"\r\n"
    yield "no host", b"GET /healthz HTTP/1.1\r\n\r\n"
    yield "endless header", GET + b"A: " + b"b" * 40_000
    yield "endless name", GET + b"a" * 40_000
    yield "endless path", b"GET /" + b"a" * 40_000
    yield "endless method", b"A" * 40_000
    yield "endless version", b"GET / HTTP/1." + b"1" * 40_000
    yield "many headers", GET + b"".join(b"H%d: x\r\n" % n for n in range(5000)) + b"\r\n"
    yield "many empty lines", b"\r\n" * 5000


def deep(opening, closing, depth):
    return opening * depth + closing * depth


# (name, body): none of them is a message.
BODIES = [
    ("depth of a million arrays", b'{"payload":' + deep(b"[", b"]", 500_000) + b"}"),
    ("depth of many objects", b'{"payload":' + deep(b'{"a":', b"}", 100_000) + b"}"),
    ("unclosed arrays", b'{"payload":' + b"[" * 200_000),
    ("65 deep", b'{"payload":' + deep(b"[", b"]", 65) + b"}"),
    ("a hundred thousand unknown names",
     json.dumps({f"k{n}": n for n in range(100_000)}).encode()),
    ("twice the same name", b'{"payload":"a","payload":"b"}'),
    ("twice the same name, escaped", b'{"payload":"a","p\\u0061yload":"b"}'),
    ("a lone surrogate", b'{"payload":"\\ud800"}'),
    ("surrogates turned round", b'{"payload":"\\udc00\\ud800"}'),
    ("half of a pair", b'{"payload":"\\ud83d\\u0041"}'),
    ("bytes that are not UTF-8", b'{"payload":"\xff"}'),
    ("overlong UTF-8", b'{"payload":"\xc0\xaf"}'),
    ("a surrogate in UTF-8", b'{"payload":"\xed\xa0\x80"}'),
    ("beyond Unicode", b'{"payload":"\xf4\x90\x80\x80"}'),
    ("a cut sequence", b'{"payload":"\xe2\x82"}'),
    ("a NUL", b'{"payload":"a\x00b"}'),
    ("a control character", b'{"payload":"a\x01b"}'),
    ("a tab in a string", b'{"payload":"a\tb"}'),
    ("a newline in a string", b'{"payload":"a\nb"}'),
    ("a byte order mark", b'\xef\xbb\xbf{"payload":"x"}'),
    ("a comment", b'{"payload":"x"/* hello */}'),
    ("a trailing comma", b'{"payload":"x",}'),
    ("single quotes", b"{'payload':'x'}"),
    ("bare names", b'{payload:"x"}'),
    ("two values", b'{"payload":"x"}{"payload":"y"}'),
    ("something behind", b'{"payload":"x"} x'),
    ("NaN", b'{"payload":NaN}'),
    ("Infinity", b'{"payload":-Infinity}'),
    ("a number that starts with 0", b'{"payload":"x","priority":05}'),
    ("a plus sign", b'{"payload":"x","priority":+5}'),
    ("a bare point", b'{"payload":"x","priority":.5}'),
    ("hexadecimal", b'{"payload":"x","priority":0x5}'),
    ("an enormous exponent", b'{"payload":"x","priority":1e999999999}'),
    ("more than 64 bits", b'{"payload":"x","priority":18446744073709551616}'),
    ("a million digits", b'{"payload":"x","priority":' + b"9" * 1_000_000 + b"}"),
    ("a fraction", b'{"payload":"x","priority":5.5}'),
    ("a priority of another type", b'{"payload":"x","priority":[5]}'),
    ("a delay that never ends", b'{"payload":"x","delay_seconds":1e300}'),
    ("a negative delay", b'{"payload":"x","delay_seconds":-1}'),
    ("a time to live of nothing", b'{"payload":"x","ttl_seconds":-1}'),
    ("metadata in metadata", b'{"payload":"x","metadata":{"a":{"b":1}}}'),
    ("metadata that is too long", b'{"payload":"x","metadata":{"a":"' + b"b" * 5000 + b'"}}'),
    ("an empty key", b'{"payload":"x","dedup_key":""}'),
    ("a key that is too long", b'{"payload":"x","dedup_key":"' + b"k" * 257 + b'"}'),
    ("both payloads", b'{"payload":"x","payload_base64":"eA=="}'),
    ("base64 that is none", b'{"payload_base64":"not base64!"}'),
    ("base64 without its end", b'{"payload_base64":"eA"}'),
    ("a payload one byte too long", b'{"payload":"' + b"x" * 262_145 + b'"}'),
    ("nothing", b""), ("a string", b'"payload"'), ("an array", b"[]"), ("null", b"null"),
    ("an unknown field", b'{"payload":"x","priorty":9}'),
    ("a prototype", b'{"__proto__":{"payload":"x"}}'),
    ("an open string", b'{"payload":"x'), ("an open escape", b'{"payload":"\\'),
    ("a wrong escape", b'{"payload":"\\x41"}'), ("a short escape", b'{"payload":"\\u12"}'),
]
