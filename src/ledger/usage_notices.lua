#!lua
-- usage_notices: raise a notice of usage once.
--
-- KEYS[1] checkpoint hash   KEYS[2] flag: the newest ids of notices that were raised, separated by spaces
-- KEYS[3] outbox stream   KEYS[4] hash of the counter that it was judged by
--
-- ARGV[1] erasure_epoch under which the counter was read, 0..   ARGV[2] subject   ARGV[3] id of the notice
-- ARGV[4] TTL of the flag, s   ARGV[5] the notice, JSON
-- ARGV[6] the limit: at or above it nothing is raised; '' for none. Of a silence it is 1
--
-- Returns 'raised'
--         'known'     a notice with this id was raised before, or the limit is reached: nothing written
--         'stale'     a subject was erased since, or nothing has been counted: nothing written
--         an error    a key of another type, a command that the user may not run, or the partition was moved away:
--                     nothing written
--
-- Safe to run twice: the second call finds the flag.

-- JUDGE

for at, kind in ipairs({'hash', 'string', 'stream', 'hash'}) do
  local failed = wrong_type(at, kind)
  if failed then return failed end
end
local refusal = moved_away_from(KEYS[1]) or denied(KEYS[2], 'SET') or denied(KEYS[3], 'XADD')
if refusal then return refusal end
local stored = redis.call('HMGET', KEYS[1], 'id', 'erasure_epoch')
if not stored[1] or (stored[2] or '0') ~= ARGV[1] then return 'stale' end
local raised = redis.call('GET', KEYS[2]) or ''
if string.find(raised, ARGV[3], 1, true) then return 'known' end
local used = tonumber(redis.call('HGET', KEYS[4], ARGV[2]) or '0')
if ARGV[6] ~= '' and used >= tonumber(ARGV[6]) then return 'known' end

-- WRITE

-- The flag of a silence lives on; some dozens of ids are enough.
redis.call('SET', KEYS[2], string.sub(raised, -4000) .. ARGV[3] .. ' ', 'EX', ARGV[4])
redis.call('XADD', KEYS[3], '*', 'usage_notice', ARGV[5])
return 'raised'
