#!lua
-- one_time_token: create a token with its metadata and its end, or consume it, once.
--
-- KEYS[1] token, hash    ARGV[1] 'create' | 'consume'
--                        ARGV[2] create: how long it lives, ms, 1..       consume: the claim, unique to who consumes
--                        ARGV[3] create: metadata, at most 4096 bytes
--
-- Returns {'created'}              with its time to live from the first write
--         {'exists'}               another one, or this one with other metadata, or consumed already: nothing written
--         {'consumed', metadata}   this claim has it
--         {'gone'}                 never created, past its end, or another claim has it: nothing written
--         an error                 a key of another type, or a command that the user may not run: nothing written
--
-- Safe to run twice: what a claim has consumed it is given again, until the token's end; creating the same again is no
-- second token.

local token = redis.call('HMGET', KEYS[1], 'metadata', 'claim')
local metadata, claim = token[1], token[2]

if ARGV[1] == 'create' then
  if not metadata then
    -- Without its end the token would stay for ever, so both or neither.
    if not redis.acl_check_cmd('PEXPIRE', KEYS[1]) then
      return redis.error_reply('NOPERM this user may not run PEXPIRE on ' .. KEYS[1])
    end
    redis.call('HSET', KEYS[1], 'metadata', ARGV[3])
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return {'created'}
  end
  return {metadata == ARGV[3] and not claim and 'created' or 'exists'}
end

if not metadata or (claim and claim ~= ARGV[2]) then return {'gone'} end
if not claim then redis.call('HSET', KEYS[1], 'claim', ARGV[2]) end
return {'consumed', metadata}
