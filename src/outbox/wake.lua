#!lua flags=allow-oom
-- wake: make deliveries that wait for a contact due now, because one may have appeared.
--
-- KEYS[1] .. KEYS[9], ARGV[1] .. ARGV[7] as schedule.lua has them
--
-- ARGV[8] least and ARGV[9] greatest member of the waiting index to look at, as ZRANGEBYLEX takes them
-- ARGV[10] most members to look at, 1..500   ARGV[11] the destination of deliveries without contact
--
-- Returns {woken, last member looked at (nil: no more are left)}
--         an error   a key of another type, a command that the user may not run, or a key at another node of the
--                    cluster, to which the slot moves: nothing written
--
-- A lease on such a delivery is taken away: its holder looked for contacts before this change.
-- Also runs when memory is full: it only changes scores, and a daemon that starts on a full server must complete it
-- before it can free memory. Safe to run twice: a due delivery stays due.

-- JUDGE

local now = now_ms()
local refusal = schedule_refusal()
if refusal then return refusal end
local queue, failed = destination_of(ARGV[11])
if failed then return failed end
local members = redis.call('ZRANGEBYLEX', KEYS[4], ARGV[8], ARGV[9], 'LIMIT', 0, ARGV[10])
for i, member in ipairs(members) do
  local id = string.match(member, '[^%z]*$')
  members[i] = {text = member, id = id, due = redis.call('ZSCORE', queue.due, id)}
  local held = redis.pcall('HMGET', ARGV[4] .. id, 'lease_token')
  if was_refused(held) then return held end
end

-- WRITE

local woken, last = 0, false
for _, member in ipairs(members) do
  last = member.text
  if member.due then
    enqueue_due(queue, member.id, math.min(now, tonumber(member.due)))
    -- If the hash has another type, the next lease reports it. Here it must not stop the others.
    redis.pcall('HDEL', ARGV[4] .. member.id, 'lease_token')
    woken = woken + 1
  else
    -- The delivery left the schedule without its hash being readable: nothing waits here any more.
    redis.call('ZREM', KEYS[4], member.text)
  end
end
place_all(now)
return {woken, #members == tonumber(ARGV[10]) and last}
