#!lua
-- check: decide whether a subject may use some units now: first by its limits and the committed counts, then by its
-- rate. If all admit it, append the usage event.
--
-- KEYS[1] the rate limiter's key       ARGV[1]    subject
-- KEYS[2] usage stream                 ARGV[2]    requested units, 1..2^53-1
-- KEYS[3 ..] two hashes of each limit: ARGV[3]    number of limits
--   counters of a period and of        ARGV[4 ..] of each limit: the most units, 1..2^53-1; start of the first
--   the one after it                              period, start of the second, end of the second, ms
--                                      then the limiter's function name, or empty; the number of its arguments; the
--                                      arguments: from the third on the units to take, 0 to ask only
--                                      then the fields of the event, names and values; none: nothing to record
--
-- Returns {'judged', now, used, rate, entry}  now: server time, ms; used: units committed in the period of each limit;
--                                             rate: the limiter's reply, {} without one; entry: id of the event, empty
--                                             if none was appended
--         {'wrong_period', now}               now is in neither period of a limit: nothing written; call again with the
--                                             periods around it
--         an error                            a key of another type, a value that is not ours, or an event that is too
--                                             long or that the user may not append: nothing written. Exception: if the
--                                             stream has reached its last id, the rate was taken
--
-- The limits are judged first: if one refuses, the script asks the rate without taking from it. If run twice, it takes
-- twice from the rate, to the disadvantage of the caller; the event counts once, by its id.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local units, at = tonumber(ARGV[2]), 4
local used, admitted = {}, true
for limit = 1, tonumber(ARGV[3]) do
  if now < tonumber(ARGV[at + 1]) or now >= tonumber(ARGV[at + 3]) then return {'wrong_period', now} end
  local counters = KEYS[now < tonumber(ARGV[at + 2]) and 1 + 2 * limit or 2 + 2 * limit]
  used[limit] = tonumber(redis.call('HGET', counters, ARGV[1]) or '0')
  if not used[limit] then return redis.error_reply('ERR ' .. counters .. ' holds a counter that is no number') end
  -- A difference, because the sum of two counts may exceed 2^53.
  admitted = admitted and units <= tonumber(ARGV[at]) - used[limit]
  at = at + 4
end

local limiter, count = ARGV[at], tonumber(ARGV[at + 1])
local arguments, event = {}, {}
for i = at + 2, at + 1 + count do arguments[#arguments + 1] = ARGV[i] end
for i = at + 2 + count, #ARGV do event[#event + 1] = ARGV[i] end
-- Lua passes at most 7,999 values to a function.
local VALUES_MAX = 4000
if #event > VALUES_MAX then return redis.error_reply('ERR an event has at most ' .. VALUES_MAX .. ' values') end
if #event > 0 then
  local kind = redis.call('TYPE', KEYS[2]).ok
  if kind ~= 'none' and kind ~= 'stream' then
    return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' holds a ' .. kind)
  end
  if not redis.acl_check_cmd('XADD', KEYS[2], '*', event[1], event[2]) then
    return redis.error_reply('NOPERM this user may not run XADD on ' .. KEYS[2])
  end
end

local rate = {}
if limiter ~= '' then
  local limiters = {fixed_window = fixed_window, sliding_window = sliding_window, gcra = gcra}
  if not admitted then
    for taken = 3, count do arguments[taken] = '0' end
  end
  rate = limiters[limiter]({KEYS[1]}, arguments)
  if rate.err then return rate end
  admitted = admitted and rate[1] == 1
end

local entry = ''
if admitted and #event > 0 then entry = redis.call('XADD', KEYS[2], '*', unpack(event, 1, math.min(#event, VALUES_MAX))) end
return {'judged', now, used, rate, entry}
