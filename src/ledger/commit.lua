#!lua flags=allow-oom
-- commit: apply one batch of usage events, all of it or nothing.
--
-- KEYS[1] usage stream   KEYS[2] checkpoint hash   KEYS[3] outbox stream   KEYS[4] refused stream   KEYS[5] totals hash
-- KEYS[6] zset of subjects with grants, by when something is due
-- KEYS[7 ..]  the hash of each group of counters; flag and hash of records of each alert; the list of each window of
--             event ids; the set of metrics of each period; the zset of children of each level
--
-- ARGV[1]  a MessagePack map. from, to: checkpoint the batch was read from ('0-0': none), id of its last entry;
--          erasure_epoch: removals of counters before the session; server: run id of the process it was read from
--          ('': unknown); readers: channel of its readers; entries; arrived: when its last event arrived, ms; read_at:
--          server time of its oldest read, ms; age_max, ms; behind_ms: how long every read has been full; format,
--          partitions, separator, fingerprint, instance: as in the checkpoint; counted, duplicates: events;
--          refused_max: length of refused; ttl of event ids, s; children_days: how long a level keeps an unused child;
--          and numbers of: groups, alerts, refused, id_lists, metric_sets, child_sets
-- ARGV[2 ..] repeated according to the numbers above:
--   group       TTL of its hash, s (0: leave it; 'none', also below: no TTL); a row to compare, from 1, and its
--               value; number of rows; subject and total of each
--   alert       its group; subject; its counter's value; alert id; TTL of the flag; TTL of the record; field, record,
--               outbox entry
--   refused     number of values, then fields and values as XADD takes them
--   id list     the ids, 16 bytes each
--   metric set  TTL, number of metrics, the metrics
--   child set   number of children, the children
--
-- Returns {'committed', {alert, ...}, us, due}  numbers of the alerts whose flag existed already: not raised; running
--                                          time of this script, 0 if unknown; when grants must be looked at next, ms as
--                                          text, '' for never
--         {'stale', stored checkpoint}     another commit came first, or this one ran already, or counters that the
--                                          worker may have cached were removed, or the server holds another deployment:
--                                          nothing written
--         {'replaced'}                     the batch was read from another server process:
--                                          nothing written
--         {'lost'}                         the batch's last entry is not in the stream: nothing written
--         {'recreated'}                    another stream has the same name, with entries before the checkpoint:
--                                          nothing written
--         {'due'}                          grants expired before the last event arrived, and nobody has settled them:
--                                          nothing written
--         {'old', now ms}                  the batch was read too long ago, its limits may be outdated: nothing written
--         {'drift', key, subject, held}    a counter differs from the worker's value: nothing written
--         an error                         a key of another type, a total that is no number, a refused event of more
--                                          values than a script can append, a command that the user may not run, or a
--                                          partition that was moved to another deployment: nothing written
--
-- Redis does not roll back, so the script checks everything that can fail before its first write. Safe to run twice:
-- the second call finds another checkpoint and returns 'stale'.

-- TIME advances during a script only in Redis 7.0. From 7.4 and Valkey 8.0 on, the CPU time of the server process is
-- known, including other threads. Versions in between offer neither.
local function clock_us()
  local processor = rawget(_G, 'os')
  if processor then return processor.clock() * 1e6 end
  local clock = redis.call('TIME')
  return tonumber(clock[1]) * 1e6 + tonumber(clock[2])
end
local began = clock_us()

-- JUDGE

local batch = cmsgpack.unpack(ARGV[1])
for at, kind in ipairs({'stream', 'hash', 'stream', 'stream', 'hash', 'zset'}) do
  local error = wrong_type(at, kind)
  if error then return error end
end
local stored = redis.call('HMGET', KEYS[2], 'id', 'entries_read', 'erasure_epoch', 'instance', 'moved_to', 'migration')
local moved = moved_away(stored[5], stored[6])
if moved then return moved end
local checkpoint = stored[1] or '0-0'
if checkpoint ~= batch.from or (stored[3] or '0') ~= whole(batch.erasure_epoch)
  or (stored[4] or batch.instance) ~= batch.instance then return {'stale', checkpoint} end
-- After a failover, ids of read entries may belong to other entries. Readers of this server process subscribe to a
-- channel named after its run id. If no reader is left, INFO tells the run id, but costs the server five times as much.
local readers = batch.server ~= '' and redis.pcall('PUBSUB', 'NUMSUB', batch.readers)
if readers and (readers.err or readers[2] == 0)
  and not string.find(redis.call('INFO', 'server'), 'run_id:' .. batch.server, 1, true) then return {'replaced'} end
if #redis.call('XRANGE', KEYS[1], batch.to, batch.to) == 0 then return {'lost'} end
if made_again(KEYS[1], checkpoint) then return {'recreated'} end
local due = redis.call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES')[2]
if due and tonumber(due) <= batch.arrived then return {'due'} end
local now = now_ms()
if now - batch.read_at > batch.age_max then return {'old', whole(now)} end

for _, field in ipairs({'counted', 'duplicates', 'refused', 'raised'}) do
  local error = wrong_total(KEYS[5], field)
  if error then return error end
end
local refusal = denied(KEYS[2], 'HSET') or denied(KEYS[5], 'HINCRBY')
if refusal then return refusal end

local function drift(key, subject, before)
  local held = redis.pcall('HGET', key, subject)
  if type(held) == 'table' then return wrong(key, 'a ' .. redis.call('TYPE', key).ok) end
  if (held or '0') ~= before then return {'drift', key, subject, held or '0'} end
