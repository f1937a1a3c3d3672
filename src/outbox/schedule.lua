#!lua
-- schedule: the queues of deliveries, one per destination, and the due time of each destination. The loader inserts it
-- into each script that changes a delivery.
--
-- KEYS[1] destinations zset   KEYS[2] unhealthy destinations zset   KEYS[3] pending zset   KEYS[4] waiting zset
-- KEYS[5] deliveries zset   KEYS[6] dead zset   KEYS[7] totals hash   KEYS[8] open circuits zset
-- KEYS[9] zset of `<group>` NUL `<delivery id>`: pending deliveries that leave in one message with others
-- (the queues and states of destinations, the hashes of deliveries, and the deliveries of subjects are known only to
-- the script; they lie in the same slot)
--
-- ARGV[1] prefix of a queue of due deliveries   ARGV[2] prefix of a destination's leased deliveries
-- ARGV[3] prefix of a destination's state       ARGV[4] prefix of a delivery's key
-- ARGV[5] the most attempts in flight at one destination, 1 and up
-- ARGV[6] prefix of a subject's deliveries   ARGV[7] prefix of the months of the log of alerts
--
-- Returns nothing: the script continues behind it. Each comment needs its own line.

-- A score above every time, for members that can't be due.
local NEVER = 9007199254740991
-- How long the state of a destination is kept after its last attempt, s: 14 days.
local STATE_TTL_S = 1209600
-- How long a month of the log of alerts is kept until stream maintenance sets it, s: 432 days.
local LOG_TTL_S = 37324800
-- Minimum number of waiting deliveries before any is taken out of order: see both_ends.
local BACKLOG = 64
-- Number of consecutive failures that open a circuit.
local OPEN_AFTER = 5

-- An error reply if a key of the schedule has another type, or the user may not write one; else nil.
local function schedule_refusal()
  for at = 1, 9 do
    local failed = wrong_type(at, at == 7 and 'hash' or 'zset')
    if failed then return failed end
  end
  local refusal = denied(KEYS[7], 'HINCRBY') or denied(KEYS[8], 'ZADD', 'ZREM') or denied(KEYS[9], 'ZADD', 'ZREM')
  for at = 1, 6 do refusal = refusal or denied(KEYS[at], 'ZADD', 'ZREM') end
  for at = 1, 2 do refusal = refusal or denied(ARGV[at] .. 'x', 'ZADD', 'ZREM') end
  refusal = refusal or denied(ARGV[6] .. 'x', 'ZADD', 'ZREM', 'EXPIRE', 'PERSIST') or denied(ARGV[7] .. 'x', 'XADD', 'EXPIRE')
  return refusal or denied(ARGV[3] .. 'x', 'HSET', 'HDEL', 'EXPIRE') or denied(ARGV[4] .. 'x', 'HSET', 'HDEL', 'EXPIRE', 'PERSIST')
end

-- An error reply if the total of deliveries with this end, or of created ones, is not a number. Each is checked once.
local total_errors = {}
local function refused_total(field)
  if total_errors[field] == nil then total_errors[field] = wrong_total(KEYS[7], field) or false end
  return total_errors[field] or nil
end

