#!lua
-- enqueue: create the delivery of a notification for one contact only.
--
-- KEYS[1] .. KEYS[8], ARGV[1] .. ARGV[6] as schedule.lua has them
-- KEYS[9] the delivery's hash   KEYS[10] checkpoint hash
--
-- ARGV[7] delivery id   ARGV[8] type of the notification, which is also the field that holds it
-- ARGV[9] the notification, JSON
-- ARGV[10] subject, '' without one   ARGV[11] channel: 'email' or 'webhook'   ARGV[12] contact id
-- ARGV[13] destination
-- ARGV[14], ARGV[15] id and lease token of the delivery that the notification follows from; '' for none
--
-- Returns 'made'     it is pending and due now
--         'stale'    the delivery that it follows from ended, was erased, or another worker leased it: nothing written
--         'exists'   a delivery with this id exists, in any state: nothing written
--         an error   a key of another type, a total that is no number, a command that the user may not run, a key at
--                    another node of the cluster, or a partition that was moved away: nothing written. Refused when
--                    memory is full
--
-- Safe to run twice: the second call finds the delivery.

-- JUDGE

local now = now_ms()
local refusal = moved_away_from(KEYS[10]) or schedule_refusal() or wrong_type(9, 'hash') or refused_total('made') or denied(KEYS[9], 'HSET')
if refusal then return refusal end
local failed
if ARGV[14] ~= '' then
  local held
  held, failed = read('HMGET', ARGV[4] .. ARGV[14], 'state', 'lease_token')
  if failed then return failed end
  if held[1] ~= 'pending' or held[2] ~= ARGV[15] then return 'stale' end
end
if redis.call('EXISTS', KEYS[9]) == 1 then return 'exists' end
local queue
queue, failed = destination_of(ARGV[13])
failed = failed or refused_subject(ARGV[10])
if failed then return failed end

-- WRITE

redis.call('HSET', KEYS[9], 'type', ARGV[8], ARGV[8], ARGV[9], 'subject', ARGV[10], 'channel', ARGV[11], 'contact_id', ARGV[12],
  'destination', ARGV[13], 'state', 'pending', 'attempts', '0', 'created_at_ms', whole(now))
redis.call('ZADD', KEYS[3], whole(now), ARGV[7])
redis.call('ZADD', KEYS[5], whole(now), ARGV[7])
note_pending(ARGV[10], ARGV[7])
redis.call('HINCRBY', KEYS[7], 'made', 1)
enqueue_due(queue, ARGV[7], now)
place_all(now)
return 'made'
