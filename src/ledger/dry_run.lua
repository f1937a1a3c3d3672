#!lua flags=allow-oom
-- dry_run: prepare the dry run of a commit: the one entry that it claims to have read, and a TTL on the keys that get
-- none from a commit, so that nothing stays if the daemon dies before it deletes them.
--
-- KEYS[1] stream of the dry run   KEYS[2] its outbox stream   KEYS[3] its refused stream   KEYS[4] its checkpoint hash
-- KEYS[5] its totals hash
--
-- ARGV[1] TTL, s
--
-- Returns {id of the entry, server time ms}
--         an error                a key of another type, or a command that the user may not run. Earlier writes
--                                 expire, or are one empty stream entry under a name that nobody else uses
--
-- Also runs when memory is full: a daemon that could start only with free memory would never free the memory of the
-- stream. Safe to run twice: the second entry replaces the first.

local id = redis.call('XADD', KEYS[1], '*', 'subject', 'probe')
redis.call('EXPIRE', KEYS[1], ARGV[1])
for i = 2, 5 do
  if i <= 3 then redis.call('XADD', KEYS[i], '*', 'probe', '') else redis.call('HSET', KEYS[i], 'probe', '') end
  redis.call('EXPIRE', KEYS[i], ARGV[1])
end
local clock = redis.call('TIME')
return {id, string.format('%.0f', tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000))}
