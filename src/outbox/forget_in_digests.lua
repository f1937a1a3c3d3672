#!lua flags=allow-oom
-- forget_in_digests: replace the digest in a delivery, if it has not changed since it was read.
--
-- KEYS[1] the delivery's hash
--
-- ARGV[1] the digest as it was read, JSON   ARGV[2] the same without a subject
--
-- Returns 'replaced'
--         'changed'   another erasure has replaced it, or the delivery is gone: nothing written
--         an error    a key of another type, or a command that the user may not run: nothing written
--
-- Also runs when memory is full, because it frees memory. Safe to run twice: the second call returns 'changed'.

local failed = wrong_type(1, 'hash') or denied(KEYS[1], 'HSET')
if failed then return failed end
if redis.call('HGET', KEYS[1], 'digest') ~= ARGV[1] then return 'changed' end
redis.call('HSET', KEYS[1], 'digest', ARGV[2])
return 'replaced'
