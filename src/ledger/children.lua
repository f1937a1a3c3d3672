#!lua flags=allow-oom
-- children: remove the list of a subject's children, and the subject from the list of the level above.
--
-- KEYS[1] checkpoint hash   KEYS[2] the subject's list   KEYS[3] the list of the level above; none at the top
--
-- ARGV[1] the subject
--
-- Returns how many lists and entries were removed
--         an error   a key of another type, an erasure_epoch that is no number, or a command that the user may not run:
--                    nothing written
--
-- The worker lists a subject once a day. The erasure_epoch makes its next commit 'stale', so that it empties its cache
-- and lists again what is used from now on.
-- Also runs when memory is full, because it frees memory. Safe to run twice: the second call finds nothing.

local failed = wrong_type(1, 'hash') or wrong_type(2, 'zset') or KEYS[3] and wrong_type(3, 'zset')
  or wrong_total(KEYS[1], 'erasure_epoch') or denied(KEYS[1], 'HINCRBY') or denied(KEYS[2], 'UNLINK')
  or KEYS[3] and denied(KEYS[3], 'ZREM')
if failed then return failed end
local removed = redis.call('UNLINK', KEYS[2])
if KEYS[3] then removed = removed + redis.call('ZREM', KEYS[3], ARGV[1]) end
if removed > 0 then redis.call('HINCRBY', KEYS[1], 'erasure_epoch', 1) end
return removed
