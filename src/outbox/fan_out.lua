#!lua flags=allow-oom
-- fan_out: turn notifications into one delivery per contact each, and consume their sources, in one step.
--
-- KEYS[1] .. KEYS[9], ARGV[1] .. ARGV[7] as schedule.lua has them
-- KEYS[10] outbox stream   KEYS[11] checkpoint hash
--
-- ARGV[8] TTL of an ended delivery, s
-- ARGV[9 ..] for each notification, 1..100 of them. The first one may have any number of contacts; all the others
--   together have fewer than 200:
--   'outbox', 'delivery' or 'kept': the source, id of the outbox entry or of the source delivery, lease token of the
--   source delivery ('' for an entry), type of the notification ('alert', 'grant_expires', 'usage_notice',
--   'resolved'), its id,
--   the notification as JSON (of a delivery, what is stored there is used instead: an erasure may have taken names
--   out of it), what the log of alerts gets ('' for nothing), subject,
--   when it expires in ms, number of deliveries wanted, and for each of these: delivery id, channel ('email',
--   'webhook', 'none'), contact id, destination, the group with which it leaves in one message ('' if it leaves
--   alone), and how long the first of that group waits for others, ms. Without any contact the caller wants the one
--   delivery of channel 'none'.
--
-- What happens to a wanted delivery:
--   it does not exist            created: pending, due now, or with the first of its group ('none': due when the
--                                notification expires, and in the waiting index). The field of its type holds the JSON;
--                                'alert_id' or 'notice_id' its id. A notice that would expire while it waits for others
--                                leaves alone
--   it is the source             its contact still exists, or there still is none: rescheduled, its lease released
--   an operator cancelled it     not changed
--   cancelled otherwise          its contact came back: pending again, due now, under the same id
--   it is pending or ended       not changed: a contact gets one delivery of a notification
-- The source is consumed: the outbox entry is deleted, or a delivery that is not wanted itself ends 'cancelled'. A
-- 'kept' source is not changed: its lease holder settles it.
--
-- Returns {now ms, deliveries waiting, an answer for each notification}
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
local refusal = moved_away_from(KEYS[11]) or wrong_type(10, 'stream') or schedule_refusal() or refused_total('made') or refused_total('cancelled')
  or denied(KEYS[10], 'XDEL')
if refusal then return refusal end

-- The stored state of a wanted delivery; a word if it is unusable, or an error reply.
local function judge_wanted(d)
  local exists, failed = redis.pcall('EXISTS', d.key)
  if type(exists) == 'table' then return exists end
  d.queue, failed = destination_of(d.destination)
  if failed or exists == 0 then return failed end
  local stored = redis.pcall('HMGET', d.key, 'state', 'created_at_ms', 'attempts', 'destination', 'cancelled_by', 'group', 'sent_in')
  if stored.err then return was_refused(stored) and stored or 'wrong_type' end
  if not stored[1] then return 'wrong_type' end
  d.state, d.created, d.attempts, d.cancelled_by = stored[1], stored[2], stored[3], stored[5]
  d.listed = stored[7] or stored[6]
  d.queue_before, failed = destination_of(stored[4] or d.destination)
  return failed
end

-- Why a request can't be processed: the reply, or an error reply as the second value.
local function judge_source(request)
  if request.kind == 'outbox' then return nil end
  request.key = ARGV[4] .. request.source
  local held = redis.pcall('HMGET', request.key, 'state', 'lease_token', 'channel', 'attempts', 'replayed_after', 'destination',
    request.type, 'waits_until_ms')
  if held.err and was_refused(held) then return nil, held end
  if held.err then return 'wrong_type' end
  -- Also for an erased subject: nothing new may name it.
  if held[1] ~= 'pending' or held[2] ~= request.token then return 'stale' end
  request.json = held[7] or request.json
  request.waited_until = tonumber(held[8] or '')
  if request.kind == 'kept' then return nil end
  request.channel, request.attempts, request.before = held[3], tonumber(held[4]) or 0, tonumber(held[5] or '0') or 0
  local failed
  request.queue, failed = destination_of(held[6] or 'none')
  return nil, failed
