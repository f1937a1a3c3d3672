#!lua
-- store: write fields of a subject if its fields are still the ones that were read.
--
-- KEYS[1] subject hash
--
-- ARGV[1] number of fields that were read   ARGV[2] number of fields to set
-- ARGV[3 ..] field, value for each that was read; then for each to set; then the fields to remove
--
-- Returns 'written'
--         'changed'   another client changed the subject since: nothing written; read it again
--         an error    a key of another type, or a command that the user may not run: nothing written. Refused whole
--                     when memory is full
--
-- Safe to run twice: the second call finds the fields that the first wrote and answers 'changed', or writes the same
-- again.

local set_from = 3 + 2 * tonumber(ARGV[1])
local removed_from = set_from + 2 * tonumber(ARGV[2])

local stored, present = redis.call('HGETALL', KEYS[1]), {}
if #stored ~= set_from - 3 then return 'changed' end
for i = 1, #stored, 2 do present[stored[i]] = stored[i + 1] end
for i = 3, set_from - 1, 2 do
  if present[ARGV[i]] ~= ARGV[i + 1] then return 'changed' end
end

local refusal = denied(KEYS[1], 'HSET', 'HDEL')
if refusal then return refusal end

for i = set_from, removed_from - 1, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
for i = removed_from, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
return 'written'
