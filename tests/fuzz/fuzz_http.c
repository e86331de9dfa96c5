/* net/parse on a stream of bytes: heads, bodies and pipelined requests. The same stream, cut into
 * other pieces, is the same requests, and every slice lies in the head that it was cut from. */
#include "stream.h"

/* The first byte says how the rest is cut in the second reading. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stream whole = {0}, pieces = {0};
    struct input in = {data, size};
    size_t step = 1 + input_byte(&in) % 40;
    stream_feed(&whole, in.at, in.left);
    for (size_t at = 0; at < in.left && !pieces.ended; at += step)
        stream_feed(&pieces, in.at + at, in.left - at < step ? in.left - at : step);
    assert(whole.ended == pieces.ended);
    assert_same(whole.log.data, whole.log.len, pieces.log.data, pieces.log.len);
    stream_fini(&whole);
    stream_fini(&pieces);
    return 0;
}
