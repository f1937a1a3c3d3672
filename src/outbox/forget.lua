#!lua flags=allow-oom
-- forget: remove deliveries of a subject in any state.
--
-- KEYS[1] .. KEYS[9], ARGV[1] .. ARGV[7] as schedule.lua has them
--
-- ARGV[8] subject   ARGV[9 ..] ids of the deliveries, 1..500
--
-- Returns {removed, of these pending}
--         an error   a key of another type, a total that is no number, a command that the user may not run, or a key at
--                    another node of the cluster: nothing written
--
-- A pending delivery counts as cancelled in the totals. A running attempt finds its lease gone and records nothing.
-- Also runs when memory is full, because it frees memory. Safe to run twice: the second call finds nothing.

-- JUDGE

local now = now_ms()
local refusal = schedule_refusal() or refused_total('cancelled') or denied(ARGV[4] .. 'x', 'UNLINK')
if refusal then return refusal end

local failed = refused_subject(ARGV[8])
if failed then return failed end
local found = {}
for at = 9, #ARGV do
  local key = ARGV[4] .. ARGV[at]
  local stored
  stored, failed = read('HMGET', key, 'state', 'subject', 'destination', 'group', 'sent_in')
  if failed then return failed end
  if stored[2] == ARGV[8] then
    local queue
    queue, failed = destination_of(stored[3] or 'none')
    if failed then return failed end
    found[ARGV[at]] = {key = key, state = stored[1], queue = queue, listed = stored[5] or stored[4]}
  end
end

-- WRITE

for at = 9, #ARGV do redis.call('ZREM', ARGV[6] .. ARGV[8], ARGV[at]) end
local removed, pending = 0, 0
for id, one in pairs(found) do
  redis.call('UNLINK', one.key)
  dequeue(one.queue, id)
  redis.call('ZREM', KEYS[3], id)
  redis.call('ZREM', KEYS[4], ARGV[8] .. '\0' .. id)
  redis.call('ZREM', KEYS[5], id)
  redis.call('ZREM', KEYS[6], id)
  if one.listed then redis.call('ZREM', KEYS[9], grouped(one.listed, id)) end
  removed = removed + 1
  if one.state == 'pending' then
    redis.call('HINCRBY', KEYS[7], 'cancelled', 1)
    pending = pending + 1
  end
end
place_all(now)
return {removed, pending}
