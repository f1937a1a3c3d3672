#!lua
-- fixed_window: take units from a window that begins with the first call that takes any.
--
-- KEYS[1] counter, string     ARGV[1] limit, units, 1..2^53-1
--                             ARGV[2] window, ms, 1..
--                             ARGV[3] units to take, 0..2^53-1; 0 asks and takes nothing
--
-- Returns {admitted, used, left}  admitted: 1 or 0; used: units taken in this window, this call's included;
--                                 left: ms until the window ends, 0 while none is open
--         an error                a key of another type, or a value that is no number: nothing written
--
-- A call that is refused takes nothing. Run twice it takes twice: a call that is sent again counts against its caller, never
-- for it.

local limit, window_ms, units = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local used = tonumber(redis.call('GET', KEYS[1]) or '0')
if not used then return redis.error_reply('ERR ' .. KEYS[1] .. ' is no counter') end

local left_ms = redis.call('PTTL', KEYS[1])
if units == 0 or used + units > limit then
  return {units == 0 and used < limit and 1 or 0, used, math.max(left_ms, 0)}
end
used = redis.call('INCRBY', KEYS[1], string.format('%.0f', units))
-- The first of a window; or a counter that somebody wrote without a time to live, which would never end.
if left_ms < 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  left_ms = window_ms
end
return {1, used, left_ms}
