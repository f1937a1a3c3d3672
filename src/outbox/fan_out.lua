#!lua flags=allow-oom
-- fan_out: turn one alert into one delivery per contact and consume what it came from, in one step.
--
-- KEYS[1] outbox stream   KEYS[2] due zset          KEYS[3] pending zset   KEYS[4] waiting zset
-- KEYS[5] deliveries zset KEYS[6] totals hash       KEYS[7] source delivery's hash (KEYS[1] again when the source is the outbox)
-- KEYS[8 ..]              hash of each delivery wanted, in the order of ARGV
--
-- ARGV[1] 'outbox' or 'delivery': the source        ARGV[2] outbox entry id, or id of the source delivery
-- ARGV[3] lease token of the source delivery ('' for the outbox)
-- ARGV[4] alert id   ARGV[5] the alert, JSON        ARGV[6] subject
-- ARGV[7] wait of a delivery without contact, ms    ARGV[8] TTL of an ended delivery, s
-- ARGV[9 ..] per delivery wanted (at least one): delivery id, channel ('email', 'webhook', 'none'), contact id. Without any contact
--            the caller wants the one delivery of channel 'none'.
--
-- What happens to a delivery wanted:
--   it does not exist            it is made: pending, due now ('none': after its wait, and in the waiting index)
--   it is the source             its contact is there after all, or there still is none: rescheduled, its lease given back
--   it was cancelled             its contact came back: pending again, due now, under the same id
--   it is pending or ended       left alone: a contact gets one delivery of an alert
-- The source is consumed: the outbox entry deleted, a delivery that is not wanted itself ended 'cancelled'.
--
-- Returns {'done', now ms, 'consumed' | 'cancelled' | 'rescheduled', deliveries waiting, {made}, {reopened}}
--                                 made and reopened are positions in ARGV, 1 for the first delivery wanted
--         {'gone', now ms, ...}   the outbox entry is not there: fanned out before, nothing written
--         {'stale', now ms, ...}  the delivery ended or another worker leased it: nothing written
--         an error                a key of another type, a hash that is no delivery, a total that is no number or a command that
--                                 the user may not run: nothing written
--
-- Runs when memory is full too: it is bounded by the contacts and is what empties the outbox.
-- Safe to run twice: the second call finds the source consumed or its lease given back.

-- JUDGE

local now = now_ms()
local from_outbox = ARGV[1] == 'outbox'

for i = 1, #KEYS do
  local want = (i >= 2 and i <= 5) and 'zset' or 'hash'
  if i == 1 or (i == 7 and from_outbox) then want = 'stream' end
  local failed = wrong_type(i, want)
  if failed then return failed end
end
for _, total in ipairs({'made', 'cancelled'}) do
  local failed = wrong_total(KEYS[6], total)
  if failed then return failed end
end

local refusal = denied(KEYS[6], 'HINCRBY') or (from_outbox and denied(KEYS[1], 'XDEL'))
for i = 2, 5 do refusal = refusal or denied(KEYS[i], 'ZADD', 'ZREM') end
for i = from_outbox and 8 or 7, #KEYS do refusal = refusal or denied(KEYS[i], 'HSET', 'HDEL', 'EXPIRE', 'PERSIST') end
if refusal then return refusal end

local source
if from_outbox then
  if #redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2]) == 0 then return {'gone', whole(now), '', '0', {}, {}} end
else
  local held = redis.call('HMGET', KEYS[7], 'state', 'lease_token', 'channel', 'attempts', 'replayed_after')
  if held[1] ~= 'pending' or held[2] ~= ARGV[3] then return {'stale', whole(now), '', '0', {}, {}} end
  source = {channel = held[3], attempts = tonumber(held[4]) or 0, before = tonumber(held[5] or '0') or 0}
end

local wanted, known = {}, {}
for i = 9, #ARGV, 3 do
  local d = {at = (i - 6) / 3, id = ARGV[i], channel = ARGV[i + 1], contact = ARGV[i + 2]}
  d.key = KEYS[7 + d.at]
  -- Two contacts of one id are one contact.
  if not known[d.id] then
    known[d.id] = true
    wanted[#wanted + 1] = d
    local stored = redis.call('HMGET', d.key, 'state', 'created_at_ms', 'attempts')
    d.state, d.created, d.attempts = stored[1], stored[2], stored[3]
    if not d.state and redis.call('EXISTS', d.key) == 1 then return wrong(d.key, 'a hash that is no delivery') end
  end
end

-- WRITE

local function waiting_member(id) return ARGV[6] .. '\0' .. id end

local function schedule(d)
  if d.channel == 'none' then
    redis.call('ZADD', KEYS[2], whole(now + tonumber(ARGV[7])), d.id)
    redis.call('ZADD', KEYS[4], 0, waiting_member(d.id))
  else
    redis.call('ZADD', KEYS[2], whole(now), d.id)
  end
end

-- The lease counted an attempt that did not take place; without any attempt there is no first one either.
local function give_back(key)
  redis.call('HDEL', key, 'lease_token')
  if source.channel == 'none' or source.attempts == 0 then return end
  redis.call('HSET', key, 'attempts', whole(source.attempts - 1))
  if source.attempts - 1 <= source.before then redis.call('HDEL', key, 'first_attempt_at_ms') end
end

local function open(d, created, attempts)
  redis.call('HSET', d.key, 'type', 'alert', 'alert_id', ARGV[4], 'alert', ARGV[5], 'subject', ARGV[6], 'channel', d.channel, 'contact_id', d.contact,
    'state', 'pending', 'attempts', attempts, 'created_at_ms', created)
  redis.call('ZADD', KEYS[3], created, d.id)
  redis.call('ZADD', KEYS[5], created, d.id)
  schedule(d)
end

local made, reopened = {}, {}
for _, d in ipairs(wanted) do
  if not d.state then
    open(d, whole(now), '0')
    redis.call('HINCRBY', KEYS[6], 'made', 1)
    made[#made + 1] = d.at
  elseif source and d.id == ARGV[2] then
    -- The contact of an id may have changed its channel, which decides how long the next lease is.
    redis.call('HSET', d.key, 'channel', d.channel)
    give_back(d.key)
    schedule(d)
  elseif d.state == 'cancelled' then
    local attempts = tonumber(d.attempts or '0') and d.attempts or '0'
    redis.call('PERSIST', d.key)
    redis.call('HDEL', d.key, 'ended_at_ms', 'first_attempt_at_ms', 'lease_token')
    redis.call('HSET', d.key, 'replayed_after', attempts)
    open(d, string.match(d.created or '', '^%d+$') or whole(now), attempts)
    redis.call('HINCRBY', KEYS[6], 'cancelled', -1)
    reopened[#reopened + 1] = d.at
  end
end

local ended = 'consumed'
if from_outbox then
  redis.call('XDEL', KEYS[1], ARGV[2])
elseif known[ARGV[2]] then
  ended = 'rescheduled'
else
  ended = 'cancelled'
  give_back(KEYS[7])
  redis.call('HSET', KEYS[7], 'state', 'cancelled', 'ended_at_ms', whole(now))
  redis.call('EXPIRE', KEYS[7], ARGV[8])
  redis.call('ZREM', KEYS[2], ARGV[2])
  redis.call('ZREM', KEYS[3], ARGV[2])
  redis.call('ZREM', KEYS[4], waiting_member(ARGV[2]))
  redis.call('HINCRBY', KEYS[6], 'cancelled', 1)
end
return {'done', whole(now), ended, whole(redis.call('ZCARD', KEYS[4])), made, reopened}
