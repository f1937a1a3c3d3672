#!lua flags=allow-oom
-- forget: remove deliveries of a subject, whatever their state.
--
-- KEYS[1] due zset   KEYS[2] pending zset   KEYS[3] waiting zset   KEYS[4] dead zset   KEYS[5] deliveries zset   KEYS[6] totals hash
-- KEYS[7 ..] hash of each delivery, in the order of ARGV
--
-- ARGV[1] subject   ARGV[2 ..] ids of the deliveries, 1..1000
--
-- Returns {removed, of these pending}
--         an error   a key of another type, a total that is no number or a command that the user may not run: nothing written
--
-- A pending one ends as cancelled in the totals. An attempt that is under way finds its lease gone and records nothing.
-- Runs when memory is full too: it frees some. Safe to run twice: the second call finds nothing.

-- JUDGE

for i = 1, #KEYS do
  local failed = wrong_type(i, i >= 6 and 'hash' or 'zset')
  if failed then return failed end
end
local refusal = wrong_total(KEYS[6], 'cancelled') or denied(KEYS[6], 'HINCRBY')
for i = 1, 5 do refusal = refusal or denied(KEYS[i], 'ZREM') end
for i = 7, #KEYS do refusal = refusal or denied(KEYS[i], 'UNLINK') end
if refusal then return refusal end

-- WRITE

local removed, pending = 0, 0
for i = 2, #ARGV do
  local id, key = ARGV[i], KEYS[5 + i]
  -- Read here and not before, so that an id given twice is removed once.
  local stored = redis.call('HMGET', key, 'state', 'subject')
  if stored[2] == ARGV[1] then
    redis.call('UNLINK', key)
    redis.call('ZREM', KEYS[1], id)
    redis.call('ZREM', KEYS[2], id)
    redis.call('ZREM', KEYS[3], ARGV[1] .. '\0' .. id)
    redis.call('ZREM', KEYS[4], id)
    redis.call('ZREM', KEYS[5], id)
    removed = removed + 1
    if stored[1] == 'pending' then
      redis.call('HINCRBY', KEYS[6], 'cancelled', 1)
      pending = pending + 1
    end
  end
end
return {removed, pending}
