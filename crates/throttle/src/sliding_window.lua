#!lua
-- sliding_window: take units, if the calls of the last window, which ends now, leave enough.
--
-- KEYS[1] admitted calls, zset    ARGV[1] limit, units, 1..100000
--                                 ARGV[2] window, us, 1000..
--                                 ARGV[3] units to take, 0..2^53-1; 0 asks and takes nothing
--                                 ARGV[4] optional 'ask': judge the units and take nothing
--
-- Returns {admitted, used, reset, retry}  admitted: 1 or 0; used: units of the calls in the window, with this call's;
--                                         reset: us until all of them have left the window; retry: us until a refused
--                                         call would be admitted, -1 if never
--         an error                        the key has another type, a member has another form, or the user may not run
--                                         a command: nothing added
--
-- Each admitted call is a member, scored by server time in us. Calls that have left the window are removed, at most
-- 1,000 at a time, so that no call blocks the server for long. A member is '<sum>:<units>': sum is the total of all
-- units up to this call, padded to a fixed width, so that members of one microsecond stay in order. The units of a span
-- are the difference of two sums.
-- The key expires with its last member. After the window becomes longer, calls that the shorter one dropped are
-- missing. A refused call adds nothing. A call that is sent twice takes twice, to its caller's disadvantage.

local key = KEYS[1]
local limit, window, units = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
local now = clock

-- Sum, units and time of the call of this rank. Here and below, numbers are passed to commands as text, because Redis
-- needs about a microsecond to convert a Lua number, as long as for a command.
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
  -- All calls have left the window, or the server's clock was set back by more than a window and they mean nothing.
  redis.call('UNLINK', key)
  first, last = nil, nil
elseif last then
  -- If the clock was set back by less, calls get the time of the last call until the clock reaches it, so that they
  -- stay in order. Waits are relative to the clock.
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
if admitted and ARGV[4] ~= 'ask' then
  local sum = base + used + units
  -- Without an expiry the key would stay forever: check first, so that both commands run or neither.
  if not redis.acl_check_cmd('PEXPIRE', key) then return redis.error_reply('NOPERM this user may not run PEXPIRE on ' .. key) end
  redis.call('ZADD', key, string.format('%.0f', now), string.format('%016.0f:%.0f', sum, units))
  redis.call('PEXPIRE', key, string.format('%.0f', math.ceil((now + window - clock) / 1000)))
  return {1, used + units, now + window - clock, 0}
end

local reset = last and last.at + window - clock or 0
if admitted or units == 0 and used < limit then return {1, used, reset, 0} end
if units > limit then return {0, used, reset, -1} end

-- Search the first call after which enough units have left the window; a call that only asks needs one unit. Sums grow
-- with the rank.
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
