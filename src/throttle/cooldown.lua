#!lua
-- cooldown: let one call through an interval.
--
-- KEYS[1] the call that came through, string   ARGV[1] interval, ms, 1..
--                                              ARGV[2] the call, unique to it
--
-- Returns {through, left}  through: 1 or 0; left: ms until the next call comes through
--         an error         a key of another type: nothing written
--
-- Safe to run twice: a call that came through does so again.

if redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[1]) then
  return {1, tonumber(ARGV[1])}
end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
  -- Written by somebody else and for ever: it ends like ours.
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  left = tonumber(ARGV[1])
end
return {redis.call('GET', KEYS[1]) == ARGV[2] and 1 or 0, left}
