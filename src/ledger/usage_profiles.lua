#!lua
-- usage_profiles: store usage profiles of a metric, or the time of a pass over all subjects.
--
-- KEYS[1] checkpoint hash   KEYS[2] hash of profiles; none to store the time of a pass
--
-- ARGV[1] erasure_epoch under which the counters were read, 0..
-- ARGV[2] server time at which the pass began, ms, to store that it has ended; else TTL of the profiles, s
-- ARGV[3], ARGV[4] server times at which usage was found, and since which there has been some, ms; '' if unknown
-- ARGV[5 ..] subject, profile (at most 200 bytes); at most 2,000 pairs
--
-- Returns 'stored'
--         'stale'     a subject was erased since, or nothing has been counted: nothing written
--         an error    a key of another type, a command that the user may not run, or the partition was moved away:
--                     nothing written
--
-- An erasure removes counters, with another erasure_epoch, before profiles: what was read of an erased subject is never
-- stored. Safe to run twice: it stores the same values.

-- JUDGE

for at = 1, #KEYS do
  local failed = wrong_type(at, 'hash')
  if failed then return failed end
end
local refusal = moved_away_from(KEYS[1])
refusal = refusal or denied(KEYS[1], 'HSET')
if KEYS[2] then refusal = refusal or denied(KEYS[2], 'HSET', 'EXPIRE') end
if refusal then return refusal end
local stored = redis.call('HMGET', KEYS[1], 'id', 'erasure_epoch')
if not stored[1] or (stored[2] or '0') ~= ARGV[1] then return 'stale' end

-- WRITE

if not KEYS[2] then
  redis.call('HSET', KEYS[1], 'profiled_ms', ARGV[2])
  return 'stored'
end
call_in_slices('HSET', KEYS[2], ARGV, 5, #ARGV)
redis.call('EXPIRE', KEYS[2], ARGV[2])
-- With the profiles: what they have learned is not new to a pass that repeats this one.
if ARGV[3] ~= '' then redis.call('HSET', KEYS[1], 'used_ms', ARGV[3], 'resumed_ms', ARGV[4]) end
return 'stored'
