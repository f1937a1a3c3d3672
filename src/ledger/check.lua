#!lua
-- check: whether a subject may use some units now: its day's committed count, then a window; and where both say yes, the usage event.
--
-- KEYS[1] counters of the first day, hash        ARGV[1] subject
-- KEYS[2] counters of the day after it, hash     ARGV[2] units asked for, 1..2^53-1
-- KEYS[3] the window limiter's key               ARGV[3] when the first day begins, ms
-- KEYS[4] usage stream                           ARGV[4] when it ends and the second begins, ms
--                                                ARGV[5] when the second ends, ms
--                                                ARGV[6] units of the day's limit, 1..2^53-1; empty for none
--                                                ARGV[7] limiter, a name of the functions; empty for none
--                                                ARGV[8] number of the limiter's arguments
--                                                then these; those from the third on are what to take, and 0 asks
--                                                then the fields of the event, names and values; none: nothing is recorded
--
-- Returns {'judged', now, used, window, entry}  now: server time, ms; used: units committed that day, -1 without a limit; window: the
--                                               limiter's reply, {} without one; entry: id of the event, empty where none was appended
--         {'wrong_day', now}                     now lies in neither day: nothing written, ask again with days around it
--         an error                              a key of another type, or a value that is not ours: nothing written; but where the
--                                               stream takes no entry, the window's units are taken
--
-- The day is judged first: where it says no, the window is asked and nothing is taken from it. Run twice it takes twice from the
-- window, against its caller; the event counts once, by its id.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now < tonumber(ARGV[3]) or now >= tonumber(ARGV[5]) then return {'wrong_day', now} end

local used, admitted = -1, true
if ARGV[6] ~= '' then
  local day = now < tonumber(ARGV[4]) and KEYS[1] or KEYS[2]
  used = tonumber(redis.call('HGET', day, ARGV[1]) or '0')
  if not used then return redis.error_reply('ERR ' .. day .. ' holds a counter that is no number') end
  -- A difference, because a sum of two counts may pass 2^53.
  admitted = tonumber(ARGV[2]) <= tonumber(ARGV[6]) - used
end

local window, count = {}, tonumber(ARGV[8])
if ARGV[7] ~= '' then
  local limiters = {fixed_window = fixed_window, sliding_window = sliding_window, gcra = gcra}
  local arguments = {unpack(ARGV, 9, 8 + count)}
  if not admitted then
    for at = 3, count do arguments[at] = '0' end
  end
  window = limiters[ARGV[7]]({KEYS[3]}, arguments)
  if window.err then return window end
  admitted = admitted and window[1] == 1
end

local entry = ''
if admitted and #ARGV > 8 + count then
  entry = redis.call('XADD', KEYS[4], '*', unpack(ARGV, 9 + count))
end
return {'judged', now, used, window, entry}
