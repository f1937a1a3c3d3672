#!lua flags=allow-oom
-- replace_field: replace the value of a hash's field, if it has not changed since it was read.
--
-- KEYS[1] the hash
--
-- ARGV[1] the field   ARGV[2] its value as it was read   ARGV[3] its new value, not longer
--
-- Returns 'replaced'
--         'changed'   somebody else has replaced the value, or the field is gone: nothing written
--         an error    a key of another type, or a command that the user may not run: nothing written
--
-- Also runs when memory is full, because it frees memory. Safe to run twice: the second call returns 'changed'.

local failed = wrong_type(1, 'hash') or denied(KEYS[1], 'HSET')
if failed then return failed end
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 'changed' end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 'replaced'
