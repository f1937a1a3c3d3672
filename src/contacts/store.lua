#!lua
-- store: write fields of a subject if its contacts are still the ones that were read.
--
-- KEYS[1] subject hash
--
-- ARGV[1] the contacts that were read; '' for none   ARGV[2] number of fields to set
-- ARGV[3 ..] field, value for each of those; then the fields to remove
--
-- Returns 'written'
--         'changed'   another client changed the contacts since: nothing written; read them again
--         an error    a key of another type, or a command that the user may not run: nothing written. Refused whole
--                     when memory is full
--
-- Safe to run twice: the second call finds the contacts that the first wrote and answers 'changed', or writes the same
-- again.

if (redis.call('HGET', KEYS[1], 'contacts') or '') ~= ARGV[1] then return 'changed' end

local refusal = denied(KEYS[1], 'HSET', 'HDEL')
if refusal then return refusal end

local removed_from = 3 + 2 * tonumber(ARGV[2])
for i = 3, removed_from - 1, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
for i = removed_from, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
return 'written'
