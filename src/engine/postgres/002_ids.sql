-- Message ids and receipts as the HTTP interface spells them, the clock, sizes.
--
-- An id is 17 bytes, big endian: queue 4, slot 1, first ready time + 2^47 6, seq 6. A receipt is
-- 16 random bytes. Both are written in base 32, eight letters for five bytes, so all of this goes
-- by blocks of 40 bits.

-- Now, in milliseconds. The functions for servers take another time instead, for tests.
CREATE FUNCTION triage.now_ms() RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;

CREATE FUNCTION triage.to_ms(t timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN floor(extract(epoch FROM t) * 1000)::bigint;

CREATE FUNCTION triage.to_ms(i interval) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN floor(extract(epoch FROM i) * 1000)::bigint;

CREATE FUNCTION triage.from_ms(ms bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN timestamptz 'epoch' + ms * interval '1 millisecond';

-- A payload that came over HTTP may hold what PostgreSQL's types cannot: a zero byte (text), a \u0000
-- or a number beyond all bounds (jsonb). A read or a claim must not fail because of that.
CREATE FUNCTION triage.text_of(p_bytes bytea) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN position('\x00'::bytea IN p_bytes) = 0 THEN convert_from(p_bytes, 'UTF8') END;

CREATE FUNCTION triage.json_of(p_text text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN p_text::jsonb;
EXCEPTION WHEN untranslatable_character OR numeric_value_out_of_range THEN
    RETURN to_jsonb(p_text);
END $$;

CREATE FUNCTION triage.block_format(block bigint) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN substr('0123456789abcdefghjkmnpqrstvwxyz', ((block >> 35) & 31)::int + 1, 1)
    || substr('0123456789abcdefghjkmnpqrstvwxyz', ((block >> 30) & 31)::int + 1, 1)
    || substr('0123456789abcdefghjkmnpqrstvwxyz', ((block >> 25) & 31)::int + 1, 1)
    || substr('0123456789abcdefghjkmnpqrstvwxyz', ((block >> 20) & 31)::int + 1, 1)
    || substr('0123456789abcdefghjkmnpqrstvwxyz', ((block >> 15) & 31)::int + 1, 1)
    || substr('0123456789abcdefghjkmnpqrstvwxyz', ((block >> 10) & 31)::int + 1, 1)
    || substr('0123456789abcdefghjkmnpqrstvwxyz', ((block >> 5) & 31)::int + 1, 1)
    || substr('0123456789abcdefghjkmnpqrstvwxyz', (block & 31)::int + 1, 1);

-- Missing letters at the end count as zeros.
CREATE FUNCTION triage.block_parse(letters text) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (SELECT sum((strpos('0123456789abcdefghjkmnpqrstvwxyz', substr(rpad(letters, 8, '0'), i, 1))
                    - 1)::bigint << (40 - 5 * i))::bigint
        FROM generate_series(1, 8) i);

CREATE FUNCTION triage.id_format(queue int, slot smallint, ready_ms bigint, seq bigint)
RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN 'msg_' || triage.block_format((queue::bigint << 8) | slot::bigint)
    || triage.block_format((ready_ms + 140737488355328) >> 8)
    || triage.block_format((((ready_ms + 140737488355328) & 255) << 32) | (seq >> 16))
    || left(triage.block_format((seq & 65535) << 24), 4);

CREATE FUNCTION triage.id_parse(id text, OUT queue int, OUT slot smallint, OUT ready_ms bigint,
                                OUT seq bigint)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    a bigint;
    b bigint;
    c bigint;
    d bigint;
BEGIN
    IF id IS NULL OR id !~ '^msg_[0-9a-hjkmnp-tv-z]{28}$' THEN
        RETURN;
    END IF;
    a := triage.block_parse(substr(id, 5, 8));
    b := triage.block_parse(substr(id, 13, 8));
    c := triage.block_parse(substr(id, 21, 8));
    d := triage.block_parse(substr(id, 29, 4));
    IF (a & 255) > 15 OR a >> 39 > 0 OR d & 16777215 <> 0 THEN
        RETURN;
    END IF;
    queue := (a >> 8)::int;
    slot := (a & 255)::smallint;
    ready_ms := ((b << 8) | (c >> 32)) - 140737488355328;
    seq := ((c & 4294967295) << 16) | (d >> 24);
END $$;

CREATE FUNCTION triage.block_read(bytes bytea, at int) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ('x' || lpad(rpad(encode(substr(bytes, at, 5), 'hex'), 10, '0'), 16, '0'))::bit(64)::bigint;

CREATE FUNCTION triage.receipt_format(receipt bytea) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN 'rh_' || triage.block_format(triage.block_read(receipt, 1))
    || triage.block_format(triage.block_read(receipt, 6))
    || triage.block_format(triage.block_read(receipt, 11))
    || left(triage.block_format(triage.block_read(receipt, 16)), 2);

-- NULL when it is none.
CREATE FUNCTION triage.receipt_parse(receipt text) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN receipt ~ '^rh_[0-9a-hjkmnp-tv-z]{26}$' AND right(receipt, 1) ~ '[048cgmrw]'
    THEN decode(
        lpad(to_hex(triage.block_parse(substr(receipt, 4, 8))), 10, '0')
        || lpad(to_hex(triage.block_parse(substr(receipt, 12, 8))), 10, '0')
        || lpad(to_hex(triage.block_parse(substr(receipt, 20, 8))), 10, '0')
        || left(lpad(to_hex(triage.block_parse(substr(receipt, 28, 2))), 10, '0'), 2), 'hex')
    END;

-- What limits and statistics count: bytes of payload and metadata.
CREATE FUNCTION triage.size_of(large int, payload bytea, metadata text) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(large, octet_length(payload)) + coalesce(octet_length(metadata), 0);

-- Sixteen random bytes for each of n receipts. A random UUID has six bits that are not, hence the
-- digest of two.
CREATE FUNCTION triage.receipts(n int) RETURNS bytea
LANGUAGE sql VOLATILE STRICT PARALLEL SAFE
RETURN (SELECT string_agg(substr(sha256(uuid_send(gen_random_uuid())
                                        || uuid_send(gen_random_uuid())), 1, 16), ''::bytea)
        FROM generate_series(1, n));