end

local requests = {}
local at = 9
while at < #ARGV do
  local request = {kind = ARGV[at], source = ARGV[at + 1], token = ARGV[at + 2], type = ARGV[at + 3], id = ARGV[at + 4],
    json = ARGV[at + 5], logged = ARGV[at + 6], subject = ARGV[at + 7], expires = tonumber(ARGV[at + 8]), wanted = {}, known = {}}
  local count, failed = tonumber(ARGV[at + 9]), nil
  at = at + 10
  failed = refused_subject(request.subject)
  if failed then return failed end
  request.answer, failed = judge_source(request)
  if failed then return failed end
  for position = 1, count do
    local d = {at = position, id = ARGV[at], channel = ARGV[at + 1], contact = ARGV[at + 2], destination = ARGV[at + 3],
      group = ARGV[at + 4], wait = tonumber(ARGV[at + 5])}
    -- A notice is false after its expiry.
    if request.type ~= 'alert' and now + d.wait >= request.expires then d.group, d.wait = '', 0 end
    d.key = ARGV[4] .. d.id
    at = at + 6
    -- Two contacts with one id are one contact.
    if not request.known[d.id] then
      request.known[d.id] = true
      request.wanted[#request.wanted + 1] = d
      failed = judge_wanted(d)
      if type(failed) == 'table' then return failed end
      request.answer = request.answer or failed
    end
  end
  requests[#requests + 1] = request
end

-- WRITE

local function id_field(request) return request.type == 'alert' and 'alert_id' or 'notice_id' end

local function waiting_member(request, id) return request.subject .. '\0' .. id end

-- Without a contact nothing happens until somebody wakes it. One that waits for others leaves with those that wait.
local function due_of(request, d)
  if d.channel == 'none' then return math.max(now, request.expires) end
  if d.wait == 0 then return now end
  local first = redis.call('ZRANGEBYLEX', KEYS[9], '[' .. grouped(d.group, ''), '(' .. d.group .. '\1', 'LIMIT', 0, 1)[1]
  local due = first and tonumber(redis.call('ZSCORE', d.queue.due, string.match(first, '[^%z]*$')) or '') or 0
  return due > now and math.min(due, now + d.wait) or now + d.wait
end

-- Lists a delivery in its present group.
local function join_group(d)
  if d.listed then
    redis.call('ZREM', KEYS[9], grouped(d.listed, d.id))
    redis.call('HDEL', d.key, 'group', 'sent_in', 'set_since')
  end
  if d.group == '' then return end
  redis.call('HSET', d.key, 'group', d.group)
  redis.call('ZADD', KEYS[9], 0, grouped(d.group, d.id))
end

-- Takes back the attempt that the lease counted, because it did not take place; without any attempt there is no first
-- one either. Returns the number of attempts.
local function give_back(request)
  redis.call('HDEL', request.key, 'lease_token')
  if request.channel == 'none' or request.attempts == 0 then return whole(request.attempts) end
  local attempts = whole(request.attempts - 1)
  redis.call('HSET', request.key, 'attempts', attempts)
  if request.attempts - 1 <= request.before then redis.call('HDEL', request.key, 'first_attempt_at_ms') end
  return attempts
end

local function open(request, d, created, attempts)
  redis.call('HSET', d.key, 'type', request.type, request.type, request.json, 'subject', request.subject,
    'channel', d.channel, 'contact_id', d.contact, 'destination', d.destination, 'state', 'pending', 'attempts', attempts,
    'created_at_ms', created)
  redis.call('HSET', d.key, id_field(request), request.id)
  collect('ZADD', KEYS[3], created, d.id)
  collect('ZADD', KEYS[5], created, d.id)
  note_pending(request.subject, d.id)
  local due = due_of(request, d)
  -- What waited does not expire because its contact was replaced meanwhile.
  local waits_until = math.max(d.wait > 0 and due or 0, request.waited_until or 0)
  if waits_until > 0 then redis.call('HSET', d.key, 'waits_until_ms', whole(waits_until)) end
  collect('ZADD', d.queue.due, whole(due), d.id)
  join_group(d)
  if d.channel == 'none' then collect('ZADD', KEYS[4], '0', waiting_member(request, d.id)) end
end

-- Two sources of one notification may want the same delivery, or one source may be the wanted delivery of the other.
-- All were judged before the first write, so these tables tell what was written since: the opened deliveries, and the
-- attempts of each cancelled one.
local opened, cancelled = {}, {}

local function fan_out(request)
  local made, reopened = {}, {}
  for _, d in ipairs(request.wanted) do
    if opened[d.id] then d.state = 'pending' end
    if cancelled[d.id] then d.state, d.cancelled_by, d.attempts = 'cancelled', nil, cancelled[d.id] end
    if not d.state then
      opened[d.id] = true
      open(request, d, whole(now), '0')
      count('made', 1)
      made[#made + 1] = d.at
    elseif request.kind == 'delivery' and d.id == request.source then
      -- The contact of an id may have changed its channel, which determines the next lease, or its destination.
      dequeue(d.queue_before, d.id)
      redis.call('HSET', d.key, 'channel', d.channel, 'destination', d.destination)
      give_back(request)
      d.wait = 0
      enqueue_due(d.queue, d.id, due_of(request, d))
      join_group(d)
      if d.channel == 'none' then redis.call('ZADD', KEYS[4], 0, waiting_member(request, d.id)) end
    elseif d.state == 'cancelled' and not d.cancelled_by then
      local attempts = tonumber(d.attempts or '0') and d.attempts or '0'
      opened[d.id], cancelled[d.id] = true, nil
      redis.call('PERSIST', d.key)
      redis.call('HDEL', d.key, 'ended_at_ms', 'first_attempt_at_ms', 'lease_token')
      redis.call('HSET', d.key, 'replayed_after', attempts, 'replayed_at_ms', whole(now))
      open(request, d, string.match(d.created or '', '^%d+$') or whole(now), attempts)
      count('cancelled', -1)
      reopened[#reopened + 1] = d.at
    end
  end
  -- If all deliveries are there already, it was logged when they were made.
  if request.logged ~= '' and (#made > 0 or #request.wanted == 0) then
    append_to_log(now, request.type, request.logged, id_field(request), request.id, 'subject', request.subject)
  end
  local ended = request.kind == 'outbox' and 'consumed' or 'kept'
  if request.kind == 'delivery' and request.known[request.source] then
    ended = 'rescheduled'
  elseif request.kind == 'delivery' then
    ended, cancelled[request.source] = 'cancelled', give_back(request)
    redis.call('HSET', request.key, 'state', 'cancelled', 'ended_at_ms', whole(now))
    redis.call('EXPIRE', request.key, ARGV[8])
    note_ended(request.subject, request.source, now, ARGV[8])
    dequeue(request.queue, request.source)
    redis.call('ZREM', KEYS[3], request.source)
    redis.call('ZREM', KEYS[4], waiting_member(request, request.source))
    count('cancelled', 1)
  end
  return {'done', ended, made, reopened}
end

-- Removes a source from its place, or returns the reply if it is gone. A source that is named twice is removed once. An
-- invalid id of an entry does not exist; XDEL would raise an error for it.
local taken = {}
local function take(request)
  if request.kind == 'outbox' then return redis.pcall('XDEL', KEYS[10], request.source) ~= 1 and 'gone' or nil end
  if taken[request.source] then return 'stale' end
  taken[request.source] = true
end

local answers = {whole(now), ''}
for _, request in ipairs(requests) do
  local answer = request.answer or take(request)
  answers[#answers + 1] = answer and {answer} or fan_out(request)
end
place_all(now)
answers[2] = whole(redis.call('ZCARD', KEYS[4]))
return answers
