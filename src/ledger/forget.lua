#!lua flags=allow-oom
-- forget: remove a subject's usage in some periods with its raised alerts, so that the worker does not write it back.
--
-- KEYS[1] checkpoint hash   KEYS[2 ..] for each metric and period: hash of its counters, hash of its records
--
-- ARGV[1] subject   ARGV[2] pattern of its fields among the records, as HSCAN takes it
-- ARGV[3 ..] for each metric and period: prefix of its flags, and the part between threshold and units
--
-- Returns {counters, records, flags} removed
--         an error   a key of another type, an erasure_epoch that is no number, a command that the user may not run, or
--                    a flag at another node of the cluster, because the slot is moving: nothing written
--
-- Only this script knows the flags; they are in the same slot. The worker caches totals: the erasure_epoch makes its
-- next commit 'stale', so that it empties its cache.
-- Also runs when memory is full, because it frees memory. Safe to run twice: the second call finds nothing.

-- JUDGE

for at = 1, #KEYS do
  local failed = wrong_type(at, 'hash')
  if failed then return failed end
end
local refusal = wrong_total(KEYS[1], 'erasure_epoch') or denied(KEYS[1], 'HINCRBY')
for at = 2, #KEYS do refusal = refusal or denied(KEYS[at], 'HDEL') end
if refusal then return refusal end

local flags = {}

-- The flag of an alert in the record of a threshold, which field and flag spell alike.
local function add_flag(alert, threshold, at)
  if type(alert) ~= 'table' or type(alert.threshold_units) ~= 'number' then return end
  local flag = ARGV[at] .. threshold .. ARGV[at + 1] .. whole(alert.threshold_units)
  local there = redis.pcall('EXISTS', flag)
  if was_refused(there) then return there end
  flags[#flags + 1] = flag
  return denied(flag, 'UNLINK')
end

local records = {}
for at = 3, #KEYS, 2 do
  local cursor = '0'
  repeat
    local slice = redis.call('HSCAN', KEYS[at], cursor, 'MATCH', ARGV[2], 'COUNT', 1000)
    cursor = slice[1]
    for field = 1, #slice[2], 2 do
      -- The subject may be a suffix of another subject's field.
      local threshold, subject = string.match(slice[2][field], '^(%w+):(.*)$')
      if subject == ARGV[1] then
        records[#records + 1] = {KEYS[at], slice[2][field]}
        local readable, record = pcall(cjson.decode, slice[2][field + 1])
        record = readable and type(record) == 'table' and record or {}
        local failed = add_flag(record, threshold, at)
        for _, earlier in ipairs(type(record.earlier) == 'table' and record.earlier or {}) do failed = failed or add_flag(earlier, threshold, at) end
        if failed then return failed end
      end
    end
  until cursor == '0'
end

-- WRITE

local removed = {0, 0, 0}
for at = 2, #KEYS, 2 do removed[1] = removed[1] + redis.call('HDEL', KEYS[at], ARGV[1]) end
for _, record in ipairs(records) do
  local gone = redis.call('HDEL', record[1], record[2])
  -- The ends of alerts are no alerts.
  if not string.find(record[2], '^ends:') then removed[2] = removed[2] + gone end
end
for _, flag in ipairs(flags) do removed[3] = removed[3] + redis.call('UNLINK', flag) end
if removed[1] + removed[2] > 0 then redis.call('HINCRBY', KEYS[1], 'erasure_epoch', 1) end
return removed
