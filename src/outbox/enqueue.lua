#!lua
-- enqueue: make the delivery of a notification that is for one contact only.
--
-- KEYS[1] due zset   KEYS[2] pending zset   KEYS[3] deliveries zset   KEYS[4] totals hash   KEYS[5] the delivery's hash
--
-- ARGV[1] delivery id   ARGV[2] type of the notification, which is also the field that holds it   ARGV[3] the notification, JSON
-- ARGV[4] subject       ARGV[5] channel   ARGV[6] contact id
--
-- Returns {'made', now ms}     it is pending and due now
--         {'exists', now ms}   a delivery of this id is there, in whichever state: nothing written
--         an error             a key of another type, a total that is no number or a command that the user may not run: nothing
--                              written. Refused whole when memory is full
--
-- Safe to run twice: the second call finds the delivery.

-- JUDGE

local now = now_ms()
for i = 1, 5 do
  local failed = wrong_type(i, i >= 4 and 'hash' or 'zset')
  if failed then return failed end
end
local failed = wrong_total(KEYS[4], 'made')
if failed then return failed end
local refusal = denied(KEYS[5], 'HSET') or denied(KEYS[1], 'ZADD') or denied(KEYS[2], 'ZADD') or denied(KEYS[3], 'ZADD')
  or denied(KEYS[4], 'HINCRBY')
if refusal then return refusal end
if redis.call('EXISTS', KEYS[5]) == 1 then return {'exists', whole(now)} end

-- WRITE

redis.call('HSET', KEYS[5], 'type', ARGV[2], ARGV[2], ARGV[3], 'subject', ARGV[4], 'channel', ARGV[5], 'contact_id', ARGV[6],
  'state', 'pending', 'attempts', '0', 'created_at_ms', whole(now))
redis.call('ZADD', KEYS[1], whole(now), ARGV[1])
redis.call('ZADD', KEYS[2], whole(now), ARGV[1])
redis.call('ZADD', KEYS[3], whole(now), ARGV[1])
redis.call('HINCRBY', KEYS[4], 'made', 1)
return {'made', whole(now)}
