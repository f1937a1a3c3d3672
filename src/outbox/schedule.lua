#!lua
-- schedule: the queues of deliveries, one for each destination, and when something may leave for each. The loader puts
-- it before each script that changes a delivery.
--
-- KEYS[1] destinations zset   KEYS[2] unhealthy destinations zset   KEYS[3] pending zset   KEYS[4] waiting zset
-- KEYS[5] deliveries zset   KEYS[6] dead zset   KEYS[7] totals hash   KEYS[8] open circuits zset
-- (the queues and states of destinations, the hashes of deliveries, and the deliveries of subjects are known only to
-- the script; they lie in the same slot)
--
-- ARGV[1] prefix of a queue of due deliveries   ARGV[2] prefix of a destination's leased deliveries
-- ARGV[3] prefix of a destination's state       ARGV[4] prefix of a delivery's key
-- ARGV[5] the most attempts in flight at one destination, 1 and up
-- ARGV[6] prefix of a subject's deliveries
--
-- Returns nothing: the script goes on behind it. Each comment has a line of its own.

-- What can't be due: above every time.
local NEVER = 9007199254740991
-- How long the state of a destination is kept after its last attempt, s: 14 days.
local STATE_TTL_S = 1209600
-- So many wait before any is taken out of its order: see both_ends.
local BACKLOG = 64
-- A circuit opens after so many failures in a row.
local OPEN_AFTER = 5

-- The error reply where a key of the schedule has another type, or the user may not write one; else nil.
local function schedule_refusal()
  for at = 1, 8 do
    local failed = wrong_type(at, at == 7 and 'hash' or 'zset')
    if failed then return failed end
  end
  local refusal = denied(KEYS[7], 'HINCRBY') or denied(KEYS[8], 'ZADD', 'ZREM')
  for at = 1, 6 do refusal = refusal or denied(KEYS[at], 'ZADD', 'ZREM') end
  for at = 1, 2 do refusal = refusal or denied(ARGV[at] .. 'x', 'ZADD', 'ZREM') end
  refusal = refusal or denied(ARGV[6] .. 'x', 'ZADD', 'ZREM', 'EXPIRE', 'PERSIST')
  return refusal or denied(ARGV[3] .. 'x', 'HSET', 'HDEL', 'EXPIRE') or denied(ARGV[4] .. 'x', 'HSET', 'HDEL', 'EXPIRE', 'PERSIST')
end

-- The error reply where the total of deliveries that ended so, or were made, is no number. Each is looked at once.
local total_errors = {}
local function refused_total(field)
  if total_errors[field] == nil then total_errors[field] = wrong_total(KEYS[7], field) or false end
  return total_errors[field] or nil
end

