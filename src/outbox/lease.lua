#!lua
-- lease: take deliveries that are due, so that nobody else attempts them until the lease runs out.
--
-- KEYS[1] due zset   KEYS[2] pending zset   KEYS[3] totals hash
-- (the hashes of the deliveries are known only here; they lie in the same slot)
--
-- ARGV[1] most deliveries to take, 1..1000          ARGV[2] token of this call, never used before
-- ARGV[3] prefix of a delivery's key                ARGV[4] TTL of an ended delivery, s
-- ARGV[5 ..] per channel: channel, length of its lease in ms
--
-- Returns {now ms, next due ms (nil: nothing is scheduled), {leased}, {dropped}}
--           leased   eleven strings each: id, type of the notification, its JSON, subject, channel, contact id, attempts (this one
--                    included), attempts before the last replay, first attempt ms, token, end of the lease ms
--           dropped  two strings each: an id that was due and what was wrong with it: 'missing', 'malformed' or 'ended'. It is out
--                    of the schedule, so that it blocks nothing; its alert may be lost, so the caller says so loudly
--         an error   a key of another type, a total that is no number, a command that the user may not run, or a delivery's hash at
--                    another node of the cluster, to which the slot moves: nothing written. Refused whole when memory is full
--
-- A delivery without contact is leased without counting an attempt: none takes place.
-- Safe to run twice: the second call takes other deliveries; those of an answer that was lost come back when their lease ends.

-- JUDGE

local now = now_ms()
for i = 1, 3 do
  local failed = wrong_type(i, i == 3 and 'hash' or 'zset')
  if failed then return failed end
end
local failed = wrong_total(KEYS[3], 'cancelled')
if failed then return failed end

local refusal = denied(KEYS[1], 'ZADD', 'ZREM') or denied(KEYS[2], 'ZREM') or denied(KEYS[3], 'HINCRBY')
  or denied(ARGV[3] .. ARGV[2], 'HSET', 'EXPIRE')
if refusal then return refusal end

local lease_ms = {}
for i = 5, #ARGV, 2 do lease_ms[ARGV[i]] = tonumber(ARGV[i + 1]) end

-- What is wrong with a delivery, or nil; and its fields.
local function judge(id)
  local fields = redis.pcall('HMGET', ARGV[3] .. id, 'state', 'alert', 'subject', 'channel', 'contact_id', 'attempts',
    'replayed_after', 'first_attempt_at_ms', 'type')
  if fields.err then return was_refused(fields) and 'refused' or 'malformed', fields end
  if not fields[1] then
    if redis.call('EXISTS', ARGV[3] .. id) == 0 then return 'missing', nil end
    return 'malformed', fields
  end
  if fields[1] ~= 'pending' then return 'ended', fields end
  -- The notification lies in the field that its type names; a delivery that states no type is an alert's.
  fields[9] = fields[9] or 'alert'
  if fields[9] ~= 'alert' then fields[2] = redis.call('HGET', ARGV[3] .. id, fields[9]) end
  local attempts = fields[6] and string.match(fields[6], '^%d+$')
  if not fields[2] or not fields[3] or not lease_ms[fields[4] or ''] or not fields[5] or not attempts or #attempts > 9 then
    return 'malformed', fields
  end
  return nil, fields
end

-- All of them before the first write: a hash that is elsewhere is no delivery that was lost.
local due = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', whole(now), 'LIMIT', 0, ARGV[1])) do
  local why, fields = judge(id)
  if why == 'refused' then return fields end
  due[#due + 1] = {id = id, why = why, fields = fields}
end

-- WRITE

-- Deliveries made = ended + pending, so one that was pending and can't be read ends 'cancelled'.
local function drop(id, why, fields)
  redis.call('ZREM', KEYS[1], id)
  local was_pending = redis.call('ZREM', KEYS[2], id) == 1
  if why == 'ended' or not was_pending then return end
  redis.call('HINCRBY', KEYS[3], 'cancelled', 1)
  if fields and not fields.err then
    redis.call('HSET', ARGV[3] .. id, 'state', 'cancelled', 'ended_at_ms', whole(now), 'last_error', 'the delivery was malformed')
    redis.call('EXPIRE', ARGV[3] .. id, ARGV[4])
  end
end

local leased, dropped = {}, {}
for i, delivery in ipairs(due) do
  local id, why, fields = delivery.id, delivery.why, delivery.fields
  if why then
    drop(id, why, fields)
    dropped[#dropped + 1] = id
    dropped[#dropped + 1] = why
  else
    local token, lease_end = ARGV[2] .. ':' .. whole(i), whole(now + lease_ms[fields[4]])
    local attempts, before = tonumber(fields[6]), string.match(fields[7] or '0', '^%d+$') or '0'
    local first = string.match(fields[8] or '', '^%d+$') or whole(now)
    redis.call('ZADD', KEYS[1], lease_end, id)
    if fields[4] == 'none' then
      redis.call('HSET', ARGV[3] .. id, 'lease_token', token)
    else
      attempts = attempts + 1
      redis.call('HSET', ARGV[3] .. id, 'lease_token', token, 'attempts', whole(attempts), 'first_attempt_at_ms', first)
    end
    for _, value in ipairs({id, fields[9], fields[2], fields[3], fields[4], fields[5], whole(attempts), before, first, token, lease_end}) do
      leased[#leased + 1] = value
    end
  end
end

local next_due = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
return {whole(now), next_due and whole(tonumber(next_due)) or false, leased, dropped}
