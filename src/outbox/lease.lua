#!lua
-- lease: lease due deliveries of many destinations, so that nobody else attempts them until their leases end.
--
-- KEYS[1] .. KEYS[9], ARGV[1] .. ARGV[7] as schedule.lua has them
-- KEYS[10] the pause of all sending, a hash: while it exists, nothing is leased and nothing is given up
-- KEYS[11] checkpoint hash
--
-- ARGV[8] most deliveries to take, 1..150           ARGV[9] most of these for unhealthy destinations, 0..ARGV[8]
-- ARGV[10] token of this call, never used before     ARGV[11] TTL of an ended delivery, s
-- ARGV[12] how long a delivery is retried, ms       ARGV[13] most followers, 0..150
-- ARGV[14 ..] per channel: channel, length of its lease in ms
--
-- Returns {now ms, next due time for a healthy destination in ms (nil: nothing is scheduled), the same for an
--          unhealthy one, {leased}, {dropped}, {given up}, '1' while sending is paused, else '0'}
--           leased   one text, which is parsed faster than many: a MessagePack array of nineteen strings each: id,
--                    type of the notification, its JSON, subject, channel, contact id, attempts (this one included),
--                    attempts before the last replay, first attempt ms, pauses since then in ms, token, end of the
--                    lease ms, destination, and its state: 'unhealthy'; 'healthy'; 'busy': healthy with more than one
--                    due delivery; or 'following': busy, and to be attempted in the place of an ended attempt there;
--                    then the id of the message in which it leaves with others, '' if it leaves alone, and the number
--                    of this attempt of that message; then until when it waited for a digest or the end of a quiet
--                    time, ms, or ''; then the number of its attempts that the receiver can't have accepted, or '';
--                    then '1' if what it tells is stored, or ''. Those that leave in one message follow each other
--           dropped  two strings each: a due id and what is wrong with it: 'missing', 'malformed' or 'ended'. It
--                    leaves the schedule, so that it blocks nothing; its alert may be lost, so the caller logs it
--           given up two strings each: id and channel of a delivery that ended dead without an attempt, because the
--                    circuit of its destination stayed open until its time was over
--         an error   a key of another type, a total that is no number, a command that the user may not run, a key at
--                    another node of the cluster, to which the slot moves, or a partition that was moved away: nothing
--                    written. Refused whole when memory is full
--
-- A destination with an open circuit gets one attempt when its time has come.
-- Destinations take turns, in the order of their due times. If both kinds have more than the maximum, each gets half.
-- No destination has more attempts in flight than its bound, over all daemons. A follower is attempted in the place of
-- an ended attempt. While it is leased it counts, so that nobody else takes that place.
-- A delivery without a contact is leased without counting an attempt, because none takes place.
-- With a delivery of a group all others of it are leased, due or not, up to SET_MAX; they are one attempt. Before the
-- first attempt they become a set, and later leases take what is pending of it.
-- Safe to run twice: the second call leases other deliveries; those of a lost reply become due again when their leases
-- end.

-- JUDGE

local now = now_ms()
local moved = moved_away_from(KEYS[11])
if moved then return moved end
if redis.call('EXISTS', KEYS[10]) == 1 then return {whole(now), false, false, cmsgpack.pack({}), {}, {}, '1'} end
local refusal = schedule_refusal() or refused_total('cancelled') or refused_total('dead')
if refusal then return refusal end

local lease_ms = {}
for i = 14, #ARGV, 2 do lease_ms[ARGV[i]] = tonumber(ARGV[i + 1]) end

-- What is wrong with a delivery, or nil; and its fields.
local function judge(id)
  local fields = redis.pcall('HMGET', ARGV[4] .. id, 'state', 'alert', 'subject', 'channel', 'contact_id', 'attempts',
    'replayed_after', 'first_attempt_at_ms', 'type', 'paused_before_ms', 'group', 'sent_in', 'set_since', 'waits_until_ms',
    'refused', 'told')
  if fields.err then return was_refused(fields) and 'refused' or 'malformed', fields end
  if not fields[1] then
    if redis.call('EXISTS', ARGV[4] .. id) == 0 then return 'missing', nil end
    return 'malformed', fields
  end
  if fields[1] ~= 'pending' then return 'ended', fields end
  -- The notification is in the field named by its type; a delivery without a type is an alert's.
  fields[9] = fields[9] or 'alert'
  if fields[9] ~= 'alert' then fields[2] = redis.call('HGET', ARGV[4] .. id, fields[9]) end
  local attempts = fields[6] and string.match(fields[6], '^%d+$')
  if not fields[2] or not fields[3] or not lease_ms[fields[4] or ''] or not fields[5] or not attempts or #attempts > 9 then
    return 'malformed', fields
  end
  return nil, fields
end

-- The duration of pauses so far; pause.lua sums it up.
local paused_ms = tonumber(redis.call('HGET', KEYS[7], 'paused_ms') or '0') or 0

