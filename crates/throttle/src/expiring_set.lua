#!lua
-- expiring_set: add a member with its own TTL, if fewer members than the maximum are alive.
--
-- KEYS[1] members, scored by their expiry, ms, zset   ARGV[1] maximum number of members alive, 0..100000
--                                                     ARGV[2] TTL of the member, ms, 1..
--                                                     ARGV[3] member; '' only asks
--
-- Returns {added, alive, retry}  added: 1 or 0, always 0 for a call that only asks; alive: number of members alive,
--                                with this one; retry: ms until there is room for the member, 0 if it was added or
--                                there is room now
--         an error               the key has another type, or the user may not run a command: nothing added
--
-- Safe to run twice: a member that is alive keeps its expiry, and the reply is 1. Times are milliseconds of the
-- server's clock.

local key, most, stay = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now))
local alive = redis.call('ZCARD', key)
local added = redis.call('ZSCORE', key, ARGV[3]) and 1 or 0
if ARGV[3] == '' and alive < most then return {0, alive, 0} end
if added == 0 and alive < most then
  -- Without an expiry the key would stay forever: check first, so that both commands run or neither.
  if not redis.acl_check_cmd('PEXPIREAT', key) then return redis.error_reply('NOPERM this user may not run PEXPIREAT on ' .. key) end
  redis.call('ZADD', key, string.format('%.0f', now + stay), ARGV[3])
  -- The key expires with its last member.
  local last = redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
  redis.call('PEXPIREAT', key, string.format('%.0f', tonumber(last[2])))
  added, alive = 1, alive + 1
end
if added == 1 then return {1, alive, 0} end
-- If the maximum was lowered, several members must expire before there is room. With a maximum of 0 no wait helps.
local enough = redis.call('ZRANGE', key, alive - most, alive - most, 'WITHSCORES')
return {0, alive, enough[2] and tonumber(enough[2]) - now or stay}
