#!lua flags=allow-oom
-- membership: report that a daemon is alive and list the live ones, or leave the list.
--
-- KEYS[1] daemons, zset: `<daemon> <stream> <plans>` by the server time of its last heartbeat, ms
--
-- ARGV[1] 'alive' | 'leave'
-- ARGV[2] the daemon's member
-- ARGV[3] alive: how long a daemon counts as live after its heartbeat, ms, 1..
-- ARGV[4] alive: a prefix of daemons that can't live any more; '' for none
--
-- Returns {member, ...}   alive: every live daemon, of every stream of this Redis, the caller among them
--         {}              leave: the caller is not in the list
--         an error        a key of another type, or a command that the user may not run: nothing written
--
-- Also runs when memory is full, like the lease: the daemon that reads a partition frees memory. The list is short.
-- Safe to run twice.

local bad = wrong_type(1, 'zset') or denied(KEYS[1], 'ZADD', 'ZREM', 'ZREMRANGEBYSCORE', 'PEXPIRE', 'ZRANGE')
if bad then return bad end

if ARGV[1] == 'leave' then
  redis.call('ZREM', KEYS[1], ARGV[2])
  return {}
end

local now = now_ms()
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(now - tonumber(ARGV[3])))
-- After a failover, the new server's clock may be behind: without this, a dead daemon would count as live until that
-- clock has caught up.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. whole(now), '+inf')
if ARGV[4] ~= '' then
  for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    if string.sub(member, 1, #ARGV[4]) == ARGV[4] then redis.call('ZREM', KEYS[1], member) end
  end
end
redis.call('ZADD', KEYS[1], whole(now), ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return redis.call('ZRANGE', KEYS[1], 0, -1)
