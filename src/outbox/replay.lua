#!lua
-- replay: make dead deliveries pending again and due now, under the same ids.
--
-- KEYS[1] due zset   KEYS[2] pending zset   KEYS[3] waiting zset   KEYS[4] dead zset   KEYS[5] deliveries zset   KEYS[6] totals hash
-- KEYS[7 ..] hash of each delivery, in the order of ARGV
--
-- ARGV[1 ..] ids of the deliveries, 1..1000
--
-- Returns one string for each id: 'replayed'; 'missing', when its hash is gone (14 d after its end); or the state it is in, which is
--         not 'dead': left alone
--         an error   a key of another type, a total that is no number or a command that the user may not run: nothing written. Refused
--                    whole when memory is full
--
-- The clock of give_up_after and the schedule of delays start over; the attempts made before stay in the log.
-- Safe to run twice: the second call finds them pending.

-- JUDGE

local now = now_ms()
for i = 1, #KEYS do
  local failed = wrong_type(i, i >= 6 and 'hash' or 'zset')
  if failed then return failed end
end
local failed = wrong_total(KEYS[6], 'dead')
if failed then return failed end

local refusal = denied(KEYS[6], 'HINCRBY')
for i = 1, 5 do refusal = refusal or denied(KEYS[i], 'ZADD', 'ZREM') end
for i = 7, #KEYS do refusal = refusal or denied(KEYS[i], 'HSET', 'HDEL', 'PERSIST') end
if refusal then return refusal end

-- WRITE

local answers = {}
for i, id in ipairs(ARGV) do
  local key = KEYS[6 + i]
  -- Read here and not before, so that an id given twice is replayed once.
  local stored = redis.call('HMGET', key, 'state', 'created_at_ms', 'attempts', 'channel', 'subject')
  if stored[1] == 'dead' then
    local created = string.match(stored[2] or '', '^%d+$') or whole(now)
    redis.call('PERSIST', key)
    redis.call('HSET', key, 'state', 'pending', 'replayed_after', stored[3] or '0')
    redis.call('HDEL', key, 'ended_at_ms', 'first_attempt_at_ms', 'lease_token')
    redis.call('ZADD', KEYS[1], whole(now), id)
    redis.call('ZADD', KEYS[2], created, id)
    if stored[4] == 'none' then redis.call('ZADD', KEYS[3], 0, (stored[5] or '') .. '\0' .. id) end
    redis.call('ZREM', KEYS[4], id)
    redis.call('ZADD', KEYS[5], created, id)
    redis.call('HINCRBY', KEYS[6], 'dead', -1)
    answers[i] = 'replayed'
  elseif stored[1] then
    answers[i] = stored[1]
  else
    redis.call('ZREM', KEYS[4], id)
    answers[i] = 'missing'
  end
end
return answers