end

local function expire(key, ttl)
  if ttl ~= 'none' then redis.call('EXPIRE', key, ttl) end
end

local function claim(flag, id, ttl)
  if ttl == 'none' then return redis.call('SET', flag, id, 'NX') end
  return redis.call('SET', flag, id, 'NX', 'EX', ttl)
end

local at = 2
local first_group = 6
for group = 1, batch.groups do
  local key, rows = KEYS[first_group + group], tonumber(ARGV[at + 3])
  local answer = drift(key, ARGV[at + 2 + 2 * ARGV[at + 1]], ARGV[at + 2])
    or not redis.acl_check_cmd('HSET', key) and denied(key, 'HSET')
    or group == 1 and denied(key, 'EXPIRE')
  if answer then return answer end
  at = at + 4 + 2 * rows
end

local alerts_at = at
local first_alert = first_group + batch.groups
for alert = 1, batch.alerts do
  local flag, record = KEYS[first_alert + 2 * alert - 1], KEYS[first_alert + 2 * alert]
  local kind = redis.call('TYPE', record).ok
  if kind ~= 'none' and kind ~= 'hash' then return wrong(record, 'a ' .. kind) end
  local answer = drift(KEYS[first_group + ARGV[at]], ARGV[at + 1], ARGV[at + 2])
    or denied(flag, 'SET') or denied(record, 'HSET', 'EXPIRE') or alert == 1 and denied(KEYS[3], 'XADD')
  if answer then return answer end
  at = at + 9
end

local refused_at = at
if batch.refused > 0 then
  refusal = denied(KEYS[4], 'XADD')
  for _ = 1, batch.refused do
    refusal = refusal or too_many_values(tonumber(ARGV[at]))
    at = at + 1 + tonumber(ARGV[at])
  end
  if refusal then return refusal end
end
local first_list = first_alert + 2 * batch.alerts
local first_set = first_list + batch.id_lists
for key = first_list + 1, first_set + batch.metric_sets do
  local error = wrong_type(key, key <= first_set and 'list' or 'set')
    or denied(KEYS[key], key <= first_set and 'RPUSH' or 'SADD', 'EXPIRE')
  if error then return error end
end
local first_children = first_set + batch.metric_sets
for key = first_children + 1, first_children + batch.child_sets do
  local error = wrong_type(key, 'zset') or denied(KEYS[key], 'ZADD', 'ZREMRANGEBYSCORE', 'EXPIRE')
  if error then return error end
end

local entries_read = whole(tonumber(stored[2] or '0') + batch.entries)

-- WRITE

at = 2
for group = 1, batch.groups do
  local key, ttl, rows = KEYS[first_group + group], ARGV[at], tonumber(ARGV[at + 3])
  local added = call_in_slices('HSET', key, ARGV, at + 4, at + 3 + 2 * rows)
  -- A hash that is created here always gets its TTL here.
  if ttl ~= '0' then expire(key, ttl)
  elseif added == rows then redis.call('EXPIRE', key, batch.ttl, 'NX') end
  at = at + 4 + 2 * rows
end

local not_raised = {}
at = alerts_at
for alert = 1, batch.alerts do
  local flag, record = KEYS[first_alert + 2 * alert - 1], KEYS[first_alert + 2 * alert]
  if claim(flag, ARGV[at + 3], ARGV[at + 4]) then
    redis.call('HSET', record, ARGV[at + 6], ARGV[at + 7])
    expire(record, ARGV[at + 5])
    redis.call('XADD', KEYS[3], '*', 'alert', ARGV[at + 8])
  else
    not_raised[#not_raised + 1] = alert
  end
  at = at + 9
end

at = refused_at
for _ = 1, batch.refused do
  local values = tonumber(ARGV[at])
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', batch.refused_max, '*', unpack(ARGV, at + 1, at + math.min(values, SLICE)))
  at = at + 1 + values
end
for list = 1, batch.id_lists do
  redis.call('RPUSH', KEYS[first_list + list], ARGV[at])
  redis.call('EXPIRE', KEYS[first_list + list], batch.ttl)
  at = at + 1
end
for set = 1, batch.metric_sets do
  local metrics = tonumber(ARGV[at + 1])
  call_in_slices('SADD', KEYS[first_set + set], ARGV, at + 2, at + 1 + metrics)
  expire(KEYS[first_set + set], ARGV[at])
  at = at + 2 + metrics
end
local today = math.floor(now / 86400000)
for set = 1, batch.child_sets do
  local key, last = KEYS[first_children + set], at + tonumber(ARGV[at])
  for child = at + 1, last do redis.call('ZADD', key, today, ARGV[child]) end
  redis.call('ZREMRANGEBYSCORE', key, '-inf', today - batch.children_days)
  redis.call('EXPIRE', key, batch.children_days * 86400)
  at = last + 1
end

for field, n in pairs({counted = batch.counted, duplicates = batch.duplicates, refused = batch.refused,
  raised = batch.alerts - #not_raised}) do
  if n > 0 then redis.call('HINCRBY', KEYS[5], field, n) end
end
redis.call('HSET', KEYS[2], 'id', batch.to, 'entries_read', entries_read, 'instance', batch.instance, 'format', batch.format,
  'partitions', batch.partitions, 'separator', batch.separator, 'fingerprint', batch.fingerprint, 'committed_at_ms', whole(now), 'behind_ms', whole(batch.behind_ms))

return {'committed', not_raised, whole(math.max(0, clock_us() - began)), due ~= 'inf' and due or ''}
