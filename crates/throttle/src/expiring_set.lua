#!lua
-- expiring_set: add a member that leaves by itself, where fewer than the most are alive.
--
-- KEYS[1] members by when they leave, ms, zset   ARGV[1] the most members alive, 1..100000
--                                                ARGV[2] how long the member stays, ms, 1..
--                                                ARGV[3] member; '' to ask only
--
-- Returns {added, alive, retry}  added: 1 or 0; alive: members alive, this one included; retry: ms until a member that
--                                was not added would be, else 0. Asked only: added is 0, and retry 0 where there is
--                                room
--         an error               a key of another type, or a command that the user may not run: nothing added
--
-- A member that is alive already is not added again and keeps its time: that answers 1, so a call that is sent again
-- does no harm. By server time.

local key, most, stay = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now))
local alive = redis.call('ZCARD', key)
local added = redis.call('ZSCORE', key, ARGV[3]) and 1 or 0
if ARGV[3] == '' and alive < most then return {0, alive, 0} end
if added == 0 and alive < most then
  -- Without its end a member would stay for ever, so both or neither.
  if not redis.acl_check_cmd('PEXPIREAT', key) then return redis.error_reply('NOPERM this user may not run PEXPIREAT on ' .. key) end
  redis.call('ZADD', key, string.format('%.0f', now + stay), ARGV[3])
  -- As long as the member that stays longest.
  local last = redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
  redis.call('PEXPIREAT', key, string.format('%.0f', tonumber(last[2])))
  added, alive = 1, alive + 1
end
if added == 1 then return {1, alive, 0} end
-- After the maximum was lowered more members than that are alive, and several have to leave. With a maximum of 0 no
-- wait helps.
local enough = redis.call('ZRANGE', key, alive - most, alive - most, 'WITHSCORES')
return {0, alive, enough[2] and tonumber(enough[2]) - now or stay}
