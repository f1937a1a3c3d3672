#!lua flags=allow-oom
-- wake: make deliveries that wait for a contact due now, because one may have appeared.
--
-- KEYS[1] waiting zset   KEYS[2] due zset
-- (the hashes of the deliveries are known only here; they lie in the same slot)
--
-- ARGV[1] least and ARGV[2] greatest member to look at, as ZRANGEBYLEX takes them   ARGV[3] most members to look at, 1..4000
-- ARGV[4] prefix of a delivery's key
--
-- Returns {woken, last member looked at (nil: none was left)}
--         an error   a key of another type, a command that the user may not run, or a delivery's hash at another node of the cluster, to
--                    which the slot moves: nothing written
--
-- A lease on such a delivery is taken away: its holder looked for contacts before this change.
-- Runs when memory is full too: it only changes scores, and a start on a full server has to get past it to what frees memory.
-- Safe to run twice: what is due stays due.

-- JUDGE

for i = 1, 2 do
  local failed = wrong_type(i, 'zset')
  if failed then return failed end
end
local refusal = denied(KEYS[1], 'ZREM') or denied(KEYS[2], 'ZADD')
if refusal then return refusal end
local now = whole(now_ms())
local members = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
for i, member in ipairs(members) do
  local id = string.match(member, '[^%z]*$')
  members[i] = {text = member, id = id, scheduled = redis.call('ZSCORE', KEYS[2], id)}
  local held = redis.pcall('HMGET', ARGV[4] .. id, 'lease_token')
  if was_refused(held) then return held end
end

-- WRITE

local woken, last = 0, false
for _, member in ipairs(members) do
  last = member.text
  if member.scheduled then
    redis.call('ZADD', KEYS[2], 'XX', 'LT', now, member.id)
    -- A hash of another type is the lease's to report; here it must not stop the others.
    redis.pcall('HDEL', ARGV[4] .. member.id, 'lease_token')
    woken = woken + 1
  else
    -- The delivery left the schedule without its hash being readable: nothing waits here any more.
    redis.call('ZREM', KEYS[1], member.text)
  end
end
return {woken, last}
