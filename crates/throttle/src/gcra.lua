#!lua
-- gcra: take units from a bucket that drains steadily (generic cell rate algorithm).
--
-- KEYS[1] when the bucket is empty,   ARGV[1] limit, units, 1..2^53-1
--         string                      ARGV[2] window, us: how long a full bucket takes to drain, 1000..2^53-1
--                                     ARGV[3], ARGV[4] what the units cost: whole us, and the rest as parts of 1/limit
--                                     us; both 0 ask and take nothing
--
-- Returns {admitted, ahead, rest}  admitted: 1 or 0, always 1 for a call that only asks; ahead, rest: how long the
--                                  bucket needs to drain after this call: whole us, and parts of 1/limit us
--         an error                 a key of another type, or a value that is none of ours: nothing written
--
-- The value is the moment at which the bucket will be empty, us, exact to 1/limit us: '<us>:', and
-- '<us>:<parts>:<limit>' where there are parts. So no sum of many calls drifts, and no number passes 2^53. A call that
-- is refused takes nothing. Run twice it takes twice: a call that is sent again counts against its caller, never for
-- it.

local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local cost, cost_rest = tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- With an end at the millisecond in which the bucket is empty, through which Redis keeps the key.
local function store(us, parts)
  local moment = string.format('%.0f', us)
  local how, ends = 'PXAT', string.sub(moment, 1, -4)
  -- An end in this very millisecond would have passed.
  if us - now < 2000 then how, ends = 'PX', '2' end
  local rest = parts > 0 and string.format('%.0f:%.0f', parts, limit) or ''
  redis.call('SET', KEYS[1], moment .. ':' .. rest, how, ends)
end

local empty, rest = now, 0
local stored = redis.call('GET', KEYS[1])
if stored then
  empty = tonumber(string.match(stored, '^(%d+):$'))
  if not empty then
    local us, parts, of = string.match(stored, '^(%d+):(%d+):(%d+)$')
    if not us then return redis.error_reply('ERR ' .. KEYS[1] .. ' is no bucket') end
    empty, rest = tonumber(us), tonumber(parts)
    if tonumber(of) ~= limit and rest > 0 then
      -- The limit has changed, and with it what a part is: round up to the next whole microsecond.
      empty, rest = empty + 1, 0
    end
  end
  if empty < now then
    empty, rest = now, 0
  elseif empty - now > window or (empty - now == window and rest > 0) then
    -- More than full: the server's clock was set back, or the window is shorter now. It drains from here on, so that is
    -- stored, also where this call takes nothing: otherwise it would stay full until the old moment.
    empty, rest = now + window, 0
    store(empty, rest)
  end
end

if cost == 0 and cost_rest == 0 then
  return {1, empty - now, rest}
end
-- Never the sum of two rests, which may pass 2^53.
local after, after_rest = empty + cost, rest + cost_rest
if rest >= limit - cost_rest then
  after, after_rest = after + 1, rest - (limit - cost_rest)
end
local ahead = after - now
if ahead > window or (ahead == window and after_rest > 0) then
  return {0, empty - now, rest}
end
store(after, after_rest)
return {1, ahead, after_rest}
