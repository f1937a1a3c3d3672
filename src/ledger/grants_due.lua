#!lua flags=allow-oom
-- grants_due: look at the grants of a subject later, because they can't be read now; or remove them.
--
-- KEYS[1] zset of subjects with grants, by when something is due   KEYS[2] the subject's grants
--
-- ARGV[1] subject
-- ARGV[2] when to look at them, ms; 'removed' to remove them
--
-- Returns the number of grants that were removed
--         an error   a key of another type, or a command that the user may not run: nothing written
--
-- Also runs when memory is full: grants that can't be read must not stop the others. Safe to run twice.

local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'zset' then return wrong(KEYS[1], 'a ' .. kind) end
local refusal = denied(KEYS[1], 'ZADD', 'ZREM') or denied(KEYS[2], 'UNLINK')
if refusal then return refusal end
if ARGV[2] ~= 'removed' then
  redis.call('ZADD', KEYS[1], 'XX', ARGV[2], ARGV[1])
  return 0
end
local removed, fields = 0, redis.pcall('HGETALL', KEYS[2])
for at = 1, fields.err and 0 or #fields, 2 do
  if string.find(fields[at], '^grant:') then removed = removed + 1 end
end
redis.call('UNLINK', KEYS[2])
redis.call('ZREM', KEYS[1], ARGV[1])
return removed
