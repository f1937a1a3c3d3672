#!lua flags=no-writes
-- counting_backlog: how far the counting of a partition is, all of one moment.
--
-- A script and no XRANGE of the daemon's, because the oldest entry may be as large as producers like: its id alone is
-- answered.
--
-- KEYS[1] usage stream   KEYS[2] checkpoint hash
--
-- Returns {now ms, checkpoint, oldest}  checkpoint: id of the last entry that is counted, or '0-0'; oldest: id of the
--                                       first one that is not, or nil
--         an error                      a key of another type
--
-- Writes nothing.

local checkpoint = redis.call('HGET', KEYS[2], 'id') or '0-0'
local oldest = redis.call('XRANGE', KEYS[1], '(' .. checkpoint, '+', 'COUNT', 1)[1]
return {whole(now_ms()), checkpoint, oldest and oldest[1] or false}
