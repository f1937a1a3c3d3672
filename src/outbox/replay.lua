#!lua
-- replay: make dead deliveries pending again and due now, under the same ids.
--
-- KEYS[1] .. KEYS[8], ARGV[1] .. ARGV[5] as schedule.lua has them
--
-- ARGV[6 ..] ids of the deliveries, 1..1000
--
-- Returns one string for each id: 'replayed'; 'missing', when its hash is gone (14 d after its end); or the state it is in, which is
--         not 'dead': left alone
--         an error   a key of another type, a total that is no number, a command that the user may not run, or a key at another node
--                    of the cluster: nothing written. Refused whole when memory is full
--
-- The clock of give_up_after and the schedule of delays start over; the attempts made before stay in the log.
-- Safe to run twice: the second call finds them pending.

-- JUDGE

local now = now_ms()
local refusal = schedule_refusal() or wrong_total(KEYS[7], 'dead') or denied(KEYS[7], 'HINCRBY')
  or denied(ARGV[4] .. 'x', 'HSET', 'HDEL', 'PERSIST')
for at = 3, 6 do refusal = refusal or denied(KEYS[at], 'ZADD', 'ZREM') end
if refusal then return refusal end

local wanted, known = {}, {}
for at = 6, #ARGV do
  local one = {id = ARGV[at], key = ARGV[4] .. ARGV[at]}
  local stored, failed = read('HMGET', one.key, 'state', 'created_at_ms', 'attempts', 'channel', 'subject', 'destination')
  if failed then return failed end
  if known[one.id] then
    -- An id that is given twice is replayed once.
    one.state = 'pending'
  else
    one.state, one.created, one.attempts, one.channel, one.subject = stored[1], stored[2], stored[3], stored[4], stored[5]
    known[one.id] = one.state == 'dead'
    one.queue, failed = destination_of(stored[6] or 'none')
    if failed then return failed end
  end
  wanted[#wanted + 1] = one
end

-- WRITE

local answers = {}
for i, one in ipairs(wanted) do
  local id, key = one.id, one.key
  if one.state == 'dead' then
    local created = string.match(one.created or '', '^%d+$') or whole(now)
    redis.call('PERSIST', key)
    redis.call('HSET', key, 'state', 'pending', 'replayed_after', one.attempts or '0')
    redis.call('HDEL', key, 'ended_at_ms', 'first_attempt_at_ms', 'lease_token')
    enqueue_due(one.queue, id, now)
    redis.call('ZADD', KEYS[3], created, id)
    if one.channel == 'none' then redis.call('ZADD', KEYS[4], 0, (one.subject or '') .. '\0' .. id) end
    redis.call('ZREM', KEYS[6], id)
    redis.call('ZADD', KEYS[5], created, id)
    redis.call('HINCRBY', KEYS[7], 'dead', -1)
    answers[i] = 'replayed'
  elseif one.state then
    answers[i] = one.state
  else
    redis.call('ZREM', KEYS[6], id)
    answers[i] = 'missing'
  end
end
place_all(now)
return answers
