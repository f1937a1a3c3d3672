#!lua flags=allow-oom
-- history: archive a slice of the counters of one metric of a past day, and remove history that is older than the
-- configured days.
--
-- KEYS[1] progress hash of the day   KEYS[2] metrics zset
-- KEYS[3 ..] for each bucket from ARGV[2] on: hash of the counters of the day, hash of the history
--
-- ARGV[1] metric   ARGV[2] bucket of KEYS[3], 0..255   ARGV[3] the day, as days since 1970-01-01
-- ARGV[4] days kept, 1..1000
-- ARGV[5] approximate number of counters to read, 1..1000 (four times as many of the history, which is only searched;
-- ten times as many buckets)
-- ARGV[6] TTL of the progress, s
-- ARGV[7] TTL of the history in bucket 0, s   ARGV[8] increase of the TTL per bucket, s
--
-- Each bucket takes two steps: the counters of step 2b go into the history of bucket b, then step 2b + 1 searches
-- that history for old days. A value is a MessagePack array: its newest day as days since 1970-01-01, then the units of
-- that day and of each earlier one.
--
-- Returns {step, cost}
--           step     the step at which the next call continues; 512 after the metric's last step. If the stored step is
--                    not in bucket ARGV[2], another daemon was faster: nothing written
--           cost     approximate cost for the server, in archived counters, 0..
--         an error   a key of another type, or a command that the user may not run: nothing written
--
-- Also runs when memory is full: a day's counters live until the day is archived, so this script lets them expire. Safe
-- to run twice: the second call continues where the first ended. Archiving a day again stores the same units.

-- JUDGE

for at = 1, #KEYS do
  local failed = wrong_type(at, at == 2 and 'zset' or 'hash')
  if failed then return failed end
end
local refusal = denied(KEYS[1], 'HSET', 'EXPIRE') or denied(KEYS[2], 'ZADD', 'ZREMRANGEBYSCORE', 'EXPIRE')
for at = 4, #KEYS, 2 do refusal = refusal or denied(KEYS[at], 'HSET', 'HDEL', 'EXPIRE') end
if refusal then return refusal end

local first, day, kept = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local reached = redis.call('HGET', KEYS[1], ARGV[1]) or ''
local step, cursor, server = string.match(reached, '^(%d+):(%d+):(%w*)$')
step = tonumber(step or '0')
if math.floor(step / 2) ~= first then return {step, 1} end
-- A cursor is valid only on the same server process.
local this_server = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
if server ~= this_server then cursor = '0' end

-- The days of a value; nil if it is invalid.
local function days_of(value)
  local readable, days = pcall(cmsgpack.unpack, value or '')
  if readable and type(days) == 'table' and type(days[1]) == 'number' then return days end
end

-- The days including the units of this one; nil if newer days leave no room for it.
local function with_day(days, units)
  if not days then return {day, units} end
  local newer = day - days[1]
  if newer <= 0 then
    if -newer >= kept then return nil end
    for at = #days + 1, 1 - newer do days[at] = 0 end
    days[2 - newer] = units
    return days
  end
  local all = {day, units}
  for at = 3, math.min(kept + 1, #days + newer) do all[at] = at - newer >= 2 and days[at - newer] or 0 end
  return all
end

-- A bucket without counters costs a tenth of an archived counter: metrics that were used once have 256 such buckets.
local BUCKET_COST = 0.1
local set, removed = {}, {}
local most = tonumber(ARGV[5])
local looked, last = 0, 2 * first + #KEYS - 2
while step < last and looked < most do
  local counters = KEYS[3 + 2 * (math.floor(step / 2) - first)]
  local history = KEYS[4 + 2 * (math.floor(step / 2) - first)]
  local cost = step % 2 == 0 and 1 or 0.25
  local slice = redis.call('HSCAN', step % 2 == 0 and counters or history, cursor, 'COUNT', whole(most / cost))
  for at = 1, #slice[2], 2 do
    local subject, value = slice[2][at], slice[2][at + 1]
    if step % 2 == 1 then
      local days = days_of(value)
      if not days or days[1] <= day - kept then removed[#removed + 1] = {history, subject} end
    elseif string.match(value, '^%d+$') then
      local days = with_day(days_of(redis.call('HGET', history, subject)), tonumber(value))
      if days then set[#set + 1] = {history, subject, cmsgpack.pack(days), math.floor(step / 2)} end
    end
  end
  looked = looked + BUCKET_COST + cost * #slice[2] / 2
  cursor = slice[1]
  if cursor == '0' then step = step + 1 end
end

-- WRITE

for at, value in ipairs(set) do
  redis.call('HSET', value[1], value[2], value[3])
  local next_one = set[at + 1]
  if not next_one or next_one[1] ~= value[1] then
    redis.call('EXPIRE', value[1], whole(ARGV[7] + ARGV[8] * value[4]))
  end
end
for _, field in ipairs(removed) do redis.call('HDEL', field[1], field[2]) end
redis.call('ZADD', KEYS[2], 'GT', ARGV[3], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', whole(day - kept))
redis.call('EXPIRE', KEYS[2], whole(ARGV[7] + ARGV[8] * 256))
redis.call('HSET', KEYS[1], ARGV[1], whole(step) .. ':' .. cursor .. ':' .. this_server)
redis.call('EXPIRE', KEYS[1], ARGV[6])
return {step, math.ceil(looked)}
