#!lua
-- portal_gate: end the tokens of a subject that were made until now.
--
-- KEYS[1] revocation of the subject: a time, ms
--
-- ARGV[1] how long it is kept, s
--
-- Returns 'revoked'
--         an error   a key of another type, or a command that the user may not run: nothing written. Refused whole when
--                    memory is full
--
-- Safe to run twice: the second call revokes again. The stored time never goes back, because tokens are made after it
-- although a clock was set back.

local refusal = wrong_type(1, 'string') or denied(KEYS[1], 'SET')
if refusal then return refusal end
local stored = tonumber(redis.call('GET', KEYS[1]) or 0) or 0
redis.call('SET', KEYS[1], whole(math.max(now_ms(), stored + 1)), 'EX', ARGV[1])
return 'revoked'
