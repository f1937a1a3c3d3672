#!lua flags=allow-oom
-- commit: apply one batch of usage events, all of it or nothing.
--
-- KEYS[1] usage stream   KEYS[2] checkpoint hash   KEYS[3] outbox stream   KEYS[4] refused stream   KEYS[5] totals hash
-- KEYS[6 ..]             for each group its counter hash and its hash of raised alerts, then the sets of event ids to add to, the
--                        sets of event ids to remove, and the sets of metrics, in the order of the sections below
--
-- ARGV[1]  checkpoint the batch was read from ('0-0': none)     ARGV[2]  id of the batch's last entry
-- ARGV[3]  entries in the batch                                 ARGV[4]  server time of the read, ms
-- ARGV[5]  oldest read that may be committed, ms of age         ARGV[6]  format of the layout
-- ARGV[7]  partitions                                           ARGV[8]  fingerprint of plans and windows
-- ARGV[9]  'consumed' or 'never': what is trimmed               ARGV[10] consumer group that shows our progress
-- ARGV[11] events counted         ARGV[12] duplicates           ARGV[13] TTL of counters, s      ARGV[14] TTL of a flag, s
-- ARGV[15] prefix of flags        ARGV[16] length of refused    ARGV[17] largest counter, 2^53-1
-- ARGV[18 .. 24] numbers of: limits, groups, named alerts, refused events, id sets to add to, id sets to remove, metric sets
-- Then the sections, each as often as its number says:
--   limit    its lowest threshold units, then one text: day's end in ms (negative before 1970), and per threshold
--            (ascending) its units and percent
--   numbers  once, in MessagePack: the sums (1..2^53) of all rows of all groups, then their limit numbers (0: no limit). As
--            arguments of their own they would take as long to read as the counters
--   group    metric, day, bucket, 1 to renew the life of its keys (0: that was done within the last minute), rows, then all
--            subjects
--   named    '<row>:<percent>' (rows are counted through all groups, from 1), alert id, head of the alert's JSON; names of
--            thresholds that turn out not to be reached are left aside
--   refused  values, then fields and values as XADD takes them
--   id set   members, then the members        metric set   members, then the members
--
-- Returns {'committed', now ms, {row, percent, used, ...} raised, {what, text, ...} notes}
--         {'stale', stored checkpoint}     another commit came first, or this one ran already: nothing written
--         {'lost'}                         the batch's last entry is not in the stream: nothing written
--         {'recreated'}                    another stream lies under the old name, with entries before the checkpoint: nothing written
--         {'old', now ms}                  read too long ago, its limits may be outdated: nothing written
--         {'overflow', row, count, ...}    these rows' counters would pass 2^53-1 and stand at count: nothing written
--         {'unnamed', row, percent, ...}   thresholds reached whose ids the caller has to name: nothing written
--         an error                         a key of another type, or a counter or total that is no number: nothing written
-- Notes: 'held' and a group that keeps entries from being trimmed; 'group', 'trim', 'unlink' and the error of a command that the
-- user may not run. Those come last, by pcall, because Redis does not roll back: an error midway would count a batch again.
--
-- Safe to run twice: the second call finds another checkpoint and answers 'stale'.

local format, tonumber = string.format, tonumber

local function whole(n) return format('%d', n) end

local function wrong(key, what) return redis.error_reply('WRONGTYPE ' .. key .. ' holds ' .. what) end

-- Is entry id a before entry id b? As digits of any length, since 2^64 does not fit a Lua number.
local function before_id(a, b)
  local am, as = string.match(a, '^(%d+)-(%d+)$')
  local bm, bs = string.match(b, '^(%d+)-(%d+)$')
  if am == bm then am, bm = as, bs end
  if #am ~= #bm then return #am < #bm end
  return am < bm
end

local function stream_info()
  local info, of = redis.call('XINFO', 'STREAM', KEYS[1]), {}
  for i = 1, #info, 2 do of[info[i]] = info[i + 1] end
  return of
end

-- JUDGE

local kinds = {'stream', 'hash', 'stream', 'stream', 'hash'}
for i = 1, 5 do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind ~= 'none' and kind ~= kinds[i] then return wrong(KEYS[i], 'a ' .. kind) end
end
local stored = redis.call('HMGET', KEYS[2], 'id', 'entries_read')
local checkpoint = stored[1] or '0-0'
if checkpoint ~= ARGV[1] then return {'stale', checkpoint} end
if #redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2]) == 0 then return {'lost'} end
-- The entry of the checkpoint stays until something behind it is committed, and what trims or deletes it takes those before it too
-- or leaves a trace. So where it has gone from between others, these were never read.
if checkpoint ~= '0-0' and #redis.call('XRANGE', KEYS[1], checkpoint, checkpoint) == 0
  and #redis.call('XRANGE', KEYS[1], '-', '(' .. checkpoint, 'COUNT', 1) > 0
  and before_id(stream_info()['max-deleted-entry-id'], checkpoint) then
  return {'recreated'}
