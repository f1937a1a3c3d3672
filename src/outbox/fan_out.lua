#!lua flags=allow-oom
-- fan_out: turn alerts into one delivery per contact each, and consume their sources, in one step.
--
-- KEYS[1] .. KEYS[8], ARGV[1] .. ARGV[6] as schedule.lua has them
-- KEYS[9] outbox stream   KEYS[10] checkpoint hash
--
-- ARGV[7] TTL of an ended delivery, s
-- ARGV[8 ..] for each alert, 1..100 of them. The first alert may have any number of contacts; all the others together
--   have fewer than 200:
--   'outbox', 'delivery' or 'kept': the source, id of the outbox entry or of the source delivery, lease token of the
--   source delivery ('' for an entry), alert id, the alert as JSON, subject, when it expires in ms, number of
--   deliveries wanted, and for each of these: delivery id, channel ('email', 'webhook', 'none'), contact id,
--   destination. Without any contact the caller wants the one delivery of channel 'none'.
--
-- What happens to a wanted delivery:
--   it does not exist            created: pending, due now ('none': due when the alert expires, and in the waiting
--                                index)
--   it is the source             its contact still exists, or there still is none: rescheduled, its lease released
--   an operator cancelled it     not changed
--   cancelled otherwise          its contact came back: pending again, due now, under the same id
--   it is pending or ended       not changed: a contact gets one delivery of an alert
-- The source is consumed: the outbox entry is deleted, or a delivery that is not wanted itself ends 'cancelled'. A
-- 'kept' source is not changed: its lease holder settles it.
--
-- Returns {now ms, deliveries waiting, an answer for each alert}
--           {'done', 'consumed' | 'cancelled' | 'rescheduled' | 'kept', {made}, {reopened}}
--                           made and reopened are positions among the wanted deliveries, from 1
--           {'gone'}        the outbox entry does not exist: fanned out before, nothing written for it
--           {'stale'}       the delivery ended or another worker leased it: nothing written for it
--           {'wrong_type'}  a delivery's key has another type: nothing written for it, and the existence of its outbox
--                           entry is not checked
--         an error          a key of another type, a total that is no number, a command that the user may not run, a
--                           key at another node of the cluster, or a partition that was moved away: nothing written at
--                           all
--
-- Also runs when memory is full: its writes are bounded by the contacts, and it empties the outbox.
-- Safe to run twice: the second call finds the sources consumed or their leases released.

-- JUDGE

local now = now_ms()
local refusal = moved_away_from(KEYS[10]) or wrong_type(9, 'stream') or schedule_refusal() or refused_total('made') or refused_total('cancelled')
  or denied(KEYS[9], 'XDEL')
if refusal then return refusal end

-- The stored state of a wanted delivery; a word if it is unusable, or an error reply.
local function judge_wanted(d)
  local exists, failed = redis.pcall('EXISTS', d.key)
  if type(exists) == 'table' then return exists end
  d.queue, failed = destination_of(d.destination)
  if failed or exists == 0 then return failed end
  local stored = redis.pcall('HMGET', d.key, 'state', 'created_at_ms', 'attempts', 'destination', 'cancelled_by')
  if stored.err then return was_refused(stored) and stored or 'wrong_type' end
  if not stored[1] then return 'wrong_type' end
  d.state, d.created, d.attempts, d.cancelled_by = stored[1], stored[2], stored[3], stored[5]
  d.queue_before, failed = destination_of(stored[4] or d.destination)
  return failed
end

-- Why an alert can't be processed: the reply, or an error reply as the second value.
local function judge_source(alert)
  if alert.kind == 'outbox' then return nil end
  alert.key = ARGV[4] .. alert.source
  local held = redis.pcall('HMGET', alert.key, 'state', 'lease_token', 'channel', 'attempts', 'replayed_after', 'destination')
  if held.err and was_refused(held) then return nil, held end
  if held.err then return 'wrong_type' end
  -- Also for an erased subject: nothing new may name it.
  if held[1] ~= 'pending' or held[2] ~= alert.token then return 'stale' end
  if alert.kind == 'kept' then return nil end
  alert.channel, alert.attempts, alert.before = held[3], tonumber(held[4]) or 0, tonumber(held[5] or '0') or 0
  local failed
  alert.queue, failed = destination_of(held[6] or 'none')
  return nil, failed
end

