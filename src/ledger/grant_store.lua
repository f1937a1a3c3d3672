#!lua flags=allow-oom
-- grant_store: write the changed grants of a subject, all of the change or nothing, with the notices that it raises and
-- the events that have thresholds judged.
--
-- KEYS[1] checkpoint hash     KEYS[2] zset of subjects with grants, by when something is due
-- KEYS[3] hash of the subject's grants   KEYS[4] outbox stream
-- KEYS[5] usage stream
-- KEYS[6 ..] the hash of each counter that the change was computed from
--
-- ARGV[1] subject
-- ARGV[2] version of the stored grants, '' if there are none
-- ARGV[3] checkpoint that the counters belong to, '' for any
-- ARGV[4] when something is due next, ms; 'inf': never; 'none': no grant is left
-- ARGV[5 .. 8] number of fields to set, of fields to remove, of notices, and of metrics to judge
-- ARGV[9 ..] the value of each counter, '0' if it is missing; fields to set and their values; fields to remove;
--            notices; metrics to judge
--
-- Returns {'written'}   everything is written
--         {'changed'}   the grants or a counter have changed: nothing written; read again
--         {'stale'}     another commit came first: nothing written
--         an error      a key of another type, a command that the user may not run, or a partition that was moved away:
--                       nothing written
--
-- Also runs when memory is full: the limits of subjects that bought units must be right, and expired ones must end.
-- If run twice, the second call returns 'changed', because each change has another version.

-- JUDGE

local moved = moved_away_from(KEYS[1])
if moved then return moved end
for at, kind in ipairs({'hash', 'zset', 'hash', 'stream', 'stream'}) do
  local error = wrong_type(at, kind)
  if error then return error end
end
local refusal = denied(KEYS[2], 'ZADD', 'ZREM') or denied(KEYS[3], 'HSET', 'HDEL') or denied(KEYS[4], 'XADD')
  or denied(KEYS[5], 'XADD')
if refusal then return refusal end
if ARGV[3] ~= '' and (redis.call('HGET', KEYS[1], 'id') or '0-0') ~= ARGV[3] then return {'stale'} end
if (redis.call('HGET', KEYS[3], 'version') or '') ~= ARGV[2] then return {'changed'} end
local at = 9
for key = 6, #KEYS do
  local error = wrong_type(key, 'hash')
  if error then return error end
  if (redis.call('HGET', KEYS[key], ARGV[1]) or '0') ~= ARGV[at] then return {'changed'} end
  at = at + 1
end

-- WRITE

local set, removed, notices, judged = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
call_in_slices('HSET', KEYS[3], ARGV, at, at + 2 * set - 1)
at = at + 2 * set
call_in_slices('HDEL', KEYS[3], ARGV, at, at + removed - 1)
at = at + removed
if ARGV[4] == 'none' then redis.call('ZREM', KEYS[2], ARGV[1]) else redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1]) end
for notice = at, at + notices - 1 do redis.call('XADD', KEYS[4], '*', 'grant_expires', ARGV[notice]) end
at = at + notices
for metric = at, at + judged - 1 do
  redis.call('XADD', KEYS[5], '*', 'subject', ARGV[1], 'metric', ARGV[metric], 'judge', '1')
end
return {'written'}
