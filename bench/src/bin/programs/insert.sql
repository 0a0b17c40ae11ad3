PRAGMA synchronous=OFF; PRAGMA journal_mode=MEMORY; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c TEXT);
CREATE INDEX i ON t(b);
INSERT INTO t SELECT value, hex(value * 7919 % 100003), 'row ' || value FROM generate_series(1, ROWS);
SELECT count(*), max(b) FROM t;
