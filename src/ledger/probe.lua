#!lua flags=allow-oom
-- probe: add the one entry that a rehearsed batch claims to have read.
--
-- KEYS[1] the probe's own stream     ARGV[1] seconds until it goes by itself
--
-- Returns {entry id, server time in s, microseconds}
--         an error                   the user may not run a command, or touch the key: nothing that stays
--
-- allow-oom, because a daemon that starts beside a full server has to rehearse too before it can free memory. Safe to run twice:
-- the rehearsal reads from nowhere and names only its last entry.

local id = redis.call('XADD', KEYS[1], '*', 'subject', 'probe')
redis.call('EXPIRE', KEYS[1], ARGV[1])
local clock = redis.call('TIME')
return {id, clock[1], clock[2]}
