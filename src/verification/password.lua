#!lua
-- password: issue the one-time password of a contact in the place of the one before, or consume it, once.
--
-- KEYS[1] password, hash    ARGV[1] 'issue' | 'consume'
--                           ARGV[2] the password's nonce, unique to it
--                           ARGV[3] issue: how long it lives, ms, 1..        consume: the claim, unique to who consumes
--                           ARGV[4] issue: digest of the password   ARGV[5] issue: what it verifies
--
-- Returns 'issued'     with its time to live from the first write
--         'consumed'   this claim has it
--         'gone'       another password was issued since, it ran out, or another claim has it: nothing written
--         an error     a key of another type: nothing written
--
-- Safe to run twice: the same password is issued again as it was, a claim consumes what it has consumed.

local stored = redis.call('HMGET', KEYS[1], 'nonce', 'claim')
local nonce, claim = stored[1], stored[2]

if ARGV[1] == 'issue' then
  if nonce ~= ARGV[2] then
    redis.call('UNLINK', KEYS[1])
    redis.call('HSET', KEYS[1], 'nonce', ARGV[2], 'digest', ARGV[4], 'endpoint', ARGV[5])
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
  return 'issued'
end

if nonce ~= ARGV[2] or (claim and claim ~= ARGV[3]) then return 'gone' end
redis.call('HSET', KEYS[1], 'claim', ARGV[3])
return 'consumed'
