#!lua flags=allow-oom
-- settle: end leases of deliveries, each with its end, with the time of its next attempt, or by releasing it.
--
-- KEYS[1] .. KEYS[9], ARGV[1] .. ARGV[7] as schedule.lua has them
--
-- ARGV[8] TTL of an ended delivery, s   ARGV[9] attempts kept, 1..1000   ARGV[10] most ids to trim per list, 0..1000
-- ARGV[11] and ARGV[12] first and maximum time between attempts through an open circuit, ms
-- ARGV[13] prefix of the failing contacts of a subject
-- ARGV[14] how long the failures of a contact are remembered, s, 1 and up
-- ARGV[15] how long it is remembered that a server knows no such mailbox, s, 1 and up
-- ARGV[16 ..] twelve for each lease, 1..130 of them:
--   delivery id, lease token,
--   'delivered' | 'dead' | 'muted' | 'expired' | 'cancelled': how it ended
--     'retry': the next attempt is due after the wait, or earlier, when it was due before an operator retried it
--     'released': no attempt took place, due again after the wait;
--     with wait 0 it gets its former place. If it was to be the first attempt of a message with others, it is not of
--     this message any more
--     'quiet': released until the end of a quiet time   'set_aside': released, and not of its message any more,
--   wait, ms, 0 and up,
--   the attempt as JSON without its opening brace and time, '' if none took place: the lease's count is taken back,
--   the error, or '',
--   what the attempt revealed about its destination: 'answered', 'failed', or '',
--   what it revealed about its contact: 'reached', 'failing', 'unknown' (mailbox), or '',
--   for an inherited contact the subject that it belongs to and its id there, else '' and '': what is revealed is kept
--   there, because other subjects inherit it too,
--   to where the attempt went, for the log of alerts, or '',
--   'refused' if the receiver can't have accepted the attempt, or ''
--
-- Returns {now ms, how many circuits opened, how many closed, the destination of each that opened, that of each that
--         closed, an answer for each lease}
--           'settled'     the end is recorded
--           'repeated'    an earlier call with this token succeeded, but its reply was lost: nothing written for it
--           'stale'       another worker has leased the delivery since, or it was ended or replayed: nothing written
--                         for it
--           'wrong_type'  the delivery's key has another type: nothing written for it
--         an error        a key of another type, a total that is no number, a command that the user may not run, or a
--                         key at another node of the cluster: nothing written at all
--
-- A lease that has ended is still ours until somebody else takes it, so a late outcome is recorded and not lost. Also
-- runs when memory is full, because ended deliveries free memory. Also trims ids with expired hashes. Safe to run
-- twice: the second call finds its tokens settled.

-- JUDGE

local now = now_ms()
local refusal = schedule_refusal() or denied(ARGV[13] .. 'x', 'HSET', 'HDEL', 'EXPIRE')
if refusal then return refusal end

