#!lua
-- action: apply an operator's action to deliveries: replay, retry, cancel or discard.
--
-- KEYS[1] .. KEYS[9], ARGV[1] .. ARGV[7] as schedule.lua has them
--
-- ARGV[8] the action
--   'replay'    a dead one becomes pending and due now, under the same id. The clock of give_up_after and the schedule
--               of delays restart; earlier attempts stay in the log. One that was sent with others leaves their message
--   'retry'     a dead one is replayed, a pending one becomes due now. If that attempt fails, the next one is made no
--               later than without it. If the circuit of its destination is open, the next attempt there is made now;
--               nothing else of the destination changes
--   'cancel'    a pending one ends 'cancelled' permanently: fan_out creates no delivery of that alert to that contact
--   'discard'   a dead one leaves the list of dead ones and no longer counts; it stays readable as dead
-- ARGV[9] TTL of an ended delivery, s   ARGV[10 ..] ids of the deliveries, 1..500
--
-- Returns one string for each id: 'done'; 'leased' if it is being attempted: not changed; 'missing' if its hash is gone
--         (14 d after its end); or its state, if the action does not accept that: not changed
--         an error   a key of another type, a total that is no number, a command that the user may not run, or a key at
--                    another node of the cluster: nothing written. Refused whole when memory is full
--
-- Safe to run twice: the second call finds the first one's writes, and returns the state, or does the same again.

-- JUDGE

local now = now_ms()
local action = ARGV[8]
local takes_dead, takes_pending = action ~= 'cancel', action == 'retry' or action == 'cancel'
local refusal = schedule_refusal() or refused_total('dead') or refused_total('cancelled')
if refusal then return refusal end

-- The reply for a delivery that is not changed; nil for one that the action accepts.
local function left_alone(one)
  if not one.state then return 'missing' end
  if one.state == 'dead' and takes_dead then return nil end
  if one.state ~= 'pending' or not takes_pending then return one.state end
  local due = tonumber(redis.call('ZSCORE', one.d.due, one.id) or '0')
  return one.token and due > now and 'leased' or nil
end

local wanted, known = {}, {}
for at = 10, #ARGV do
  local one = {id = ARGV[at], key = ARGV[4] .. ARGV[at]}
  local stored, failed = read('HMGET', one.key, 'state', 'created_at_ms', 'attempts', 'channel', 'subject', 'destination',
    'lease_token', 'group')
  if failed then return failed end
  one.state, one.created, one.attempts, one.channel, one.subject = stored[1], stored[2], stored[3], stored[4], stored[5]
  one.token, one.group = stored[7], stored[8]
  one.d, failed = destination_of(stored[6] or 'none')
  failed = failed or refused_subject(one.subject or '')
  if failed then return failed end
  -- If an id is given twice, its second reply is that of a later second call.
  one.answer = known[one.id] or left_alone(one)
  if not one.answer then
    known[one.id] = action == 'cancel' and 'cancelled' or action == 'discard' and 'dead' or 'pending'
  end
  wanted[#wanted + 1] = one
end

-- WRITE

local function reopen(one)
  local created = string.match(one.created or '', '^%d+$') or whole(now)
  redis.call('PERSIST', one.key)
  redis.call('HSET', one.key, 'state', 'pending', 'replayed_after', one.attempts or '0',
    'replayed_at_ms', whole(now))
  redis.call('HDEL', one.key, 'ended_at_ms', 'first_attempt_at_ms', 'lease_token', 'discarded_at_ms', 'sent_in', 'set_since')
  if one.group then redis.call('ZADD', KEYS[9], 0, grouped(one.group, one.id)) end
  enqueue_due(one.d, one.id, now)
  redis.call('ZADD', KEYS[3], created, one.id)
  if one.channel == 'none' then redis.call('ZADD', KEYS[4], 0, (one.subject or '') .. '\0' .. one.id) end
  redis.call('ZREM', KEYS[6], one.id)
  redis.call('ZADD', KEYS[5], created, one.id)
  note_pending(one.subject or '', one.id)
  redis.call('HINCRBY', KEYS[7], 'dead', -1)
end

local function cancel(one)
  redis.call('HSET', one.key, 'state', 'cancelled', 'ended_at_ms', whole(now), 'cancelled_by', 'operator')
  redis.call('HDEL', one.key, 'lease_token')
  redis.call('EXPIRE', one.key, ARGV[9])
  note_ended(one.subject or '', one.id, now, ARGV[9])
  dequeue(one.d, one.id)
  redis.call('ZREM', KEYS[3], one.id)
  if one.channel == 'none' then redis.call('ZREM', KEYS[4], (one.subject or '') .. '\0' .. one.id) end
  redis.call('HINCRBY', KEYS[7], 'cancelled', 1)
end

local function discard(one)
  redis.call('HSET', one.key, 'discarded_at_ms', whole(now))
  redis.call('ZREM', KEYS[6], one.id)
end

local function retry(one)
  if one.state == 'dead' then
    reopen(one)
  else
    local due = tonumber(redis.call('ZSCORE', one.d.due, one.id) or whole(now))
    if due > now then redis.call('HSET', one.key, 'automatic_due_ms', whole(due)) end
    enqueue_due(one.d, one.id, math.min(now, due))
  end
  if one.d.probe_at and one.d.probe_at > now then
    one.d.probe_at = now
    redis.call('HSET', one.d.key, 'probe_at_ms', whole(now))
  end
end

local actions, answers = {replay = reopen, retry = retry, cancel = cancel, discard = discard}, {}
for i, one in ipairs(wanted) do
  if one.answer == 'missing' then redis.call('ZREM', KEYS[6], one.id) end
  if not one.answer then actions[action](one) end
  answers[i] = one.answer or 'done'
end
place_all(now)
return answers
