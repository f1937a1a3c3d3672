#!lua
-- cooldown: admit one call per interval.
--
-- KEYS[1] id of the admitted call, string   ARGV[1] interval, ms, 1..
--                                           ARGV[2] id of this call, unique
--
-- Returns {admitted, left}  admitted: 1 or 0; left: ms until the next call is admitted
--         an error          the key has another type: nothing written
--
-- Safe to run twice: an admitted call is admitted again. Times are milliseconds of the server's clock.

local interval = tonumber(ARGV[1])
local admitted, left = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
if admitted and (left == -1 or left > interval) then
  -- Somebody else wrote the key without a TTL, the interval was longer before, or the server's clock was set back. The
  -- interval ends like one that begins now.
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  left = interval
end
-- 0 or less: there is no key, or its TTL ends in this millisecond, through which Redis keeps it.
if left <= 0 then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[1])
  return {1, interval}
end
return {admitted == ARGV[2] and 1 or 0, left}
