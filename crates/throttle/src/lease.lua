#!lua flags=allow-oom
-- lease: acquire, renew or release a lease that one holder has for a limited time.
--
-- KEYS[1] holder, string   ARGV[1] 'hold' | 'release'
--                          ARGV[2] holder that calls
--                          ARGV[3] hold: TTL, ms, 1..
--                          ARGV[4] hold: prefix of holders that are dead and lose the lease; '' for none
--
-- Returns {'held', left}   hold: the caller has the lease, for this many ms
--         {'taken', left}  hold: another holder has it, for this many ms unless it renews; nothing written
--         {'released'}     release: the caller had it
--         {'not_held'}     release: the caller did not have it; nothing written
--         an error         the key has another type: nothing written
--
-- Runs even if memory is full, because the holder of a partition's lease frees memory; it writes one small key. Safe to
-- run twice: a repeated hold renews the lease.

local holder = redis.call('GET', KEYS[1])
if ARGV[1] == 'release' then
  if holder ~= ARGV[2] then return {'not_held'} end
  redis.call('DEL', KEYS[1])
  return {'released'}
end

local relieved = holder and ARGV[4] ~= '' and string.sub(holder, 1, #ARGV[4]) == ARGV[4]
if not holder or holder == ARGV[2] or relieved then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return {'held', tonumber(ARGV[3])}
end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
  -- Somebody else wrote the key without a TTL: without one nobody else could ever acquire the lease.
  redis.call('SET', KEYS[1], holder, 'PX', ARGV[3])
  left = tonumber(ARGV[3])
end
-- Redis keeps a key through the millisecond in which its TTL ends, so the lease is free one millisecond later.
return {'taken', left + 1}
