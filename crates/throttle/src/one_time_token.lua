#!lua
-- one_time_token: create a token with metadata and a TTL, or consume it once.
--
-- KEYS[1] token, hash    ARGV[1] 'create' | 'consume'
--                        ARGV[2] create: TTL, ms, 1..                     consume: claim, unique to the consumer
--                        ARGV[3] create: metadata, at most 4096 bytes
--
-- Returns {'created'}              the token exists with this metadata and is not consumed
--         {'exists'}               the key has a token with other metadata, or a consumed one: nothing written
--         {'consumed', metadata}   this claim has consumed it
--         {'gone'}                 never created, expired, or consumed by another claim: nothing written
--         an error                 the key has another type, or the user may not run a command: nothing written
--
-- Safe to run twice: a repeated 'create' keeps the TTL, and a repeated 'consume' with the same claim returns the
-- metadata again until the token expires.

local token = redis.call('HMGET', KEYS[1], 'metadata', 'claim')
local metadata, claim = token[1], token[2]

if ARGV[1] == 'create' then
  if not metadata then
    -- Without an expiry the token would stay forever: check first, so that both commands run or neither.
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
