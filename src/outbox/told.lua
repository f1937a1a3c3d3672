#!lua
-- told: store what a delivery tells, before its first attempt.
--
-- KEYS[1] the delivery, a hash
--
-- ARGV[1] token of its lease   ARGV[2] type of its notification   ARGV[3] the notification as JSON, from now on
--
-- Returns 'stored'
--         'stale'     the lease is lost, or the delivery is gone: nothing written
--         an error    a key of another type, or a command that the user may not run: nothing written. Refused whole
--                     when memory is full
--
-- Safe to run twice.

local failed = wrong_type(1, 'hash') or denied(KEYS[1], 'HSET')
if failed then return failed end
local held = redis.call('HMGET', KEYS[1], 'state', 'lease_token')
if held[1] ~= 'pending' or held[2] ~= ARGV[1] then return 'stale' end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3], 'told', '1')
return 'stored'
