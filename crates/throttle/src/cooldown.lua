#!lua
-- cooldown: let one call through an interval.
--
-- KEYS[1] the call that came through, string   ARGV[1] interval, ms, 1..
--                                              ARGV[2] the call, unique to it
--
-- Returns {through, left}  through: 1 or 0; left: ms until the next call comes through
--         an error         a key of another type: nothing written
--
-- Safe to run twice: a call that came through does so again. Measured in milliseconds of the server's clock.

local interval = tonumber(ARGV[1])
local through, left = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
if through and (left == -1 or left > interval) then
  -- Written by somebody else and for ever, or the interval was longer before, or the server's clock was set back: it
  -- ends like one that begins now.
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  left = interval
end
-- Nothing there; or there still, because Redis keeps a key through the millisecond in which it ends.
if left <= 0 then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[1])
  return {1, interval}
end
return {through == ARGV[2] and 1 or 0, left}
