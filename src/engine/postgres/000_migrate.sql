-- What every start runs before it looks at the version: safe to run again, and safe when two
-- servers start at once, because the second waits here until the first has committed. The
-- statements of this file and the steps that follow are one transaction.
SELECT pg_advisory_xact_lock(7420, 0);

DO $$
BEGIN
    IF getdatabaseencoding() <> 'UTF8' THEN
        RAISE EXCEPTION 'triage needs a database with the encoding UTF8, this one has %',
            getdatabaseencoding();
    END IF;
    -- Asked first, so that a role that may not create anything can still use what was made for it.
    IF to_regnamespace('triage') IS NULL THEN
        CREATE SCHEMA triage;
    END IF;
    IF to_regclass('triage.version') IS NULL THEN
        CREATE TABLE triage.version (
            step int PRIMARY KEY,
            applied_at timestamptz NOT NULL DEFAULT now()
        );
    END IF;
END $$;

-- A function may call one that was moved to a later step, where it was replaced.
SET LOCAL check_function_bodies = off;
