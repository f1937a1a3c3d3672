#!lua
-- alert_ends: store the ends of the alerts of a subject, metric and period, with the notices that they raise.
--
-- KEYS[1] checkpoint hash   KEYS[2] hash of records   KEYS[3] hash of the counter   KEYS[4] outbox stream
-- KEYS[5] stream of the log of alerts
--
-- ARGV[1] erasure_epoch under which everything was read, 0..   ARGV[2] subject
-- ARGV[3] the count from which an alert that has ended would be open, units; '' if no count matters
-- ARGV[4] field of the ends
-- ARGV[5] the ends that were read, JSON; '' if there were none   ARGV[6] the ends to store, JSON
-- ARGV[7] server time, ms   ARGV[8] TTL of a new log, s
-- ARGV[9], ARGV[10], ARGV[11] number of records, of notices, and of entries of the log
-- ARGV[12 ..] field of each threshold and the length of its record, 0 if it has none; the notices, JSON; of each entry
--             the alert's id and its state, JSON
--
-- Returns 'written'
--         'changed'   a record or the ends are not those that were read, or the count is that high: nothing written
--         'stale'     a subject was erased since, or nothing has been counted: nothing written
--         an error    a key of another type, a command that the user may not run, or the partition was moved away:
--                     nothing written
--
-- The field has the lifetime of the records. If run twice, the second call returns 'changed'.

-- JUDGE

for at, kind in ipairs({'hash', 'hash', 'hash', 'stream', 'stream'}) do
  local failed = wrong_type(at, kind)
  if failed then return failed end
end
local refusal = moved_away_from(KEYS[1]) or denied(KEYS[2], 'HSET') or denied(KEYS[4], 'XADD') or denied(KEYS[5], 'XADD', 'EXPIRE')
if refusal then return refusal end
local stored = redis.call('HMGET', KEYS[1], 'id', 'erasure_epoch')
if not stored[1] or (stored[2] or '0') ~= ARGV[1] then return 'stale' end
if tonumber(redis.call('HGET', KEYS[3], ARGV[2]) or '0') >= (tonumber(ARGV[3]) or math.huge) then return 'changed' end
if (redis.call('HGET', KEYS[2], ARGV[4]) or '') ~= ARGV[5] then return 'changed' end
-- A further alert makes its record longer.
local at = 12
for _ = 1, ARGV[9] do
  if #(redis.call('HGET', KEYS[2], ARGV[at]) or '') ~= tonumber(ARGV[at + 1]) then return 'changed' end
  at = at + 2
end

-- WRITE

redis.call('HSET', KEYS[2], ARGV[4], ARGV[6])
for _ = 1, ARGV[10] do
  redis.call('XADD', KEYS[4], '*', 'resolved', ARGV[at])
  at = at + 1
end
for _ = 1, ARGV[11] do
  redis.call('XADD', KEYS[5], '*', 'at_ms', ARGV[7], 'state', ARGV[at + 1], 'alert_id', ARGV[at], 'subject', ARGV[2])
  redis.call('EXPIRE', KEYS[5], ARGV[8], 'NX')
  at = at + 2
end
return 'written'
