#!lua
-- gcra: take units from a bucket that drains steadily (generic cell rate algorithm).
--
-- A time here is whole microseconds and a rest, counted in parts of 1/limit us. Therefore the sum of many calls is
-- exact, and no number exceeds 2^53.
--
-- KEYS[1] time at which the bucket     ARGV[1] limit, units, 1..2^53-1
--         will be empty, string        ARGV[2] window: time in which a full bucket drains, us, 1000..2^53-1
--                                      ARGV[3], ARGV[4] time in which the units drain: us and rest; both 0 only ask
--                              ARGV[5] optional 'ask': judge the units and take nothing
--
-- Returns {admitted, ahead, rest}  admitted: 1 or 0, always 1 for a call that only asks; ahead, rest: time until the
--                                  bucket is empty after this call
--         an error                 the key has another type, or its value has another form: nothing written
--
-- The value is '<us>:', or '<us>:<rest>:<limit>' if there is a rest. A refused call takes nothing. A call that is sent
-- twice takes twice, to its caller's disadvantage.

local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local cost, cost_rest = tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Stores the time, and lets the key expire in the millisecond in which the bucket is empty: Redis keeps it until then.
local function store(us, parts)
  local moment = string.format('%.0f', us)
  local how, ends = 'PXAT', string.sub(moment, 1, -4)
  -- Redis would delete a key that expires in this millisecond at once.
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
      -- The limit has changed, and with it the size of a part: round up to a whole microsecond.
      empty, rest = empty + 1, 0
    end
  end
  if empty < now then
    empty, rest = now, 0
  elseif empty - now > window or (empty - now == window and rest > 0) then
    -- More than full: the server's clock was set back, or the window is shorter now. Store a full bucket that drains
    -- from now on, even if this call takes nothing: otherwise the bucket would stay full until the old time.
    empty, rest = now + window, 0
    store(empty, rest)
  end
end

if cost == 0 and cost_rest == 0 then
  return {1, empty - now, rest}
end
-- Does not add the two rests, because their sum may exceed 2^53.
local after, after_rest = empty + cost, rest + cost_rest
if rest >= limit - cost_rest then
  after, after_rest = after + 1, rest - (limit - cost_rest)
end
local ahead = after - now
if ahead > window or (ahead == window and after_rest > 0) then
  return {0, empty - now, rest}
end
if ARGV[5] == 'ask' then return {1, empty - now, rest} end
store(after, after_rest)
return {1, ahead, after_rest}
