#!lua
-- enqueue: create the delivery of a notification for one contact only.
--
-- KEYS[1] .. KEYS[9], ARGV[1] .. ARGV[7] as schedule.lua has them
-- KEYS[10] the delivery's hash   KEYS[11] checkpoint hash
--
-- ARGV[8] delivery id   ARGV[9] type of the notification, which is also the field that holds it
-- ARGV[10] the notification, JSON
-- ARGV[11] subject, '' without one   ARGV[12] channel: 'email' or 'webhook'   ARGV[13] contact id
-- ARGV[14] destination
-- ARGV[15], ARGV[16] id and lease token of the delivery that the notification follows from; '' for none
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
local refusal = moved_away_from(KEYS[11]) or schedule_refusal() or wrong_type(10, 'hash') or refused_total('made') or denied(KEYS[10], 'HSET')
if refusal then return refusal end
local failed
if ARGV[15] ~= '' then
  local held
  held, failed = read('HMGET', ARGV[4] .. ARGV[15], 'state', 'lease_token')
  if failed then return failed end
  if held[1] ~= 'pending' or held[2] ~= ARGV[16] then return 'stale' end
end
if redis.call('EXISTS', KEYS[10]) == 1 then return 'exists' end
local queue
queue, failed = destination_of(ARGV[14])
failed = failed or refused_subject(ARGV[11])
if failed then return failed end

-- WRITE

redis.call('HSET', KEYS[10], 'type', ARGV[9], ARGV[9], ARGV[10], 'subject', ARGV[11], 'channel', ARGV[12], 'contact_id', ARGV[13],
  'destination', ARGV[14], 'state', 'pending', 'attempts', '0', 'created_at_ms', whole(now))
redis.call('ZADD', KEYS[3], whole(now), ARGV[8])
redis.call('ZADD', KEYS[5], whole(now), ARGV[8])
note_pending(ARGV[11], ARGV[8])
redis.call('HINCRBY', KEYS[7], 'made', 1)
enqueue_due(queue, ARGV[8], now)
place_all(now)
return 'made'