end
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
if now - tonumber(ARGV[4]) > tonumber(ARGV[5]) then return {'old', whole(now)} end

local counter_max = tonumber(ARGV[17])
local limit_n, group_n, named_n, refused_n = tonumber(ARGV[18]), tonumber(ARGV[19]), tonumber(ARGV[20]), tonumber(ARGV[21])
local seen_n, past_n, day_n = tonumber(ARGV[22]), tonumber(ARGV[23]), tonumber(ARGV[24])
local seen_key, past_key = 5 + 2 * group_n, 5 + 2 * group_n + seen_n
local day_key = past_key + past_n

-- As HINCRBY takes them, with room to add: it would fail only after the counters are written.
for i, total in ipairs(redis.call('HMGET', KEYS[5], 'counted', 'duplicates', 'refused', 'raised')) do
  if total and (#total > 15 or not (total == '0' or string.match(total, '^%-?[1-9]%d*$'))) then
    return wrong(KEYS[5], 'no count in field ' .. ({'counted', 'duplicates', 'refused', 'raised'})[i])
  end
end
for i = seen_key + 1, day_key + day_n do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind ~= 'none' and kind ~= 'set' then return wrong(KEYS[i], 'a ' .. kind) end
end

local limits_at = 25
local groups_at = limits_at + 2 * limit_n + 1
local numbers = cmsgpack.unpack(ARGV[groups_at - 1])
local row_n = #numbers / 2
local lowest = {[0] = math.huge}
for i = 1, limit_n do lowest[i] = tonumber(ARGV[limits_at + 2 * i - 2]) end

-- The thresholds of a limit that a row has reached. While the day lasts the count decides; afterwards only a crossing inside this
-- commit does. Most rows are below their lowest threshold and never come here.
local reached = {}
local function add_reached(limit, group, at, row, subject, count, used)
  local day_end, thresholds = string.match(ARGV[limits_at + 2 * limit - 1], '^(%-?%d+)(.*)$')
  local open = now < tonumber(day_end)
  for units, percent in string.gmatch(thresholds, ' (%d+) (%d+)') do
    units = tonumber(units)
    if used >= units and (open or count < units) then
      reached[#reached + 1] = {group = group, at = at, row = row, subject = subject, percent = percent, used = used}
    end
  end
end

-- First pass over the groups: read the counters, add up, see what is reached. One list takes the words of all the HSETs, since a
-- list a group would be most of the work.
local words, sizes, found, overflow = {}, {}, {}, {'overflow'}
local row = 0
local at = groups_at
for g = 1, group_n do
  local usage, n = KEYS[4 + 2 * g], tonumber(ARGV[at + 4])
  local subjects = at + 4
  sizes[g] = n
  local counts = redis.pcall('HMGET', usage, unpack(ARGV, subjects + 1, subjects + n))
  if counts.err then return wrong(usage, 'a ' .. redis.call('TYPE', usage).ok) end
  for i = 1, n do
    local subject, count = ARGV[subjects + i], 0
    if counts[i] then
      count, found[g] = tonumber(counts[i]), true
      if not count or count % 1 ~= 0 or count < 0 or count > counter_max then
        return wrong(usage, 'no count in field ' .. subject)
      end
    end
    row = row + 1
    local used = count + numbers[row]
    if used > counter_max then
      overflow[#overflow + 1] = row
      overflow[#overflow + 1] = whole(count)
    end
    words[2 * row - 1] = subject
    words[2 * row] = whole(used)
    local limit = numbers[row_n + row]
    if used >= lowest[limit] then
      add_reached(limit, g, at, row, subject, count, used)
    end
  end
  at = at + 5 + n
end
if #overflow > 1 then return overflow end

local names = {}
for _ = 1, named_n do
  names[ARGV[at]] = at + 1
  at = at + 3
end
local refused_at = at

-- Of the thresholds reached, those without a record and without a flag are new alerts.
local alerts, unnamed = {}, {'unnamed'}
for _, r in ipairs(reached) do
  local raised = KEYS[5 + 2 * r.group]
  local record = redis.pcall('HEXISTS', raised, r.percent .. ':' .. r.subject)
  if type(record) == 'table' then return wrong(raised, 'a ' .. redis.call('TYPE', raised).ok) end
  if record == 0 then
    r.flag = ARGV[15] .. r.subject .. ':' .. ARGV[r.at] .. ':' .. r.percent .. ':' .. ARGV[r.at + 1]
    if redis.call('EXISTS', r.flag) == 0 then
      r.name = names[r.row .. ':' .. r.percent]
      if r.name then
        alerts[#alerts + 1] = r
      else
        unnamed[#unnamed + 1] = r.row
        unnamed[#unnamed + 1] = r.percent
      end
    end
  end
end
if #unnamed > 1 then return unnamed end

-- Entries that were added and trimmed before the first commit count as read, so that the group's lag is true.
local entries_read = tonumber(stored[2] or '')
if not entries_read then
  local of = stream_info()
  entries_read = of['entries-added'] - of['length']
end
entries_read = whole(entries_read + tonumber(ARGV[3]))

-- WRITE

-- Before the records, which live as long as their counter: a key that is there and lives long enough is not touched again, but one
-- that is made here always gets its life here.
local counter_ttl = tonumber(ARGV[13])
local lives = {}
row = 0
at = groups_at
for g = 1, group_n do
  local usage, n = KEYS[4 + 2 * g], sizes[g]
  for from = row, row + n - 1, 2000 do
    redis.call('HSET', usage, unpack(words, 2 * from + 1, 2 * math.min(from + 2000, row + n)))
  end
  lives[g] = counter_ttl + 10 * tonumber(ARGV[at + 2])
  if ARGV[at + 3] == '1' or not found[g] then
    redis.call('EXPIRE', usage, lives[g])
    redis.call('EXPIRE', KEYS[5 + 2 * g], lives[g])
  end
  row = row + n
  at = at + 5 + n
end

local raised = {}
for _, r in ipairs(alerts) do
  local id = ARGV[r.name]
  if redis.call('SET', r.flag, id, 'NX', 'EX', ARGV[14]) then
    local alert = ARGV[r.name + 1] .. '"used":' .. whole(r.used) .. ',"raised_at_ms":' .. whole(now) .. '}'
    redis.call('HSET', KEYS[5 + 2 * r.group], r.percent .. ':' .. r.subject, alert)
    redis.call('EXPIRE', KEYS[5 + 2 * r.group], lives[r.group])
    redis.call('XADD', KEYS[3], '*', 'alert', alert)
    raised[#raised + 1] = r.row
    raised[#raised + 1] = r.percent
    raised[#raised + 1] = whole(r.used)
  end
end

at = refused_at
for _ = 1, refused_n do
  local n = tonumber(ARGV[at])
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[16], '*', unpack(ARGV, at + 1, at + n))
  at = at + 1 + n
end
for i = 1, seen_n + day_n do
  local key = i <= seen_n and KEYS[seen_key + i] or KEYS[day_key + i - seen_n]
  local n = tonumber(ARGV[at])
  for from = at + 1, at + n, 4000 do
    redis.call('SADD', key, unpack(ARGV, from, math.min(from + 3999, at + n)))
  end
  redis.call('EXPIRE', key, counter_ttl + 2560)
  at = at + 1 + n
end

if ARGV[11] ~= '0' then redis.call('HINCRBY', KEYS[5], 'counted', ARGV[11]) end
if ARGV[12] ~= '0' then redis.call('HINCRBY', KEYS[5], 'duplicates', ARGV[12]) end
if refused_n > 0 then redis.call('HINCRBY', KEYS[5], 'refused', refused_n) end
if #raised > 0 then redis.call('HINCRBY', KEYS[5], 'raised', #raised / 3) end

redis.call('HSET', KEYS[2], 'id', ARGV[2], 'entries_read', entries_read, 'format', ARGV[6], 'partitions', ARGV[7], 'fingerprint', ARGV[8])

-- OPTIONAL: nothing below may fail the commit.

local notes = {}
local function note(what, reply)
  if type(reply) == 'table' and reply.err then
    notes[#notes + 1] = what
    notes[#notes + 1] = reply.err
  end
end

local moved = redis.pcall('XGROUP', 'SETID', KEYS[1], ARGV[10], ARGV[2], 'ENTRIESREAD', entries_read)
if type(moved) == 'table' and moved.err and string.find(moved.err, 'NOGROUP', 1, true) then
  moved = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[10], ARGV[2], 'ENTRIESREAD', entries_read)
end
note('group', moved)

if ARGV[9] == 'consumed' then
  -- What another group has not been given, or has not acknowledged, stays.
  local keep, holder = ARGV[2], nil
  local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
  note('trim', groups)
  for _, info in ipairs(groups.err and {} or groups) do
    local of = {}
    for i = 1, #info, 2 do of[info[i]] = info[i + 1] end
    if of['name'] ~= ARGV[10] then
      local needs = of['last-delivered-id']
      local pending = of['pending'] > 0 and redis.pcall('XPENDING', KEYS[1], of['name']) or {}
      note('trim', pending)
      if pending.err then needs = '0-0' elseif pending[2] and before_id(pending[2], needs) then needs = pending[2] end
      if before_id(needs, keep) then keep, holder = needs, of['name'] end
    end
  end
  if holder then
    notes[#notes + 1] = 'held'
    notes[#notes + 1] = holder
  end
  if not groups.err then note('trim', redis.pcall('XTRIM', KEYS[1], 'MINID', '~', keep, 'LIMIT', '0')) end
end
for i = past_key + 1, past_key + past_n do note('unlink', redis.pcall('UNLINK', KEYS[i])) end

return {'committed', whole(now), raised, notes}
