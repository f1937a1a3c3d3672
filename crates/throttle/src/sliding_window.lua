#!lua
-- sliding_window: take units where the last window, ending now, has room for them.
--
-- KEYS[1] calls admitted, zset    ARGV[1] limit, units, 1..100000
--                                 ARGV[2] window, us, 1000..
--                                 ARGV[3] units to take, 0..2^53-1; 0 asks and takes nothing
--
-- Returns {admitted, used, reset, retry}  admitted: 1 or 0; used: units of the calls in the window, this one's
--                                         included; reset: us until all of them have left; retry: us until a call
--                                         refused now would be admitted, -1 if never
--         an error                        a key of another type, members that are none of ours, or a command that the
--                                         user may not run: nothing added
--
-- One member a call that was admitted, scored by server time in us; calls as old as the window are removed, at most
-- 1,000 at a time, so that no call holds the server for long. A member is '<sum>:<units>', where sum is that of all
-- units up to this call, padded to one width: members of one microsecond stay in order, and the units of any stretch
-- are a difference of two sums, so nothing is added up. A call that is refused adds nothing.
-- The key lives as long as its members: a window that becomes longer knows only what the shorter one kept.
-- Run twice it takes twice: a call that is sent again counts against its caller, never for it.

local key = KEYS[1]
local limit, window, units = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
local now = clock

-- The sum and the units of the call of this rank, and when it was admitted. Numbers go to commands as text, here and
-- below: Redis takes about a microsecond to turn one of Lua's into text, as long as a command.
local function call_at(rank)
  local found = redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')
  if #found == 0 then return nil end
  local sum, own = string.match(found[1], '^(%d+):(%d+)$')
  return {sum = tonumber(sum), units = tonumber(own), at = tonumber(found[2])}
end

local last = call_at('-1')
-- The oldest call of the window.
local first = last and call_at('0')
if last and not (last.sum and first.sum) then return redis.error_reply('ERR ' .. key .. ' is no sliding window') end
if last and (last.at > now + window or last.at <= now - window) then
  -- The server's clock was set back by more than a window, so nothing of what is stored says anything about now; or all
  -- have left.
  redis.call('UNLINK', key)
  first, last = nil, nil
elseif last then
  -- Set back by less: time stands still until it has caught up, so that calls stay in order. Waits are told by the
  -- clock.
  now = math.max(now, last.at)
  if first.at <= now - window then
    local left = redis.call('ZCOUNT', key, '-inf', string.format('%.0f', now - window))
    local removed = math.min(left, 1000)
    redis.call('ZREMRANGEBYRANK', key, '0', string.format('%d', removed - 1))
    first = call_at(string.format('%d', left - removed))
  end
end

local base = first and first.sum - first.units or 0
local used = last and last.sum - base or 0
local admitted = units > 0 and used + units <= limit
if admitted then
  local sum = base + used + units
  -- Without its end the key would stay for ever, so both or neither.
  if not redis.acl_check_cmd('PEXPIRE', key) then return redis.error_reply('NOPERM this user may not run PEXPIRE on ' .. key) end
  redis.call('ZADD', key, string.format('%.0f', now), string.format('%016.0f:%.0f', sum, units))
  redis.call('PEXPIRE', key, string.format('%.0f', math.ceil((now + window - clock) / 1000)))
  return {1, used + units, now + window - clock, 0}
end

local reset = last and last.at + window - clock or 0
if units == 0 and used < limit then return {1, used, reset, 0} end
if units > limit then return {0, used, reset, -1} end

-- The first call with which enough will have left, for one unit where none was asked for: sums ascend with the rank.
local enough = base + used + math.max(units, 1) - limit
local leaves = first
if first.sum < enough then
  local low, high = 1, redis.call('ZCARD', key) - 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if call_at(string.format('%d', middle)).sum >= enough then high = middle else low = middle + 1 end
  end
  leaves = call_at(string.format('%d', low))
end
return {0, used, reset, leaves.at + window - clock}
