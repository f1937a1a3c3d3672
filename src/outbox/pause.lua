#!lua flags=allow-oom
-- pause: begin or end the pause of all sending in a partition.
--
-- KEYS[1] the pause of all sending, a hash   KEYS[2] totals hash
--
-- ARGV[1] 'pause' or 'resume'   ARGV[2] now, ms: the same for all partitions
-- ARGV[3] why, in the operator's words; '' without a reason ('pause' only)
--
-- Returns 'done'
--         an error   a key of another type, a total that is no number, or a command that the user may not run: nothing
--                    written
--
-- The duration of pauses is summed up in 'paused_ms' of the totals, because it ends no delivery. A second pause keeps
-- the start of the first.
-- Safe to run twice: the second call finds the first one's writes.

-- JUDGE

local refusal = wrong_type(1, 'hash') or wrong_type(2, 'hash') or wrong_total(KEYS[2], 'paused_ms')
  or denied(KEYS[1], 'HSET', 'DEL') or denied(KEYS[2], 'HINCRBY')
if refusal then return refusal end

local now = tonumber(ARGV[2])
local since = redis.call('HGET', KEYS[1], 'since_ms')

-- WRITE

if ARGV[1] == 'pause' then
  if not since then redis.call('HSET', KEYS[1], 'since_ms', whole(now)) end
  redis.call('HSET', KEYS[1], 'reason', ARGV[3])
  return 'done'
end
local began = since and string.match(since, '^%d+$')
local length = began and now - tonumber(began) or 0
if length > 0 then redis.call('HINCRBY', KEYS[2], 'paused_ms', whole(length)) end
redis.call('DEL', KEYS[1])
return 'done'