local slots = tonumber(ARGV[8])
local healthy = both_ends(KEYS[1], now, slots)
local unhealthy = both_ends(KEYS[2], now, math.min(slots, tonumber(ARGV[9])))
-- A single slot alternates between both kinds.
local reserved = math.min(#unhealthy, math.floor((slots + now % 2) / 2))

-- Maximum number of deliveries that one call gives up behind one open circuit. The earliest due ones are judged first.
-- The time of a delivery begins with its first attempt, or with its due time if it was never attempted, but not before
-- the circuit opened, because sending may have been paused or impossible until then. Time without a daemon does not
-- count.
local GIVEN_UP_MAX = 100
local overdue, given_up = {}, {}
local function give_up(d)
  local latest = now - tonumber(ARGV[12]) - d.away - lateness(d, now)
  local members = redis.call('ZRANGEBYSCORE', d.due, '-inf', whole(now), 'WITHSCORES', 'LIMIT', 0, GIVEN_UP_MAX)
  for at = 1, #members, 2 do
    local id = members[at]
    local held, failed = read('HMGET', ARGV[4] .. id, 'state', 'first_attempt_at_ms', 'channel', 'last_error', 'subject')
    if failed and was_refused(failed) then return failed end
    local began = held and math.max(d.opened_at, tonumber(held[2] or '') or tonumber(members[at + 1]))
    if held and held[1] == 'pending' and began <= latest and not redis.call('ZSCORE', d.leased, id) then
      failed = refused_subject(held[5] or '')
      if failed then return failed end
      overdue[id] = true
      local why = 'its destination has failed all the time'
      if held[4] then why = why .. '; its last attempt: ' .. held[4] end
      given_up[#given_up + 1] = {id = id, channel = held[3] or 'none', subject = held[5] or '', d = d, why = why}
    end
  end
end

-- Number of followers per attempt at a healthy destination, so that its place is not empty while outcomes are recorded.
-- Followers count too. A growing bound needs attempts, so it gets only few followers.
local FOLLOWING = 8
local function following_each(d) return is_healthy(d) and math.min(FOLLOWING, math.floor(d.bound / 2)) or 0 end

-- Maximum number of deliveries in one message: a chat of 8,000 characters can hold their lines.
local SET_MAX = 30
-- Maximum number of deliveries that one call leases beside the first ones of their messages, because it blocks the
-- server for their number.
local OTHERS_MAX = 300
local taken, others_taken, unlisted = {}, 0, {}

-- The others with which a delivery leaves, and the set that they form; nothing if it leaves alone.
local function others_of(id, fields, d)
  local name = fields[12] or fields[11]
  if not name or not redis.call('ZSCORE', KEYS[9], grouped(name, id)) then return {}, nil end
  local others = {}
  local members = redis.call('ZRANGEBYLEX', KEYS[9], '[' .. grouped(name, ''), '(' .. name .. '\1', 'LIMIT', 0, SET_MAX + OTHERS_MAX)
  for _, member in ipairs(members) do
    local other = string.match(member, '[^%z]*$')
    if other ~= id and not overdue[other] and not taken[other] and #others < SET_MAX - 1 then
      local why, its = judge(other)
      if why == 'refused' then return nil, its end
      if why == 'missing' or why == 'ended' then
        unlisted[#unlisted + 1] = member
      elseif not why and redis.call('ZSCORE', d.due, other) then
        others[#others + 1] = {id = other, fields = its, d = d, is_other = true}
      end
    end
  end
  return others, {name = fields[12]}
end

-- The share of each destination, within its bound. All are read before the first write, because a hash on another node
-- is not a lost delivery.
local due, visited, followers = {}, {}, tonumber(ARGV[13])
local function take(names, slots_left)
  for at, name in ipairs(names) do
    if slots_left <= 0 then return end
    local d, failed = destination_of(name)
    if failed then return failed end
    local share = math.max(1, math.floor(slots_left / (#names - at + 1)))
    local free = math.min(share, slots_left, d.bound - in_flight(d, now))
    if d.probe_at then
      if d.probe_at > now then free = 0 end
      failed = give_up(d)
      if failed then return failed end
    end
    local following = free > 0 and math.min(following_each(d) * free, share - free, followers) or 0
    local ids, waiting = both_ends(d.due, now, free + following)
    d.standing = not is_healthy(d) and 'unhealthy' or waiting > 1 and 'busy' or 'healthy'
    for _, id in ipairs(ids) do
      local why, fields = judge(id)
      if why == 'refused' then return fields end
      failed = why == 'malformed' and refused_subject(fields[3] or '')
      if failed then return failed end
      local is_left = overdue[id] or taken[id]
      local is_grouped = not is_left and not why and fields[11]
      -- A group for which no room is left stays due for the next call.
      if not is_left and not (is_grouped and others_taken >= OTHERS_MAX) then
        local others, set = {}, nil
        if is_grouped then
          others, set = others_of(id, fields, d)
          if not others then return set end
        end
        due[#due + 1], taken[id] = {id = id, why = why, fields = fields, d = d, follows = free == 0, set = set}, true
        for _, other in ipairs(others) do
          other.set, other.follows, taken[other.id] = set, free == 0, true
          due[#due + 1] = other
        end
        others_taken = others_taken + #others
        if not why then free = math.max(0, free - 1) end
      end
    end
    slots_left, followers = slots_left - #ids, followers - following
    visited[#visited + 1] = d
  end
end
local failed = take(healthy, slots - reserved) or take(unhealthy, math.min(slots - #due + others_taken, tonumber(ARGV[9])))
if failed then return failed end

-- WRITE

-- Deliveries made = ended + pending, so an unreadable pending delivery ends 'cancelled'.
local function drop(d, id, why, fields)
  dequeue(d, id)
  local was_pending = redis.call('ZREM', KEYS[3], id) == 1
  if why == 'ended' or not was_pending then return end
  redis.call('HINCRBY', KEYS[7], 'cancelled', 1)
  if fields and not fields.err then
    redis.call('HSET', ARGV[4] .. id, 'state', 'cancelled', 'ended_at_ms', whole(now), 'last_error', 'the delivery was malformed')
    redis.call('EXPIRE', ARGV[4] .. id, ARGV[11])
    note_ended(fields[3] or '', id, now, ARGV[11])
  end
end

-- Forms the set in which a delivery leaves, before its first attempt.
local function join_set(delivery, token, attempts)
  local set, id, fields = delivery.set, delivery.id, delivery.fields
  if fields[12] then return end
  set.name = set.name or 'digest_' .. string.sub(redis.sha1hex(token), 1, 32)
  fields[12], fields[13] = set.name, whole(attempts)
  redis.call('HSET', ARGV[4] .. id, 'sent_in', set.name, 'set_since', fields[13])
  redis.call('ZREM', KEYS[9], grouped(fields[11], id))
  redis.call('ZADD', KEYS[9], 0, grouped(set.name, id))
end

for _, member in ipairs(unlisted) do redis.call('ZREM', KEYS[9], member) end
local leased, dropped, ends, size = {}, {}, {}, 0
for channel, length in pairs(lease_ms) do ends[channel] = whole(now + length) end
for i, delivery in ipairs(due) do
  local id, why, fields, d = delivery.id, delivery.why, delivery.fields, delivery.d
  if why then
    drop(d, id, why, fields)
    dropped[#dropped + 1] = id
    dropped[#dropped + 1] = why
  else
    local token, lease_end = ARGV[10] .. ':' .. i, ends[fields[4]]
    local attempts, before = tonumber(fields[6]), string.match(fields[7] or '0', '^%d+$') or '0'
    local first = string.match(fields[8] or '', '^%d+$')
    local before_ms = first and tonumber(fields[10] or '') or paused_ms
    first = first or whole(now)
    -- A released lease restores this place.
    local place = redis.call('ZSCORE', d.due, id) or whole(now)
    collect('ZADD', d.due, lease_end, id)
    -- One attempt for all of a set.
    if not delivery.is_other then collect('ZADD', d.leased, lease_end, id) end
    if fields[4] == 'none' then
      redis.call('HSET', ARGV[4] .. id, 'lease_token', token, 'due_ms', place)
    else
      attempts = attempts + 1
      redis.call('HSET', ARGV[4] .. id, 'lease_token', token, 'due_ms', place, 'attempts', whole(attempts), 'first_attempt_at_ms', first,
        'paused_before_ms', whole(before_ms))
    end
    leased[size + 1], leased[size + 2], leased[size + 3], leased[size + 4] = id, fields[9], fields[2], fields[3]
    leased[size + 5], leased[size + 6], leased[size + 7], leased[size + 8] = fields[4], fields[5], whole(attempts), before
    leased[size + 9], leased[size + 10] = first, whole(math.max(0, paused_ms - before_ms))
    leased[size + 11], leased[size + 12], leased[size + 13] = token, lease_end, d.name
    leased[size + 14] = delivery.follows and 'following' or d.standing
    leased[size + 15], leased[size + 16], leased[size + 17] = '', '0', fields[14] or ''
    leased[size + 18], leased[size + 19] = fields[15] or '', fields[16] or ''
    if delivery.set then
      join_set(delivery, token, attempts)
      leased[size + 15], leased[size + 16] = fields[12], whole(attempts - (tonumber(fields[13] or '') or attempts) + 1)
    end
    size = size + 19
  end
end
local ended = {}
for _, one in ipairs(given_up) do
  local key = ARGV[4] .. one.id
  dequeue(one.d, one.id)
  redis.call('ZREM', KEYS[3], one.id)
  redis.call('ZADD', KEYS[6], whole(now), one.id)
  redis.call('HSET', key, 'state', 'dead', 'ended_at_ms', whole(now), 'last_error', one.why)
  redis.call('HDEL', key, 'lease_token')
  redis.call('EXPIRE', key, ARGV[11])
  note_ended(one.subject, one.id, now, ARGV[11])
  redis.call('HINCRBY', KEYS[7], 'dead', 1)
  ended[#ended + 1] = one.id
  ended[#ended + 1] = one.channel
end
write_collected(now)
for _, d in ipairs(visited) do place(d, now, true) end

local function next_of(index)
  local first = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')[2]
  return first and whole(tonumber(first)) or false
end
return {whole(now), next_of(KEYS[1]), next_of(KEYS[2]), cmsgpack.pack(leased), dropped, ended, '0'}