-- The reply of a command, or an error reply as the second value if the key has another type or is on another node.
local function read(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then
    return nil, was_refused(reply) and reply or wrong(key, 'another type')
  end
  return reply
end

-- Writes of one command to one key are collected, so that many deliveries cost one of each. Only for members that no
-- other command of the call writes, because their order is lost.
local collected, collected_of = {}, {ZADD = {}, ZREM = {}}
local function collect(command, key, first, second)
  local write = collected_of[command][key]
  if not write then
    write = {command = command, key = key}
    collected_of[command][key], collected[#collected + 1] = write, write
  end
  local size = #write
  write[size + 1], write[size + 2] = first, second
end

-- The deliveries of each subject, by the expiry of their hashes: NEVER while they are pending. Here: the size of each
-- checked list, and for each subject with changed deliveries whether one of them is pending now.
local list_sizes, changed_lists = {}, {}

-- An error reply if the list of a subject's deliveries can't be written. Called before the first write, like
-- destination_of.
local function refused_subject(subject)
  if list_sizes[subject] then return nil end
  local failed
  list_sizes[subject], failed = read('ZCARD', ARGV[6] .. subject)
  return failed
end

-- Records that a delivery is pending.
local function note_pending(subject, id)
  collect('ZADD', ARGV[6] .. subject, whole(NEVER), id)
  changed_lists[subject] = true
end

-- The log of alerts and notices: an entry when one is fanned out first, and one when each of its deliveries ends. A
-- month's stream is named by the server's clock in UTC.
local ended = {}

-- `2026-11`, by the days since 0000-03-01, as in "chrono-Compatible Low-Level Date Algorithms" of Howard Hinnant.
local function month_of(ms)
  local days = math.floor(ms / 86400000) + 719468
  local era = math.floor(days / 146097)
  local day = days - era * 146097
  local year = math.floor((day - math.floor(day / 1460) + math.floor(day / 36524) - math.floor(day / 146096)) / 365)
  local month = math.floor((5 * (day - 365 * year - math.floor(year / 4) + math.floor(year / 100)) + 2) / 153)
  return string.format('%04d-%02d', era * 400 + year + (month > 9 and 1 or 0), month > 9 and month - 9 or month + 3)
end

local function append_to_log(now, ...)
  local key = ARGV[7] .. month_of(now)
  -- A key of another type must not stop deliveries.
  if type(redis.pcall('XADD', key, '*', 'at_ms', whole(now), ...)) == 'string' then redis.call('EXPIRE', key, LOG_TTL_S, 'NX') end
end

-- Deliveries that leave in one message. Each hash has the name of its `group`. The lease before the first attempt forms
-- a set of those in a group: `sent_in` is the id of the message, and `set_since` the number of that attempt. Nothing
-- joins a set, because a receiver takes a message with a known id for a repetition. A delivery that KEYS[9] does not
-- list under its set, or else its group, leaves alone.

local function grouped(name, id) return name .. '\0' .. id end

-- Takes a pending delivery out of its set, back into its group: its message left without it, or never left.
local function leave_set(id, group, set)
  redis.call('HDEL', ARGV[4] .. id, 'sent_in', 'set_since')
  redis.call('ZREM', KEYS[9], grouped(set, id))
  redis.call('ZADD', KEYS[9], 0, grouped(group, id))
end

-- Takes an ended delivery out of its group, and appends its end to the log if it carries what fan_out.lua logged.
local function note_end(id, subject, now)
  local held = redis.pcall('HMGET', ARGV[4] .. id, 'alert_id', 'channel', 'contact_id', 'destination', 'state', 'attempts', 'last_error',
    'group', 'sent_in', 'notice_id', 'address')
  if held.err then return end
  local name = held[9] or held[8]
  if name and held[5] ~= 'pending' then redis.call('ZREM', KEYS[9], grouped(name, id)) end
  if not held[1] and not held[10] then return end
  -- It is of a set before its first attempt, and may end without one.
  local sent_in = held[6] ~= '0' and held[9] or ''
  append_to_log(now, 'delivery', id, held[1] and 'alert_id' or 'notice_id', held[1] or held[10], 'subject', subject,
    'channel', held[2] or '', 'contact_id', held[3] or '', 'address', held[11] or '', 'sent_in', sent_in,
    'destination', held[4] or '', 'state', held[5] or '', 'attempts', held[6] or '0', 'last_error', held[7] or '')
end

-- Records that a delivery has ended and its hash lives for ttl_s. EXPIRE runs later in the call, so the id is listed
-- for a minute more.
local function note_ended(subject, id, now, ttl_s)
  collect('ZADD', ARGV[6] .. subject, whole(now + 1000 * ttl_s + 60000), id)
  changed_lists[subject] = changed_lists[subject] or false
  ended[#ended + 1] = {id = id, subject = subject}
end

-- The key lives as long as the last hash. When a delivery ends, ids with expired hashes leave the list.
local EXPIRED_AT_ONCE = 100
local function keep_subject(subject, has_pending, now)
  local key, size = ARGV[6] .. subject, list_sizes[subject]
  if has_pending then
    if size > 0 then redis.call('PERSIST', key) end
    return
  end
  if size > 1 then
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', whole(now), 'LIMIT', 0, EXPIRED_AT_ONCE)) do
      redis.call('ZREM', key, id)
    end
  end
  for _ = 1, EXPIRED_AT_ONCE do
    local newest = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
    local last = tonumber(newest[2] or '')
    if last and last ~= NEVER then redis.call('EXPIRE', key, whole(math.max(1, math.ceil((last - now) / 1000)))) end
    -- If the hash of a pending delivery is missing, its id leaves the list here, because a lease can't know its
    -- subject. If the slot moves, EXISTS may fail: then the id stays.
    if last ~= NEVER or redis.pcall('EXISTS', ARGV[4] .. newest[1]) ~= 0 then return end
    redis.call('ZREM', key, newest[1])
  end
end

-- Numbers of deliveries by end, and of created ones.
local counted = {}
local function count(field, n) counted[field] = (counted[field] or 0) + n end

local function write_collected(now)
  for _, write in ipairs(collected) do call_in_slices(write.command, write.key, write, 1, #write) end
  for field, n in pairs(counted) do redis.call('HINCRBY', KEYS[7], field, n) end
  for subject, has_pending in pairs(changed_lists) do keep_subject(subject, has_pending, now) end
  for _, one in ipairs(ended) do note_end(one.id, one.subject, now) end
  collected, collected_of, counted, changed_lists, ended = {}, {ZADD = {}, ZREM = {}}, {}, {}, {}
end

local destinations = {}

-- How long an attempt through an open circuit was due and no daemon made it, in ms. A delay up to PROBE_LATE is normal
-- and counts as 0.
local PROBE_LATE = 60000
local function lateness(d, now)
  local late = now - d.probe_at
  return late > PROBE_LATE and late or 0
end

-- A destination with its state, read once, or an error reply if one of its keys is unusable. Reads all its keys,
-- because in a cluster one may be on another node, which must be known before the first write.
local function destination_of(name)
  local known = destinations[name]
  if known then return known, known.failed end
  local d = {name = name, due = ARGV[1] .. name, leased = ARGV[2] .. name, key = ARGV[3] .. name}
  destinations[name] = d
  local state, count, failed
  state, d.failed = read('HMGET', d.key, 'bound', 'failures', 'probe_at_ms', 'probes', 'away_ms', 'opened_at_ms')
  count, failed = read('ZCARD', d.due)
  d.failed = d.failed or failed
  count, failed = read('ZCARD', d.leased)
  d.failed = d.failed or failed
  if d.failed then return d, d.failed end
  if name == 'none' then
    -- Deliveries without a contact have no receiver, so no bound applies.
    d.bound, d.failures = NEVER, 0
  else
    d.bound = math.max(1, math.min(tonumber(state[1] or '1') or 1, tonumber(ARGV[5])))
    -- Unknown: never attempted.
    d.failures = tonumber(state[2] or '')
    -- If its circuit is open: when the next attempt may be made, the number of failed ones since it opened, how long
    -- nobody made them, and when it opened.
    d.probe_at, d.probes = tonumber(state[3] or ''), tonumber(state[4] or '') or 0
    d.away, d.opened_at = tonumber(state[5] or '') or 0, tonumber(state[6] or '') or 0
    if d.probe_at then d.bound = 1 end
  end
  return d
end

local function is_healthy(d) return d.failures == 0 end

local function in_flight(d, now) return redis.call('ZCOUNT', d.leased, '(' .. whole(now), '+inf') end

-- Puts a destination where the next lease finds it. A destination that was just served comes after those that were not.
local function place(d, now, was_served)
  local index, other = KEYS[1], KEYS[2]
  if not is_healthy(d) then index, other = other, index end
  redis.call('ZREM', other, d.name)
  local first = redis.call('ZRANGE', d.due, 0, 0, 'WITHSCORES')[2]
  if first and d.probe_at then
    redis.call('ZADD', KEYS[8], whole(d.probe_at), d.name)
  elseif d.probe_at or d.has_closed then
    redis.call('ZREM', KEYS[8], d.name)
  end
  if not first then
    redis.call('ZREM', index, d.name)
    return
  end
  first = math.max(tonumber(first), d.probe_at or 0)
  if first <= now and in_flight(d, now) >= d.bound then
    first = tonumber(redis.call('ZRANGEBYSCORE', d.leased, '(' .. whole(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
  elseif first <= now then
    first = now
    if not was_served then
      redis.call('ZADD', index, 'LT', whole(now), d.name)
      return
    end
  end
  redis.call('ZADD', index, whole(first), d.name)
end

-- Writes the collected changes, and places every destination that was read.
local function place_all(now)
  write_collected(now)
  for _, d in pairs(destinations) do place(d, now) end
end

-- Puts a delivery into the queue of a destination, without a lease.
local function enqueue_due(d, id, due)
  redis.call('ZADD', d.due, whole(due), id)
  redis.call('ZREM', d.leased, id)
end

-- Removes a delivery from the queue of a destination.
local function dequeue(d, id)
  redis.call('ZREM', d.due, id)
  redis.call('ZREM', d.leased, id)
end

-- Up to `count` due members, and the number of all due ones. The oldest ones; in a backlog alternately oldest and
-- newest ones, so that new deliveries do not wait for all earlier ones, and the oldest make progress.
local function both_ends(key, now, count)
  if count <= 0 then return {}, 0 end
  local waiting = redis.call('ZCOUNT', key, '-inf', whole(now))
  if waiting <= math.max(count, BACKLOG) then
    return redis.call('ZRANGEBYSCORE', key, '-inf', whole(now), 'LIMIT', 0, count), waiting
  end
  -- If only one is attempted at once, the time decides between both ends.
  local newest_first = now % 2 == 1
  local oldest_count = math.floor((count + (newest_first and 0 or 1)) / 2)
  local oldest = redis.call('ZRANGEBYSCORE', key, '-inf', whole(now), 'LIMIT', 0, oldest_count)
  local newest = redis.call('ZREVRANGEBYSCORE', key, whole(now), '-inf', 'LIMIT', 0, count - oldest_count)
  local first, second = oldest, newest
  if newest_first then first, second = newest, oldest end
  local members = {}
  for at = 1, #first do
    members[#members + 1] = first[at]
    members[#members + 1] = second[at]
  end
  return members, waiting
end

-- Applies what an attempt revealed about its destination. store_states stores it.
local function learn(d, was_answered, now, probe_first, probe_max)
  if d.name == 'none' then return end
  d.has_changed = true
  if was_answered then
    d.bound, d.failures = math.min(d.bound + 1, tonumber(ARGV[5])), 0
    d.has_closed, d.has_opened = d.has_closed or d.probe_at ~= nil and not d.has_opened, false
    d.probe_at, d.probes = nil, 0
    return
  end
  d.bound, d.failures = math.max(1, math.floor(d.bound / 2)), (d.failures or 0) + 1
  if d.failures < OPEN_AFTER then return end
  if not d.probe_at then
    d.has_opened, d.has_closed = not d.has_closed, false
    d.probe_at, d.probes, d.away, d.opened_at = now + probe_first, 0, 0, now
  elseif d.probe_at <= now then
    -- Attempts that end before probe_at began before the circuit opened, and reveal nothing new.
    d.probes, d.away = d.probes + 1, d.away + lateness(d, now)
    d.probe_at = now + math.min(probe_max, probe_first * 2 ^ math.min(d.probes, 20))
  end
  d.bound = 1
end

-- Stores the applied changes. Returns two lists of destinations: those with a circuit that opened, and with one that
-- closed.
local function store_states()
  local opened, closed = {}, {}
  for _, d in pairs(destinations) do
    if d.has_changed then
      redis.call('HSET', d.key, 'bound', whole(d.bound), 'failures', whole(d.failures))
      if d.probe_at then
        redis.call('HSET', d.key, 'probe_at_ms', whole(d.probe_at), 'probes', whole(d.probes), 'away_ms', whole(d.away),
          'opened_at_ms', whole(d.opened_at))
      else
        redis.call('HDEL', d.key, 'probe_at_ms', 'probes', 'away_ms', 'opened_at_ms')
      end
      redis.call('EXPIRE', d.key, STATE_TTL_S)
    end
    if d.has_opened then opened[#opened + 1] = d.name end
    if d.has_closed then closed[#closed + 1] = d.name end
  end
  return opened, closed
end
