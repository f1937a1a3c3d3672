#!lua
-- enqueue: make the delivery of a notification that is for one contact only.
--
-- KEYS[1] .. KEYS[8], ARGV[1] .. ARGV[5] as schedule.lua has them
-- KEYS[9] the delivery's hash
--
-- ARGV[6] delivery id   ARGV[7] type of the notification, which is also the field that holds it
-- ARGV[8] the notification, JSON
-- ARGV[9] subject       ARGV[10] channel   ARGV[11] contact id   ARGV[12] destination
--
-- Returns 'made'     it is pending and due now
--         'exists'   a delivery of this id is there, in whichever state: nothing written
--         an error   a key of another type, a total that is no number, a command that the user may not run, or a key at
--                    another node of the cluster: nothing written. Refused whole when memory is full
--
-- Safe to run twice: the second call finds the delivery.

-- JUDGE

local now = now_ms()
local refusal = schedule_refusal() or wrong_type(9, 'hash') or refused_total('made') or denied(KEYS[9], 'HSET')
if refusal then return refusal end
if redis.call('EXISTS', KEYS[9]) == 1 then return 'exists' end
local queue, failed = destination_of(ARGV[12])
if failed then return failed end

-- WRITE

redis.call('HSET', KEYS[9], 'type', ARGV[7], ARGV[7], ARGV[8], 'subject', ARGV[9], 'channel', ARGV[10], 'contact_id', ARGV[11],
  'destination', ARGV[12], 'state', 'pending', 'attempts', '0', 'created_at_ms', whole(now))
redis.call('ZADD', KEYS[3], whole(now), ARGV[6])
redis.call('ZADD', KEYS[5], whole(now), ARGV[6])
redis.call('HINCRBY', KEYS[7], 'made', 1)
enqueue_due(queue, ARGV[6], now)
place_all(now)
return 'made'