local answers, leases, tokens = {}, {}, {}
for at = 16, #ARGV, 12 do
  local lease = {id = ARGV[at], token = ARGV[at + 1], outcome = ARGV[at + 2], wait = tonumber(ARGV[at + 3]), attempt = ARGV[at + 4],
    went_wrong = ARGV[at + 5], told = ARGV[at + 6], contact_told = ARGV[at + 7],
    address = ARGV[at + 10]}
  lease.key = ARGV[4] .. lease.id
  lease.was_released = lease.outcome == 'released' or lease.outcome == 'quiet' or lease.outcome == 'set_aside'
  lease.again = lease.outcome == 'retry' or lease.was_released
  if not lease.again then
    local failed = refused_total(lease.outcome)
    if failed then return failed end
  end
  local held = redis.pcall('HMGET', lease.key, 'state', 'lease_token', 'settled_token', 'attempts', 'replayed_after', 'channel',
    'subject', 'destination', 'contact_id', 'due_ms', 'group', 'sent_in', 'set_since', 'automatic_due_ms', 'refused')
  local answer
  if held.err and was_refused(held) then
    return held
  elseif held.err then
    answer = 'wrong_type'
  elseif held[3] == lease.token or tokens[lease.id] == lease.token then
    answer = 'repeated'
  elseif held[1] ~= 'pending' or held[2] ~= lease.token then
    answer = 'stale'
  else
    local d, failed = destination_of(held[8] or 'none')
    if not failed and not lease.again then failed = refused_subject(held[7] or '') end
    if failed then return failed end
    answer, tokens[lease.id] = 'settled', lease.token
    lease.d, lease.channel, lease.subject, lease.contact = d, held[6], held[7] or '', held[9] or ''
    if lease.contact_told ~= '' then
      local owner = ARGV[at + 8]
      if owner ~= '' then lease.contact = ARGV[at + 9] else owner = lease.subject end
      lease.failing, lease.unknown = ARGV[13] .. owner, lease.contact .. ' unknown'
      lease.noted, failed = read('HMGET', lease.failing, lease.contact, lease.unknown)
      if failed then return failed end
    end
    lease.attempts, lease.before = tonumber(held[4] or '0') or 0, tonumber(held[5] or '0') or 0
    lease.group, lease.set, lease.set_since = held[11], held[12], held[13]
    if ARGV[at + 11] == 'refused' then lease.refused = (tonumber(held[15] or '0') or 0) + 1 end
    lease.due = now + lease.wait
    local automatic = tonumber(held[14] or '') or 0
    if lease.outcome == 'retry' and automatic > now then lease.due = math.min(lease.due, automatic) end
    if lease.was_released and lease.wait == 0 then
      lease.due = math.min(now, tonumber(held[10] or '') or now)
    end
    leases[#leases + 1] = lease
  end
  answers[#answers + 1] = answer
end

-- WRITE

-- The latest attempts stay readable. Numbers may be missing (a worker died), so the oldest ones are searched.
local function forget_oldest_attempts(lease)
  local kept = tonumber(ARGV[9])
  if lease.attempts <= kept then return end
  local numbers = {}
  for _, field in ipairs(redis.call('HKEYS', lease.key)) do
    local n = string.match(field, '^attempt:(%d+)$')
    if n then numbers[#numbers + 1] = tonumber(n) end
  end
  table.sort(numbers)
  for i = 1, #numbers - kept do redis.call('HDEL', lease.key, 'attempt:' .. whole(numbers[i])) end
end

-- Stores when a contact failed first and last, or when its mailbox was reported unknown, until a message reaches it.
-- Records that ended long ago start again.
local function note(lease)
  if lease.contact_told == 'reached' then
    if lease.noted[1] or lease.noted[2] then redis.call('HDEL', lease.failing, lease.contact, lease.unknown) end
    return
  end
  local field, noted, kept = lease.contact, lease.noted[1], tonumber(ARGV[14])
  if lease.contact_told == 'unknown' then field, noted, kept = lease.unknown, lease.noted[2], tonumber(ARGV[15]) end
  local first, newest = string.match(noted or '', '^(%d+) (%d+)$')
  if not first or tonumber(newest) < now - 1000 * kept then first = whole(now) end
  redis.call('HSET', lease.failing, field, first .. ' ' .. whole(now))
  redis.call('EXPIRE', lease.failing, whole(math.max(tonumber(ARGV[14]), tonumber(ARGV[15]))))
end

local function store(fields, field, value)
  local size = #fields
  fields[size + 1], fields[size + 2] = field, value
end

local clock, probe_first, probe_max = whole(now), tonumber(ARGV[11]), tonumber(ARGV[12])
for _, lease in ipairs(leases) do
  local key, id, fields = lease.key, lease.id, {'settled_token', lease.token}
  if lease.attempt ~= '' then
    store(fields, 'attempt:' .. lease.attempts, '{"at_ms":' .. clock .. ',' .. lease.attempt)
  elseif lease.channel ~= 'none' and lease.attempts > 0 then
    store(fields, 'attempts', whole(lease.attempts - 1))
    if lease.attempts - 1 <= lease.before then redis.call('HDEL', key, 'first_attempt_at_ms') end
  end
  if lease.refused then store(fields, 'refused', whole(lease.refused)) end
  if lease.address ~= '' then store(fields, 'address', lease.address) end
  if lease.went_wrong ~= '' then store(fields, 'last_error', lease.went_wrong) end
  if not lease.again then
    store(fields, 'state', lease.outcome)
    store(fields, 'ended_at_ms', clock)
  end
  if lease.outcome == 'quiet' then store(fields, 'waits_until_ms', whole(lease.due)) end
  call_in_slices('HSET', key, fields, 1, #fields)
  redis.call('HDEL', key, 'lease_token')
  local leaves = lease.outcome == 'set_aside' or lease.was_released and lease.set_since == whole(lease.attempts)
  if leaves and lease.set and lease.group then
    leave_set(id, lease.group, lease.set)
  end
  if lease.attempt ~= '' then forget_oldest_attempts(lease) end
  if lease.contact_told ~= '' then note(lease) end
  if lease.told ~= '' then learn(lease.d, lease.told == 'answered', now, probe_first, probe_max) end
  if lease.again then
    enqueue_due(lease.d, id, lease.due)
  else
    redis.call('EXPIRE', key, ARGV[8])
    collect('ZREM', lease.d.due, id)
    collect('ZREM', lease.d.leased, id)
    collect('ZREM', KEYS[3], id)
    if lease.channel == 'none' then collect('ZREM', KEYS[4], lease.subject .. '\0' .. id) end
    if lease.outcome == 'dead' then collect('ZADD', KEYS[6], clock, id) end
    note_ended(lease.subject, id, now, ARGV[8])
    count(lease.outcome, 1)
  end
end
local opened, closed = store_states()
place_all(now)

-- Removes ids from the lists that are older than the TTL and have no hash. Old ids that stay (pending for weeks) must
-- not hide later ones, so a call checks a section that depends on the time.
local most = tonumber(ARGV[10])
for i = 5, 6 do
  local old = redis.call('ZCOUNT', KEYS[i], '-inf', whole(now - 1000 * tonumber(ARGV[8])))
  if old > 0 and most > 0 then
    local from = old > most and now % (old - most + 1) or 0
    for _, id in ipairs(redis.call('ZRANGE', KEYS[i], whole(from), whole(math.min(from + most, old) - 1))) do
      -- If the slot moves, the hash may be on another node: then the id stays.
      if redis.pcall('EXISTS', ARGV[4] .. id) == 0 then redis.call('ZREM', KEYS[i], id) end
    end
  end
end
local reply = {clock, #opened, #closed}
for _, list in ipairs({opened, closed, answers}) do
  for _, item in ipairs(list) do reply[#reply + 1] = item end
end
return reply
