#!lua
-- check: decide whether a subject may use some units now: first by the limits of all its levels and the committed
-- counts, then by their rates. If all admit it, append the usage event.
--
-- KEYS[1] usage stream                 ARGV[1]    requested units, 1..2^53-1
-- KEYS[2 ..] two hashes of each limit: ARGV[2]    number of limits
--   counters of a period and of        ARGV[3]    number of rates
--   the one after it; then the key     ARGV[4 ..] of each limit: its subject; the most units in the first period, and
--   of each rate's limiter                        in the second, 0..2^53-1; start of the first period, start of the
--                                                 second, end of the second, ms
--                                      then of each rate: the limiter's function name; the number of its arguments; the
--                                      arguments: from the third on the units to take, 0 to ask only
--                                      then the fields of the event, names and values; none: nothing to record
--
-- Returns {'judged', now, used, rates, entry}  now: server time, ms; used: units committed in the period of each limit;
--                                              rates: each limiter's reply; entry: id of the event, empty if none was
--                                              appended
--         {'wrong_period', now}                now is in neither period of a limit: nothing written; call again with
--                                              the periods around it
--         an error                             a key of another type, a value that is not ours, or an event that is too
--                                              long or that the user may not append: nothing written. Exception: if the
--                                              stream has reached its last id, the rates were taken
--
-- The limits are judged first: if one refuses, the script asks the rates without taking from them. Of several rates it
-- takes only if all of them admit the units. If run twice, it takes twice from the rates, to the disadvantage of the
-- caller; the event counts once, by its id.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local units, limits, rates, at = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), 4
local used, admitted = {}, true
for limit = 1, limits do
  if now < tonumber(ARGV[at + 3]) or now >= tonumber(ARGV[at + 5]) then return {'wrong_period', now} end
  local period = now < tonumber(ARGV[at + 4]) and 0 or 1
  local counters = KEYS[2 * limit + period]
  used[limit] = tonumber(redis.call('HGET', counters, ARGV[at]) or '0')
  if not used[limit] then return redis.error_reply('ERR ' .. counters .. ' holds a counter that is no number') end
  -- A difference, because the sum of two counts may exceed 2^53.
  admitted = admitted and units <= tonumber(ARGV[at + 1 + period]) - used[limit]
  at = at + 6
end

local limiters = {fixed_window = fixed_window, sliding_window = sliding_window, gcra = gcra}
local calls = {}
for rate = 1, rates do
  local arguments, count = {}, tonumber(ARGV[at + 1])
  for i = at + 2, at + 1 + count do arguments[#arguments + 1] = ARGV[i] end
  calls[rate] = {limiter = limiters[ARGV[at]], key = KEYS[1 + 2 * limits + rate], arguments = arguments, count = count}
  at = at + 2 + count
end

local event = {}
for i = at, #ARGV do event[#event + 1] = ARGV[i] end
-- Lua passes at most 7,999 values to a function.
local VALUES_MAX = 4000
if #event > VALUES_MAX then return redis.error_reply('ERR an event has at most ' .. VALUES_MAX .. ' values') end
if #event > 0 then
  local kind = redis.call('TYPE', KEYS[1]).ok
  if kind ~= 'none' and kind ~= 'stream' then
    return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' holds a ' .. kind)
  end
  if not redis.acl_check_cmd('XADD', KEYS[1], '*', event[1], event[2]) then
    return redis.error_reply('NOPERM this user may not run XADD on ' .. KEYS[1])
  end
end

local replies = {}
-- Calls some limiters; returns an error, or nil. `how` is 'ask' to take nothing.
local function call(first, last, how)
  for rate = first, last do
    local of = calls[rate]
    of.arguments[of.count + 1] = how
    replies[rate] = of.limiter({of.key}, of.arguments)
    if replies[rate].err then return replies[rate] end
    admitted = admitted and replies[rate][1] == 1
  end
end

local failed
if admitted then
  -- The last one is taken from only if all others would admit the units; then the others do.
  failed = call(1, rates - 1, 'ask') or call(math.max(rates, 1), rates, not admitted and 'ask' or nil)
  if not failed and admitted then failed = call(1, rates - 1) end
else
  for _, of in ipairs(calls) do
    for taken = 3, of.count do of.arguments[taken] = '0' end
  end
  failed = call(1, rates)
end
if failed then return failed end

local entry = ''
if admitted and #event > 0 then entry = redis.call('XADD', KEYS[1], '*', unpack(event, 1, math.min(#event, VALUES_MAX))) end
return {'judged', now, used, replies, entry}