local alerts = {}
local at = 8
while at < #ARGV do
  local alert = {kind = ARGV[at], source = ARGV[at + 1], token = ARGV[at + 2], id = ARGV[at + 3], json = ARGV[at + 4],
    subject = ARGV[at + 5], expires = tonumber(ARGV[at + 6]), wanted = {}, known = {}}
  local count, failed = tonumber(ARGV[at + 7]), nil
  at = at + 8
  failed = refused_subject(alert.subject)
  if failed then return failed end
  alert.answer, failed = judge_source(alert)
  if failed then return failed end
  for position = 1, count do
    local d = {at = position, id = ARGV[at], channel = ARGV[at + 1], contact = ARGV[at + 2], destination = ARGV[at + 3]}
    d.key = ARGV[4] .. d.id
    at = at + 4
    -- Two contacts with one id are one contact.
    if not alert.known[d.id] then
      alert.known[d.id] = true
      alert.wanted[#alert.wanted + 1] = d
      failed = judge_wanted(d)
      if type(failed) == 'table' then return failed end
      alert.answer = alert.answer or failed
    end
  end
  alerts[#alerts + 1] = alert
end

-- WRITE

local function waiting_member(alert, id) return alert.subject .. '\0' .. id end

-- Without a contact nothing happens until somebody wakes it.
local function due_of(alert, d) return d.channel == 'none' and math.max(now, alert.expires) or now end

-- Takes back the attempt that the lease counted, because it did not take place; without any attempt there is no first
-- one either. Returns the number of attempts.
local function give_back(alert)
  redis.call('HDEL', alert.key, 'lease_token')
  if alert.channel == 'none' or alert.attempts == 0 then return whole(alert.attempts) end
  local attempts = whole(alert.attempts - 1)
  redis.call('HSET', alert.key, 'attempts', attempts)
  if alert.attempts - 1 <= alert.before then redis.call('HDEL', alert.key, 'first_attempt_at_ms') end
  return attempts
end

local function open(alert, d, created, attempts)
  redis.call('HSET', d.key, 'type', 'alert', 'alert_id', alert.id, 'alert', alert.json, 'subject', alert.subject, 'channel', d.channel,
    'contact_id', d.contact, 'destination', d.destination, 'state', 'pending', 'attempts', attempts, 'created_at_ms', created)
  collect('ZADD', KEYS[3], created, d.id)
  collect('ZADD', KEYS[5], created, d.id)
  note_pending(alert.subject, d.id)
  collect('ZADD', d.queue.due, whole(due_of(alert, d)), d.id)
  if d.channel == 'none' then collect('ZADD', KEYS[4], '0', waiting_member(alert, d.id)) end
end

-- Two sources of one alert may want the same delivery, or one source may be the wanted delivery of the other. All were
-- judged before the first write, so these tables tell what was written since: the opened deliveries, and the attempts
-- of each cancelled one.
local opened, cancelled = {}, {}

local function fan_out(alert)
  local made, reopened = {}, {}
  for _, d in ipairs(alert.wanted) do
    if opened[d.id] then d.state = 'pending' end
    if cancelled[d.id] then d.state, d.cancelled_by, d.attempts = 'cancelled', nil, cancelled[d.id] end
    if not d.state then
      opened[d.id] = true
      open(alert, d, whole(now), '0')
      count('made', 1)
      made[#made + 1] = d.at
    elseif alert.kind == 'delivery' and d.id == alert.source then
      -- The contact of an id may have changed its channel, which determines the next lease, or its destination.
      dequeue(d.queue_before, d.id)
      redis.call('HSET', d.key, 'channel', d.channel, 'destination', d.destination)
      give_back(alert)
      enqueue_due(d.queue, d.id, due_of(alert, d))
      if d.channel == 'none' then redis.call('ZADD', KEYS[4], 0, waiting_member(alert, d.id)) end
    elseif d.state == 'cancelled' and not d.cancelled_by then
      local attempts = tonumber(d.attempts or '0') and d.attempts or '0'
      opened[d.id], cancelled[d.id] = true, nil
      redis.call('PERSIST', d.key)
      redis.call('HDEL', d.key, 'ended_at_ms', 'first_attempt_at_ms', 'lease_token')
      redis.call('HSET', d.key, 'replayed_after', attempts)
      open(alert, d, string.match(d.created or '', '^%d+$') or whole(now), attempts)
      count('cancelled', -1)
      reopened[#reopened + 1] = d.at
    end
  end
  local ended = alert.kind == 'outbox' and 'consumed' or 'kept'
  if alert.kind == 'delivery' and alert.known[alert.source] then
    ended = 'rescheduled'
  elseif alert.kind == 'delivery' then
    ended, cancelled[alert.source] = 'cancelled', give_back(alert)
    redis.call('HSET', alert.key, 'state', 'cancelled', 'ended_at_ms', whole(now))
    redis.call('EXPIRE', alert.key, ARGV[7])
    note_ended(alert.subject, alert.source, now, ARGV[7])
    dequeue(alert.queue, alert.source)
    redis.call('ZREM', KEYS[3], alert.source)
    redis.call('ZREM', KEYS[4], waiting_member(alert, alert.source))
    count('cancelled', 1)
  end
  return {'done', ended, made, reopened}
end

-- Removes a source from its place, or returns the reply if it is gone. A source that is named twice is removed once. An
-- invalid id of an entry does not exist; XDEL would raise an error for it.
local taken = {}
local function take(alert)
  if alert.kind == 'outbox' then return redis.pcall('XDEL', KEYS[9], alert.source) ~= 1 and 'gone' or nil end
  if taken[alert.source] then return 'stale' end
  taken[alert.source] = true
end

local answers = {whole(now), ''}
for _, alert in ipairs(alerts) do
  local answer = alert.answer or take(alert)
  answers[#answers + 1] = answer and {answer} or fan_out(alert)
end
place_all(now)
answers[2] = whole(redis.call('ZCARD', KEYS[4]))
return answers
