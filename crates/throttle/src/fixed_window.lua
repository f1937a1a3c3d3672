#!lua
-- fixed_window: take units from a window that begins with the first call that takes any.
--
-- KEYS[1] counter, string     ARGV[1] limit, units, 1..2^53-1
--                             ARGV[2] window, ms, 1..
--                             ARGV[3] units to take, 0..2^53-1; 0 asks and takes nothing
--                             ARGV[4] optional 'ask': judge the units and take nothing
--
-- Returns {admitted, used, left}  admitted: 1 or 0; used: units taken in this window, this call's included;
--                                 left: ms until the window ends, 0 while none is open
--         an error                the key has another type, or its value is not a count: nothing written
--
-- A refused call takes nothing. A call that is sent twice takes twice, to its caller's disadvantage. Times are
-- milliseconds of the server's clock.

local limit, window_ms, units = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local stored = redis.call('GET', KEYS[1])
if stored and not string.match(stored, '^[1-9]%d*$') then
  return redis.error_reply('ERR ' .. KEYS[1] .. ' is no counter')
end

local used, left_ms = tonumber(stored or '0'), redis.call('PTTL', KEYS[1])
if stored and (left_ms == -1 or left_ms > window_ms) then
  -- Somebody else wrote the key without a TTL, the window was longer before, or the server's clock was set back. The
  -- window ends like one that begins now, even if this call is refused. Otherwise the limiter would refuse every call
  -- until then.
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  left_ms = window_ms
end
-- Redis keeps a key through the millisecond in which its TTL ends, but the window has ended.
if left_ms <= 0 then used, left_ms = 0, 0 end

local admitted = units == 0 and used < limit or units > 0 and used + units <= limit
if units == 0 or not admitted or ARGV[4] == 'ask' then return {admitted and 1 or 0, used, left_ms} end
if left_ms == 0 then
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
  return {1, units, window_ms}
end
redis.call('INCRBY', KEYS[1], ARGV[3])
return {1, used + units, left_ms}