-- The reply of a command, or the error reply as the second value where the key is another's or elsewhere.
local function read(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then
    return nil, was_refused(reply) and reply or wrong(key, 'another type')
  end
  return reply
end

-- Writes of one command to one key go together, so that many deliveries cost one of each. Only for members that no
-- other command in the call writes, because their order is lost.
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

-- The deliveries of each subject, by when their hashes expire: NEVER while they are pending. Here: the size of each
-- list that was judged, and of each subject whose deliveries the call changes, whether one of them is pending now.
local list_sizes, changed_lists = {}, {}

-- The error reply where the deliveries of a subject can't be kept. Asked before the first write, as destination_of is.
local function refused_subject(subject)
  if list_sizes[subject] then return nil end
  local failed
  list_sizes[subject], failed = read('ZCARD', ARGV[6] .. subject)
  return failed
end

-- A delivery is pending.
local function note_pending(subject, id)
  collect('ZADD', ARGV[6] .. subject, whole(NEVER), id)
  changed_lists[subject] = true
end

-- A delivery has ended: its hash lives for so many seconds. Those begin when EXPIRE runs, which is later in the call,
-- so it is listed for a minute more.
local function note_ended(subject, id, now, ttl_s)
  collect('ZADD', ARGV[6] .. subject, whole(now + 1000 * ttl_s + 60000), id)
  changed_lists[subject] = changed_lists[subject] or false
end

-- The key lives as long as the last hash. When a delivery ends, those whose hashes are gone leave the list.
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
    -- The lease can't know the subject of a pending delivery whose hash is missing. If the slot moves, EXISTS may fail:
    -- then the id stays.
    if last ~= NEVER or redis.pcall('EXISTS', ARGV[4] .. newest[1]) ~= 0 then return end
    redis.call('ZREM', key, newest[1])
  end
end

-- Deliveries by how they ended, and those made.
local counted = {}
local function count(field, n) counted[field] = (counted[field] or 0) + n end

local function write_collected(now)
  for _, write in ipairs(collected) do call_in_slices(write.command, write.key, write, 1, #write) end
  for field, n in pairs(counted) do redis.call('HINCRBY', KEYS[7], field, n) end
  for subject, has_pending in pairs(changed_lists) do keep_subject(subject, has_pending, now) end
  collected, collected_of, counted, changed_lists = {}, {ZADD = {}, ZREM = {}}, {}, {}
end

local destinations = {}

-- How long nobody made the attempt that was due through an open circuit, in ms: no daemon sent, or all were busy. What
-- is late by less than this is no outage of ours.
local PROBE_LATE = 60000
local function lateness(d, now)
  local late = now - d.probe_at
  return late > PROBE_LATE and late or 0
end

-- A destination with its state, read once, and the error reply where a key of it can't be used. Reads every key of it:
-- in a cluster one may be elsewhere, which has to be found out before the first write.
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
    -- Deliveries without contact leave for nobody.
    d.bound, d.failures = NEVER, 0
  else
    d.bound = math.max(1, math.min(tonumber(state[1] or '1') or 1, tonumber(ARGV[5])))
    -- None is known: it was never tried.
    d.failures = tonumber(state[2] or '')
    -- While its circuit is open: when the next attempt may be made, how many have failed since it opened, how long
    -- nobody was there to make them, and when it opened.
    d.probe_at, d.probes = tonumber(state[3] or ''), tonumber(state[4] or '') or 0
    d.away, d.opened_at = tonumber(state[5] or '') or 0, tonumber(state[6] or '') or 0
    if d.probe_at then d.bound = 1 end
  end
  return d
end

local function is_healthy(d) return d.failures == 0 end

local function in_flight(d, now) return redis.call('ZCOUNT', d.leased, '(' .. whole(now), '+inf') end

-- Puts a destination where the next lease looks for it. Whoever was just served stands behind those that were not.
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

-- Writes what was collected, and places every destination that was read.
local function place_all(now)
  write_collected(now)
  for _, d in pairs(destinations) do place(d, now) end
end

-- A delivery is due in the queue of a destination, and leased by nobody.
local function enqueue_due(d, id, due)
  redis.call('ZADD', d.due, whole(due), id)
  redis.call('ZREM', d.leased, id)
end

-- A delivery leaves the queue of a destination.
local function dequeue(d, id)
  redis.call('ZREM', d.due, id)
  redis.call('ZREM', d.leased, id)
end

-- Members that are due, as many as asked for, and how many are in all. The oldest; from a backlog as many of the
-- newest, in turn, so that what came last does not wait for all that came before it, and the oldest still get on.
local function both_ends(key, now, count)
  if count <= 0 then return {}, 0 end
  local waiting = redis.call('ZCOUNT', key, '-inf', whole(now))
  if waiting <= math.max(count, BACKLOG) then
    return redis.call('ZRANGEBYSCORE', key, '-inf', whole(now), 'LIMIT', 0, count), waiting
  end
  -- Where only one is attempted at once, each end has its turn by the time.
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

-- An attempt told something about its destination. What was told is stored by store_states.
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
    -- Only what began before the circuit opened ends before the next attempt may begin, and tells nothing new.
    d.probes, d.away = d.probes + 1, d.away + lateness(d, now)
    d.probe_at = now + math.min(probe_max, probe_first * 2 ^ math.min(d.probes, 20))
  end
  d.bound = 1
end

-- Stores what was learned, and returns the names of the destinations whose circuit opened, and of those whose closed.
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
