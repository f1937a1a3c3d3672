#!lua flags=allow-oom
-- dry_run: prepare the dry run of a commit: the one entry that it claims to have read, and a time to live on the keys
-- to which a commit gives none, so that nothing lasts where the daemon dies before it has deleted them.
--
-- KEYS[1] stream of the dry run   KEYS[2] its outbox stream   KEYS[3] its refused stream   KEYS[4] its checkpoint hash
-- KEYS[5] its totals hash
--
-- ARGV[1] time to live, s
--
-- Returns {id of the entry, server time ms}
--         an error                a key of another type, or a command that the user may not run. What was written
--                                 before goes by itself, or is one empty stream entry under a name that nobody else
--                                 uses
--
-- Runs when memory is full too: a daemon that started only on a server with room would never free what the stream
-- holds. Safe to run twice: the second entry is as good as the first.

local id = redis.call('XADD', KEYS[1], '*', 'subject', 'probe')
redis.call('EXPIRE', KEYS[1], ARGV[1])
for i = 2, 5 do
  if i <= 3 then redis.call('XADD', KEYS[i], '*', 'probe', '') else redis.call('HSET', KEYS[i], 'probe', '') end
  redis.call('EXPIRE', KEYS[i], ARGV[1])
end
local clock = redis.call('TIME')
return {id, string.format('%.0f', tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000))}
