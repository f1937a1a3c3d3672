#!lua flags=allow-oom
-- lease: hold something alone, for a limited time, or let it go.
--
-- KEYS[1] holder, string   ARGV[1] 'hold' | 'release'
--                          ARGV[2] the holder that asks
--                          ARGV[3] hold: how long, ms, 1..
--                          ARGV[4] hold: a prefix of holders that may be relieved because they can't live any more; ''
--                          for none
--
-- Returns {'held', left}   hold: the caller holds it, for this many ms
--         {'taken', left}  hold: another holds it, and it is free in this many ms unless it is renewed; nothing written
--         {'released'}     release: the caller held it
--         {'not_held'}     release: it did not; nothing written
--         an error         a key of another type: nothing written
--
-- Runs when memory is full too: whoever holds the lease of a partition is the one who frees memory. It writes one small
-- key. Safe to run twice. Holding it again renews it; a holder whose lease ran out has it back at once if nobody took
-- it.

local holder = redis.call('GET', KEYS[1])
if ARGV[1] == 'release' then
  if holder ~= ARGV[2] then return {'not_held'} end
  redis.call('DEL', KEYS[1])
  return {'released'}
end

local relieved = holder and ARGV[4] ~= '' and string.sub(holder, 1, #ARGV[4]) == ARGV[4]
if not holder or holder == ARGV[2] or relieved then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return {'held', tonumber(ARGV[3])}
end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
  -- Written by somebody else and for ever: nobody would ever hold it.
  redis.call('SET', KEYS[1], holder, 'PX', ARGV[3])
  left = tonumber(ARGV[3])
end
-- Redis keeps a key through the millisecond in which it ends; so does a holder.
return {'taken', left + 1}
